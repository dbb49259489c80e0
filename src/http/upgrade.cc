#include "http/upgrade.h"

#include "http/client_connection.h"
#include "http/message_reader.h"
#include "wire/text.h"

namespace sandbar::http {

namespace {

constexpr size_t kMaxRefusal = 64 << 10;

// A stream of which some bytes were read already.
class ContinuedStream final : public ByteStream {
 public:
  ContinuedStream(std::unique_ptr<ByteStream> stream, std::string early)
      : stream_(std::move(stream)), early_(std::move(early)) {}
  Task<> Handshake() override { co_return Result<>{}; }
  Task<size_t> ReadSome(char* data, size_t n) override {
    if (early_.empty()) co_return co_await stream_->ReadSome(data, n);
    const size_t taken = early_.copy(data, n);
    early_.erase(0, taken);
    co_return taken;
  }
  Task<> WriteAll(Pieces pieces) override { return stream_->WriteAll(pieces); }
  Task<> Linger(size_t max_bytes) override { return stream_->Linger(max_bytes); }
  bool ShutdownSend() override { return stream_->ShutdownSend(); }
  void Close() override { stream_->Close(); }
  int fd() const override { return stream_->fd(); }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::string early_;
};

Task<UpgradeAnswer> Ask(wire::Url url, TlsContext tls, std::string head) {
  SB_CO_TRY(auto stream, co_await Dial(std::move(url), std::move(tls)));
  Pieces pieces{head};
  SB_CO_TRYV(co_await stream->WriteAll(pieces));
  MessageReader reader(stream.get(), ReaderOptions{.kind = wire::HttpKind::kResponse});
  SB_CO_TRY(bool got, co_await reader.ReadHead());
  if (!got) SB_CO_TRYV(reader.parser().Eof());
  UpgradeAnswer answer{.status = reader.head().status, .headers = reader.head().fields, .body = {}, .stream = nullptr};
  while (!reader.parser().done() && answer.body.size() < kMaxRefusal) {
    SB_CO_TRY(std::string piece, co_await reader.ReadBody());
    answer.body += piece;
  }
  std::string early(reader.buffered());
  if (answer.status == 101) answer.stream = std::make_unique<ContinuedStream>(std::move(stream), std::move(early));
  co_return answer;
}

}  // namespace

Task<UpgradeAnswer> DialUpgrade(ClientRequest request, std::string protocol, HttpClientOptions options) {
  SB_CO_TRY(wire::Url url, wire::ParseUrl(request.url));
  TlsContext tls;
  if (url.scheme == "https") {
    SB_CO_TRY(tls, MakeClientTls(options.ca_file));
  }
  std::vector<Header> headers{{"host", url.HostHeader()}, {"connection", "upgrade"}, {"upgrade", std::move(protocol)}};
  headers.insert(headers.end(), request.headers.begin(), request.headers.end());
  std::string head = wire::SerializeRequestHead(request.method, url.target, headers);
  auto ask = Ask(std::move(url), std::move(tls), std::move(head));
  co_return co_await WithTimeout(std::move(ask), options.connect_timeout);
}

}  // namespace sandbar::http
