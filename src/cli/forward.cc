// `sandbar forward NAME PORT[:LOCAL]`: a local TCP port whose connections go through the API to a port of a sandbox.
#include <fcntl.h>
#include <signal.h>

#include <boost/asio/ip/tcp.hpp>

#include "cli/browser_guard.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "http/pipe.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

using asio::ip::tcp;

constexpr std::chrono::hours kIdle{24};
constexpr size_t kMaxConnections = 512;

struct Forwarder {
  ApiClient* api = nullptr;
  std::string path;  // of the machine's port in the API
  std::string name;
  std::string authority;  // where browsers find it
};

Result<tcp::acceptor> Listen(const asio::any_io_executor& ex, uint16_t port) {
  tcp::acceptor acceptor(ex);
  boost::system::error_code ec;
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(128, ec);
  if (ec == boost::system::errc::address_in_use)
    return FailWithFix(Code::kConflict, "port " + std::to_string(port) + " of this machine is in use",
                       "sandbar forward NAME PORT:0   # or any other free local port");
  if (ec) return std::unexpected(FromAsio(ec, "cannot listen on port " + std::to_string(port)));
  return acceptor;
}

Task<> Carry(const Forwarder* forwarder, tcp::socket socket) {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto plain = http::MakeTcpStream(std::move(socket));
  BrowserGuard local(std::move(plain), forwarder->authority);
  http::ClientRequest request = forwarder->api->Request("GET", forwarder->path, "");
  auto remote = co_await forwarder->api->Upgrade(std::move(request), "sandbar-tcp");
  if (!remote) {
    if (remote.error().code != Code::kCancelled) Note(forwarder->name + ": " + remote.error().message);
    co_return std::unexpected(std::move(remote).error());
  }
  std::string nothing;
  http::ByteStream* machine = remote->get();
  co_return co_await http::PipeStreams(&local, machine, std::move(nothing), kIdle);
}

Task<> AcceptAll(tcp::acceptor* acceptor, const Forwarder* forwarder, TaskGroup* tasks) {
  while (true) {
    auto [ec, socket] = co_await acceptor->async_accept(kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "accept"));
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    // Beyond this somebody loops; a closed connection tells them.
    if (tasks->size() < kMaxConnections) tasks->Spawn(Carry(forwarder, std::move(socket)));
  }
}

Result<> Announce(const Options& options, const ForwardCommand& command, uint16_t local, const std::string& authority) {
  const std::string address = "127.0.0.1:" + std::to_string(local);
  Note(address + " is port " + std::to_string(command.port) + " of " + command.name + "; Ctrl-C ends it");
  Note("in a browser: http://" + authority + "/");
  if (!options.json) return {};
  json::object report{{"local", address}, {"port", command.port}, {"sandbox", command.name}, {"browser", authority}};
  return Out(wire::NdjsonLine(report));
}

}  // namespace

Task<int> Forward(ApiClient* api, const Options* options, ForwardCommand command) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM});
  SB_CO_TRY(std::string session, co_await SessionOf(api, command.name, true));
  Forwarder forwarder{api,
                      "/x/v1/sessions/" + wire::EncodeComponent(session) + "/ports/" + std::to_string(command.port),
                      command.name, ForwardName(command.name, command.port)};
  SB_CO_TRY(tcp::acceptor acceptor, Listen(ex, static_cast<uint16_t>(command.local)));
  boost::system::error_code ec;
  const uint16_t local = acceptor.local_endpoint(ec).port();
  forwarder.authority += ":" + std::to_string(local);
  SB_CO_TRYV(Announce(*options, command, local, forwarder.authority));
  TaskGroup tasks(ex);
  auto accepting = AcceptAll(&acceptor, &forwarder, &tasks);
  auto signal = signals.Wait();
  auto ended = co_await (std::move(accepting) || std::move(signal));
  co_await tasks.Close();
  if (ended.index() == 0) co_return std::unexpected(std::get<0>(std::move(ended)).error());
  co_return kExitInterrupted;
}

}  // namespace sandbar::cli
