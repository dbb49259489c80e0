#include "http/connection.h"

#include "async/cancelled.h"
#include "wire/text.h"

namespace sandbar::http {

namespace {

constexpr size_t kCopyBelow = 16 << 10;      // an answer this small is copied behind its head: one buffer, one packet
constexpr uint64_t kDrainBytes = 256 << 10;  // of a body that the handler left unread
constexpr size_t kLingerBytes = 64 << 20;    // of a peer that goes on sending after our last word
constexpr std::chrono::seconds kLingerTime{3};
constexpr std::chrono::milliseconds kPeerPoll{250};
constexpr auto kNever = HttpConnection::Clock::time_point::max();

bool HasBody(int status) {
  return status >= 200 && status != 204 && status != 304;
}

// The server's own business; a handler's copies would contradict it.
bool IsFraming(std::string_view name) {
  return wire::EqualsIgnoreCase(name, "content-length") || wire::EqualsIgnoreCase(name, "transfer-encoding") ||
         wire::EqualsIgnoreCase(name, "connection");
}

}  // namespace

const std::string& HttpDate::Now() {
  const time_t now = time(nullptr);
  if (now != at_) {
    tm utc{};
    gmtime_r(&now, &utc);
    char buffer[64];
    text_.assign(buffer, strftime(buffer, sizeof buffer, "%a, %d %b %Y %H:%M:%S GMT", &utc));
    at_ = now;
  }
  return text_;
}

class HttpConnection::Upgraded final : public ByteStream {
 public:
  explicit Upgraded(HttpConnection* c) : c_(c) {}
  Task<> Handshake() override { co_return Result<>{}; }
  Task<size_t> ReadSome(char* data, size_t n) override {
    if (!c_->reader_.buffered().empty()) co_return c_->reader_.TakeBuffered(data, n);
    auto read = co_await c_->stream_->ReadSome(data, n);
    if (!read) co_return std::unexpected(c_->Explain(std::move(read).error()));
    co_return read;
  }
  Task<> WriteAll(Pieces pieces) override { return c_->Send(pieces); }
  Task<> Linger(size_t max_bytes) override { return c_->stream_->Linger(max_bytes); }
  bool ShutdownSend() override { return c_->stream_->ShutdownSend(); }
  void Close() override { c_->stream_->Close(); }
  int fd() const override { return c_->stream_->fd(); }

