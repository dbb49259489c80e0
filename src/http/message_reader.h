// Reads HTTP/1.1 messages from a ByteStream: the head, then the body by length, by chunks or until the stream ends.
// The only such loop: the server (http/connection), the client (http/client_connection, http/upgrade), interception
// (egress/intercept_connection) and previews (ingress/ingress) use it. Single loop; owned by its connection, at most
// one call under way. Trailers are read and dropped. What the peer sent behind a message stays in buffered().
//
//   MessageReader reader(stream.get(), {.kind = wire::HttpKind::kResponse});
//   SB_CO_TRY(bool got, co_await reader.ReadHead());       // false: the stream ended
//   SB_CO_TRY(std::string piece, co_await reader.ReadBody());   // empty: the body ended
//   reader.Next();                                          // the next message of the connection
//
// The reader has no clock. A ReadProgress is told what arrives and moves its owner's deadline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "async/task.h"
#include "http/byte_stream.h"
#include "wire/http1.h"

namespace sandbar::http {

class ReadProgress {
 public:
  virtual ~ReadProgress() = default;
  // The first byte of a head is here; the head is complete.
  virtual void OnHeadBegin() {}
  virtual void OnHeadEnd() {}
  // A read returned, with bytes or with the end of the stream.
  virtual void OnRead() {}
};

struct ReaderOptions {
  wire::HttpKind kind = wire::HttpKind::kRequest;
  wire::HttpLimits limits = {};
  size_t buffer_bytes = 16 << 10;    // allocated at the first read
  ReadProgress* progress = nullptr;  // outlives the reader; null: nobody is told
};

class MessageReader {
 public:
  // `stream` outlives it.
  MessageReader(ByteStream* stream, ReaderOptions options)
      : stream_(stream),
        progress_(options.progress),
        parser_(options.kind, options.limits),
        buffer_bytes_(options.buffer_bytes) {}

  // False: the stream ended before the head was complete; parser().head_started() says whether it had begun. When
  // parser().failed(), the error is the parser's and the peer broke the protocol; else the stream broke. A cancelled
  // call may be repeated.
  Task<bool> ReadHead();
  // The next decoded piece of the body, at most 64 KiB or the buffer's size; empty at the body's end. kClosed when the
  // stream ends before the body does.
  Task<std::string> ReadBody();
  // The part of the body that is in the buffer, without waiting.
  Result<std::string> BufferedBody();
  // Discards the rest of the body, so that the next message can follow. False: there is more than `max_bytes` of it
  // (chunk headers counted), it is malformed, or the stream ended. An error: the stream broke.
  Task<bool> Drain(uint64_t max_bytes);
  // Forgets the message that ended.
  void Next() { parser_.Reset(); }

  wire::HttpParser& parser() { return parser_; }
  const wire::HttpParser& parser() const { return parser_; }
  wire::HttpHead& head() { return parser_.head(); }
  bool ended() const { return ended_; }  // a read met the end of the stream

  // Bytes behind what was parsed.
  std::string_view buffered() const { return std::string_view(buffer_).substr(begin_, end_ - begin_); }
  // Copies up to `n` of them and drops those.
  size_t TakeBuffered(char* data, size_t n);
  // Reads more of them while nobody else reads. The buffer is not full.
  Task<> ReadAhead();
  bool full() const { return end_ - begin_ >= buffer_bytes_; }
  bool reading_ahead() const { return reading_ahead_; }

 private:
  // Where the next read goes: the free end of the buffer.
  char* Room();
  size_t room() const { return buffer_.size() - end_; }
  void Took(size_t got);
  Result<> ParseBody(std::string* piece);

  ByteStream* stream_;
  ReadProgress* progress_;
  wire::HttpParser parser_;
  size_t buffer_bytes_;
  std::string buffer_;  // bytes that were read and not parsed yet are at [begin_, end_)
  size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  bool reading_ahead_ = false;
};

}  // namespace sandbar::http
