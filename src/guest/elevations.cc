#include "guest/elevations.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/signals.h"
#include "guest/elevated.h"
#include "guest/identity.h"

namespace sandbar::guest {
namespace {

struct Request {
  ElevateHeader header;
  std::optional<ProcessStatus> caller;
  std::array<Fd, kElevateFds> fds;
  std::vector<std::string> argv, env;
};

std::optional<ProcessStatus> StatusOf(const std::string& pid) {
  Fd file(::open(("/proc/" + pid + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16384> buffer{};
  ssize_t n = file ? ::read(file.get(), buffer.data(), buffer.size()) : -1;
  return n <= 0 ? std::nullopt : ParseStatus(std::string_view(buffer.data(), static_cast<size_t>(n)));
}

// Root has no need of this, and a process with a filter of system calls has given up on new privileges for good.
std::optional<ProcessStatus> CallerOf(const ucred& from) {
  auto self = StatusOf("self");
  auto caller = StatusOf(std::to_string(from.pid));
  if (!self || !caller || from.uid == 0 || caller->uid != from.uid || caller->seccomp != self->seccomp) return {};
  return caller;
}

// False: not a request. Whatever came with it goes with this process.
bool ReceiveHeader(int socket, Request& out) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kElevateFds * sizeof(int))> control{};
  iovec part{&out.header, sizeof out.header};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof out.header || (message.msg_flags & MSG_CTRUNC) != 0)
    return false;
  bool equipped = false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(ucred))) {
      ucred from{};
      std::memcpy(&from, CMSG_DATA(c), sizeof from);
      out.caller = CallerOf(from);
    }
    // Nobody sends these by accident: a process that was made to write to this socket by another one is not its caller.
    if (c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(kElevateFds * sizeof(int))) {
      std::array<int, kElevateFds> fds{};
      std::memcpy(fds.data(), CMSG_DATA(c), sizeof fds);
      for (size_t i = 0; i < fds.size(); ++i) out.fds.at(i) = Fd(fds.at(i));
      equipped = true;
    }
  }
  return equipped;
}

bool ReceiveStrings(int socket, Request& r) {
  const ElevateHeader& h = r.header;
  if (h.argc == 0 || h.size > kMaxElevateBytes || uint64_t{h.argc} + h.envc > kMaxElevateStrings) return false;
  std::string bytes(h.size, '\0');
  for (size_t have = 0; have < bytes.size();) {
    ssize_t n = ::recv(socket, bytes.data() + have, bytes.size() - have, 0);
    if (n <= 0) return false;
    have += static_cast<size_t>(n);
  }
  return SplitStrings(bytes, h.argc, h.envc, r.argv, r.env);
}

[[noreturn]] void Fail(const char* what, int error) {
  ::dprintf(2, error != 0 ? "sudo: %s: %s\n" : "sudo: %s\n", what, std::strerror(error));
  ::_exit(1);
}

// The caller's, as far as they are not more than anybody has.
void TakeLimits(const std::array<rlimit, RLIM_NLIMITS>& limits) {
  for (size_t i = 0; i < limits.size(); ++i) {
    const auto resource = static_cast<__rlimit_resource_t>(i);
    rlimit now{};
    if (::getrlimit(resource, &now) != 0) continue;
    now.rlim_max = std::min(now.rlim_max, limits.at(i).rlim_max);
    now.rlim_cur = std::min(now.rlim_max, limits.at(i).rlim_cur);
    ::setrlimit(resource, &now);
  }
}

[[noreturn]] void RunSudo(const ChildSetup& setup, Request& r) {
  ::setpgid(0, 0);
  for (int fd : {0, 1, 2}) {
    if (::dup2(r.fds.at(static_cast<size_t>(fd)).get(), fd) != fd) ::_exit(1);
  }
  const auto& caller = r.caller;
  if (!caller) Fail("neither for root nor for processes with a system-call filter", 0);
  ::umask(r.header.mask & 0777);
  if (::setrlimit(RLIMIT_NOFILE, &setup.files) != 0 || !BecomeUser(caller->uid, caller->gid, caller->groups, 0))
    Fail("cannot become the caller", errno);
  if (::fchdir(r.fds[3].get()) != 0) Fail("cannot enter the working directory", errno);
  if (::close_range(3, kLastFd, CLOSE_RANGE_CLOEXEC) != 0) Fail("cannot close descriptors", errno);
  ResetSignals();
  const Fd file = OpenElevated(setup.elevated);
  if (!file) Fail((setup.elevated + " must be a file of root with its setuid bit, and no drive's").c_str(), 0);
  TakeLimits(r.header.limits);
  Fail("cannot execute it", ExecElevated(file, caller->uid, std::move(r.argv), std::move(r.env)));
}

void Pass(int signal, pid_t sudo) {
  if (std::ranges::find(kElevateSignals, signal) != kElevateSignals.end()) ::kill(-sudo, signal);
}

