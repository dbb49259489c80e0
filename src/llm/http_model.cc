#include "llm/http_model.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <charconv>

#include "base/ids.h"
#include "wire/json_parse.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxReply = 16 << 20;
constexpr size_t kMaxRefusal = 64 << 10;
// A model may think long before its first byte; between two bytes providers send pings.
constexpr auto kFirstByte = std::chrono::minutes(5);
constexpr auto kSilence = std::chrono::minutes(2);

// What one attempt gave. `retry`: it may pass by itself.
struct Attempt {
  Result<Reply> reply;
  bool retry = false;
  std::optional<milliseconds> wait;
};

Attempt Failed(Error error, bool retry, std::optional<milliseconds> wait = std::nullopt) {
  return {std::unexpected(std::move(error)), retry, wait};
}

// A cut, a refused connection, bytes that make no sense: all of them may be the network's fault.
bool IsPassing(Code code) {
  return code == Code::kUnavailable || code == Code::kClosed || code == Code::kTimeout || code == Code::kProtocol;
}

Code CodeOf(int status) {
  if (status == 401) return Code::kUnauthenticated;
  if (status == 403) return Code::kForbidden;
  if (status == 404) return Code::kNotFound;
  return MayPass(status) ? Code::kUnavailable : Code::kInternal;
}

std::string Explanation(const std::string& body) {
  auto value = wire::ParseJson(body);
  const json::object* object = value ? value->if_object() : nullptr;
  const json::value* error = object != nullptr ? object->if_contains("error") : nullptr;
  const json::object* inner = error != nullptr ? error->if_object() : nullptr;
  const json::value* message = inner != nullptr ? inner->if_contains("message") : error;
  if (message != nullptr && message->is_string()) return std::string(message->as_string()).substr(0, 500);
  return body.substr(0, 200);
}

milliseconds BackOff(const RetryPolicy& policy, int attempt) {
  uint16_t random = 0;
  FillRandom(&random, sizeof random);
  const milliseconds full = std::min(policy.first * (1 << std::min(attempt - 1, 10)), policy.longest);
  // Half fixed, half random, so that many clients do not come back together.
  return full / 2 + full * random / 65536 / 2;
}

class HttpModel final : public Model {
 public:
  HttpModel(const asio::any_io_executor& ex, std::unique_ptr<Dialect> dialect, ModelEndpoint endpoint,
            RetryPolicy policy)
      : http_(http::MakeHttpClient(ex)),
        dialect_(std::move(dialect)),
        endpoint_(std::move(endpoint)),
        policy_(policy) {}

  Task<Reply> Next(const Conversation* conversation, Record record) override {
    const std::string body = dialect_->Body(*conversation);
    for (int attempt = 1;; ++attempt) {
      record({{"type", "request"}, {"attempt", attempt}, {"url", endpoint_.url}, {"bytes", body.size()}});
      std::string copy = body;
      Attempt got;
      SB_CO_TRY(got, co_await Once(std::move(copy)));
      if (got.reply) co_return Clean(std::move(*got.reply));
      Error error = std::move(got.reply).error();
      error.message = Redact(std::move(error.message), endpoint_.secret);
      if (!got.retry) co_return std::unexpected(std::move(error));
      const milliseconds wait = got.wait.value_or(BackOff(policy_, attempt));
      if (attempt == policy_.attempts || wait > policy_.longest) {
        std::string why = attempt == policy_.attempts
                              ? std::to_string(attempt) + " attempts failed, the last one: "
                              : "it asks to wait " + std::to_string(wait.count() / 1000) + " s: ";
        co_return Fail(Code::kUnavailable, why + error.message);
      }
      record({{"type", "retry"}, {"attempt", attempt}, {"reason", error.message}, {"waitMs", wait.count()}});
      SB_CO_TRYV(co_await Sleep(wait));
    }
  }

