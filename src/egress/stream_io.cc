#include "egress/stream_io.h"

#include <sys/socket.h>

namespace sandbar::egress {

Task<std::string> ReadSome(Stream* stream, size_t limit) {
  std::string out(limit, '\0');
  for (;;) {
    ssize_t r = ::recv(stream->native_handle(), out.data(), out.size(), 0);
    if (r >= 0) {
      out.resize(static_cast<size_t>(r));
      co_return out;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) co_return FailErrno("receive");
    auto [ec] = co_await stream->async_wait(Stream::wait_read, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "receive"));
  }
}

Task<std::string> ReadExactly(Stream* stream, size_t n) {
  std::string out;
  while (out.size() < n) {
    auto piece = co_await ReadSome(stream, n - out.size());
    if (!piece) co_return piece;
    if (piece->empty()) co_return Fail(Code::kClosed, "connection closed");
    out += *piece;
  }
  co_return out;
}

Task<> WriteAll(Stream* stream, std::string bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    ssize_t w = ::send(stream->native_handle(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (w > 0) rest.remove_prefix(static_cast<size_t>(w));
    if (w > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) co_return FailErrno("send");
    auto [ec] = co_await stream->async_wait(Stream::wait_write, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "send"));
  }
  co_return Result<>{};
}

}  // namespace sandbar::egress
