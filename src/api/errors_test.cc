#include "api/errors.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace sandbar::api {
namespace {

TEST(Errors, ProtocolTable) {
  struct Row {
    Code code;
    int status;
    std::string_view name;
  };
  for (const Row& row : std::initializer_list<Row>{{Code::kBadRequest, 400, "bad_request"},
                                                   {Code::kTimeoutInvalid, 400, "sandbox_timeout_invalid"},
                                                   {Code::kExecutableNotFound, 400, "executable_not_found"},
                                                   {Code::kFileError, 400, "file_error"},
                                                   {Code::kSnapshotMissing, 400, "snapshot_not_found"},
                                                   {Code::kDriveEmpty, 400, "drive_not_initialized"},
                                                   {Code::kForbidden, 403, "forbidden"},
                                                   {Code::kNotFound, 404, "not_found"},
                                                   {Code::kConflict, 409, "conflict"},
                                                   {Code::kStopped, 410, "sandbox_stopped"},
                                                   {Code::kSnapshotGone, 410, "snapshot_not_found"},
                                                   {Code::kStopping, 422, "sandbox_stopping"},
                                                   {Code::kSnapshotting, 422, "sandbox_snapshotting"},
                                                   {Code::kUnsupported, 422, "unsupported"},
                                                   {Code::kQuota, 402, "quota_exceeded"},
                                                   {Code::kNoSpace, 507, "insufficient_storage"}}) {
    EXPECT_EQ(AnswerFor(row.code).status, row.status);
    EXPECT_EQ(AnswerFor(row.code).code, row.name);
  }
}

// Clients retry 5xx, POSTs included: only these may be one.
TEST(Errors, OnlyFaultsAreRetried) {
  int i = 0;
  for (; FindAnswer(static_cast<Code>(i)); ++i) {
    const Code code = static_cast<Code>(i);
    bool fault = code == Code::kUnavailable || code == Code::kTimeout || code == Code::kCancelled ||
                 code == Code::kClosed || code == Code::kProtocol || code == Code::kIo || code == Code::kInternal ||
                 code == Code::kNoSpace;
    EXPECT_EQ(AnswerFor(code).status >= 500, fault) << i;
    EXPECT_GE(AnswerFor(code).status, 400) << i;
  }
  EXPECT_EQ(i, static_cast<int>(kLastCode) + 1) << "kLastCode of base/result.h is the last code that has an answer";
}

TEST(Errors, FaultsDoNotTellTheirText) {
  for (Code code : {Code::kIo, Code::kInternal, Code::kProtocol}) {
    std::string body = ErrorResponse(Error{code, "open /secret/path: denied"}).body;
    EXPECT_FALSE(body.contains("secret")) << body;
    EXPECT_TRUE(body.contains("err_")) << body;
  }
}

TEST(Errors, BodyIsAsciiAndAuthSaysHow) {
  http::HttpResponse response = ErrorResponse(Error{Code::kUnauthenticated, "caf\xc3\xa9"});
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(response.body, R"({"error":{"code":"unauthorized","message":"caf\u00e9"},"message":"caf\u00e9"})");
  bool challenged = false;
  for (const http::Header& h : response.headers) challenged = challenged || h.name == "WWW-Authenticate";
  EXPECT_TRUE(challenged);
}

}  // namespace
}  // namespace sandbar::api
