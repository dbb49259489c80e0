#include "http/websocket.h"

#include <algorithm>
#include <boost/asio/cancellation_state.hpp>
#include <exception>
#include <iterator>
#include <optional>

#include "async/cancelled.h"
#include "base/base64.h"
#include "base/ids.h"
#include "wire/text.h"
#include "wire/websocket_handshake.h"

namespace sandbar::http {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBuffer = 16 << 10;
constexpr size_t kKeepCapacity = 64 << 10;  // of buffers between two bursts
constexpr size_t kLingerBytes = 1 << 20;
constexpr size_t kKeyBytes = 16;

class Connection final : public WebSocket {
 public:
  Connection(const asio::any_io_executor& ex, ByteStream* stream, WebSocketRole role, const WebSocketOptions& options)
      : stream_(stream),
        role_(role),
        options_(options),
        decoder_(role, options.max_message),
        work_(ex),
        changed_(ex),
        next_ping_(ex) {}

  Task<> Run(const WebSocketSession* session) {
    using namespace asio::experimental::awaitable_operators;
    co_await (Talk(session) && SendQueued() && SendPings());
    co_return outcome_;
  }

  Task<WebSocketMessage> Read() override;
  Task<> Write(WebSocketKind kind, std::string bytes) override;
  Task<> Close(uint16_t code, std::string reason) override;

 private:
  // Marks a Read as under way, also when an exception ends it.
  class Reading {
   public:
    explicit Reading(Connection* c) : c_(c) { c_->waiting_since_ = Clock::now(); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() { c_->waiting_since_.reset(); }

   private:
    Connection* c_;
  };

  Task<> Talk(const WebSocketSession* session);
  Task<> Session(const WebSocketSession* session);
  Task<> Finish();
  Task<> SendQueued();
  Task<> SendPings();

  Result<std::optional<WebSocketMessage>> NextBuffered();
  Result<std::optional<WebSocketMessage>> Take(WebSocketMessage message);
  Task<> ReadMore();
  Task<> AwaitPeersClose();
  Task<> AwaitSent();

  void Queue(WebSocketKind kind, std::string_view payload);
  void QueueClose(uint16_t code, std::string_view reason);
  void Break(Error error);
  std::unexpected<Error> Refuse(uint16_t code, Error error);
  Result<> Writable() const;
  bool sending() const { return !queue_.empty() || !sending_.empty() || pong_.has_value(); }
  bool PeerIsGone() const;

  ByteStream* stream_;
  WebSocketRole role_;
  WebSocketOptions options_;
  Result<> outcome_;  // the session's

  // Incoming. Bytes that were read and not decoded yet are at [begin_, end_).
  wire::WebSocketDecoder decoder_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t idle_frames_before_ = 0;  // at our last ping
  std::optional<WebSocketMessage> peers_close_;
  std::optional<Clock::time_point> waiting_since_;  // a Read is under way

  // Outgoing: whole frames.
  std::string queue_;
  std::string sending_;              // what the stream is taking
  std::optional<std::string> pong_;  // the answer to the last ping, when another answer is in the queue already
  bool pong_queued_ = false;
  bool close_queued_ = false;
  bool ping_queued_ = false;
  std::optional<Clock::time_point> pinged_at_;  // the peer has sent nothing since

  std::optional<Error> refused_;  // the peer broke the rules: nothing more is read
  std::optional<Error> broken_;   // the stream can neither be read nor written

