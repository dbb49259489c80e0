// For tests of the link: a recording receiver, a scripted peer in place of the agent, and a loop to run a scenario on.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/guest_link/guest_link.h"
#include "protocol/guest_frames.h"

namespace sandbar::engine {

using Socket = asio::local::stream_protocol::socket;

class Recorder : public GuestEvents {
 public:
  explicit Recorder(const asio::any_io_executor& ex) : changed_(ex) {}
  void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) override {
    auto& c = commands[command];
    // What a store does with a replay: keep only what is new.
    uint64_t skip = c.end > offset ? c.end - offset : 0;
    if (skip < bytes.size()) {
      if (keep_bytes) (stream == 1 ? c.out : c.err).append(bytes.substr(skip));
      c.end = offset + bytes.size();
    }
    if (auto_ack && link != nullptr) link->Ack(command, c.end);
    changed_.Notify();
  }
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) override {
    auto& c = commands[command];
    c.gap += bytes;
    c.end = offset + bytes;
    if (auto_ack && link != nullptr) link->Ack(command, c.end);
    changed_.Notify();
  }
  void OnExit(const protocol::Exit& exit) override {
    commands[exit.id].exit = exit;
    if (auto_ack && link != nullptr) link->AckExit(exit.id);
    changed_.Notify();
  }
  void OnStdinTaken(const std::string& command, uint64_t offset) override {
    EXPECT_GT(offset, commands[command].taken);
    commands[command].taken = offset;
    changed_.Notify();
  }
  void OnStdinClosed(const std::string& command) override {
    commands[command].stdin_closed = true;
    changed_.Notify();
  }
  void OnClosed(const Error& why) override {
    EXPECT_FALSE(closed) << "told twice";
    closed = why;
    changed_.Notify();
  }

  asio::awaitable<void> UntilExit(std::string id) {
    while (!commands[id].exit && !closed) co_await changed_.Wait();
  }
  asio::awaitable<void> UntilEnd(std::string id, uint64_t end) {
    while (commands[id].end < end && !closed) co_await changed_.Wait();
  }
  asio::awaitable<void> UntilTaken(std::string id, uint64_t offset) {
    while (commands[id].taken < offset && !closed) co_await changed_.Wait();
  }
  asio::awaitable<void> UntilStdinClosed(std::string id) {
    while (!commands[id].stdin_closed && !closed) co_await changed_.Wait();
  }
  asio::awaitable<void> UntilText(std::string id, std::string text) {
    while (!commands[id].out.contains(text) && !commands[id].exit && !closed) co_await changed_.Wait();
  }
  asio::awaitable<void> UntilClosed() {
    while (!closed) co_await changed_.Wait();
  }

  struct Seen {
    std::string out, err;
    uint64_t end = 0, gap = 0;
    uint64_t taken = 0;  // of its standard input
    bool stdin_closed = false;
    std::optional<protocol::Exit> exit;
  };
  std::map<std::string, Seen> commands;
  std::optional<Error> closed;
  GuestLink* link = nullptr;
  bool auto_ack = true;
  bool keep_bytes = true;

 private:
  Event changed_;
};

// Speaks for the agent, as honestly as the test wants.
class Peer {
 public:
  explicit Peer(Socket socket) : socket_(std::move(socket)) {}

  asio::awaitable<void> Send(protocol::GuestFrame frame) {
    std::string bytes = protocol::Encode(frame);
    co_await SendRaw(std::move(bytes));
  }
  asio::awaitable<void> SendRaw(std::string bytes) {
    auto buffer = asio::buffer(bytes);
    co_await asio::async_write(socket_, buffer, kToken);
  }
  // Nothing when the link closed.
  asio::awaitable<std::optional<protocol::HostFrame>> Receive() {
    protocol::HostFrame frame;
    for (;;) {
      auto got = decoder_.Next(frame);
      EXPECT_TRUE(got);
      if (got && *got) co_return frame;
      auto [ec, n] = co_await socket_.async_read_some(asio::buffer(buffer_), kToken);
      if (ec) co_return std::nullopt;
      decoder_.Feed(std::string_view(buffer_.data(), n));
    }
  }
  template <class M>
  asio::awaitable<M> Expect() {
    auto frame = co_await Receive();
    if (frame && std::holds_alternative<M>(*frame)) co_return std::get<M>(std::move(*frame));
    ADD_FAILURE() << "not the expected frame: " << (frame ? static_cast<int>(frame->index()) : -1);
    co_return M{};
  }
  asio::awaitable<void> Hello(std::vector<protocol::CommandState> commands, std::string key = {}) {
    auto hello = co_await Expect<protocol::Hello>();
    protocol::GuestFrame ack = protocol::HelloAck{
        protocol::kOldestGuestVersion, hello.nonce, std::move(commands), std::move(key), newest, stdins};
    co_await Send(std::move(ack));
  }
  void Close() { socket_.close(); }

