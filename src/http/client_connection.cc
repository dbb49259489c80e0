#include "http/client_connection.h"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace sandbar::http {

namespace {

using asio::ip::tcp;

constexpr size_t kBodyPiece = 64 << 10;

Task<std::vector<tcp::endpoint>> Resolve(std::string host, uint16_t port) {
  boost::system::error_code not_an_address;
  const auto address = asio::ip::make_address(host, not_an_address);
  std::vector<tcp::endpoint> out;
  if (!not_an_address) {
    out.emplace_back(address, port);
    co_return out;
  }
  auto ex = co_await asio::this_coro::executor;
  tcp::resolver resolver(ex);
  const std::string service = std::to_string(port);
  auto [ec, found] = co_await resolver.async_resolve(host, service, kToken);
  if (ec) co_return std::unexpected(FromAsio(ec, "cannot resolve " + host));
  for (const auto& entry : found) out.push_back(entry.endpoint());
  co_return out;
}

void SetOptions(tcp::socket& socket) {
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  // A peer that vanished is noticed after about a minute instead of two hours.
  for (auto [option, value] : {std::pair(TCP_KEEPIDLE, 30), std::pair(TCP_KEEPINTVL, 10), std::pair(TCP_KEEPCNT, 3)})
    setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
}

Error Unreachable(Error error) {
  if (error.code != Code::kCancelled) error.code = Code::kUnavailable;
  return error;
}

}  // namespace

Task<std::unique_ptr<ByteStream>> Dial(wire::Url url, TlsContext tls) {
  auto endpoints = co_await Resolve(url.host, url.port);
  if (!endpoints) co_return std::unexpected(Unreachable(std::move(endpoints).error()));
  auto ex = co_await asio::this_coro::executor;
  tcp::socket socket(ex);
  auto [ec, endpoint] = co_await asio::async_connect(socket, *endpoints, kToken);
  if (ec) co_return std::unexpected(Unreachable(FromAsio(ec, "cannot connect to " + url.HostHeader())));
  SetOptions(socket);
  std::unique_ptr<ByteStream> stream;
  if (tls) {
    SB_CO_TRY(stream, MakeTlsClientStream(std::move(socket), tls, url.host));
  } else {
    stream = MakeTcpStream(std::move(socket));
  }
  auto shaken = co_await stream->Handshake();
  if (!shaken && shaken.error().code == Code::kUnavailable)
    co_return std::unexpected(std::move(shaken).error().Context("TLS"));
  if (!shaken) co_return std::unexpected(Unreachable(std::move(shaken).error()));
  co_return stream;
}

bool ClientConnection::reusable() const {
  return sent_all_ && reader_.parser().done() && reader_.parser().head().keep_alive && reader_.buffered().empty() &&
         !reader_.ended() && !PeerClosed(stream_->fd());
}

Task<> ClientConnection::Exchange(Outgoing request) {
  using namespace asio::experimental::awaitable_operators;
  reader_.Next();
  request_ = std::move(request);
  sent_all_ = false;
  producer_error_.reset();
  Result<> sent;
  if (!request_.produce && request_.body.size() <= kBodyPiece) {
    sent = co_await SendRequest();
  } else {
    // Listening while sending: who refuses an upload answers before its end and may never read the rest.
    auto first = co_await (SendRequest() || ReadHead());
    if (producer_error_) co_return std::unexpected(std::move(*producer_error_));
    if (first.index() == 1) co_return std::get<1>(std::move(first));
    sent = std::get<0>(std::move(first));
  }
  // Even when sending failed: a server that answered and closed without reading everything is worth listening to.
  auto answered = co_await ReadHead();
  if (!answered && !sent) co_return sent;
  co_return answered;
}

Task<> ClientConnection::SendRequest() {
  Pieces start{request_.head, request_.body};
  SB_CO_TRYV(co_await stream_->WriteAll(start));
  while (request_.produce) {
    auto piece = co_await request_.produce();
    if (!piece) {
      producer_error_ = std::move(piece).error();
      co_return Fail(Code::kCancelled, "the body could not be produced");
    }
    if (piece->empty()) break;
    SB_CO_TRYV(co_await SendPiece(std::move(*piece)));
  }
  if (request_.chunked) {
    Pieces last{"0\r\n\r\n"};
    SB_CO_TRYV(co_await stream_->WriteAll(last));
  }
  sent_all_ = true;
  co_return Result<>{};
}

Task<> ClientConnection::SendPiece(std::string piece) {
  std::string size;
  Pieces pieces{piece};
  if (request_.chunked) {
    size = wire::ChunkHeader(piece.size());
    pieces = {size, piece, "\r\n"};
  }
  co_return co_await stream_->WriteAll(pieces);
}

// May be cancelled and called again: the reader keeps what has arrived.
Task<> ClientConnection::ReadHead() {
  while (true) {
    if (!reader_.parser().head_started() && request_.head_only) reader_.parser().ExpectNoBody();
    SB_CO_TRY(bool got, co_await reader_.ReadHead());
    if (!got) co_return Fail(Code::kClosed, "the server closed the connection without an answer");
    const int status = reader_.head().status;
    if (status >= 200) co_return Result<>{};
    if (status == 101) co_return Fail(Code::kProtocol, "the server switched protocols unasked");
    reader_.Next();
  }
}

}  // namespace sandbar::http
