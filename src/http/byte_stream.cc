#include "http/byte_stream.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace sandbar::http {

namespace {

class TcpStream final : public ByteStream {
 public:
  TcpStream(asio::ip::tcp::socket socket, std::shared_ptr<Traffic> traffic)
      : socket_(std::move(socket)), traffic_(std::move(traffic)) {}

  Task<> Handshake() override { co_return Result<>{}; }

  Task<size_t> ReadSome(char* data, size_t n) override {
    auto buffer = asio::buffer(data, n);
    auto [ec, got] = co_await socket_.async_read_some(buffer, kToken);
    if (ec == asio::error::eof) co_return size_t{0};
    if (ec) co_return std::unexpected(FromAsio(ec, "read"));
    if (traffic_) traffic_->read += got;
    co_return got;
  }

  Task<> WriteAll(Pieces pieces) override {
    std::array<asio::const_buffer, 3> buffers;
    std::ranges::transform(pieces, buffers.begin(), [](auto p) { return asio::const_buffer(p.data(), p.size()); });
    auto [ec, n] = co_await asio::async_write(socket_, buffers, kToken);
    if (traffic_) traffic_->written += n;
    if (ec) co_return std::unexpected(FromAsio(ec, "write"));
    co_return Result<>{};
  }

  Task<> Linger(size_t max_bytes) override { return LingerSocket(&socket_, max_bytes); }

  bool ShutdownSend() override {
    boost::system::error_code ec;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
    return !ec;
  }

  void Close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

  int fd() const override { return const_cast<asio::ip::tcp::socket&>(socket_).native_handle(); }

 private:
  asio::ip::tcp::socket socket_;
  std::shared_ptr<Traffic> traffic_;
};

}  // namespace

std::unique_ptr<ByteStream> MakeTcpStream(asio::ip::tcp::socket socket) {
  return std::make_unique<TcpStream>(std::move(socket), nullptr);
}

Result<std::unique_ptr<ByteStream>> MakeFdStream(const asio::any_io_executor& ex, Fd fd,
                                                 std::shared_ptr<Traffic> traffic) {
  asio::ip::tcp::socket socket(ex);
  boost::system::error_code ec;
  // Asio asks for the family only when it would open or bind.
  socket.assign(asio::ip::tcp::v4(), fd.get(), ec);
  if (ec) return std::unexpected(FromAsio(ec, "take over a connection"));
  fd.Release();
  return std::make_unique<TcpStream>(std::move(socket), std::move(traffic));
}

Task<> LingerSocket(asio::ip::tcp::socket* socket, size_t max_bytes) {
  boost::system::error_code ignored;
  socket->shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  std::string sink(64 << 10, '\0');
  auto buffer = asio::buffer(sink);
  size_t total = 0;
  while (total < max_bytes) {
    auto [ec, n] = co_await socket->async_read_some(buffer, kToken);
    if (ec) break;
    total += n;
  }
  co_return Result<>{};
}

bool PeerClosed(int fd) {
  pollfd p{fd, POLLRDHUP, 0};
  return fd < 0 || (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0);
}

}  // namespace sandbar::http
