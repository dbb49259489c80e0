// Strict HTTP/1.1 messages: bytes <-> heads and bodies, no I/O, no clock. What two readers could understand in two ways
// is an error: repeated or malformed Content-Length, Transfer-Encoding other than "chunked" or next to a length or in
// HTTP/1.0, bare LF, missing or repeated Host, chunk extensions, framing fields in trailers, targets not in
// origin-form. Trailers are read and dropped. A proxy must send what it parsed, never the raw head.
//
//   HttpParser p(HttpKind::kRequest);
//   while (!p.head_done()) { read; SB_TRY(size_t used, p.Feed(bytes, nullptr)); drop `used` bytes; }
//   while (!p.done())      { read; SB_TRY(size_t used, p.Feed(bytes, &body)); … }
//
// Errors: kBadRequest for requests, kProtocol for responses, kTooLarge for a head over the limit. A parser that failed
// stays failed; the connection cannot be used again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::wire {

struct HttpField {
  std::string name;
  std::string value;
};

enum class HttpKind { kRequest, kResponse };

struct HttpLimits {
  size_t head_bytes = 64 << 10;
  size_t fields = 128;
  size_t trailer_bytes = 8 << 10;
};

struct HttpHead {
  std::string method, target;  // of a request
  int status = 0;              // of a response
  int version = 11;            // 10 or 11
  std::vector<HttpField> fields;

  bool chunked = false;
  std::optional<uint64_t> content_length;
  bool keep_alive = false;       // as far as this side's head says; always false for HTTP/1.0
  bool expect_continue = false;  // request with Expect: 100-continue

  // First value, case-insensitive; empty when absent.
  std::string_view Get(std::string_view name) const;
};

std::string_view FindField(const std::vector<HttpField>& fields, std::string_view name);
bool HasField(const std::vector<HttpField>& fields, std::string_view name);

class HttpParser {
 public:
  explicit HttpParser(HttpKind kind, HttpLimits limits = {}) : kind_(kind), limits_(limits) {}

  // Uses a prefix of `in` and says how long it was. Stops after the head and after the message, so that bytes behind
  // them stay with the caller. Decoded body bytes are appended to *body (not needed before the head is done).
  Result<size_t> Feed(std::string_view in, std::string* body);
  // The peer closed: fine for a response whose body lasts until then, else kClosed.
  Result<void> Eof();

  bool head_started() const { return state_ != State::kHead || !head_bytes_.empty(); }
  bool head_done() const { return state_ != State::kHead && state_ != State::kFailed; }
  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }
  // True when the body's end is the connection's end.
  bool until_close() const { return state_ == State::kUntilClose; }
  HttpHead& head() { return head_; }
  const HttpHead& head() const { return head_; }

  // How many of the next bytes are body as they are (0 when the framing has to be looked at): the caller may read
  // that many straight into its own buffer and then TakeRaw() what it got.
  uint64_t raw_body() const;
  void TakeRaw(uint64_t n);

  // The response to a HEAD request has no body whatever its head says. Call before Feed.
  void ExpectNoBody() { no_body_ = true; }
  // Ready for the next message on the connection.
  void Reset();

 private:
  enum class State {
    kHead,
    kLength,
    kChunkSize,
    kChunkSizeLf,
    kChunkData,
    kChunkCr,
    kChunkLf,
    kTrailer,
    kUntilClose,
    kDone,
    kFailed
  };

  std::unexpected<Error> Bad(std::string_view why);
  Result<size_t> FeedHead(std::string_view in);
  Result<bool> ScanHead(std::string_view in, size_t& used);
  Result<void> ParseHead();
  Result<void> DecideFraming();
  Result<size_t> FeedRaw(std::string_view in, std::string* body);
  Result<size_t> FeedChunked(std::string_view in, std::string* body);
  Result<void> ChunkByte(char c);
  Result<void> ChunkSizeByte(char c);
  Result<void> TrailerByte(char c);

  HttpKind kind_;
  HttpLimits limits_;
  State state_ = State::kHead;
  bool no_body_ = false;
  HttpHead head_;
  std::string head_bytes_;  // of a head that is not complete yet
  size_t line_length_ = 0;  // of its last line so far
  uint64_t left_ = 0;       // body or chunk bytes to come
  int chunk_digits_ = 0;
  std::string trailer_line_;
  size_t trailer_bytes_ = 0;
};

std::string_view ReasonPhrase(int status);
// Heads ready to send, with the empty line. Control characters in values become spaces, so a value taken from elsewhere
// cannot start a new field.
void AppendField(std::string& out, std::string_view name, std::string_view value);
void AppendStatusLine(std::string& out, int status);
std::string SerializeRequestHead(std::string_view method, std::string_view target,
                                 const std::vector<HttpField>& fields);
// "<size in hex>\r\n"; the chunk's bytes and "\r\n" follow. Never for an empty chunk, which would end the body.
std::string ChunkHeader(size_t size);

}  // namespace sandbar::wire
