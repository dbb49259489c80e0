// Models behind HTTP: what the providers' dialects share (stream, retry, key) and the dialects themselves.
// The key is sent to the provider and nowhere else: it is cut out of every text that comes back. Single loop.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/client.h"
#include "llm/model.h"
#include "wire/sse.h"

namespace sandbar::llm {

// Builds one reply from a provider's events. No I/O.
class ReplyReader {
 public:
  virtual ~ReplyReader() = default;
  // kUnavailable: the provider says that it may work later; kProtocol: not what the provider may say.
  virtual Result<> Event(const wire::SseEvent& event) = 0;
  // Fails with kClosed when the stream ended before the reply did.
  virtual Result<Reply> Take() = 0;
};

class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual std::string Body(const Conversation& conversation) const = 0;
  virtual std::unique_ptr<ReplyReader> Reader() const = 0;
  // An answer that is one JSON object, from servers that do not stream.
  virtual Result<Reply> Whole(const json::object& answer) const = 0;
};

std::unique_ptr<Dialect> MakeAnthropicDialect(std::string model);
std::unique_ptr<Dialect> MakeOpenAiDialect(std::string model);

struct ModelEndpoint {
  std::string url;
  std::vector<http::Header> headers;
  std::string secret;  // empty: none is sent
};

// When and how long to wait before the next attempt.
struct RetryPolicy {
  int attempts = 5;
  std::chrono::milliseconds first{500};
  std::chrono::milliseconds longest{60'000};
};
bool MayPass(int status);
// What a Retry-After (seconds) or retry-after-ms header asks for.
std::optional<std::chrono::milliseconds> RetryAfter(const http::ClientResponseHead& head);

std::unique_ptr<Model> MakeHttpModel(const asio::any_io_executor& ex, std::unique_ptr<Dialect> dialect,
                                     ModelEndpoint endpoint, RetryPolicy policy = {});

// `rest` is what follows "anthropic:" and "openai:". kBadRequest when a key or URL is missing or wrong.
Result<std::unique_ptr<Model>> MakeAnthropicModel(const asio::any_io_executor& ex, const std::string& rest,
                                                  const Environment& environment);
Result<std::unique_ptr<Model>> MakeOpenAiModel(const asio::any_io_executor& ex, const std::string& rest,
                                               const Environment& environment);

// Cuts a secret out of a text.
std::string Redact(std::string text, const std::string& secret);

}  // namespace sandbar::llm