// Until sudo has ended. Its number stays its own as long as nobody has waited for it.
int Accompany(int socket, int children, pid_t sudo) {
  std::array<pollfd, 2> ready{{{socket, POLLIN, 0}, {children, POLLIN, 0}}};
  int status = 0;
  while (::waitpid(sudo, &status, WNOHANG) == 0) {
    ::poll(ready.data(), ready.size(), -1);
    signalfd_siginfo ended{};
    ssize_t n = ready[1].revents != 0 ? ::read(children, &ended, sizeof ended) : 0;
    if (ready[0].revents == 0) continue;
    std::array<unsigned char, 64> asked{};
    n = ::recv(socket, asked.data(), asked.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    for (ssize_t i = 0; i < n; ++i) Pass(asked.at(static_cast<size_t>(i)), sudo);
    if (n > 0) continue;
    // The caller is gone.
    ::kill(-sudo, SIGKILL);
    ready[0].fd = -1;
    ready[0].revents = 0;
  }
  return status;
}

[[noreturn]] void Serve(const ChildSetup& setup, int client) {
  ResetSignals();
  ::alarm(kElevateSeconds);
  // Nothing of the agent's is held here: it must see its connections end.
  if (!JoinCgroups(setup) || ::setsid() < 0 || ::dup2(client, 3) != 3) ::_exit(1);
  ::close_range(4, kLastFd, 0);
  const int socket = 3, on = 1;
  Request request;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 || ::send(socket, "", 1, MSG_NOSIGNAL) != 1)
    ::_exit(1);
  if (!ReceiveHeader(socket, request) || !ReceiveStrings(socket, request)) ::_exit(1);
  ::alarm(0);
  // A machine that stops signals everybody: this ends with sudo, to tell how that ended.
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const int children = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t sudo = children < 0 ? -1 : ::fork();
  if (sudo == 0) RunSudo(setup, request);
  // Both do it: whoever is first, there is a group to signal.
  if (sudo > 0) ::setpgid(sudo, sudo);
  // A pipe's end is seen when sudo's copies are closed.
  for (Fd& fd : request.fds) fd.Reset();
  const int32_t status = sudo < 0 ? 1 << 8 : Accompany(socket, children, sudo);
  [[maybe_unused]] ssize_t n = ::send(socket, &status, sizeof status, MSG_NOSIGNAL);
  ::_exit(0);
}

// All numbers of a line of /proc/PID/status; nothing when one of its words is none.
std::optional<std::vector<uint32_t>> Numbers(std::string_view text, std::string_view name) {
  size_t at = text.starts_with(name) ? 0 : text.find("\n" + std::string(name));
  if (at == std::string_view::npos) return {};
  text.remove_prefix(text.find(':', at) + 1);
  text = text.substr(0, text.find('\n'));
  std::vector<uint32_t> out;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (text.empty()) return out;
    auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out.emplace_back());
    if (ec != std::errc()) return {};
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
}

}  // namespace

bool SplitStrings(std::string_view bytes, uint32_t argc, uint32_t envc, std::vector<std::string>& argv,
                  std::vector<std::string>& env) {
  if (!bytes.empty() && bytes.back() != '\0') return false;
  while (!bytes.empty() && env.size() <= envc) {
    auto& list = argv.size() < argc ? argv : env;
    list.emplace_back(bytes.substr(0, bytes.find('\0')));
    bytes.remove_prefix(list.back().size() + 1);
  }
  return argv.size() == argc && env.size() == envc;
}

std::optional<ProcessStatus> ParseStatus(std::string_view text) {
  const auto uids = Numbers(text, "Uid:"), gids = Numbers(text, "Gid:");
  auto groups = Numbers(text, "Groups:");
  const auto seccomp = Numbers(text, "Seccomp:");
  // Real, effective, saved, of the file system.
  const auto one = [](const auto& ids) {
    return ids && ids->size() == 4 && std::ranges::count(*ids, ids->front()) == 4;
  };
  if (!one(uids) || !one(gids) || !groups || !seccomp || seccomp->size() != 1) return {};
  return ProcessStatus{uids->front(), gids->front(), std::move(*groups), seccomp->front()};
}

Result<> Elevations::Listen(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path) return sandbar::Fail(Code::kBadRequest, "the socket's path is too long");
  path.copy(at.sun_path, path.size());
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t mask = ::umask(0);  // for everybody
  const bool bound = listener_ && ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  ::umask(mask);
  if (!bound || ::listen(listener_.get(), 4 * kMaxElevations) != 0) return FailErrno("listen at " + path);
  watch_ = loop_->Add(listener_.get(), EPOLLIN, [this](uint32_t) { OnAccept(); });
  return {};
}

void Elevations::OnAccept() {
  Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    watch_.Set(0);
    again_ = loop_->After(std::chrono::milliseconds(100), [this] { watch_.Set(EPOLLIN); });
    return;
  }
  // Who gets no answer says so.
  if (running_.size() >= kMaxElevations) return;
  pid_t pid = ::fork();
  if (pid == 0) Serve(*setup_, client.get());
  if (pid > 0) running_.insert(pid);
}

}  // namespace sandbar::guest