 private:
  HttpConnection* c_;
};

HttpConnection::HttpConnection(std::unique_ptr<ByteStream> stream, std::string peer, HttpServerShared* shared)
    : stream_(std::move(stream)),
      peer_(std::move(peer)),
      shared_(shared),
      reader_(stream_.get(),
              ReaderOptions{.limits = {.head_bytes = shared->options.max_header_bytes}, .progress = this}),
      stall_limit_(shared->options.write_stall_timeout) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::Cut(Code why) {
  if (!cut_) cut_ = why;
  stream_->Close();
}

Task<> HttpConnection::Run() {
  // Without this, whatever a handler awaits for its clean-up after a cancellation would throw.
  co_await asio::this_coro::throw_if_cancelled(false);
  read_deadline_ = Clock::now() + shared_->options.header_timeout;
  auto served = co_await stream_->Handshake();
  if (served) served = co_await Serve();
  const bool linger = served.has_value() && !cut_ && !peer_gone();
  if (linger) {
    waiting_ = true;
    standing_ = Standing::kStranger;
    read_deadline_ = Clock::now() + kLingerTime;
    co_await stream_->Linger(kLingerBytes);
  }
  stream_->Close();
  co_return served;
}

// Ends with an error when the connection is beyond a polite goodbye.
Task<> HttpConnection::Serve() {
  while (true) {
    SB_CO_TRY(bool got_request, co_await ReadHead());
    if (!got_request) co_return Result<>{};
    SB_CO_TRYV(co_await HandleOne());
    standing_ = std::max(standing_, Standing::kAnswered);
    if (!keep_alive_) co_return Result<>{};
    SB_CO_TRY(bool drained, co_await Drain());
    if (!drained) co_return Result<>{};
    reader_.Next();
    waiting_ = true;
    waiting_since_ = Clock::now();
    read_deadline_ = waiting_since_ + shared_->options.idle_timeout;
  }
}

// False: no (further) request, or a bad one that has been answered.
Task<bool> HttpConnection::ReadHead() {
  auto got = co_await reader_.ReadHead();
  if (!got && reader_.parser().failed()) {
    HttpResponse response = shared_->on_error(got.error());
    started_ = finished_ = request_keep_alive_ = head_only_ = false;
    SB_CO_TRYV(co_await Respond(std::move(response)));
    co_return false;
  }
  if (!got) co_return std::unexpected(Explain(std::move(got).error()));
  if (*got) TakeHead();
  co_return *got;
}

void HttpConnection::OnHeadBegin() {
  read_deadline_ = Clock::now() + shared_->options.header_timeout;
}

void HttpConnection::OnRead() {
  if (reading_body_) read_deadline_ = Clock::now() + shared_->options.idle_timeout;
}

void HttpConnection::TakeHead() {
  wire::HttpHead& head = reader_.head();
  const bool bodiless = reader_.parser().done();
  request_keep_alive_ = head.keep_alive;
  request_is_http10_ = head.version == 10;
  owes_continue_ = head.expect_continue && !request_is_http10_ && !bodiless;
  request_length_ = head.content_length;
  wants_upgrade_ = !request_is_http10_ && bodiless && wire::ListHasToken(head.Get("connection"), "upgrade") &&
                   !head.Get("upgrade").empty();
  request_.method = std::move(head.method);
  request_.target = std::move(head.target);
  request_.headers = std::move(head.fields);
  const size_t mark = request_.target.find('?');
  request_.path = request_.target.substr(0, mark);
  request_.query = mark == std::string::npos ? std::string() : request_.target.substr(mark + 1);
  head_only_ = request_.method == "HEAD";
  started_ = finished_ = keep_alive_ = false;
  framing_ = Framing::kNone;
  waiting_ = false;
  read_deadline_ = kNever;
  stall_limit_ = shared_->options.write_stall_timeout;
}

Task<> HttpConnection::HandleOne() {
  auto handled = co_await RunHandler();
  SB_CO_TRYV(Usable());
  if (!started_) {
    if (handled) handled = Fail(Code::kInternal, "the handler did not answer");
    HttpResponse response = shared_->on_error(handled.error());
    SB_CO_TRYV(co_await Respond(std::move(response)));
  }
  if (!finished_) co_return Fail(Code::kInternal, "the handler did not finish its answer");
  co_return Result<>{};
}

asio::awaitable<Result<>> HttpConnection::RunHandler() {
  std::string bug;
  try {
    co_return co_await shared_->handler(this);
  } catch (const std::exception& e) {
    bug = e.what();
  }
  if (cut_) co_return Fail(*cut_, "the connection was cut");
  SB_BUG("exception escaped a handler: " + bug);
  co_return Fail(Code::kInternal, "internal error");
}

// Reads the rest of a body that the handler did not want, so that the next request can follow. False: too much of it.
Task<bool> HttpConnection::Drain() {
  if (reader_.parser().done()) co_return true;
  read_deadline_ = Clock::now() + shared_->options.header_timeout;
  // Nobody needs this connection now: it may be closed for one that asks something.
  waiting_ = true;
  waiting_since_ = Clock::now();
  auto drained = co_await reader_.Drain(kDrainBytes);
  if (!drained) co_return std::unexpected(Explain(std::move(drained).error()));
  co_return drained;
}

Result<> HttpConnection::Usable() const {
  if (cut_) return Fail(*cut_, "the connection was cut");
  return {};
}

// Our own Cut() looks like a cancellation to whoever waits; tell the reason instead.
Error HttpConnection::Explain(Error error) const {
  if (cut_) error.code = *cut_;
  return error;
}

Task<> HttpConnection::SendContinue() {
  owes_continue_ = false;
  Pieces pieces{"HTTP/1.1 100 Continue\r\n\r\n"};
  co_return co_await Send(pieces);
}

Task<std::string> HttpConnection::ReadBody() {
  if (reader_.parser().done()) co_return std::string();
  SB_CO_TRYV(Usable());
  SB_CO_TRY(std::string piece, reader_.BufferedBody());
  if (piece.empty() && !reader_.parser().done()) {
    if (owes_continue_ && !started_) SB_CO_TRYV(co_await SendContinue());
    reading_body_ = true;
    OnRead();
    auto read = co_await reader_.ReadBody();
    reading_body_ = false;
    if (!read && reader_.ended())
      co_return Fail(Code::kClosed, "the client went away in the middle of the request's body");
    if (!read) co_return std::unexpected(Explain(std::move(read).error()));
    piece = *std::move(read);
  }
  read_deadline_ = kNever;
  // A short piece in a long queue must not hold 64 KiB.
  if (piece.size() < piece.capacity() / 4) piece.shrink_to_fit();
  co_return piece;
}

Task<std::string> HttpConnection::ReadAll(size_t limit) {
  const std::string too_large = "the request's body is larger than " + std::to_string(limit) + " bytes";
  if (request_length_ && *request_length_ > limit) co_return Fail(Code::kTooLarge, too_large);
  std::string all;
  while (!reader_.parser().done()) {
    SB_CO_TRY(std::string piece, co_await ReadBody());
    if (all.size() + piece.size() > limit) co_return Fail(Code::kTooLarge, too_large);
    if (all.empty()) {
      all = std::move(piece);
    } else {
      all += piece;
    }
  }
  co_return all;
}

bool HttpConnection::MayKeepAlive() const {
  if (!request_keep_alive_ || reader_.parser().failed()) return false;
  if (reader_.parser().done()) return true;
  // Whether a client that waits for "100 Continue" will send its body after our answer is its own guess.
  if (owes_continue_) return false;
  return !request_length_ || *request_length_ <= kDrainBytes;
}

std::string HttpConnection::BeginHead(int status, std::string_view content_type, const std::vector<Header>& headers) {
  started_ = true;
  keep_alive_ = MayKeepAlive() && framing_ != Framing::kUntilClose;
  std::string head;
  head.reserve(512);
  wire::AppendStatusLine(head, status);
  if (!wire::HasField(headers, "date")) wire::AppendField(head, "date", shared_->date.Now());
  if (!content_type.empty()) wire::AppendField(head, "content-type", content_type);
  for (const auto& h : headers)
    if (!IsFraming(h.name)) wire::AppendField(head, h.name, h.value);
  if (!keep_alive_) wire::AppendField(head, "connection", status == 101 ? "upgrade" : "close");
  return head;
}

Task<> HttpConnection::Send(Pieces pieces) {
  SB_CO_TRYV(Usable());
  if (stall_limit_.count() != 0) write_deadline_ = Clock::now() + stall_limit_;
  // A whole answer is for anybody, token or not: whoever does not take it may not keep the connection. Only a stream,
  // which the handler chose to start, waits for its reader for ever.
  if (framing_ == Framing::kNone && !upgraded_) {
    write_deadline_ = std::min(write_deadline_, Clock::now() + shared_->options.answer_timeout);
    waiting_ = true;
    waiting_since_ = Clock::now();
  }
  auto sent = co_await stream_->WriteAll(pieces);
  write_deadline_ = kNever;
  if (framing_ == Framing::kNone && !upgraded_) waiting_ = false;
  if (!sent) co_return std::unexpected(Explain(std::move(sent).error()));
  co_return Result<>{};
}

Task<> HttpConnection::Respond(HttpResponse response) {
  if (started_) co_return Fail(Code::kInternal, "a second answer to one request");
  framing_ = Framing::kNone;
  std::string head = BeginHead(response.status, response.content_type, response.headers);
  if (HasBody(response.status)) wire::AppendField(head, "content-length", std::to_string(response.body.size()));
  head.append("\r\n");
  if (head_only_ || !HasBody(response.status)) response.body.clear();
  if (response.body.size() < kCopyBelow) {
    head.append(response.body);
    response.body.clear();
  }
  Pieces pieces{head, response.body};
  SB_CO_TRYV(co_await Send(pieces));
  finished_ = true;
  co_return Result<>{};
}

Task<> HttpConnection::StartStream(int status, std::string content_type, std::vector<Header> headers,
                                   std::optional<uint64_t> content_length) {
  if (started_) co_return Fail(Code::kInternal, "a second answer to one request");
  framing_ = Framing::kChunked;
  if (request_is_http10_) framing_ = Framing::kUntilClose;
  if (content_length) framing_ = Framing::kLength;
  if (!HasBody(status)) framing_ = Framing::kNone;
  std::string head = BeginHead(status, content_type, headers);
  if (framing_ == Framing::kChunked) wire::AppendField(head, "transfer-encoding", "chunked");
  if (framing_ == Framing::kLength) wire::AppendField(head, "content-length", std::to_string(*content_length));
  head.append("\r\n");
  length_left_ = content_length.value_or(0);
  Pieces pieces{head};
  co_return co_await Send(pieces);
}

Task<> HttpConnection::Write(std::string bytes) {
  if (!started_ || finished_) co_return Fail(Code::kInternal, "write outside an answer");
  if (bytes.empty()) co_return Usable();
  if (framing_ == Framing::kNone) co_return Fail(Code::kInternal, "this answer has no body");
  if (framing_ == Framing::kLength) {
    if (bytes.size() > length_left_) co_return Fail(Code::kInternal, "more bytes than the promised content-length");
    length_left_ -= bytes.size();
  }
  if (head_only_) co_return Usable();
  if (framing_ != Framing::kChunked) {
    Pieces plain{bytes};
    co_return co_await Send(plain);
  }
  const std::string size = wire::ChunkHeader(bytes.size());
  Pieces chunk{size, bytes, "\r\n"};
  co_return co_await Send(chunk);
}

Task<> HttpConnection::Finish() {
  if (!started_ || finished_) co_return Fail(Code::kInternal, "finish outside an answer");
  if (framing_ == Framing::kLength && length_left_ != 0 && !head_only_)
    co_return Fail(Code::kInternal, "fewer bytes than the promised content-length");
  if (framing_ == Framing::kChunked && !head_only_) {
    Pieces last{"0\r\n\r\n"};
    SB_CO_TRYV(co_await Send(last));
  }
  finished_ = true;
  co_return Result<>{};
}

Task<ByteStream*> HttpConnection::Upgrade(std::vector<Header> headers) {
  if (started_) co_return Fail(Code::kInternal, "a second answer to one request");
  if (!wants_upgrade_) co_return Fail(Code::kInternal, "an upgrade that the client did not ask for");
  request_keep_alive_ = false;
  framing_ = Framing::kNone;
  std::string head = BeginHead(101, "", headers);
  head.append("\r\n");
  Pieces pieces{head};
  SB_CO_TRYV(co_await Send(pieces));
  // What follows is the handler's; when it returns, the connection ends.
  finished_ = true;
  upgraded_ = std::make_unique<Upgraded>(this);
  co_return upgraded_.get();
}

Task<> HttpConnection::WaitClosed() {
  while (!cut_ && !peer_gone()) {
    SB_CO_TRYV(co_await CheckCancelled());
    // The end of the stream shows only behind what comes before it: take a pipelined request into the buffer. When
    // that is full, or the bytes belong to a body, ask the kernel now and then instead.
    if (reader_.parser().done() && !reader_.reading_ahead() && !reader_.full()) {
      auto read = co_await reader_.ReadAhead();
      if (read || cut_) continue;
      if (read.error().code == Code::kCancelled) co_return std::unexpected(std::move(read).error());
      broken_ = true;
    } else {
      if (PeerClosed(stream_->fd())) break;
      SB_CO_TRYV(co_await Sleep(kPeerPoll));
    }
  }
  co_return Result<>{};
}

}  // namespace sandbar::http
