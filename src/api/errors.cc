#include "api/errors.h"

#include <boost/json.hpp>
#include <cerrno>

#include "base/ids.h"
#include "base/log.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

// Faults whose text describes our inside. The others were worded for the caller by whoever made them.
bool Hidden(Code code) {
  return code == Code::kInternal || code == Code::kIo || code == Code::kProtocol;
}

// The kind of a file error, for programs: the message is for people.
std::string_view ReasonOf(const Error& error) {
  if (error.code != Code::kFileError) return {};
  switch (error.sys_errno) {
    case ENOENT:
      return "not_found";
    case EACCES:
      return "permission_denied";
    case EEXIST:
      return "exists";
    case ENOTDIR:
      return "not_a_directory";
    case EISDIR:
      return "is_a_directory";
    case ENOTEMPTY:
      return "not_empty";
    case ENXIO:
      return "not_a_regular_file";
    case ENOSPC:
      return "no_space";
    case EFBIG:
      return "too_large";
    case EINVAL:
      return "invalid";
    default:
      return {};
  }
}

}  // namespace

// A switch without a default: a code that is added to base/result.h and not here does not compile.
std::optional<ErrorAnswer> FindAnswer(Code code) {
  switch (code) {
    case Code::kBadRequest:
      return ErrorAnswer{400, "bad_request"};
    case Code::kTimeoutInvalid:
      return ErrorAnswer{400, "sandbox_timeout_invalid"};
    case Code::kExecutableNotFound:
      return ErrorAnswer{400, "executable_not_found"};
    case Code::kFileError:
      return ErrorAnswer{400, "file_error"};
    case Code::kSnapshotMissing:
      return ErrorAnswer{400, "snapshot_not_found"};
    case Code::kDriveEmpty:
      return ErrorAnswer{400, "drive_not_initialized"};
    case Code::kNameTaken:
      return ErrorAnswer{400, "bad_request"};
    case Code::kUnauthenticated:
      return ErrorAnswer{401, "unauthorized"};
    case Code::kQuota:
      return ErrorAnswer{402, "quota_exceeded"};
    case Code::kForbidden:
      return ErrorAnswer{403, "forbidden"};
    case Code::kNotFound:
      return ErrorAnswer{404, "not_found"};
    case Code::kMethodNotAllowed:
      return ErrorAnswer{405, "method_not_allowed"};
    case Code::kConflict:
      return ErrorAnswer{409, "conflict"};
    case Code::kStopped:
      return ErrorAnswer{410, "sandbox_stopped"};
    case Code::kSnapshotGone:
      return ErrorAnswer{410, "snapshot_not_found"};
    case Code::kTooLarge:
      return ErrorAnswer{413, "payload_too_large"};
    case Code::kMisdirected:
      return ErrorAnswer{403, "misdirected_request"};
    case Code::kStopping:
      return ErrorAnswer{422, "sandbox_stopping"};
    case Code::kSnapshotting:
      return ErrorAnswer{422, "sandbox_snapshotting"};
    case Code::kUnsupported:
      return ErrorAnswer{422, "unsupported"};
    case Code::kTooMany:
      return ErrorAnswer{429, "too_many_requests"};
    case Code::kInternal:
      return ErrorAnswer{500, "internal_error"};
    case Code::kIo:
      return ErrorAnswer{500, "internal_error"};
    case Code::kProtocol:
      return ErrorAnswer{502, "bad_gateway"};
    case Code::kUnavailable:
      return ErrorAnswer{503, "service_unavailable"};
    case Code::kClosed:
      return ErrorAnswer{503, "service_unavailable"};
    case Code::kCancelled:
      return ErrorAnswer{503, "service_unavailable"};
    case Code::kTimeout:
      return ErrorAnswer{504, "timeout"};
    case Code::kNoSpace:
      return ErrorAnswer{507, "insufficient_storage"};
  }
  return std::nullopt;
}

ErrorAnswer AnswerFor(Code code) {
  if (const auto answer = FindAnswer(code)) return *answer;
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

std::string ErrorBody(std::string_view code, std::string_view message, std::string_view reason) {
  json::object error{{"code", code}, {"message", message}};
  if (!reason.empty()) error["reason"] = reason;
  // The second message is for clients of other protocols, which look for it there; the protocol's own pass over it.
  json::object body{{"error", std::move(error)}, {"message", message}};
  return wire::ToAsciiJson(body);
}

std::vector<http::Header> SecurityHeaders() {
  return {{"X-Content-Type-Options", "nosniff"},
          {"Cache-Control", "no-store"},
          {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox"}};
}

http::HttpResponse ErrorResponse(const Error& error) {
  ErrorAnswer answer = AnswerFor(error.code);
  http::HttpResponse response;
  response.status = answer.status;
  response.body = ErrorBody(answer.code, PublicMessage(error), ReasonOf(error));
  response.headers = SecurityHeaders();
  if (answer.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer realm=\"sandbar\""});
  return response;
}

}  // namespace sandbar::api
