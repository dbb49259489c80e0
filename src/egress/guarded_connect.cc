#include "egress/guarded_connect.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstring>
#include <string_view>

namespace sandbar::egress {

namespace {

constexpr uint16_t kListenerPort = 1;  // every machine's own egress listener: never a target
constexpr std::chrono::microseconds kNeighbour{1000};
constexpr std::string_view kUnpaced = "reno";

Result<Fd> NewSocket(const Endpoint& target, int type) {
  sockaddr_storage ss{};
  ToSockaddr(target, ss);
  Fd fd(::socket(ss.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return FailErrno("socket");
  return fd;
}

Result<> StartConnect(int fd, const Endpoint& target) {
  sockaddr_storage ss{};
  socklen_t len = ToSockaddr(target, ss);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&ss), len) != 0 && errno != EINPROGRESS) {
    int err = errno;
    auto failed = FailErrno("connect " + ToString(target), err);
    failed.error().code = Code::kUnavailable;
    return failed;
  }
  return {};
}

Task<> WaitConnected(Stream* stream, Endpoint target) {
  auto [ec] = co_await stream->async_wait(Stream::wait_write, kToken);
  if (ec) co_return std::unexpected(FromAsio(ec, "connect"));
  int err = 0;
  socklen_t len = sizeof(err);
  if (::getsockopt(stream->native_handle(), SOL_SOCKET, SO_ERROR, &err, &len) != 0) err = errno;
  if (err == 0) co_return Result<>{};
  auto failed = FailErrno("connect " + ToString(target), err);
  failed.error().code = Code::kUnavailable;
  co_return failed;
}

// A host may have chosen an algorithm that paces what it sends (bbr): good for long ways, and half of the throughput
// where the other end is a neighbour, because every packet waits for a timer. Once a socket has paced it goes on doing
// so under any algorithm; so it starts without, and gets the host's choice when the handshake told that it is far.
class Pacing {
 public:
  explicit Pacing(int socket) {
    socklen_t len = choice_.size();
    if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, choice_.data(), &len) != 0) choice_ = {};
    if (choice_[0] != 0) ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
  }
  void PlanConnection(int socket) const {
    tcp_info info{};
    socklen_t len = sizeof(info);
    const bool known = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &len) == 0;
    if (choice_[0] == 0 || (known && std::chrono::microseconds(info.tcpi_rtt) < kNeighbour)) return;
    ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, choice_.data(), std::strlen(choice_.data()));
  }

 private:
  std::array<char, 17> choice_{};  // with room for a last zero
};

Task<Stream> Connect(Endpoint target, std::chrono::milliseconds timeout) {
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(Fd fd, NewSocket(target, SOCK_STREAM));
  int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const Pacing pacing(fd.get());
  SB_CO_TRYV(StartConnect(fd.get(), target));
  SB_CO_TRY(Stream stream, MakeStream(ex, std::move(fd)));
  auto waiting = WaitConnected(&stream, target);
  auto connected = co_await WithTimeout(std::move(waiting), timeout);
  if (!connected) co_return std::unexpected(std::move(connected).error());
  pacing.PlanConnection(stream.native_handle());
  co_return stream;
}

}  // namespace

Task<Stream> GuardedConnect(Endpoint target, const EgressConfig* config) {
  if (target.port == 0 || target.port == kListenerPort) co_return Fail(Code::kForbidden, "port not allowed");
  std::string why = AddressDenied(target.address.bytes, *config);
  if (!why.empty()) co_return Fail(Code::kForbidden, "address not allowed: " + why);
  auto stream = co_await Connect(target, config->connect_timeout);
  co_return stream;
}

Task<Stream> ConnectOperator(OperatorEndpoint target, std::chrono::milliseconds timeout) {
  auto stream = co_await Connect(target.endpoint, timeout);
  co_return stream;
}

Result<Fd> OpenOperatorUdp(OperatorEndpoint target) {
  SB_TRY(Fd fd, NewSocket(target.endpoint, SOCK_DGRAM));
  SB_TRYV(StartConnect(fd.get(), target.endpoint));
  return fd;
}

Result<Stream> MakeStream(const asio::any_io_executor& ex, Fd fd) {
  int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) return FailErrno("fcntl");
  Stream stream(ex);
  boost::system::error_code ec;
  stream.assign(fd.get(), ec);
  if (ec) return std::unexpected(FromAsio(ec, "watch socket"));
  fd.Release();
  return stream;
}

Task<> UntilCancelled(Task<> task) {
  try {
    auto result = co_await std::move(task);
    co_return result;
  } catch (const boost::system::system_error& e) {
    co_return std::unexpected(FromAsio(e.code(), "task"));
  }
}

void ResetOnClose(Stream& stream) {
  linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(stream.native_handle(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

}  // namespace sandbar::egress
