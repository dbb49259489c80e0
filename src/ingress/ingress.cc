#include "ingress/ingress.h"

#include <algorithm>

#include "async/cancelled.h"
#include "http/byte_stream.h"
#include "http/message_reader.h"
#include "http/pipe.h"
#include "wire/http1.h"
#include "wire/http_hops.h"
#include "wire/text.h"

namespace sandbar::ingress {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kMaxInterim = 16;  // 1xx answers before the real one

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view n) { return wire::EqualsIgnoreCase(n, name); });
}

// Headers that say who asked: a client's own would be lies that the guest's server believes.
bool IsForwarding(std::string_view given) {
  std::string name(given);
  std::ranges::replace(name, '_', '-');  // CGI and its like read both as the same
  constexpr std::string_view kPrefix = "x-forwarded-";
  return wire::EqualsIgnoreCase(name.substr(0, kPrefix.size()), kPrefix) || IsOneOf(name, {"forwarded", "x-real-ip"});
}

bool WantsWebSocket(const http::HttpExchange& x) {
  return x.wants_upgrade() && wire::EqualsIgnoreCase(x.request().Get("upgrade"), "websocket");
}

std::string RequestHead(const http::HttpExchange& x, const IngressRequest& r) {
  std::vector<http::Header> out{{"host", r.host}};
  for (http::Header& h : wire::EndToEndFields(r.headers))
    if (!IsForwarding(h.name) && !IsOneOf(h.name, {"host", "expect"})) out.push_back(std::move(h));
  out.push_back({"x-forwarded-for", r.client});
  out.push_back({"x-forwarded-proto", r.scheme});
  out.push_back({"x-forwarded-host", r.public_host});
  const http::HttpRequest& asked = x.request();
  if (asked.Has("transfer-encoding")) {
    out.push_back({"transfer-encoding", "chunked"});
  } else if (asked.Has("content-length")) {
    out.push_back({"content-length", std::string(asked.Get("content-length"))});
  }
  if (WantsWebSocket(x)) {
    out.push_back({"connection", "upgrade"});
    out.push_back({"upgrade", "websocket"});
  } else {
    out.push_back({"connection", "close"});
  }
  return wire::SerializeRequestHead(asked.method, r.target, out);
}

std::vector<http::Header> ResponseFields(const std::vector<http::Header>& from) {
  std::vector<http::Header> out = wire::EndToEndFields(from);
  // It would lead browsers to another port of this host.
  std::erase_if(out, [](const http::Header& h) { return wire::EqualsIgnoreCase(h.name, "alt-svc"); });
  for (http::Header& h : out)
    if (wire::EqualsIgnoreCase(h.name, "set-cookie")) h.value = HostOnlyCookie(h.value);
  return out;
}

// Opens when the client has sent something, or when it has had time to look at the 101.
struct Gate {
  Gate(const asio::any_io_executor& ex, std::chrono::milliseconds hold) : sent(ex), hold(hold) {}
  Event sent;
  std::chrono::milliseconds hold;
  bool open = false;
};

// The two ends of a WebSocket, joined by a gate. Programs attach their listener when the connection is open; messages
// that come in one read with the 101 are lost on them. So the guest's first bytes wait at the gate.
class GatedStream : public http::ByteStream {
 public:
  GatedStream(http::ByteStream* stream, Gate* gate) : stream_(stream), gate_(gate) {}
  Task<> Handshake() override { co_return Result<>{}; }
  Task<> WriteAll(http::Pieces pieces) override { return stream_->WriteAll(pieces); }
  Task<> Linger(size_t max_bytes) override { return stream_->Linger(max_bytes); }
  bool ShutdownSend() override { return stream_->ShutdownSend(); }
  void Close() override { stream_->Close(); }
  int fd() const override { return stream_->fd(); }

 protected:
  http::ByteStream* stream_;
  Gate* gate_;
};

