// A connection to a server in the machine: a socket pair whose other end two tasks of the link relay as frames.
#include <fcntl.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "engine/guest_link/core.h"

namespace sandbar::engine {
namespace {

using Socket = asio::local::stream_protocol::socket;

// Owned by both tasks; when one fails, both end.
struct Relay {
  Relay(std::shared_ptr<LinkCore> c, std::shared_ptr<LinkCore::Stream> s, Socket k)
      : core(std::move(c)), stream(std::move(s)), socket(std::move(k)) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay() { core->Abort(stream); }
  void Stop() {
    core->Abort(stream);
    boost::system::error_code ignored;
    socket.close(ignored);
    stream->Notify();
  }

  std::shared_ptr<LinkCore> core;
  std::shared_ptr<LinkCore::Stream> stream;
  Socket socket;
};

bool Over(const Relay& r) {
  return r.core->closed() || r.stream->aborted || (r.stream->end && !*r.stream->end);
}

Task<> Upwards(Relay* r) {
  LinkCore::Stream& s = *r->stream;
  for (;;) {
    while (s.chunks.empty() && !s.end && !Over(*r)) {
      SB_CO_TRYV(co_await s.waiter->Wait(LinkClock::time_point::max()));
    }
    if (Over(*r)) co_return Fail(Code::kClosed, "the connection was reset");
    if (s.chunks.empty()) break;
    std::string chunk = std::move(s.chunks.front());
    s.chunks.pop_front();
    auto buffer = asio::buffer(chunk);
    auto [ec, n] = co_await asio::async_write(r->socket, buffer, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "relay"));
    s.consumed += chunk.size();
    if (s.consumed >= protocol::kStreamWindow / 4 && !s.end) {
      r->core->Send(protocol::Credit{s.id, static_cast<uint32_t>(s.consumed)});
      s.window += std::exchange(s.consumed, 0);
    }
  }
  boost::system::error_code ignored;
  r->socket.shutdown(Socket::shutdown_send, ignored);
  co_return Result<>{};
}

Task<> Downwards(Relay* r) {
  LinkCore::Stream& s = *r->stream;
  std::string buffer(protocol::kMaxData / 2, '\0');
  for (;;) {
    while (s.credit == 0 && !Over(*r)) {
      SB_CO_TRYV(co_await s.credit_waiter->Wait(LinkClock::time_point::max()));
    }
    SB_CO_TRYV(co_await r->core->WaitRoom(LinkClock::time_point::max()));
    if (Over(*r)) co_return Fail(Code::kClosed, "the connection was reset");
    auto room = asio::buffer(buffer.data(), std::min<uint64_t>(buffer.size(), s.credit));
    auto [ec, n] = co_await r->socket.async_read_some(room, kToken);
    if (ec == asio::error::eof) break;
    if (ec) co_return std::unexpected(FromAsio(ec, "relay"));
    if (Over(*r)) co_return Fail(Code::kClosed, "the connection was reset");
    s.credit -= n;
    r->core->Send(protocol::Data{s.id, buffer.substr(0, n)});
  }
  r->core->EndInput(s);
  co_return Result<>{};
}

Task<> RunUp(std::shared_ptr<Relay> relay) {
  auto done = co_await Upwards(relay.get());
  if (!done) relay->Stop();
  co_return Result<>{};
}

Task<> RunDown(std::shared_ptr<Relay> relay) {
  auto done = co_await Downwards(relay.get());
  if (!done) relay->Stop();
  co_return Result<>{};
}

Error ToError(uint16_t port, const protocol::FileError& e) {
  const std::string where = "port " + std::to_string(port);
  if (e.kind == protocol::FileErrorKind::kTimeout) return Error{Code::kTimeout, where + ": the server does not accept"};
  return Error{Code::kUnavailable, where + ": nothing listens there: " + e.message};
}

}  // namespace

Task<Fd> CallDial(std::shared_ptr<LinkCore> core, uint16_t port) {
  if (port == 0) co_return Fail(Code::kBadRequest, "port 0");
  SB_CO_TRY(auto stream, core->OpenDial());
  // However this coroutine ends: what has no relay by then is given up.
  struct Use {
    LinkCore& core;
    std::shared_ptr<LinkCore::Stream> stream;
    ~Use() {
      if (stream) core.Abort(stream);
    }
  } use{*core, stream};
  core->Send(protocol::Dial{stream->id, port});
  auto deadline = LinkClock::now() + core->limits().call;
  while (!stream->connected && !stream->end && !core->closed()) {
    SB_CO_TRYV(co_await stream->waiter->Wait(deadline));
  }
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  if (stream->end && !*stream->end) co_return std::unexpected(ToError(port, stream->end->error()));
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    co_return FailErrno("socketpair");
  Fd ours(pair[0]), theirs(pair[1]);
  Socket socket(core->executor());
  boost::system::error_code ec;
  socket.assign(asio::local::stream_protocol(), ours.get(), ec);
  if (ec) co_return std::unexpected(FromAsio(ec, "relay"));
  ours.Release();
  auto relay = std::make_shared<Relay>(core, std::move(use.stream), std::move(socket));
  core->tasks->Spawn(RunUp(relay));
  core->tasks->Spawn(RunDown(relay));
  co_return theirs;
}

}  // namespace sandbar::engine