 private:
  // An Error only when the whole call was cancelled.
  Task<Attempt> Once(std::string body) {
    http::ClientRequest request;
    request.method = "POST";
    request.url = endpoint_.url;
    request.headers = endpoint_.headers;
    request.body = std::move(body);
    Task<std::unique_ptr<http::ClientResponse>> sending = http_->Send(std::move(request));
    auto response = co_await WithTimeout(std::move(sending), kFirstByte);
    if (!response && response.error().code == Code::kCancelled) co_return std::unexpected(std::move(response).error());
    if (!response) co_return Failed(std::move(response).error(), true);
    const http::ClientResponseHead& head = (*response)->head();
    if (head.status < 200 || head.status > 299) co_return co_await Refused(response->get());
    const bool stream = head.Get("content-type").starts_with("text/event-stream");
    Task<Reply> reading = stream ? ReadStream(response->get()) : ReadWhole(response->get());
    auto reply = co_await std::move(reading);
    if (!reply && reply.error().code == Code::kCancelled) co_return std::unexpected(std::move(reply).error());
    if (!reply) {
      const bool retry = IsPassing(reply.error().code);
      co_return Failed(std::move(reply).error(), retry);
    }
    Attempt done;
    done.reply = std::move(*reply);
    co_return done;
  }

  Task<Attempt> Refused(http::ClientResponse* response) {
    const int status = response->head().status;
    auto wait = RetryAfter(response->head());
    Task<std::string> reading = response->ReadAll(kMaxRefusal);
    auto body = co_await WithTimeout(std::move(reading), kSilence);
    if (!body && body.error().code == Code::kCancelled) co_return std::unexpected(std::move(body).error());
    Error error{CodeOf(status), "the model's server answered " + std::to_string(status)};
    if (body && !body->empty()) error.message += ": " + Explanation(Redact(*std::move(body), endpoint_.secret));
    co_return Failed(std::move(error), MayPass(status), wait);
  }

  Task<Reply> ReadStream(http::ClientResponse* response) {
    auto reader = dialect_->Reader();
    wire::SseParser sse;
    size_t total = 0;
    while (true) {
      Task<std::string> reading = response->Read();
      SB_CO_TRY(std::string piece, co_await WithTimeout(std::move(reading), kSilence));
      if (piece.empty()) co_return reader->Take();
      total += piece.size();
      if (total > kMaxReply) co_return Fail(Code::kTooLarge, "the model's reply is too large");
      SB_CO_TRY(auto events, sse.Feed(piece));
      for (const wire::SseEvent& event : events) SB_CO_TRYV(reader->Event(event));
    }
  }

  Task<Reply> ReadWhole(http::ClientResponse* response) {
    Task<std::string> reading = response->ReadAll(kMaxReply);
    SB_CO_TRY(std::string text, co_await WithTimeout(std::move(reading), kFirstByte));
    wire::JsonLimits limits;
    limits.bytes = kMaxReply;
    auto value = wire::ParseJson(text, limits);
    if (!value || !value->is_object()) co_return Fail(Code::kProtocol, "the model's answer is no JSON object");
    co_return dialect_->Whole(value->as_object());
  }

  // A server that echoes the key must not bring it into the transcript or the sandbox.
  Reply Clean(Reply reply) const {
    if (endpoint_.secret.empty()) return reply;
    reply.text = Redact(std::move(reply.text), endpoint_.secret);
    for (ToolCall& call : reply.calls) {
      call.id = Redact(std::move(call.id), endpoint_.secret);
      call.name = Redact(std::move(call.name), endpoint_.secret);
      std::string text = json::serialize(call.input);
      if (text.find(endpoint_.secret) == std::string::npos) continue;
      auto value = wire::ParseJson(Redact(std::move(text), endpoint_.secret));
      call.input = value && value->is_object() ? value->as_object() : json::object();
    }
    return reply;
  }

