#include "client/api_client.h"

#include <boost/json/parse.hpp>

#include "base/printable.h"
#include "http/upgrade.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::client {
namespace {

constexpr size_t kMaxAnswer = 64 << 20;
constexpr size_t kMaxLine = 16 << 20;

Code CodeOf(int status, std::string_view name) {
  if (name == "executable_not_found") return Code::kExecutableNotFound;
  switch (status) {
    case 400:
      return Code::kBadRequest;
    case 401:
      return Code::kUnauthenticated;
    case 402:
      return Code::kQuota;
    case 403:
      return Code::kForbidden;
    case 404:
      return Code::kNotFound;
    case 409:
      return Code::kConflict;
    case 410:
      return Code::kStopped;
    case 413:
      return Code::kTooLarge;
    case 422:
      return Code::kUnsupported;
    case 429:
      return Code::kTooMany;
    case 507:
      return Code::kNoSpace;
    default:
      return status >= 500 ? Code::kUnavailable : Code::kInternal;
  }
}

Error FromAnswer(int status, const std::string& body) {
  std::string code, message;
  auto value = wire::ParseJson(body);
  if (value && value->is_object()) {
    const json::object& error = Object(value->as_object(), "error");
    code = Text(error, "code");
    // One line, whatever guests had put into it: below we add lines of our own.
    message = Printable(Text(error, "message"));
  }
  if (message.empty()) message = "the server answered " + std::to_string(status);
  Error error{CodeOf(status, code), message};
  if (status == 401)
    error.message +=
        "\n  fix: export SANDBAR_TOKEN=…   # a key that is in force; an admin makes one: sandbar key create NAME";
  return error;
}

}  // namespace

std::string Text(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

int64_t Number(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return 0;
  if (value->is_int64()) return value->as_int64();
  if (value->is_uint64()) return static_cast<int64_t>(value->as_uint64());
  return 0;
}

const json::object& Object(const json::object& object, std::string_view key) {
  static const json::object kEmpty;
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_object() ? value->as_object() : kEmpty;
}

ApiClient::ApiClient(asio::any_io_executor ex, ServerRef server)
    : server_(std::move(server)), http_(http::MakeHttpClient(std::move(ex))) {}

http::ClientRequest ApiClient::Request(const std::string& method, const std::string& path, std::string body) const {
  http::ClientRequest request;
  request.method = method;
  request.url = server_.url + path;
  request.url += path.find('?') == std::string::npos ? '?' : '&';
  request.url += wire::EncodeQuery({{"teamId", kTeam}, {"projectId", kProject}, {"project", kProject}});
  request.headers = {{"authorization", "Bearer " + server_.token}, {"user-agent", "sandbar-cli"}};
  if (!body.empty()) request.headers.push_back({"content-type", "application/json"});
  request.body = std::move(body);
  return request;
}

Error ApiClient::Explain(Error error) const {
  if (error.code != Code::kUnavailable) return error;
  error.message = "no server answers at " + server_.url + " (" + error.message + ")\n  fix: sudo ./sandbar up";
  return error;
}

Task<std::unique_ptr<http::ClientResponse>> ApiClient::Check(std::unique_ptr<http::ClientResponse> response) {
  int status = response->head().status;
  if (status >= 200 && status < 300) co_return response;
  SB_CO_TRY(std::string body, co_await response->ReadAll(kMaxAnswer));
  co_return std::unexpected(FromAnswer(status, body));
}

Task<std::unique_ptr<http::ClientResponse>> ApiClient::Open(http::ClientRequest request) {
  auto response = co_await http_->Send(std::move(request));
  if (!response) co_return std::unexpected(Explain(std::move(response).error()));
  co_return co_await Check(std::move(*response));
}

Task<std::unique_ptr<http::ClientResponse>> ApiClient::Upload(http::ClientRequest request, http::BodyProducer body) {
  auto response = co_await http_->SendStreaming(std::move(request), std::move(body));
  if (!response) co_return std::unexpected(Explain(std::move(response).error()));
  co_return co_await Check(std::move(*response));
}

Task<std::unique_ptr<http::ByteStream>> ApiClient::Upgrade(http::ClientRequest request, std::string protocol) {
  auto answer = co_await http::DialUpgrade(std::move(request), std::move(protocol));
  if (!answer) co_return std::unexpected(Explain(std::move(answer).error()));
  if (!answer->stream) co_return std::unexpected(FromAnswer(answer->status, answer->body));
  co_return std::move(answer->stream);
}

Task<json::object> ApiClient::Call(std::string method, std::string path, std::optional<json::value> body) {
  std::string text;
  if (body) text = wire::ToAsciiJson(*body);
  http::ClientRequest request = Request(method, path, std::move(text));
  SB_CO_TRY(auto response, co_await Open(std::move(request)));
  SB_CO_TRY(std::string answer, co_await response->ReadAll(kMaxAnswer));
  wire::JsonLimits limits;
  limits.bytes = kMaxAnswer;
  SB_CO_TRY(json::value value, wire::ParseJson(answer, limits));
  if (!value.is_object()) co_return Fail(Code::kProtocol, "the server's answer is no JSON object");
  co_return std::move(value.as_object());
}

Task<bool> ApiClient::Healthy() {
  http::ClientRequest request;
  request.url = server_.url + "/health";
  auto response = co_await http_->Send(std::move(request));
  if (!response) co_return false;
  auto body = co_await (*response)->ReadAll(kMaxAnswer);
  co_return body.has_value() && (*response)->head().status == 200;
}

Task<std::optional<json::object>> NdjsonReader::Next() {
  for (;;) {
    size_t newline = buffer_.find('\n', start_);
    if (newline == std::string::npos && end_ && start_ < buffer_.size()) newline = buffer_.size();
    if (newline != std::string::npos) {
      std::string line = buffer_.substr(start_, newline - start_);
      start_ = newline + 1;
      if (line.empty()) continue;
      wire::JsonLimits limits;
      limits.bytes = kMaxLine;
      SB_CO_TRY(json::value value, wire::ParseJson(line, limits));
      if (!value.is_object()) co_return Fail(Code::kProtocol, "a line of the stream is no JSON object");
      co_return std::move(value.as_object());
    }
    if (end_) co_return std::nullopt;
    buffer_.erase(0, std::min(start_, buffer_.size()));
    start_ = 0;
    if (buffer_.size() > kMaxLine) co_return Fail(Code::kProtocol, "a line of the stream is too long");
    SB_CO_TRY(std::string piece, co_await response_->Read());
    if (piece.empty()) end_ = true;
    buffer_ += piece;
  }
}

}  // namespace sandbar::client
