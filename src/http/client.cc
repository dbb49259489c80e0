#include "http/client.h"

#include "http/client_connection.h"
#include "wire/text.h"

namespace sandbar::http {

namespace {

// Owned by the client and by every response that may still give its connection back.
struct Pool {
  HttpClientOptions options;
  TlsContext tls;
  std::unique_ptr<ClientConnection> idle;
};

class Response final : public ClientResponse {
 public:
  Response(std::unique_ptr<ClientConnection> connection, std::shared_ptr<Pool> pool)
      : connection_(std::move(connection)), pool_(std::move(pool)) {
    head_.status = connection_->response().status;
    head_.headers = std::move(connection_->response().fields);
    GiveBack();
  }

  const ClientResponseHead& head() const override { return head_; }

  Task<std::string> Read() override {
    if (failed_) co_return std::unexpected(*failed_);
    if (!connection_) co_return std::string();
    auto piece = co_await connection_->ReadBody();
    if (piece) {
      GiveBack();
    } else {
      failed_ = piece.error();
      connection_.reset();
    }
    co_return piece;
  }

  Task<std::string> ReadAll(size_t limit) override {
    std::string all;
    while (true) {
      SB_CO_TRY(std::string piece, co_await Read());
      if (piece.empty()) co_return all;
      if (all.size() + piece.size() > limit)
        co_return Fail(Code::kTooLarge, "the answer is larger than " + std::to_string(limit) + " bytes");
      all += piece;
    }
  }

 private:
  void GiveBack() {
    if (!connection_->done()) return;
    if (connection_->reusable()) pool_->idle = std::move(connection_);
    connection_.reset();
  }

  ClientResponseHead head_;
  std::unique_ptr<ClientConnection> connection_;  // until the body ended
  std::shared_ptr<Pool> pool_;
  std::optional<Error> failed_;
};

bool MayRepeat(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE";
}

class Client final : public HttpClient {
 public:
  explicit Client(HttpClientOptions options) : pool_(std::make_shared<Pool>()) { pool_->options = std::move(options); }

  Task<std::unique_ptr<ClientResponse>> Send(ClientRequest request) override {
    SB_CO_TRY(wire::Url url, wire::ParseUrl(request.url));
    const bool has_length =
        !request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
    if (has_length) SetHeader(request.headers, "content-length", std::to_string(request.body.size()));
    const bool head_only = request.method == "HEAD";
    while (true) {
      const bool kept = pool_->idle != nullptr && pool_->idle->origin() == Origin(url) && pool_->idle->reusable();
      SB_CO_TRY(auto connection, co_await Connect(url));
      ClientConnection::Outgoing outgoing{.head = MakeHead(request, url), .body = request.body, .head_only = head_only};
      auto exchanged = co_await connection->Exchange(std::move(outgoing));
      if (exchanged) co_return std::make_unique<Response>(std::move(connection), pool_);
      // The server may have closed a kept connection just when we used it.
      const bool stale = kept && exchanged.error().code == Code::kClosed && !connection->answered();
      if (!stale || !MayRepeat(request.method)) co_return std::unexpected(std::move(exchanged).error());
    }
  }

  Task<std::unique_ptr<ClientResponse>> SendStreaming(ClientRequest request, BodyProducer body) override {
    SB_CO_TRY(wire::Url url, wire::ParseUrl(request.url));
    const bool chunked = !wire::HasField(request.headers, "content-length");
    if (chunked) SetHeader(request.headers, "transfer-encoding", "chunked");
    SB_CO_TRY(auto connection, co_await Connect(url));
    ClientConnection::Outgoing outgoing{.head = MakeHead(request, url), .produce = std::move(body), .chunked = chunked};
    SB_CO_TRYV(co_await connection->Exchange(std::move(outgoing)));
    co_return std::make_unique<Response>(std::move(connection), pool_);
  }

 private:
  static std::string Origin(const wire::Url& url) {
    return url.scheme + "://" + url.host + ":" + std::to_string(url.port);
  }

  static void SetHeader(std::vector<Header>& headers, std::string_view name, std::string value) {
    std::erase_if(headers, [&](const Header& h) { return wire::EqualsIgnoreCase(h.name, name); });
    headers.push_back({std::string(name), std::move(value)});
  }

  static std::string MakeHead(const ClientRequest& request, const wire::Url& url) {
    std::vector<Header> headers = request.headers;
    if (!wire::HasField(headers, "host")) headers.insert(headers.begin(), {"host", url.HostHeader()});
    return wire::SerializeRequestHead(request.method, url.target, headers);
  }

  // The kept connection when it fits, else a new one.
  Task<std::unique_ptr<ClientConnection>> Connect(wire::Url url) {
    auto kept = std::move(pool_->idle);
    if (kept && kept->origin() == Origin(url) && kept->reusable()) co_return kept;
    kept.reset();
    TlsContext tls;
    if (url.scheme == "https") {
      if (!pool_->tls) {
        SB_CO_TRY(pool_->tls, MakeClientTls(pool_->options.ca_file));
      }
      tls = pool_->tls;
    }
    std::string origin = Origin(url);
    auto dial = Dial(std::move(url), std::move(tls));
    auto stream = co_await WithTimeout(std::move(dial), pool_->options.connect_timeout);
    if (!stream && stream.error().code == Code::kTimeout)
      co_return Fail(Code::kTimeout, "no connection to " + origin + " in time");
    if (!stream) co_return std::unexpected(std::move(stream).error());
    co_return std::make_unique<ClientConnection>(std::move(*stream), std::move(origin));
  }

  std::shared_ptr<Pool> pool_;
};

}  // namespace

std::string_view ClientResponseHead::Get(std::string_view name) const {
  return wire::FindField(headers, name);
}

std::unique_ptr<HttpClient> MakeHttpClient(asio::any_io_executor, HttpClientOptions options) {
  return std::make_unique<Client>(std::move(options));
}

}  // namespace sandbar::http
