#include "guest/elevate_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/fd.h"
#include "guest/elevations.h"
#include "os/unix_socket.h"

namespace sandbar::guest {
namespace {

int Complain(const char* what, int error) {
  std::fprintf(stderr, error != 0 ? "sudo: %s: %s\n" : "sudo: %s\n", what, std::strerror(error));
  return 1;
}

Fd Connect(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return {};
  return fd;
}

bool SendHeader(int socket, const ElevateHeader& header, const std::array<int, kElevateFds>& fds) {
  auto sent = os::SendPacket(socket, {reinterpret_cast<const char*>(&header), sizeof header}, fds);
  return sent && *sent;
}

bool SendAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Ask(int socket, char** argv, char** env) {
  ElevateHeader header;
  std::string strings;
  for (; *argv != nullptr; ++argv, ++header.argc) strings.append(*argv, std::strlen(*argv) + 1);
  for (; *env != nullptr; ++env, ++header.envc) strings.append(*env, std::strlen(*env) + 1);
  header.size = static_cast<uint32_t>(strings.size());
  header.mask = ::umask(0);
  for (size_t i = 0; i < header.limits.size(); ++i)
    ::getrlimit(static_cast<__rlimit_resource_t>(i), &header.limits.at(i));
  Fd directory(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return directory && SendHeader(socket, header, {0, 1, 2, directory.get()}) && SendAll(socket, strings);
}

// What the caller was started to ignore it goes on ignoring, and so does sudo.
Fd CatchSignals() {
  sigset_t caught;
  ::sigemptyset(&caught);
  for (int signal : kElevateSignals) {
    struct sigaction now{};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::sigaddset(&caught, signal);
  }
  ::sigprocmask(SIG_SETMASK, &caught, nullptr);
  return Fd(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
}

int EndAs(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::kill(::getpid(), signal);
  return 128 + signal;
}

}  // namespace

int RunElevateClient(int argc, char** argv, char** env) {
  if (argc < 3) return Complain("nothing to run", 0);
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0 && fd < 3;) fd = ::dup(fd);
  const Fd signals = CatchSignals();
  const Fd socket = Connect(argv[1]);
  if (!socket || !signals) return Complain("cannot ask the sandbox's agent", errno);
  char ready = 0;
  if (::recv(socket.get(), &ready, 1, 0) != 1)
    return Complain("the sandbox's agent serves too many of them already", 0);
  if (!Ask(socket.get(), argv + 2, env)) return Complain("cannot tell the sandbox's agent", errno);
  std::array<pollfd, 2> wait{{{socket.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}}};
  while (true) {
    ::poll(wait.data(), wait.size(), -1);
    signalfd_siginfo info{};
    if (wait[1].revents != 0 && ::read(signals.get(), &info, sizeof info) == sizeof info) {
      const auto signal = static_cast<char>(info.ssi_signo);
      SendAll(socket.get(), std::string_view(&signal, 1));
    }
    if (wait[0].revents == 0) continue;
    int32_t status = 0;
    if (::recv(socket.get(), &status, sizeof status, MSG_WAITALL) != sizeof status)
      return Complain("the sandbox's agent refused", 0);
    return EndAs(status);
  }
}

}  // namespace sandbar::guest
