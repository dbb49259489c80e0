// The link against the real agent: sandbar-guest as PID 1 of a PID namespace. Needs root and the built program.
#include <netinet/in.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "base/fd.h"
#include "support/guest_link/agent_fixture.h"
#include "support/wire/noise.h"
#include "wire/tar.h"

namespace sandbar::engine {
namespace {

// A gzip file of stored blocks (RFC 1951, 1952).
std::string Gzip(std::string_view plain) {
  uint32_t crc = ~0U;
  for (char c : plain) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb88320U & -(crc & 1));
  }
  auto little = [](uint64_t v, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> 8 * i);
    return out;
  };
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  for (size_t at = 0; at < plain.size();) {
    auto block = plain.substr(at, 65535);
    at += block.size();
    out += little(at == plain.size() ? 1 : 0, 1) + little(block.size(), 2) + little(~block.size(), 2);
    out += block;
  }
  return out + little(~crc, 4) + little(plain.size(), 4);
}

class Pieces : public ByteSource {
 public:
  explicit Pieces(std::string bytes) : bytes_(std::move(bytes)) {}
  Task<std::string> Next() override {
    size_t n = std::min<size_t>(bytes_.size() - at_, 200000);
    at_ += n;
    co_return bytes_.substr(at_ - n, n);
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

TEST_F(AgentTest, AStreamServesOneLinkAfterTheOther) {
  machine_ = std::make_unique<AgentMachine>(true);
  Run([](AgentTest* t) -> asio::awaitable<void> {
    for (int i = 0; i < 3; ++i) {
      co_await t->Open();
      std::string id = std::to_string(i);
      co_await t->Exec(id, "printf '\\177SANDBAR'; head -c 300000 /dev/urandom >&2; exit 3");
      co_await t->events_.UntilExit(id);
      EXPECT_EQ(t->events_.commands[id].out, "\x7fSANDBAR");
      EXPECT_EQ(t->events_.commands[id].err.size(), 300000u);
      EXPECT_EQ(t->events_.commands[id].exit->code, 3);
      // Left in the middle of its output; the next link hears the rest.
      std::string rest = "rest" + id;
      co_await t->Exec(rest, "head -c 3000000 /dev/zero");
      co_await t->Close();
      co_await t->Open();
      co_await t->events_.UntilExit(rest);
      EXPECT_EQ(t->events_.commands[rest].end, 3000000u);
      co_await t->Close();
    }
  }(this));
}

// A server on the loopback, which the test machine shares with us.
struct LocalServer {
  LocalServer() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(fd.get(), 4), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    port = ntohs(at.sin_port);
  }
  Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  uint16_t port = 0;
};

asio::awaitable<std::string> ReadAll(Socket* socket) {
  std::string out;
  std::array<char, 65536> buffer{};
  for (;;) {
    auto [ec, n] = co_await socket->async_read_some(asio::buffer(buffer), kToken);
    if (ec) co_return out;
    out.append(buffer.data(), n);
  }
}

Task<> WriteAll(Socket* socket, std::string bytes) {
  auto buffer = asio::buffer(bytes);
  co_await asio::async_write(*socket, buffer, kToken);
  socket->shutdown(Socket::shutdown_send);
  co_return Result<>{};
}

TEST_F(AgentTest, DialsServersInTheMachine) {
  machine_ = std::make_unique<AgentMachine>(true);
  Run([](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    LocalServer server;
    auto fd = co_await t->link_->Dial(server.port);
    EXPECT_TRUE(fd) << fd.error().message;
    asio::local::stream_protocol protocol;
    Socket ours(t->io_, protocol, fd->Release());
    Socket theirs(t->io_, protocol, ::accept4(server.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    // More than a window, both ways at once.
    TaskGroup writers(t->io_.get_executor());
    std::string up = Noise(3 << 20), down = Noise(5 << 20);
    writers.Spawn(WriteAll(&ours, down));
    std::string got = co_await ReadAll(&theirs);
    EXPECT_TRUE(got == down) << got.size();
    writers.Spawn(WriteAll(&theirs, up));
    got = co_await ReadAll(&ours);
    EXPECT_TRUE(got == up) << got.size();
    co_await writers.Close();
    co_await t->Close();
  }(this));
}

TEST_F(AgentTest, ADialThatNobodyAnswersOrWantsIsGivenUp) {
  Run([](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    uint16_t closed = LocalServer().port;
    auto refused = co_await t->link_->Dial(closed);
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    LocalServer server;
    // We hang up: the server hears it.
    auto fd = co_await t->link_->Dial(server.port);
    Fd theirs(::accept4(server.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    fd->Reset();
    asio::local::stream_protocol protocol;
    Socket peer(t->io_, protocol, theirs.Release());
    EXPECT_EQ(co_await ReadAll(&peer), "");
    // The link ends: so does the connection.
    auto second = co_await t->link_->Dial(server.port);
    Socket ours(t->io_, protocol, second->Release());
    co_await t->Close();
    EXPECT_EQ(co_await ReadAll(&ours), "");
  }(this));
}

TEST_F(AgentTest, InputReachesTheChannelOfItsCommand) {
  Run([](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    auto request = MakeExec("c", {"sh", "-c", "head -c 1500000 <&3 | tail -c 5; read line <&3; echo \"[$line]\""});
    request.channel = protocol::Channel::kDescriptor3;
    auto started = co_await t->link_->Exec(std::move(request));
    EXPECT_TRUE(started);
    std::string large = std::string(1499995, 'x') + "12345" + "rest\n";
    auto sent = co_await t->link_->Input("c", std::move(large));
    EXPECT_TRUE(sent);
    co_await t->events_.UntilExit("c");
    EXPECT_EQ(t->events_.commands["c"].out, "12345[rest]\n");
    co_await t->Close();
  }(this));
}

TEST_F(AgentTest, RunsCommandsAndMapsErrors) {
  auto scenario = [](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Exec("a", "echo out; echo err >&2; exit 4");
    co_await t->events_.UntilExit("a");
    EXPECT_EQ(t->events_.commands["a"].out, "out\n");
    EXPECT_EQ(t->events_.commands["a"].err, "err\n");
    EXPECT_EQ(t->events_.commands["a"].exit->code, 4);
    auto missing = MakeExec("b", {"no-such-program"});
    auto r = co_await t->link_->Exec(std::move(missing));
    EXPECT_EQ(r.error().code, Code::kExecutableNotFound);
    EXPECT_EQ(r.error().message, "executable file not found in $PATH: no-such-program");
    auto cwd = MakeExec("b", {"true"});
    cwd.cwd = "/no/such";
    auto bad = co_await t->link_->Exec(std::move(cwd));
    EXPECT_EQ(bad.error().code, Code::kBadRequest);
    // exec: a shell that is interrupted just before it forks would wait for a child that never saw the signal.
    co_await t->Exec("c", "exec sleep 1000");
    t->link_->Kill("c", 2);
    co_await t->events_.UntilExit("c");
    EXPECT_EQ(t->events_.commands["c"].exit->code, 130);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(AgentTest, NothingIsLostWhenTheDaemonsSideDies) {
  auto scenario = [](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    t->events_.auto_ack = false;  // as if killed before it could store
    std::string go = t->machine_->dir() + "/go";
    co_await t->Exec("a", "echo one; while [ ! -e " + go + " ]; do sleep 0.02; done; seq 100000; exit 9");
    co_await t->events_.UntilEnd("a", 4);
    co_await t->Close();
    t->events_.commands.clear();
    std::ofstream(go).put('x');
    t->events_.auto_ack = true;
    co_await t->Open();
    EXPECT_EQ(t->link_->known_commands().size(), 1u);
    co_await t->events_.UntilExit("a");
    std::string expected = "one\n";
    for (int i = 1; i <= 100000; ++i) expected += std::to_string(i) + "\n";
    EXPECT_TRUE(t->events_.commands["a"].out == expected);
    EXPECT_EQ(t->events_.commands["a"].exit->code, 9);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(AgentTest, HundredMegabytesThroughASlowReceiver) {
  auto scenario = [](AgentTest* t) -> asio::awaitable<void> {
    constexpr uint64_t kTotal = 100 << 20;
    co_await t->Open();
    t->events_.auto_ack = false;
    t->events_.keep_bytes = false;
    co_await t->Exec("a", "head -c 104857600 /dev/zero");
    auto& seen = t->events_.commands["a"];
    while (seen.end < kTotal && !t->events_.closed) {
      // Acknowledges a window at a time, late.
      uint64_t end = seen.end;
      co_await t->events_.UntilEnd("a", end + 1);
      EXPECT_LE(seen.end - end, protocol::kOutputWindow);
      co_await asio::post(t->io_, kToken);
      t->link_->Ack("a", seen.end);
    }
    co_await t->events_.UntilExit("a");
    EXPECT_EQ(seen.end, kTotal);
    EXPECT_EQ(seen.gap, 0u);
    t->link_->AckExit("a");
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(AgentTest, FiftyMegabytesUpAndDown) {
  auto scenario = [](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::string bytes = Noise(50 << 20);
    wire::TarEntry entry{"deep/er/big.bin", false, 0640, bytes.size()};
    Pieces source(Gzip(wire::TarHeader(entry) + bytes + wire::TarPadding(bytes.size()) + wire::TarEnd()));
    GuestUser user{4321, 4321, ""};
    auto written = co_await t->link_->WriteTar(t->machine_->dir(), user, &source);
    EXPECT_TRUE(written) << written.error().message;
    auto stream = co_await t->link_->ReadFile("deep/er/big.bin", t->machine_->dir(), user);
    EXPECT_TRUE(stream) << stream.error().message;
    std::string back;
    for (;;) {
      auto chunk = co_await (*stream)->Next();
      EXPECT_TRUE(chunk) << chunk.error().message;
      if (!chunk || chunk->empty()) break;
      back += *chunk;
    }
    EXPECT_TRUE(back == bytes);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(AgentTest, FileErrors) {
  auto scenario = [](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    GuestUser user{4321, 4321, ""};
    std::string dir = t->machine_->dir();
    ::mkfifo((dir + "/fifo").c_str(), 0666);
    auto missing = co_await t->link_->ReadFile("none", dir, user);
    EXPECT_EQ(missing.error().code, Code::kNotFound);
    auto fifo = co_await t->link_->ReadFile("fifo", dir, user);
    EXPECT_EQ(fifo.error().code, Code::kFileError);
    auto made = co_await t->link_->MakeDir("d", dir, user, false);
    EXPECT_TRUE(made);
    auto again = co_await t->link_->MakeDir("d", dir, user, false);
    EXPECT_EQ(again.error().code, Code::kFileError);
    Pieces source("no archive");
    auto bad = co_await t->link_->WriteTar(dir, user, &source);
    EXPECT_EQ(bad.error().code, Code::kFileError);
    // A read that is dropped half-way costs nothing that follows.
    std::ofstream(dir + "/big") << std::string(8 << 20, 'x');
    auto big = co_await t->link_->ReadFile("big", dir, user);
    EXPECT_TRUE(big);
    big->reset();
    co_await t->Exec("a", "echo fine");
    co_await t->events_.UntilExit("a");
    EXPECT_FALSE(t->events_.closed);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(AgentTest, QuiesceThenGone) {
  auto scenario = [](AgentTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Exec("a", "sleep 1000");
    auto q = co_await t->link_->Quiesce(std::chrono::seconds(60));
    EXPECT_TRUE(q) << q.error().message;
    EXPECT_TRUE(q->clean);
    EXPECT_EQ(t->events_.commands["a"].exit->code, 143) << "the exit comes before the report";
    auto late = MakeExec("b", {"true"});
    auto refused = co_await t->link_->Exec(std::move(late));
    EXPECT_EQ(refused.error().code, Code::kStopping);
    ::kill(t->machine_->pid(), SIGKILL);
    co_await t->events_.UntilClosed();
    co_await t->Close();
  };
  Run(scenario(this));
}

}  // namespace
}  // namespace sandbar::engine
