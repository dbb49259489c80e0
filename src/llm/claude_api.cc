#include "llm/claude_api.h"

#include "base/base64.h"
#include "client/api_client.h"
#include "llm/http_model.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

constexpr size_t kMaxAnswer = 32 << 20;
constexpr auto kAnswerTime = std::chrono::seconds(60);
constexpr int kMaxPages = 100;

std::string WorkPath(const Work& work, const std::string& verb) {
  return "/v1/environments/" + wire::EncodeComponent(work.environment) + "/work/" + wire::EncodeComponent(work.id) +
         "/" + verb;
}

std::string EventsPath(const Work& work) {
  return "/v1/sessions/" + wire::EncodeComponent(work.session) + "/events";
}

Code CodeOf(int status) {
  if (status == 412) return Code::kConflict;
  if (status == 401) return Code::kUnauthenticated;
  if (status == 403) return Code::kForbidden;
  if (status == 404) return Code::kNotFound;
  return MayPass(status) ? Code::kUnavailable : Code::kBadRequest;
}

}  // namespace

std::string TokenOfSecret(std::string_view secret) {
  while (secret.ends_with('=')) secret.remove_suffix(1);
  size_t used = 0;
  const std::string decoded = DecodeBase64Prefix(secret, &used);
  if (used != secret.size()) return {};
  auto parsed = wire::ParseJson(decoded);
  if (!parsed || !parsed->is_object()) return {};
  return Text(parsed->get_object(), "sessions_token");
}

ClaudeApi::ClaudeApi(const asio::any_io_executor& ex, std::string base, std::string key)
    : http_(http::MakeHttpClient(ex)), base_(std::move(base)), key_(std::move(key)) {}

http::ClientRequest ClaudeApi::Request(std::string method, const std::string& path, std::string query) const {
  http::ClientRequest request;
  request.method = std::move(method);
  request.url = base_ + path + (query.empty() ? "" : "?" + query);
  request.headers = {{"anthropic-version", "2023-06-01"}, {"anthropic-beta", "managed-agents-2026-04-01"}};
  return request;
}

Task<std::unique_ptr<http::ClientResponse>> ClaudeApi::Open(http::ClientRequest request, std::string token) {
  const std::string& secret = token.empty() ? key_ : token;
  const std::string what = request.method + " " + request.url.substr(base_.size());
  request.headers.push_back({"authorization", "Bearer " + secret});
  if (!request.body.empty()) request.headers.push_back({"content-type", "application/json"});
  Task<std::unique_ptr<http::ClientResponse>> sending = http_->Send(std::move(request));
  auto response = co_await WithTimeout(std::move(sending), kAnswerTime);
  if (!response && response.error().code == Code::kCancelled) co_return std::unexpected(std::move(response).error());
  if (!response) co_return Fail(Code::kUnavailable, what + ": " + response.error().message);
  const int status = (*response)->head().status;
  if (status >= 200 && status <= 299) co_return std::move(*response);
  Task<std::string> reading = (*response)->ReadAll(64 << 10);
  auto body = co_await WithTimeout(std::move(reading), kAnswerTime);
  // Cut afterwards: half a key is a secret too.
  std::string why = body ? Redact(Redact(*std::move(body), secret), key_).substr(0, 300) : std::string();
  co_return Fail(CodeOf(status), what + ": " + std::to_string(status) + " " + why);
}

Task<json::object> ClaudeApi::Call(http::ClientRequest request, std::string token) {
  SB_CO_TRY(auto response, co_await Open(std::move(request), std::move(token)));
  Task<std::string> reading = response->ReadAll(kMaxAnswer);
  auto text = co_await WithTimeout(std::move(reading), kAnswerTime);
  if (!text && text.error().code == Code::kCancelled) co_return std::unexpected(std::move(text).error());
  if (!text) co_return Fail(Code::kUnavailable, "the answer was cut short: " + text.error().message);
  if (text->empty()) co_return json::object{};
  wire::JsonLimits limits;
  limits.bytes = kMaxAnswer;
  auto value = wire::ParseJson(*text, limits);
  if (value && value->is_null()) co_return json::object{};
  if (!value || !value->is_object()) co_return Fail(Code::kUnavailable, "the answer is no JSON object");
  co_return std::move(value->get_object());
}

