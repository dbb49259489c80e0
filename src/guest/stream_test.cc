// The agent on one byte stream that outlives its daemons, and connections to servers through it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>

#include "support/guest/test_machine.h"

namespace sandbar::guest {
namespace {

using ::testing::HasSubstr;

MachineOptions OnStream(bool real_binary = false) {
  MachineOptions options;
  options.stream = true;
  options.real_binary = real_binary;
  return options;
}

TEST(Stream, CommandsOutliveTheSessionAndTheirBytesMayLookLikeAMagic) {
  for (bool real : {false, true}) {
    TestMachine machine(OnStream(real));
    {
      TestClient first(machine, true, 1);
      auto r = first.Shell("printf '\\177SANDBAR\\177SANDBAS\\177'");
      EXPECT_EQ(r.out, "\x7fSANDBAR\x7fSANDBAS\x7f");
      first.Send(TestClient::Command("a", {"sh", "-c", "echo one; sleep 1000"}));
      first.Expect<protocol::ExecStarted>();
      EXPECT_EQ(first.Expect<protocol::Output>().bytes, "one\n");
    }
    TestClient second(machine, true, 2);
    ASSERT_EQ(second.hello().commands.size(), 1u);
    EXPECT_EQ(second.Expect<protocol::Output>().bytes, "one\n");
    second.Send(protocol::Kill{"a", 9});
    EXPECT_EQ(second.Finish("a").exit.code, 137);
  }
}

TEST(Stream, AHelloCutsAHalfFrameShort) {
  TestMachine machine(OnStream());
  auto file = machine.dir() + "/x";
  {
    TestClient first(machine, true, 1);
    std::string exec = protocol::Encode(protocol::HostFrame(TestClient::Command("half", {"touch", file})));
    first.SendRaw(std::string_view(exec).substr(0, exec.size() - 1));
  }
  TestClient second(machine, true, 2);
  EXPECT_TRUE(second.hello().commands.empty());
  EXPECT_EQ(second.Shell("echo alive").out, "alive\n");
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Stream, WhileNobodyIsThereACommandNeverBlocks) {
  TestMachine machine(OnStream());
  auto flag = machine.dir() + "/written";
  {
    TestClient first(machine, true, 1);
    first.Send(TestClient::Command("a", {"sh", "-c", "head -c 30000000 /dev/zero; touch " + flag}));
    // Before that the word could overtake the frame: what it cuts off is not looked at.
    first.Expect<protocol::ExecStarted>();
    first.SendRaw(protocol::kGuestGone);
  }
  // The holder goes on reading; here that is us.
  std::string drain(1 << 16, 0);
  EXPECT_TRUE(Eventually([&] {
    while (::recv(machine.stream().get(), drain.data(), drain.size(), MSG_DONTWAIT) > 0) {
    }
    return std::filesystem::exists(flag);
  }));
  TestClient second(machine, true, 2);
  auto r = second.Finish("a");
  EXPECT_EQ(r.exit.code, 0);
  EXPECT_EQ(r.out.size() + r.gap, 30000000u);
}

TEST(Stream, AViolationEndsTheSessionOnly) {
  TestMachine machine(OnStream());
  TestClient first(machine, true, 1);
  first.Send(protocol::Data{99, "for no stream"});
  EXPECT_EQ(first.Expect<protocol::HelloAck>().nonce, 0u);
  TestClient second(machine, true, 2);
  EXPECT_EQ(second.Shell("echo alive").out, "alive\n");
}

TEST(Stream, TheEndOfTheSocketIsTheEndOfTheMachine) {
  TestMachine machine(OnStream());
  {
    TestClient client(machine, true, 1);
  }
  ::shutdown(machine.stream().get(), SHUT_RDWR);
  EXPECT_TRUE(Eventually([&] { return !machine.alive(); }));
}

// A server on a port of the loopback, which test machines share with us.
class Server {
 public:
  explicit Server(bool ipv6 = false) : fd_(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* addr = ipv6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    socklen_t size = ipv6 ? sizeof six : sizeof four;
    Require(::bind(fd_.get(), addr, size) == 0 && ::listen(fd_.get(), 4) == 0, "listen");
    Require(::getsockname(fd_.get(), addr, &size) == 0, "getsockname");
    port = ntohs(ipv6 ? six.sin6_port : four.sin_port);
  }
  Fd Accept() { return Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  uint16_t port = 0;

 private:
  Fd fd_;
};

std::string ReadAll(int fd) {
  std::string out;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
  return out;
}

TEST(Dial, BytesGoBothWaysAndEachEndsForItself) {
  TestMachine machine(OnStream());
  TestClient client(machine);
  for (bool ipv6 : {false, true}) {
    Server server(ipv6);
    uint32_t id = ipv6 ? 2 : 1;
    client.Send(protocol::Dial{id, server.port});
    Fd peer = server.Accept();
    EXPECT_EQ(client.Expect<protocol::Dialed>().stream, id);
    client.Send(protocol::Data{id, "question"});
    client.Send(protocol::End{id});
    EXPECT_EQ(ReadAll(peer.get()), "question");
    ASSERT_EQ(::write(peer.get(), "answer", 6), 6);
    peer.Reset();
    EXPECT_EQ(client.Expect<protocol::Data>().bytes, "answer");
    EXPECT_EQ(client.Expect<protocol::End>().stream, id);
  }
  // Over and done with: a late abort is no violation.
  client.Send(protocol::Abort{1});
  EXPECT_EQ(client.Shell("echo alive").out, "alive\n");
}

TEST(Dial, SaysThatNothingListens) {
  TestMachine machine;
  TestClient client(machine);
  uint16_t port = 0;
  {
    port = Server().port;
  }
  client.Send(protocol::Dial{1, port});
  EXPECT_EQ(client.Expect<protocol::FileError>().kind, protocol::FileErrorKind::kNotFound);
}

TEST(Dial, NeitherSideGetsMoreThanItsWindow) {
  TestMachine machine;
  TestClient client(machine);
  Server server;
  client.Send(protocol::Dial{1, server.port});
  Fd peer = server.Accept();
  client.Expect<protocol::Dialed>();
  // The server floods; we take one window and give no credit.
  ::fcntl(peer.get(), F_SETFL, O_NONBLOCK);
  std::string zeros(1 << 16, 0);
  size_t got = 0;
  while (got < protocol::kStreamWindow) {
    while (::write(peer.get(), zeros.data(), zeros.size()) > 0) {
    }
    got += client.Expect<protocol::Data>().bytes.size();
  }
  EXPECT_EQ(got, protocol::kStreamWindow);
  while (::write(peer.get(), zeros.data(), zeros.size()) > 0) {
  }
  EXPECT_FALSE(client.Receive(200));
  client.Send(protocol::Credit{1, 10});
  EXPECT_EQ(client.Expect<protocol::Data>().bytes.size(), 10u);
  // More than the window from us is a violation.
  for (size_t sent = 0; sent <= protocol::kStreamWindow; sent += zeros.size()) client.Send(protocol::Data{1, zeros});
  client.Send(protocol::Data{1, zeros});
  for (size_t sent = 0; sent <= 64 * protocol::kStreamWindow; sent += zeros.size())
    client.Send(protocol::Data{1, zeros});
  EXPECT_TRUE(client.Closed());
}

TEST(Dial, AServerThatResetsAndAnAbortEndIt) {
  TestMachine machine;
  TestClient client(machine);
  Server server;
  client.Send(protocol::Dial{1, server.port});
  Fd peer = server.Accept();
  client.Expect<protocol::Dialed>();
  linger hard{1, 0};
  ::setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  peer.Reset();
  EXPECT_EQ(client.Expect<protocol::FileError>().stream, 1u);
  client.Send(protocol::Dial{2, server.port});
  peer = server.Accept();
  client.Expect<protocol::Dialed>();
  client.Send(protocol::Abort{2});
  EXPECT_EQ(client.Expect<protocol::FileError>().stream, 2u);
  EXPECT_EQ(ReadAll(peer.get()), "");
}

}  // namespace
}  // namespace sandbar::guest