  std::unique_ptr<http::HttpClient> http_;
  std::unique_ptr<Dialect> dialect_;
  ModelEndpoint endpoint_;
  RetryPolicy policy_;
};

Result<std::string> BaseUrl(std::string url, const char* name) {
  while (url.ends_with('/')) url.pop_back();
  auto parsed = wire::ParseUrl(url);
  if (!parsed) return Fail(Code::kBadRequest, std::string(name) + " '" + url + "': " + parsed.error().message);
  return url;
}

}  // namespace

bool MayPass(int status) {
  return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500;
}

std::optional<milliseconds> RetryAfter(const http::ClientResponseHead& head) {
  for (const char* name : {"retry-after-ms", "retry-after"}) {
    const std::string_view text = wire::Trim(head.Get(name));
    double value = 0;
    auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc() || end != text.data() + text.size() || value < 0 || value > 1e9) continue;
    return milliseconds(static_cast<int64_t>(name == std::string_view("retry-after") ? value * 1000 : value));
  }
  return std::nullopt;
}

std::string Redact(std::string text, const std::string& secret) {
  // Very short "keys" (Ollama takes any word) would tear holes into ordinary text.
  if (secret.size() < 8) return text;
  for (size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at))
    text.replace(at, secret.size(), "[key]");
  return text;
}

std::unique_ptr<Model> MakeHttpModel(const asio::any_io_executor& ex, std::unique_ptr<Dialect> dialect,
                                     ModelEndpoint endpoint, RetryPolicy policy) {
  return std::make_unique<HttpModel>(ex, std::move(dialect), std::move(endpoint), policy);
}

Result<std::unique_ptr<Model>> MakeAnthropicModel(const asio::any_io_executor& ex, const std::string& rest,
                                                  const Environment& environment) {
  const std::string key = environment("ANTHROPIC_API_KEY");
  std::string base = environment("ANTHROPIC_BASE_URL");
  if (base.empty() && key.empty())
    return Fail(Code::kBadRequest, "anthropic:" + rest + " needs a key\n  fix: export ANTHROPIC_API_KEY=…");
  if (base.empty()) base = "https://api.anthropic.com";
  SB_TRY(base, BaseUrl(base, "ANTHROPIC_BASE_URL"));
  ModelEndpoint endpoint{base + "/v1/messages", {}, key};
  endpoint.headers = {{"content-type", "application/json"}, {"anthropic-version", "2023-06-01"}};
  if (!key.empty()) endpoint.headers.push_back({"x-api-key", key});
  return MakeHttpModel(ex, MakeAnthropicDialect(rest), std::move(endpoint));
}

Result<std::unique_ptr<Model>> MakeOpenAiModel(const asio::any_io_executor& ex, const std::string& rest,
                                               const Environment& environment) {
  const std::string key = environment("OPENAI_API_KEY");
  std::string base = environment("OPENAI_BASE_URL");
  std::string id = rest;
  // Model names may contain an @ of their own.
  const size_t at = rest.rfind("@http");
  if (at != std::string::npos) {
    id = rest.substr(0, at);
    base = rest.substr(at + 1);
  }
  if (id.empty()) return Fail(Code::kBadRequest, "openai:" + rest + " names no model");
  if (base.empty() && key.empty())
    return Fail(Code::kBadRequest, "openai:" + rest +
                                       " needs a key or a server of its own\n  fix: export OPENAI_API_KEY=…   or   "
                                       "--model openai:" +
                                       id + "@http://127.0.0.1:11434/v1");
  if (base.empty()) base = "https://api.openai.com/v1";
  SB_TRY(base, BaseUrl(base, "the base URL"));
  ModelEndpoint endpoint{base + "/chat/completions", {{"content-type", "application/json"}}, key};
  if (!key.empty()) endpoint.headers.push_back({"authorization", "Bearer " + key});
  return MakeHttpModel(ex, MakeOpenAiDialect(id), std::move(endpoint));
}

}  // namespace sandbar::llm
