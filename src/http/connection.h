// One connection of the HTTP server: reads a request, runs the handler on it (the connection is the handler's
// HttpExchange), drains, repeats. Private to http/. Single loop; lives in the task that runs it.
//
// Deadlines are plain time points that the server's sweeper compares once in a while (Expired), because a timer per
// wait would cost more than answering a small request.
#pragma once

#include <chrono>
#include <ctime>
#include <memory>
#include <string>

#include "http/byte_stream.h"
#include "http/message_reader.h"
#include "http/server.h"

namespace sandbar::http {

// Value of the Date field, made once per second.
class HttpDate {
 public:
  const std::string& Now();

 private:
  time_t at_ = 0;
  std::string text_;
};

// What all connections of a server share; the server owns it and outlives them.
struct HttpServerShared {
  HttpServerOptions options;
  HttpHandler handler;
  std::function<HttpResponse(const Error&)> on_error;
  HttpDate date;
};

// What is known of the client at the other end.
enum class Standing {
  kStranger,  // it has not sent one whole request, or was told goodbye
  kAnswered,
  kKnown,  // it has shown a credential
};

class HttpConnection final : public HttpExchange, private ReadProgress {
 public:
  using Clock = std::chrono::steady_clock;

  HttpConnection(std::unique_ptr<ByteStream> stream, std::string peer, HttpServerShared* shared);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection() override;

  Task<> Run();
  // Fails everything under way and to come; Run() ends soon after. `why` is what the handler gets to see.
  void Cut(Code why);
  bool Expired(Clock::time_point now) const { return read_deadline_ <= now || write_deadline_ <= now; }
  // Not in a handler: cutting it loses no answer.
  bool waiting() const { return waiting_; }
  Clock::time_point waiting_since() const { return waiting_since_; }
  bool cut() const { return cut_.has_value(); }
  Standing standing() const { return standing_; }

  const HttpRequest& request() const override { return request_; }
  std::string peer() const override { return peer_; }
  Task<std::string> ReadBody() override;
  Task<std::string> ReadAll(size_t limit) override;
  Task<> Respond(HttpResponse response) override;
  Task<> StartStream(int status, std::string content_type, std::vector<Header> headers,
                     std::optional<uint64_t> content_length) override;
  Task<> Write(std::string bytes) override;
  Task<> Finish() override;
  bool started() const override { return started_; }
  Task<> WaitClosed() override;
  bool wants_upgrade() const override { return wants_upgrade_; }
  Task<ByteStream*> Upgrade(std::vector<Header> headers) override;
  void LimitStalls(std::chrono::seconds limit) override { stall_limit_ = limit; }
  void Vouch() override { standing_ = Standing::kKnown; }

 private:
  // What a handler gets after Upgrade: the connection's bytes, with our deadline for writes.
  class Upgraded;
  // How the body of the answer under way is framed.
  enum class Framing { kNone, kLength, kChunked, kUntilClose };

  Task<> Serve();
  Task<bool> ReadHead();
  void TakeHead();
  Task<> HandleOne();
  asio::awaitable<Result<>> RunHandler();
  Task<bool> Drain();
  Task<> SendContinue();
  Task<> Send(Pieces pieces);
  Result<> Usable() const;
  Error Explain(Error error) const;
  bool MayKeepAlive() const;
  std::string BeginHead(int status, std::string_view content_type, const std::vector<Header>& headers);
  void OnHeadBegin() override;
  void OnRead() override;
  bool peer_gone() const { return broken_ || reader_.ended(); }

  std::unique_ptr<ByteStream> stream_;
  std::string peer_;
  HttpServerShared* shared_;

  MessageReader reader_;
  bool broken_ = false;        // a read of WaitClosed failed
  bool reading_body_ = false;  // every read puts read_deadline_ off

  HttpRequest request_;
  bool request_keep_alive_ = false;
  bool request_is_http10_ = false;
  bool head_only_ = false;
  bool owes_continue_ = false;
  bool wants_upgrade_ = false;
  std::optional<uint64_t> request_length_;

  bool started_ = false;
  bool finished_ = false;
  Framing framing_ = Framing::kNone;
  uint64_t length_left_ = 0;
  bool keep_alive_ = false;  // what our answer's head promised

  Standing standing_ = Standing::kStranger;
  bool waiting_ = true;
  Clock::time_point waiting_since_ = Clock::now();
  Clock::time_point read_deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();
  std::chrono::seconds stall_limit_{0};  // for writes; 0: none
  std::unique_ptr<ByteStream> upgraded_;
  std::optional<Code> cut_;
};

}  // namespace sandbar::http
