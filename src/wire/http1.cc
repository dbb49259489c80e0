#include "wire/http1.h"

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>

#include "wire/percent.h"
#include "wire/text.h"

namespace sandbar::wire {

namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using ErrorCode = boost::beast::error_code;

bool IsTokenChar(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kMarks.contains(c);
}

bool IsControl(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
}

std::optional<uint64_t> ParseLength(std::string_view s) {
  // 18 digits cannot overflow and are more than any body.
  if (s.empty() || s.size() > 18) return std::nullopt;
  uint64_t n = 0;
  for (char c : s) {
    if (c < '0' || c > '9') return std::nullopt;
    n = n * 10 + static_cast<uint64_t>(c - '0');
  }
  return n;
}

// Beast's tokeniser for heads, with our rules about what may be in one. It only ever sees a complete head: bodies are
// framed by HttpParser, because Beast 1.81 reads framing fields too generously.
template <bool kIsRequest>
class HeadParser : public http::basic_parser<kIsRequest> {
 public:
  HeadParser(HttpHead* head, const HttpLimits& limits) : head_(head), max_fields_(limits.fields) {
    this->header_limit(static_cast<uint32_t>(limits.head_bytes + 4));
    this->body_limit(boost::none);
    this->skip(true);
  }

  // Empty when the head is fine, else what is wrong with it.
  std::string Parse(std::string_view bytes) {
    ErrorCode ec;
    size_t used = this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
    if (!why_.empty()) return why_;
    if (ec) return "malformed head: " + ec.message();
    if (used != bytes.size() || !this->is_header_done()) return "malformed head";
    return Finish();
  }

 private:
  std::string Finish() {
    if (hosts_ > 1) return "more than one Host";
    if (kIsRequest && head_->version == 11 && hosts_ == 0) return "no Host";
    if (head_->chunked && head_->content_length) return "both Content-Length and Transfer-Encoding";
    if (head_->chunked && head_->version != 11) return "Transfer-Encoding in HTTP/1.0";
    head_->keep_alive = head_->version == 11 && !close_;
    return {};
  }

  void Stop(std::string_view why, ErrorCode& ec) {
    why_ = why;
    ec = http::error::bad_value;
  }

  void on_request_impl(http::verb, string_view method, string_view target, int version, ErrorCode& ec) override {
    head_->method = std::string(method);
    head_->target = std::string(target);
    head_->version = version;
    if (!target.starts_with('/')) return Stop("the target is not in origin-form", ec);
    for (char c : target)
      if (c <= 0x20 || c == 0x7f || c == '#') return Stop("bad character in the target", ec);
  }

  void on_response_impl(int status, string_view, int version, ErrorCode& ec) override {
    head_->status = status;
    head_->version = version;
    if (status < 100 || status > 599) return Stop("bad status", ec);
  }

  void on_field_impl(http::field f, string_view name, string_view value, ErrorCode& ec) override {
    if (head_->fields.size() >= max_fields_) return Stop("too many fields", ec);
    std::string_view v(value.data(), value.size());
    switch (f) {
      case http::field::transfer_encoding:
        if (head_->chunked || !EqualsIgnoreCase(v, "chunked")) return Stop("bad Transfer-Encoding", ec);
        head_->chunked = true;
        break;
      case http::field::content_length:
        if (head_->content_length) return Stop("repeated Content-Length", ec);
        head_->content_length = ParseLength(v);
        if (!head_->content_length) return Stop("bad Content-Length", ec);
        break;
      case http::field::host:
        ++hosts_;
        break;
      case http::field::connection:
        close_ = close_ || ListHasToken(v, "close");
        break;
      case http::field::expect:
        head_->expect_continue = head_->expect_continue || EqualsIgnoreCase(v, "100-continue");
        break;
      default:
        break;
    }
    head_->fields.push_back({std::string(name), std::string(v)});
  }

  void on_header_impl(ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, ErrorCode&) override {}
  size_t on_body_impl(string_view s, ErrorCode&) override { return s.size(); }
  void on_chunk_header_impl(uint64_t, string_view, ErrorCode&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view s, ErrorCode&) override { return s.size(); }
  void on_finish_impl(ErrorCode&) override {}

  HttpHead* head_;
  size_t max_fields_;
  int hosts_ = 0;
  bool close_ = false;
  std::string why_;
};

}  // namespace

