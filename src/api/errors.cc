#include "api/errors.h"

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/log.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

struct Row {
  Code code;
  ErrorAnswer answer;
};

constexpr Row kTable[] = {
    {Code::kBadRequest, {400, "bad_request"}},
    {Code::kTimeoutInvalid, {400, "sandbox_timeout_invalid"}},
    {Code::kExecutableNotFound, {400, "executable_not_found"}},
    {Code::kFileError, {400, "file_error"}},
    {Code::kSnapshotMissing, {400, "snapshot_not_found"}},
    {Code::kDriveEmpty, {400, "drive_not_initialized"}},
    {Code::kNameTaken, {400, "bad_request"}},
    {Code::kUnauthenticated, {401, "unauthorized"}},
    {Code::kQuota, {402, "quota_exceeded"}},
    {Code::kForbidden, {403, "forbidden"}},
    {Code::kNotFound, {404, "not_found"}},
    {Code::kMethodNotAllowed, {405, "method_not_allowed"}},
    {Code::kConflict, {409, "conflict"}},
    {Code::kStopped, {410, "sandbox_stopped"}},
    {Code::kSnapshotGone, {410, "snapshot_not_found"}},
    {Code::kTooLarge, {413, "payload_too_large"}},
    {Code::kMisdirected, {403, "misdirected_request"}},
    {Code::kStopping, {422, "sandbox_stopping"}},
    {Code::kSnapshotting, {422, "sandbox_snapshotting"}},
    {Code::kUnsupported, {422, "unsupported"}},
    {Code::kTooMany, {429, "too_many_requests"}},
    {Code::kInternal, {500, "internal_error"}},
    {Code::kIo, {500, "internal_error"}},
    {Code::kProtocol, {502, "bad_gateway"}},
    {Code::kUnavailable, {503, "service_unavailable"}},
    {Code::kClosed, {503, "service_unavailable"}},
    {Code::kCancelled, {503, "service_unavailable"}},
    {Code::kTimeout, {504, "timeout"}},
    {Code::kNoSpace, {507, "insufficient_storage"}},
};

// Faults whose text describes our inside. The others were worded for the caller by whoever made them.
bool Hidden(Code code) {
  return code == Code::kInternal || code == Code::kIo || code == Code::kProtocol;
}

}  // namespace

ErrorAnswer AnswerFor(Code code) {
  for (const Row& row : kTable) {
    if (row.code == code) return row.answer;
  }
  SB_BUG("an error code has no answer");
  return {500, "internal_error"};
}

std::string PublicMessage(const Error& error) {
  if (!Hidden(error.code)) return error.message;
  std::string reference = NewId("err_", 12);
  log::Error("fault reference={} at={}:{} errno={}: {}", reference, error.where.file_name(), error.where.line(),
             error.sys_errno, error.message);
  return "the server failed to do this; its log has the reason under " + reference;
}

std::string ErrorBody(std::string_view code, std::string_view message) {
  // The second message is for clients of other protocols, which look for it there; the protocol's own pass over it.
  json::object body{{"error", json::object{{"code", code}, {"message", message}}}, {"message", message}};
  return wire::ToAsciiJson(body);
}

std::vector<net::Header> SecurityHeaders() {
  return {{"X-Content-Type-Options", "nosniff"},
          {"Cache-Control", "no-store"},
          {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox"}};
}

net::HttpResponse ErrorResponse(const Error& error) {
  ErrorAnswer answer = AnswerFor(error.code);
  net::HttpResponse response;
  response.status = answer.status;
  response.body = ErrorBody(answer.code, PublicMessage(error));
  response.headers = SecurityHeaders();
  if (answer.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer realm=\"sandbar\""});
  return response;
}

}  // namespace sandbar::api