Task<std::optional<Work>> ClaudeApi::Poll(std::string environment, std::string worker) {
  http::ClientRequest request =
      Request("GET", "/v1/environments/" + wire::EncodeComponent(environment) + "/work/poll", "block_ms=999");
  request.headers.push_back({"anthropic-worker-id", std::move(worker)});
  std::string no_token;
  SB_CO_TRY(json::object got, co_await Call(std::move(request), std::move(no_token)));
  if (Text(got, "id").empty()) co_return std::nullopt;
  const json::object& data = Object(got, "data");
  Work work{Text(got, "id"), Text(got, "environment_id"), Text(data, "type"), Text(data, "id"),
            TokenOfSecret(Text(got, "secret"))};
  if (work.environment.empty()) work.environment = std::move(environment);
  co_return work;
}

Task<> ClaudeApi::Acknowledge(Work work) {
  http::ClientRequest request = Request("POST", WorkPath(work, "ack"));
  std::string no_token;
  SB_CO_TRYV(co_await Call(std::move(request), std::move(no_token)));
  co_return Result<>{};
}

Task<Beat> ClaudeApi::Heartbeat(Work work, std::string last) {
  http::ClientRequest request =
      Request("POST", WorkPath(work, "heartbeat"), "expected_last_heartbeat=" + wire::EncodeComponent(last));
  SB_CO_TRY(json::object got, co_await Call(std::move(request), std::move(work.token)));
  Beat beat{Text(got, "last_heartbeat"), Number(got, "ttl_seconds") * 1000, false};
  const std::string state = Text(got, "state");
  const json::value* extended = got.if_contains("lease_extended");
  beat.over = state == "stopping" || state == "stopped" || extended == nullptr || *extended != json::value(true);
  co_return beat;
}

Task<> ClaudeApi::Stop(Work work) {
  http::ClientRequest request = Request("POST", WorkPath(work, "stop"));
  request.body = R"({"force":true})";
  SB_CO_TRYV(co_await Call(std::move(request), std::move(work.token)));
  co_return Result<>{};
}

Task<> ClaudeApi::GetSession(Work work) {
  http::ClientRequest request = Request("GET", "/v1/sessions/" + wire::EncodeComponent(work.session));
  SB_CO_TRYV(co_await Call(std::move(request), std::move(work.token)));
  co_return Result<>{};
}

Task<std::vector<json::object>> ClaudeApi::Events(Work work) {
  std::vector<json::object> out;
  std::string page;
  for (int pages = 0; pages < kMaxPages; ++pages) {
    std::string query = "limit=1000" + (page.empty() ? "" : "&page=" + wire::EncodeComponent(page));
    http::ClientRequest request = Request("GET", EventsPath(work), std::move(query));
    std::string token = work.token;
    SB_CO_TRY(json::object got, co_await Call(std::move(request), std::move(token)));
    json::value* data = got.if_contains("data");
    if (data == nullptr || !data->is_array()) co_return Fail(Code::kUnavailable, "the list of events has no data");
    for (json::value& item : data->get_array()) {
      if (item.is_object()) out.push_back(std::move(item.get_object()));
    }
    page = Text(got, "next_page");
    if (page.empty()) co_return out;
  }
  co_return Fail(Code::kBadRequest, "the session has too many events");
}

Task<std::unique_ptr<http::ClientResponse>> ClaudeApi::Stream(Work work) {
  http::ClientRequest request = Request("GET", EventsPath(work) + "/stream");
  request.headers.push_back({"accept", "text/event-stream"});
  co_return co_await Open(std::move(request), std::move(work.token));
}

Task<> ClaudeApi::SendResult(Work work, json::object event) {
  http::ClientRequest request = Request("POST", EventsPath(work));
  json::object body{{"events", json::array{std::move(event)}}};
  request.body = wire::ToAsciiJson(body);
  SB_CO_TRYV(co_await Call(std::move(request), std::move(work.token)));
  co_return Result<>{};
}

}  // namespace sandbar::llm