std::string_view FindField(const std::vector<HttpField>& fields, std::string_view name) {
  for (const auto& f : fields)
    if (EqualsIgnoreCase(f.name, name)) return f.value;
  return {};
}

bool HasField(const std::vector<HttpField>& fields, std::string_view name) {
  for (const auto& f : fields)
    if (EqualsIgnoreCase(f.name, name)) return true;
  return false;
}

std::string_view HttpHead::Get(std::string_view name) const {
  return FindField(fields, name);
}

std::unexpected<Error> HttpParser::Bad(std::string_view why) {
  state_ = State::kFailed;
  if (kind_ == HttpKind::kRequest) return Fail(Code::kBadRequest, "bad HTTP request: " + std::string(why));
  return Fail(Code::kProtocol, "bad HTTP response: " + std::string(why));
}

Result<size_t> HttpParser::Feed(std::string_view in, std::string* body) {
  switch (state_) {
    case State::kHead:
      return FeedHead(in);
    case State::kLength:
    case State::kUntilClose:
      return FeedRaw(in, body);
    case State::kDone:
      return 0;
    case State::kFailed:
      return Bad("an earlier error");
    default:
      return FeedChunked(in, body);
  }
}

Result<void> HttpParser::Eof() {
  if (state_ == State::kUntilClose) state_ = State::kDone;
  if (state_ == State::kDone) return {};
  return Fail(Code::kClosed, "the connection was closed in the middle of a message");
}

Result<size_t> HttpParser::FeedHead(std::string_view in) {
  size_t used = 0;
  SB_TRY(bool complete, ScanHead(in, used));
  // The copy also gives Beast's iequals, which reads one byte past a name, something to read.
  head_bytes_.append(in.substr(0, used));
  if (!complete) return used;
  SB_TRYV(ParseHead());
  SB_TRYV(DecideFraming());
  return used;
}

// Finds the end of the head and refuses at once, before the head is complete, what no head may contain.
Result<bool> HttpParser::ScanHead(std::string_view in, size_t& used) {
  char previous = head_bytes_.empty() ? '\0' : head_bytes_.back();
  for (char c : in) {
    if (head_bytes_.size() + used >= limits_.head_bytes) {
      state_ = State::kFailed;
      return Fail(Code::kTooLarge, "the HTTP head is larger than " + std::to_string(limits_.head_bytes) + " bytes");
    }
    ++used;
    if ((previous == '\r') != (c == '\n')) return Bad("CR and LF do not come together");
    if (c == '\n') {
      if (line_length_ == 0) return true;
      line_length_ = 0;
    } else if (c != '\r') {
      if (IsControl(c)) return Bad("control character in the head");
      ++line_length_;
    }
    previous = c;
  }
  return false;
}

Result<void> HttpParser::ParseHead() {
  std::string why;
  if (kind_ == HttpKind::kRequest) {
    why = HeadParser<true>(&head_, limits_).Parse(head_bytes_);
  } else {
    why = HeadParser<false>(&head_, limits_).Parse(head_bytes_);
  }
  head_bytes_.clear();
  line_length_ = 0;
  if (!why.empty()) return Bad(why);
  return {};
}

Result<void> HttpParser::DecideFraming() {
  const bool response = kind_ == HttpKind::kResponse;
  const bool bodiless = response && (head_.status / 100 == 1 || head_.status == 204 || head_.status == 304);
  if (bodiless || no_body_) {
    state_ = State::kDone;
  } else if (head_.chunked) {
    state_ = State::kChunkSize;
    chunk_digits_ = 0;
    left_ = 0;
  } else if (head_.content_length) {
    left_ = *head_.content_length;
    state_ = left_ == 0 ? State::kDone : State::kLength;
  } else if (response) {
    head_.keep_alive = false;
    state_ = State::kUntilClose;
  } else {
    state_ = State::kDone;
  }
  return {};
}

uint64_t HttpParser::raw_body() const {
  if (state_ == State::kLength || state_ == State::kChunkData) return left_;
  return state_ == State::kUntilClose ? UINT64_MAX : 0;
}

void HttpParser::TakeRaw(uint64_t n) {
  SB_CHECK(n <= raw_body());
  if (state_ == State::kUntilClose) return;
  left_ -= n;
  if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kChunkCr;
}

Result<size_t> HttpParser::FeedRaw(std::string_view in, std::string* body) {
  const auto n = static_cast<size_t>(std::min<uint64_t>(in.size(), raw_body()));
  if (body != nullptr) body->append(in.substr(0, n));
  TakeRaw(n);
  return n;
}