class GatedClient final : public GatedStream {
 public:
  using GatedStream::GatedStream;
  Task<size_t> ReadSome(char* data, size_t n) override {
    auto got = co_await stream_->ReadSome(data, n);
    gate_->open = true;
    gate_->sent.Notify();
    co_return got;
  }
};

class GatedGuest final : public GatedStream {
 public:
  // `early` was read before.
  GatedGuest(http::ByteStream* stream, Gate* gate, std::string early)
      : GatedStream(stream, gate), early_(std::move(early)) {}
  Task<size_t> ReadSome(char* data, size_t n) override {
    if (!gate_->open) SB_CO_TRYV(co_await Hold());
    if (early_.empty()) co_return co_await stream_->ReadSome(data, n);
    const size_t taken = early_.copy(data, n);
    early_.erase(0, taken);
    co_return taken;
  }

 private:
  Task<> Hold() {
    using namespace asio::experimental::awaitable_operators;
    auto opened = co_await (gate_->sent.Wait() || Sleep(gate_->hold));
    if (opened.index() == 1) SB_CO_TRYV(std::get<1>(std::move(opened)));
    gate_->open = true;
    co_return co_await CheckCancelled();
  }

  std::string early_;
};

class Relay : private http::ReadProgress {
 public:
  Relay(http::HttpExchange* x, std::unique_ptr<http::ByteStream> guest, IngressRequest request, IngressLimits limits)
      : x_(x),
        guest_(std::move(guest)),
        request_(std::move(request)),
        limits_(limits),
        reader_(guest_.get(), {.kind = wire::HttpKind::kResponse, .buffer_bytes = kBufferBytes, .progress = this}) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  Task<> Run() {
    using namespace asio::experimental::awaitable_operators;
    x_->LimitStalls(limits_.stall);
    auto first = co_await (Receive() || Send() || Watch());
    if (first.index() == 2) co_return Fail(Code::kTimeout, "the server in the sandbox does not answer");
    if (first.index() == 1) co_return std::get<1>(std::move(first));
    SB_CO_TRYV(std::get<0>(std::move(first)));
    if (switched_) co_return co_await Switch();
    co_return Result<>{};
  }

 private:
  // The request; afterwards waits for the client to go away, which ends the whole exchange.
  Task<> Send() {
    co_await asio::this_coro::throw_if_cancelled(false);
    const std::string head = RequestHead(*x_, request_);
    http::Pieces start{head};
    auto sent = co_await guest_->WriteAll(start);
    const bool chunked = x_->request().Has("transfer-encoding");
    while (sent) {
      SB_CO_TRYV(co_await CheckCancelled());
      SB_CO_TRY(std::string piece, co_await x_->ReadBody());
      Touch();
      if (piece.empty()) break;
      sent = co_await SendPiece(piece, chunked);
    }
    if (sent && chunked) {
      http::Pieces last{"0\r\n\r\n"};
      sent = co_await guest_->WriteAll(last);
    }
    // A server that does not want the rest may have answered all the same.
    if (!sent && sent.error().code == Code::kCancelled) co_return sent;
    SB_CO_TRYV(co_await CheckCancelled());
    SB_CO_TRYV(co_await x_->WaitClosed());
    co_return Fail(Code::kClosed, "the client went away");
  }

  // NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): a local of Send
  Task<> SendPiece(const std::string& piece, bool chunked) {
    std::string size;
    http::Pieces pieces{piece};
    if (chunked) {
      size = wire::ChunkHeader(piece.size());
      pieces = {size, piece, "\r\n"};
    }
    auto sent = co_await guest_->WriteAll(pieces);
    Touch();
    co_return sent;
  }

