#include "os/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "os/openat.h"

namespace sandbar::os {
namespace {

namespace fs = std::filesystem;

std::pair<Fd, Fd> Pair() {
  std::array<int, 2> fds{};
  SB_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

TEST(UnixSocket, PacketsCarryFds) {
  auto [a, b] = Pair();
  auto file = OpenPath("/proc/self/exe", O_RDONLY);
  ASSERT_TRUE(file);
  std::array<int, 2> fds = {file->get(), file->get()};
  ASSERT_TRUE(*SendPacket(a.get(), "hello", fds));
  auto packet = ReceivePacket(b.get(), 100, true);
  ASSERT_TRUE(packet && packet->has_value());
  EXPECT_EQ((*packet)->bytes, "hello");
  ASSERT_EQ((*packet)->fds.size(), 2U);
  struct stat sent{}, got{};
  ASSERT_EQ(::fstat(file->get(), &sent), 0);
  ASSERT_EQ(::fstat((*packet)->fds[0].get(), &got), 0);
  EXPECT_EQ(sent.st_ino, got.st_ino);
  EXPECT_EQ(::fcntl((*packet)->fds[0].get(), F_GETFD), FD_CLOEXEC);
}

TEST(UnixSocket, UnwantedFdsNeverArrive) {
  auto [a, b] = Pair();
  std::array<int, 1> fds = {0};
  size_t before = std::distance(fs::directory_iterator("/proc/self/fd"), {});
  ASSERT_TRUE(*SendPacket(a.get(), "x", fds));
  auto packet = ReceivePacket(b.get(), 100, false);
  ASSERT_TRUE(packet && packet->has_value());
  EXPECT_TRUE((*packet)->fds.empty());
  EXPECT_EQ(static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), {})), before);
}

TEST(UnixSocket, EndsEmptinessAndLargePacketsAreToldApart) {
  auto [a, b] = Pair();
  auto nothing = ReceivePacket(b.get(), 10, true);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->has_value());
  ASSERT_TRUE(*SendPacket(a.get(), "12345678901", {}));
  EXPECT_EQ(ReceivePacket(b.get(), 10, true).error().code, Code::kProtocol);
  a.Reset();
  EXPECT_EQ(ReceivePacket(b.get(), 10, true).error().code, Code::kClosed);
  EXPECT_EQ(SendPacket(b.get(), "x", {}).error().code, Code::kClosed);
}

TEST(UnixSocket, AFullPeerIsNotWaitedFor) {
  auto [a, b] = Pair();
  std::string block(1000, 'x');
  int sent = 0;
  for (;; ++sent) {
    auto ok = SendPacket(a.get(), block, {});
    ASSERT_TRUE(ok) << ok.error().message;
    if (!*ok) break;
    ASSERT_LT(sent, 1'000'000);
  }
  EXPECT_GT(sent, 0);
}

TEST(UnixSocket, BindsBelowADirectoryHoweverLongItsPath) {
  std::string pattern = "/tmp/sandbar-sock-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  std::string dir = pattern + "/" + std::string(200, 'd');
  fs::create_directories(dir);
  auto fd = OpenPath(dir, O_RDONLY | O_DIRECTORY);
  auto listener = MakeUnixSocket(SOCK_STREAM);
  ASSERT_TRUE(fd && listener);
  ASSERT_TRUE(BindAndListen(listener->get(), fd->get(), "s", 0640, ::getuid(), ::getgid()));
  struct stat st{};
  ASSERT_EQ(::stat((dir + "/s").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640U);
  auto client = ConnectUnixPath(dir + "/s", SOCK_STREAM);
  ASSERT_TRUE(client) << client.error().message;
  auto peer = PeerOf(client->get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_FALSE(BindAndListen(listener->get(), fd->get(), "../s", 0600, 0, 0));
  fs::remove_all(pattern);
}

}  // namespace
}  // namespace sandbar::os