Result<size_t> HttpParser::FeedChunked(std::string_view in, std::string* body) {
  size_t used = 0;
  while (used < in.size() && state_ != State::kDone) {
    if (state_ == State::kChunkData) {
      SB_TRY(size_t n, FeedRaw(in.substr(used), body));
      used += n;
    } else {
      SB_TRYV(ChunkByte(in[used]));
      ++used;
    }
  }
  return used;
}

Result<void> HttpParser::ChunkByte(char c) {
  switch (state_) {
    case State::kChunkSize:
      return ChunkSizeByte(c);
    case State::kChunkSizeLf:
      if (c != '\n') return Bad("bad end of a chunk size");
      state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
      trailer_bytes_ = 0;
      trailer_line_.clear();
      return {};
    case State::kChunkCr:
      if (c != '\r') return Bad("a chunk is longer than its size");
      state_ = State::kChunkLf;
      return {};
    case State::kChunkLf:
      if (c != '\n') return Bad("bad end of a chunk");
      state_ = State::kChunkSize;
      chunk_digits_ = 0;
      left_ = 0;
      return {};
    default:
      return TrailerByte(c);
  }
}

Result<void> HttpParser::ChunkSizeByte(char c) {
  if (c == '\r') {
    if (chunk_digits_ == 0) return Bad("a chunk without size");
    state_ = State::kChunkSizeLf;
    return {};
  }
  const int digit = HexDigit(c);
  if (digit < 0) return Bad("bad chunk size or a chunk extension");
  // 15 digits cannot overflow; leading zeros count, or a client could send them for ever.
  if (++chunk_digits_ > 15) return Bad("chunk size out of range");
  left_ = left_ * 16 + static_cast<uint64_t>(digit);
  return {};
}

Result<void> HttpParser::TrailerByte(char c) {
  if (++trailer_bytes_ > limits_.trailer_bytes) return Bad("trailers too large");
  const bool after_cr = trailer_line_.ends_with('\r');
  if (after_cr != (c == '\n')) return Bad("CR and LF do not come together");
  if (c != '\n') {
    if (c != '\r' && IsControl(c)) return Bad("control character in a trailer");
    trailer_line_.push_back(c);
    return {};
  }
  trailer_line_.pop_back();
  if (trailer_line_.empty()) {
    state_ = State::kDone;
    return {};
  }
  const std::string_view name = std::string_view(trailer_line_).substr(0, trailer_line_.find(':'));
  if (name.size() == trailer_line_.size() || name.empty()) return Bad("malformed trailer");
  for (char n : name)
    if (!IsTokenChar(n)) return Bad("malformed trailer");
  for (std::string_view framing : {"content-length", "transfer-encoding", "host", "trailer"})
    if (EqualsIgnoreCase(name, framing)) return Bad("a field that may not be a trailer");
  trailer_line_.clear();
  return {};
}

void HttpParser::Reset() {
  state_ = State::kHead;
  no_body_ = false;
  head_ = {};
  head_bytes_.clear();
  line_length_ = 0;
  left_ = 0;
}

std::string_view ReasonPhrase(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

void AppendField(std::string& out, std::string_view name, std::string_view value) {
  out.append(name);
  out.append(": ");
  for (char c : value) out.push_back(IsControl(c) ? ' ' : c);
  out.append("\r\n");
}

void AppendStatusLine(std::string& out, int status) {
  out.append("HTTP/1.1 ");
  out.append(std::to_string(status));
  out.push_back(' ');
  out.append(ReasonPhrase(status));
  out.append("\r\n");
}

std::string SerializeRequestHead(std::string_view method, std::string_view target,
                                 const std::vector<HttpField>& fields) {
  std::string out;
  out.reserve(512);
  out.append(method);
  out.push_back(' ');
  for (char c : target)
    if (!IsControl(c) && c != ' ') out.push_back(c);
  out.append(" HTTP/1.1\r\n");
  for (const auto& f : fields) AppendField(out, f.name, f.value);
  out.append("\r\n");
  return out;
}

std::string ChunkHeader(size_t size) {
  SB_CHECK(size != 0);
  char digits[17];
  const auto end = std::to_chars(digits, digits + sizeof digits, size, 16).ptr;
  std::string out(digits, end);
  out.append("\r\n");
  return out;
}

}  // namespace sandbar::wire
