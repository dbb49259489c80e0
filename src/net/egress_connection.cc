#include "net/egress_connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace sandbar::net {

namespace {

constexpr size_t kMaxOpening = 8 << 10;   // bytes read from a denied client before answering
constexpr size_t kMaxDrain = 256 << 10;   // bytes thrown away after the answer
constexpr size_t kMoveAtOnce = 64 << 10;  // copied per step, on the stack: an idle connection holds no buffer
constexpr size_t kFairShare = 1 << 20;    // moved before other connections of the loop get their turn
constexpr std::chrono::milliseconds kDrainTime{1000};
constexpr uint16_t kDnsPort = 53;

// TLS record: alert, TLS 1.2 framing, length 2, fatal, access_denied(49).
constexpr std::string_view kTlsAccessDenied("\x15\x03\x03\x00\x02\x02\x31", 7);
constexpr std::array<std::string_view, 10> kHttpMethods = {"GET ",     "POST ",  "PUT ",     "HEAD ",  "DELETE ",
                                                           "OPTIONS ", "PATCH ", "CONNECT ", "TRACE ", "PRI "};

std::string JsonEscaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) >= 0x20) out.push_back(c);
  }
  return out;
}

std::string HttpRefusal(std::string_view target, std::string_view reason, std::string_view hint) {
  std::string body =
      fmt::format(R"({{"error":{{"code":"network_denied","message":"connection to {} denied: {}","hint":"{}"}}}})",
                  JsonEscaped(target), JsonEscaped(reason), JsonEscaped(hint)) +
      "\n";
  return fmt::format(
      "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
}

enum class Moved { kSome, kNothingToRead, kWriterFull, kEnd, kFailed };

// Sends what is pending; what the socket does not take stays pending.
Moved Flush(int to, std::string& pending) {
  while (!pending.empty()) {
    ssize_t w = ::send(to, pending.data(), pending.size(), MSG_NOSIGNAL);
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) return errno == EAGAIN ? Moved::kWriterFull : Moved::kFailed;
    pending.erase(0, static_cast<size_t>(w));
  }
  return Moved::kSome;
}

Moved MoveOnce(int from, int to, std::string& pending, size_t& bytes) {
  std::array<char, kMoveAtOnce> buffer;
  ssize_t r = ::recv(from, buffer.data(), buffer.size(), 0);
  if (r == 0) return Moved::kEnd;
  if (r < 0) return errno == EAGAIN || errno == EINTR ? Moved::kNothingToRead : Moved::kFailed;
  bytes = static_cast<size_t>(r);
  ssize_t w = ::send(to, buffer.data(), bytes, MSG_NOSIGNAL);
  if (w < 0 && errno != EAGAIN && errno != EINTR) return Moved::kFailed;
  size_t sent = w < 0 ? 0 : static_cast<size_t>(w);
  pending.assign(buffer.data() + sent, bytes - sent);
  return pending.empty() ? Moved::kSome : Moved::kWriterFull;
}

}  // namespace

Speech Classify(std::string_view in) {
  if (in.empty()) return Speech::kUnknownYet;
  if (in[0] == 0x16) {
    if (in.size() < 3) return Speech::kUnknownYet;
    return in[1] == 0x03 && in[2] >= 0 && in[2] <= 4 ? Speech::kTls : Speech::kOther;
  }
  for (std::string_view method : kHttpMethods) {
    if (in.starts_with(method)) return Speech::kHttp;
    if (method.starts_with(in)) return Speech::kUnknownYet;
  }
  return Speech::kOther;
}

