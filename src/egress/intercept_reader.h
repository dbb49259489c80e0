// HTTP messages from a stream, for both sides of an intercepted connection, and the one deadline that a connection has.
// Private to egress/. Single loop.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "http/byte_stream.h"
#include "wire/http1.h"

namespace sandbar::egress {

// When a connection gives up. Fixed while a head or a handshake comes in, so that dripping bytes do not help;
// otherwise every byte that moves puts it off.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  Deadline(const asio::any_io_executor& ex, std::chrono::milliseconds head, std::chrono::milliseconds idle)
      : head_(head), idle_(idle), at_(Clock::now() + head), timer_(ex) {}

  void StartHead() {
    fixed_ = true;
    Set(Clock::now() + head_);
  }
  void StartIdle() {
    fixed_ = false;
    Touch();
  }
  void Touch() {
    if (!fixed_) Set(Clock::now() + idle_);
  }
  // Ends when it has passed. At most one task waits.
  Task<> Passed();

 private:
  void Set(Clock::time_point at) {
    // A later one is noticed when the timer fires; an earlier one must be told.
    if (at < timer_.expiry()) timer_.cancel();
    at_ = at;
  }

  std::chrono::milliseconds head_, idle_;
  bool fixed_ = true;
  Clock::time_point at_;
  asio::steady_timer timer_;
};

class MessageReader {
 public:
  // `stream` and `deadline` outlive it.
  MessageReader(http::ByteStream* stream, wire::HttpKind kind, Deadline* deadline)
      : stream_(stream), deadline_(deadline), parser_(kind), buffer_(kBuffer, '\0') {}

  // False: the stream ended before a first byte. Errors of the parser are returned as they are.
  Task<bool> ReadHead();
  // The next decoded piece of the body; empty at its end. kClosed when the stream ends before.
  Task<std::string> ReadBody();
  // What of the body is here already, without waiting.
  Result<std::string> BufferedBody();
  // Forgets the message that ended.
  void Next() { parser_.Reset(); }

  wire::HttpParser& parser() { return parser_; }
  wire::HttpHead& head() { return parser_.head(); }
  // Bytes read behind what was parsed.
  std::string_view buffered() const { return std::string_view(buffer_).substr(begin_, end_ - begin_); }

 private:
  static constexpr size_t kBuffer = 16 << 10;
  static constexpr size_t kPiece = 64 << 10;
  Task<size_t> Fill();

  http::ByteStream* stream_;
  Deadline* deadline_;
  wire::HttpParser parser_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace sandbar::egress