  Event work_;     // there is something to send
  Event changed_;  // something was sent, or one of the states above changed
  asio::steady_timer next_ping_;
  bool done_ = false;  // the session has ended and is closed
};

Task<> Connection::Talk(const WebSocketSession* session) {
  co_await asio::this_coro::throw_if_cancelled(false);
  outcome_ = co_await Session(session);
  auto finish = Finish();
  auto finished = co_await WithTimeout(std::move(finish), options_.close_timeout);
  done_ = true;
  if (!finished) stream_->Close();
  work_.Notify();
  next_ping_.cancel();
  co_return Result<>{};
}

Task<> Connection::Session(const WebSocketSession* session) {
  std::exception_ptr thrown;
  try {
    co_return co_await (*session)(this);
  } catch (...) {
    thrown = std::current_exception();
  }
  if (IsCancellation(thrown)) co_return Fail(Code::kCancelled, "cancelled");
  SB_BUG("exception escaped a WebSocket session");
  co_return Fail(Code::kInternal, "internal error");
}

// Closes in order, as far as the session has not done so.
Task<> Connection::Finish() {
  if (outcome_) {
    QueueClose(wire::kCloseNormal, "");
  } else {
    QueueClose(outcome_.error().code == Code::kCancelled ? wire::kCloseGoingAway : wire::kCloseInternal, "");
  }
  // Whoever broke the rules is not listened to any more.
  if (!refused_) SB_CO_TRYV(co_await AwaitPeersClose());
  SB_CO_TRYV(co_await AwaitSent());
  // The server closes the connection first; its HTTP connection does that when the handler returns.
  if (role_ == WebSocketRole::kServer) co_return Result<>{};
  co_return co_await stream_->Linger(kLingerBytes);
}

// Not cancelled with the session, which may have a last word to say: Talk ends it.
Task<> Connection::SendQueued() {
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  while (!broken_ && !done_) {
    if (pong_ && !close_queued_) Queue(WebSocketKind::kPong, *pong_);
    pong_.reset();
    if (queue_.empty()) {
      SB_CO_TRYV(co_await work_.Wait());
      continue;
    }
    std::swap(queue_, sending_);
    pong_queued_ = false;
    const bool pings = std::exchange(ping_queued_, false);
    Pieces pieces{sending_};
    auto sent = co_await stream_->WriteAll(pieces);
    if (!sent) Break(std::move(sent).error());
    if (pings && !pinged_at_) pinged_at_ = Clock::now();
    if (sending_.capacity() > kKeepCapacity) sending_ = {};
    sending_.clear();
    changed_.Notify();
  }
  co_return Result<>{};
}

Task<> Connection::SendPings() {
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  while (!broken_ && !close_queued_ && !done_) {
    next_ping_.expires_after(options_.ping_every);
    co_await next_ping_.async_wait(kToken);
    idle_frames_before_ = decoder_.idle_frames();
    if (broken_ || close_queued_ || done_) break;
    // Bytes under way keep the connection open as well, and a ping could not overtake them. A peer that is slow to
    // take them is not gone.
    if (sending()) {
      pinged_at_.reset();
    } else if (PeerIsGone()) {
      Error gone{.code = Code::kTimeout, .message = "the peer of the WebSocket does not answer"};
      Break(std::move(gone));
      stream_->Close();
    } else {
      Queue(WebSocketKind::kPing, "");
      ping_queued_ = true;
    }
  }
  co_return Result<>{};
}

bool Connection::PeerIsGone() const {
  if (!pinged_at_ || !waiting_since_) return false;
  return Clock::now() - std::max(*pinged_at_, *waiting_since_) >= options_.dead_after;
}

Task<WebSocketMessage> Connection::Read() {
  if (waiting_since_) co_return Fail(Code::kInternal, "two reads of one WebSocket");
  Reading reading(this);
  while (true) {
    if (peers_close_) co_return *peers_close_;
    if (refused_) co_return std::unexpected(*refused_);
    SB_CO_TRY(std::optional<WebSocketMessage> message, NextBuffered());
    if (message) co_return *std::move(message);
    if (broken_) co_return std::unexpected(*broken_);
    SB_CO_TRYV(co_await CheckCancelled());
    SB_CO_TRYV(co_await ReadMore());
  }
}

Task<> Connection::ReadMore() {
  if (buffer_.empty()) buffer_.resize(kReadBuffer);
  auto got = co_await stream_->ReadSome(buffer_.data(), buffer_.size());
  if (!got && broken_) co_return std::unexpected(*broken_);
  if (!got && got.error().code == Code::kCancelled) co_return std::unexpected(std::move(got).error());
  if (got && *got == 0) got = Fail(Code::kClosed, "the peer ended the connection without closing the WebSocket");
  if (!got) {
    Break(std::move(got).error());
    co_return std::unexpected(*broken_);
  }
  begin_ = 0;
  end_ = *got;
  pinged_at_.reset();
  co_return Result<>{};
}

// A message for the caller of Read out of the bytes that are here; nullopt when they hold none.
Result<std::optional<WebSocketMessage>> Connection::NextBuffered() {
  while (begin_ < end_) {
    std::optional<WebSocketMessage> message;
    auto used = decoder_.Feed(std::string_view(buffer_).substr(begin_, end_ - begin_), &message);
    if (!used) return Refuse(decoder_.close_code(), std::move(used).error());
    begin_ += *used;
    if (decoder_.idle_frames() - idle_frames_before_ > options_.max_idle_frames)
      return Refuse(wire::kClosePolicy, Error{.code = Code::kTooMany, .message = "WebSocket: too many empty frames"});
    if (!message) continue;
    SB_TRY(auto taken, Take(*std::move(message)));
    if (taken) return taken;
  }
  return std::nullopt;
}

Result<std::optional<WebSocketMessage>> Connection::Take(WebSocketMessage message) {
  switch (message.kind) {
    case WebSocketKind::kPing:
      if (close_queued_) return std::nullopt;
      // The RFC lets the answer to the last ping stand for those before it.
      if (pong_queued_) {
        pong_ = std::move(message.data);
      } else {
        Queue(WebSocketKind::kPong, message.data);
        pong_queued_ = true;
      }
      return std::nullopt;
    case WebSocketKind::kPong:
      return std::nullopt;
    case WebSocketKind::kClose:
      peers_close_ = message;
      QueueClose(message.code, "");
      changed_.Notify();
      return message;
    case WebSocketKind::kText:
    case WebSocketKind::kBinary:
      return message;
  }
  return std::nullopt;
}

Result<> Connection::Writable() const {
  if (broken_) return std::unexpected(*broken_);
  if (refused_) return std::unexpected(*refused_);
  if (close_queued_) return Fail(Code::kClosed, "the WebSocket is closed");
  return {};
}

Task<> Connection::Write(WebSocketKind kind, std::string bytes) {
  const bool text = kind == WebSocketKind::kText;
  if (!text && kind != WebSocketKind::kBinary) co_return Fail(Code::kInternal, "a control frame is not the caller's");
  if (text && !wire::IsUtf8(bytes)) co_return Fail(Code::kInternal, "a text message must be UTF-8");
  SB_CO_TRYV(Writable());
  while (queue_.size() >= options_.max_queued) {
    SB_CO_TRYV(co_await changed_.Wait());
    SB_CO_TRYV(Writable());
  }
  Queue(kind, bytes);
  co_return Result<>{};
}

Task<> Connection::Close(uint16_t code, std::string reason) {
  QueueClose(code, reason);
  auto closed = AwaitPeersClose();
  co_return co_await WithTimeout(std::move(closed), options_.close_timeout);
}

Task<> Connection::AwaitPeersClose() {
  while (!peers_close_) {
    if (broken_) co_return std::unexpected(*broken_);
    if (refused_) co_return std::unexpected(*refused_);
    if (waiting_since_) {
      SB_CO_TRYV(co_await changed_.Wait());
    } else {
      SB_CO_TRYV(co_await Read());
    }
  }
  co_return Result<>{};
}

Task<> Connection::AwaitSent() {
  while (sending()) {
    if (broken_) co_return std::unexpected(*broken_);
    SB_CO_TRYV(co_await changed_.Wait());
  }
  co_return Result<>{};
}

void Connection::Queue(WebSocketKind kind, std::string_view payload) {
  std::optional<wire::WebSocketMask> mask;
  if (role_ == WebSocketRole::kClient) FillRandom(mask.emplace().data(), sizeof(wire::WebSocketMask));
  wire::AppendFrame(queue_, kind, payload, mask);
  work_.Notify();
}

void Connection::QueueClose(uint16_t code, std::string_view reason) {
  if (std::exchange(close_queued_, true)) return;
  Queue(WebSocketKind::kClose, wire::ClosePayload(code, reason));
  changed_.Notify();
}

void Connection::Break(Error error) {
  if (!broken_) broken_ = std::move(error);
  changed_.Notify();
}

std::unexpected<Error> Connection::Refuse(uint16_t code, Error error) {
  QueueClose(code, error.message);
  refused_ = std::move(error);
  changed_.Notify();
  return std::unexpected(*refused_);
}

// "ws:" and "wss:" are "http:" and "https:" with another name.
std::string HttpUrl(std::string url) {
  if (url.starts_with("ws:") || url.starts_with("wss:")) url.replace(0, 2, "http");
  return url;
}

}  // namespace

Task<> RunWebSocket(ByteStream* stream, WebSocketRole role, WebSocketOptions options, WebSocketSession session) {
  auto ex = co_await asio::this_coro::executor;
  Connection connection(ex, stream, role, options);
  co_return co_await connection.Run(&session);
}

Task<> ServeWebSocket(HttpExchange* x, WebSocketOptions options, WebSocketSession session) {
  auto accept = wire::CheckWebSocketRequest(x->request().method, x->request().headers);
  if (!accept && accept.error().status == 426) {
    const std::string message = accept.error().why;
    HttpResponse refusal{.status = 426,
                         .body = R"({"error":{"code":"upgrade_required","message":")" + message + "\"}}",
                         .headers = std::move(accept.error().fields)};
    co_return co_await x->Respond(std::move(refusal));
  }
  if (!accept) co_return Fail(Code::kBadRequest, std::move(accept.error().why));
  if (!x->wants_upgrade()) co_return Fail(Code::kBadRequest, "a WebSocket is opened with HTTP/1.1 and without a body");
  std::vector<Header> fields = wire::WebSocketAnswerFields(*accept);
  SB_CO_TRY(ByteStream * stream, co_await x->Upgrade(std::move(fields)));
  co_return co_await RunWebSocket(stream, WebSocketRole::kServer, options, std::move(session));
}

Task<UpgradeAnswer> DialWebSocket(ClientRequest request, HttpClientOptions options) {
  std::string random(kKeyBytes, '\0');
  FillRandom(random.data(), random.size());
  const std::string key = EncodeBase64(random);
  request.url = HttpUrl(std::move(request.url));
  std::ranges::copy(wire::WebSocketRequestFields(key), std::back_inserter(request.headers));
  SB_CO_TRY(UpgradeAnswer answer, co_await DialUpgrade(std::move(request), "websocket", std::move(options)));
  if (answer.stream) SB_CO_TRYV(wire::CheckWebSocketAnswer(answer.headers, key));
  co_return answer;
}

}  // namespace sandbar::http