EgressConnection::EgressConnection(Stream guest, EgressState* state, DnsRelay* dns)
    : guest_(std::move(guest)), state_(state), dns_(dns) {
  int on = 1;
  ::setsockopt(guest_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ++state_->open;
  ++state_->half_open;
  ++state_->counters.connections;
}

EgressConnection::~EgressConnection() {
  NoLongerHalfOpen();
  --state_->open;
}

void EgressConnection::NoLongerHalfOpen() {
  if (half_open_) --state_->half_open;
  half_open_ = false;
}

void EgressConnection::Cut() {
  cut_ = true;
  boost::system::error_code ignored;
  ResetOnClose(guest_);
  guest_.cancel(ignored);
  if (!upstream_) return;
  ResetOnClose(*upstream_);
  upstream_->cancel(ignored);
}

Task<> EgressConnection::Run(Result<Endpoint> target) {
  if (!target) {
    // Not redirected: the guest talks to the listener itself. Nothing of what it says is looked at.
    ResetOnClose(guest_);
    co_return std::unexpected(std::move(target).error());
  }
  target_ = *target;
  static const IpAddress kResolver = *ParseAddress(kGuestResolver);
  if (target_ == Endpoint{kResolver, kDnsPort}) {
    auto served = co_await dns_->ServeTcp(&guest_);
    co_return served;
  }
  if (state_->DeniesAll()) {
    auto refused = co_await Refuse(std::string(kDenyAllReason), DenyAllHint());
    co_return refused;
  }
  dialling_ = true;
  auto dialled = co_await GuardedConnect(target_, state_->config);
  dialling_ = false;
  if (!cut_ && !dialled && dialled.error().code == Code::kForbidden) {
    auto refused = co_await Refuse(dialled.error().message, AddressHint(target_));
    co_return refused;
  }
  if (cut_ || !dialled) {
    ResetOnClose(guest_);
    co_return Fail(Code::kClosed, cut_ ? "cut by policy" : dialled.error().message);
  }
  upstream_.emplace(*std::move(dialled));
  established_ = true;
  NoLongerHalfOpen();
  using namespace asio::experimental::awaitable_operators;
  auto out = Pump(&guest_, &*upstream_, &state_->counters.egress_bytes);
  auto in = Pump(&*upstream_, &guest_, &state_->counters.ingress_bytes);
  co_await (std::move(out) && std::move(in));
  co_return Result<>{};
}

Task<> EgressConnection::Refuse(std::string reason, std::string hint) {
  state_->Deny("tcp", ToString(target_), reason, hint);
  auto saying = SayWhy(std::move(reason), std::move(hint));
  auto said = co_await WithTimeout(std::move(saying), state_->config->first_byte_timeout + kDrainTime);
  if (!said) ResetOnClose(guest_);
  co_return said;
}

Task<> EgressConnection::SayWhy(std::string reason, std::string hint) {
  auto reading = ReadOpening();
  auto opening = co_await WithTimeout(std::move(reading), state_->config->first_byte_timeout);
  if (!opening) co_return std::unexpected(std::move(opening).error());
  std::string answer;
  switch (Classify(*opening)) {
    case Speech::kTls:
      answer = kTlsAccessDenied;
      break;
    case Speech::kHttp:
      answer = HttpRefusal(ToString(target_), reason, hint);
      break;
    default:
      co_return Fail(Code::kForbidden, "no way to say it in this protocol");
  }
  // The socket is fresh and its buffer empty: a short answer always fits.
  if (::send(guest_.native_handle(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) co_return FailErrno("send");
  ::shutdown(guest_.native_handle(), SHUT_WR);
  auto drained = co_await Drain();
  co_return drained;
}

Task<std::string> EgressConnection::ReadOpening() {
  std::string opening;
  while (opening.size() < kMaxOpening) {
    std::array<char, 4096> piece;
    ssize_t n = ::recv(guest_.native_handle(), piece.data(), piece.size(), 0);
    if (n > 0) {
      opening.append(piece.data(), static_cast<size_t>(n));
      Speech speech = Classify(opening);
      bool enough = speech == Speech::kTls || speech == Speech::kOther || opening.contains("\r\n\r\n");
      if (enough) break;
      continue;
    }
    if (n == 0) break;
    if (errno != EAGAIN && errno != EINTR) co_return FailErrno("receive");
    auto [ec] = co_await guest_.async_wait(Stream::wait_read, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "receive"));
  }
  co_return opening;
}

// Closing with unread bytes in the buffer would send RST, and the client might lose the answer to it.
Task<> EgressConnection::Drain() {
  size_t drained = 0;
  while (drained < kMaxDrain) {
    std::array<char, 4096> piece;
    ssize_t n = ::recv(guest_.native_handle(), piece.data(), piece.size(), 0);
    if (n == 0) co_return Result<>{};
    if (n > 0) drained += static_cast<size_t>(n);
    if (n > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) co_return FailErrno("receive");
    auto [ec] = co_await guest_.async_wait(Stream::wait_read, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "receive"));
  }
  co_return Fail(Code::kTooLarge, "client goes on sending");
}

Task<> EgressConnection::Pump(Stream* from, Stream* to, uint64_t* counter) {
  std::string pending;
  size_t since_turn = 0;
  while (!cut_) {
    size_t bytes = 0;
    Moved moved = pending.empty() ? MoveOnce(from->native_handle(), to->native_handle(), pending, bytes)
                                  : Flush(to->native_handle(), pending);
    *counter += bytes;
    since_turn += bytes;
    if (bytes != 0) last_activity_ = std::chrono::steady_clock::now();
    if (moved == Moved::kEnd) {
      ::shutdown(to->native_handle(), SHUT_WR);
      co_return Result<>{};
    }
    if (moved == Moved::kFailed) break;
    boost::system::error_code ec;
    if (moved == Moved::kNothingToRead) {
      std::tie(ec) = co_await from->async_wait(Stream::wait_read, kToken);
      since_turn = 0;
    } else if (moved == Moved::kWriterFull) {
      std::tie(ec) = co_await to->async_wait(Stream::wait_write, kToken);
      since_turn = 0;
    } else if (since_turn >= kFairShare) {
      auto turn = co_await Yield();
      if (!turn) break;
      since_turn = 0;
    }
    if (ec) break;
  }
  // One direction broke: the other cannot be whole either.
  Cut();
  co_return Fail(Code::kClosed, "connection broke");
}

}  // namespace sandbar::net