  Task<> Receive() {
    co_await asio::this_coro::throw_if_cancelled(false);
    SB_CO_TRYV(co_await ReadHead());
    const wire::HttpHead& head = reader_.head();
    if (head.status == 101) {
      if (!WantsWebSocket(*x_)) co_return Fail(Code::kProtocol, "the server in the sandbox switched protocols unasked");
      switched_ = true;
      co_return Result<>{};
    }
    answered_ = true;
    std::vector<http::Header> fields = ResponseFields(head.fields);
    std::optional<uint64_t> length = head.content_length;
    if (head.chunked) length.reset();
    SB_CO_TRYV(co_await x_->StartStream(head.status, "", std::move(fields), length));
    while (true) {
      SB_CO_TRYV(co_await CheckCancelled());
      SB_CO_TRY(std::string piece, co_await reader_.ReadBody());
      if (piece.empty()) break;
      SB_CO_TRYV(co_await x_->Write(std::move(piece)));
      Touch();
    }
    co_return co_await x_->Finish();
  }

  Task<> ReadHead() {
    for (int interim = 0; interim <= kMaxInterim; ++interim) {
      if (x_->request().method == "HEAD") reader_.parser().ExpectNoBody();
      auto got = co_await reader_.ReadHead();
      // Too large or malformed: the guest's fault, whatever the parser calls it.
      if (!got && reader_.parser().failed()) co_return Fail(Code::kProtocol, got.error().message);
      if (!got) co_return std::unexpected(std::move(got).error());
      if (!*got) co_return Fail(Code::kClosed, "the server in the sandbox closed without an answer");
      const int status = reader_.head().status;
      // A line too short to be a status line.
      if (status < 100) co_return Fail(Code::kProtocol, "the server in the sandbox does not speak HTTP");
      if (status == 101 || status >= 200) co_return Result<>{};
      reader_.Next();
    }
    co_return Fail(Code::kProtocol, "the server in the sandbox sends no final answer");
  }

  Task<> Switch() {
    std::vector<http::Header> fields = ResponseFields(reader_.head().fields);
    fields.push_back({"upgrade", "websocket"});
    SB_CO_TRY(http::ByteStream * client, co_await x_->Upgrade(std::move(fields)));
    auto ex = co_await asio::this_coro::executor;
    Gate gate(ex, limits_.settle);
    GatedClient asking(client, &gate);
    GatedGuest answering(guest_.get(), &gate, std::string(reader_.buffered()));
    std::string nothing;  // what came early waits at the gate
    co_return co_await http::PipeStreams(&asking, &answering, std::move(nothing), limits_.idle);
  }

  // Ends when nothing moved for too long.
  Task<> Watch() {
    while (true) {
      const auto left = moved_ + (answered_ ? limits_.idle : limits_.answer) - Clock::now();
      if (left <= Clock::duration::zero()) co_return Result<>{};
      SB_CO_TRYV(co_await Sleep(left));
    }
  }

  void Touch() { moved_ = Clock::now(); }
  void OnRead() override { Touch(); }

  http::HttpExchange* x_;
  std::unique_ptr<http::ByteStream> guest_;
  IngressRequest request_;
  IngressLimits limits_;
  http::MessageReader reader_;
  bool answered_ = false;
  bool switched_ = false;
  Clock::time_point moved_ = Clock::now();
};

}  // namespace

std::string HostOnlyCookie(std::string_view set_cookie) {
  std::string out;
  bool first = true;
  while (first || !set_cookie.empty()) {
    const size_t end = std::min(set_cookie.find(';'), set_cookie.size());
    const std::string_view part = set_cookie.substr(0, end);
    const std::string_view name = wire::Trim(part.substr(0, part.find('=')));
    // The first part is the cookie itself, which may be called Domain.
    if (first || !wire::EqualsIgnoreCase(name, "domain")) {
      if (!first) out += ";";
      out += part;
    }
    first = false;
    set_cookie.remove_prefix(std::min(end + 1, set_cookie.size()));
  }
  return out;
}

Task<> ProxyToGuest(http::HttpExchange* x, Fd guest, IngressRequest request, IngressLimits limits) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(auto stream, http::MakeFdStream(ex, std::move(guest), request.traffic));
  Relay relay(x, std::move(stream), std::move(request), limits);
  co_return co_await relay.Run();
}

}  // namespace sandbar::ingress
