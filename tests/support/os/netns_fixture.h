// For the tests of machine networks: sockets that cannot hang a test, and a guest's process in a namespace.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "base/fd.h"

namespace sandbar::os {

inline sockaddr_in Address(const char* ip, uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, ip, &a.sin_addr), 1);
  return a;
}

// errno of a connect in the current namespace, 0 when it worked.
inline int Connect(const Fd& fd, const char* ip, uint16_t port) {
  sockaddr_in a = Address(ip, port);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 ? 0 : errno;
}

inline Fd Socket(int type) {
  Fd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  timeval limit{10, 0};  // so that a broken rule fails the test instead of hanging it
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return fd;
}

// Runs f in a child inside the namespace, as an unprivileged user; its return value is the exit status.
inline pid_t RunIn(const Fd& netns, const std::function<int()>& f) {
  pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (::setns(netns.get(), CLONE_NEWNET) != 0) ::_exit(99);
  if (::setresgid(65000, 65000, 65000) != 0 || ::setresuid(65000, 65000, 65000) != 0) ::_exit(98);
  ::_exit(f());
}
inline int Wait(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
inline bool Readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 10000) == 1;
}
inline bool Pending(const Fd& fd) {
  pollfd p{fd.get(), POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}
// "203.0.113.7:443": where an accepted connection wanted to go.
inline std::string OriginalTarget(const Fd& conn) {
  sockaddr_in target{};
  socklen_t size = sizeof target;
  if (::getsockopt(conn.get(), SOL_IP, SO_ORIGINAL_DST, &target, &size) != 0) return "none";
  return std::string(inet_ntoa(target.sin_addr)) + ":" + std::to_string(ntohs(target.sin_port));
}

}  // namespace sandbar::os