  uint32_t newest = protocol::GuestVersions().newest;  // of the versions that it speaks
  std::vector<protocol::StdinState> stdins;            // what it says of earlier connections

 private:
  Socket socket_;
  protocol::FrameDecoder<protocol::HostFrame> decoder_;
  std::array<char, 65536> buffer_{};
};

inline std::pair<Socket, Socket> SocketPair(asio::io_context& io) {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  asio::local::stream_protocol protocol;
  return {Socket(io, protocol, fds[0]), Socket(io, protocol, fds[1])};
}

// Runs one coroutine to its end; what it left behind is cancelled with the loop.
inline void RunScenario(asio::io_context& io, asio::awaitable<void> scenario) {
  bool done = false;
  asio::co_spawn(io.get_executor(), std::move(scenario), [&](std::exception_ptr e) {
    EXPECT_FALSE(e) << "the scenario threw";
    done = true;
    io.stop();
  });
  io.run_for(std::chrono::minutes(5));  // a hang guard
  EXPECT_TRUE(done) << "the scenario hangs";
}

inline protocol::Exec MakeExec(std::string id, std::vector<std::string> argv) {
  protocol::Exec e;
  e.id = std::move(id);
  e.argv = std::move(argv);
  e.env = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  e.cwd = "/";
  return e;
}

// A link whose agent is a Peer on the same loop.
class LinkTest : public ::testing::Test {
 public:
  LinkTest() : events_(io_.get_executor()), group_(io_.get_executor()) {
    auto [ours, theirs] = SocketPair(io_);
    peer_ = std::make_unique<Peer>(std::move(theirs));
    ours_.emplace(std::move(ours));
  }
  void Run(asio::awaitable<void> scenario) { RunScenario(io_, std::move(scenario)); }

  asio::awaitable<void> Open(std::vector<protocol::CommandState> commands = {}) {
    group_.Spawn(Greet(std::move(commands)));
    auto opened = co_await OpenGuestLink(std::move(*ours_), &events_, limits_);
    EXPECT_TRUE(opened) << opened.error().message;
    link_ = *std::move(opened);
    events_.link = link_.get();
  }
  Task<> Greet(std::vector<protocol::CommandState> commands) {
    co_await peer_->Hello(std::move(commands));
    co_return Result<>{};
  }
  asio::awaitable<void> Close() {
    co_await link_->Close();
    peer_->Close();
    co_await group_.Close();
  }
  // Starts a command that the peer then says runs.
  asio::awaitable<void> Start(std::string id, bool standard_input = false) {
    group_.Spawn(Answer(id));
    auto request = MakeExec(id, {"x"});
    request.standard_input = standard_input;
    auto started = co_await link_->Exec(std::move(request));
    EXPECT_TRUE(started) << started.error().message;
  }
  Task<> Answer(std::string id) {
    co_await peer_->Expect<protocol::Exec>();
    protocol::GuestFrame started = protocol::ExecStarted{id, 5};
    co_await peer_->Send(std::move(started));
    co_return Result<>{};
  }
  // A call whose result lands in `out`.
  template <class T>
  Task<> Into(Task<T> call, std::optional<Result<T>>* out) {
    auto r = co_await std::move(call);
    *out = std::move(r);
    co_return Result<>{};
  }

  asio::io_context io_;
  LinkDeadlines limits_;
  Recorder events_;
  std::unique_ptr<Peer> peer_;
  std::optional<Socket> ours_;
  std::unique_ptr<GuestLink> link_;
  TaskGroup group_;
};

}  // namespace sandbar::engine
