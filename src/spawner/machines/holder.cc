#include "spawner/machines/holder.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "os/caps.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxText = 2048;
constexpr int kEndMs = 2000;  // between the first sign of the sandbox's end and the last

[[noreturn]] void Give(int status, std::string_view text) {
  [[maybe_unused]] ssize_t n = ::write(status, text.data(), std::min(text.size(), kMaxText));
  ::_exit(1);
}

struct Pair {
  Fd ours, theirs;
};

Pair MakePair(int status) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) Give(status, "socketpair failed");
  Pair pair{Fd(fds[0]), Fd(fds[1])};
  ::fcntl(pair.ours.get(), F_SETFL, O_NONBLOCK);
  return pair;
}

pid_t StartRunsc(const HolderPlan& plan, int in, int err) {
  pid_t pid = ::fork();
  if (pid != 0) return pid;
  for (size_t i = 0; i < plan.joins; ++i) {
    if (::write(plan.join.at(i), "0", 1) != 1) ::_exit(126);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(in, 0);
  ::dup2(err, 2);
  ::syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  // What Go's run time takes for granted.
  const char* const environment[] = {"PATH=/", "HOME=/", nullptr};
  ::execve(plan.argv[0], const_cast<char* const*>(plan.argv), const_cast<char* const*>(environment));
  [[maybe_unused]] ssize_t n = ::write(2, "cannot execute runsc", 20);
  ::_exit(126);
}

// One direction of the relay. What does not fit waits here, and nothing more is read.
class Pump {
 public:
  bool wants_read() const { return begin_ == end_; }
  bool wants_write() const { return begin_ != end_; }
  void Set(std::string_view bytes) {
    begin_ = 0;
    end_ = bytes.copy(buffer_.data(), buffer_.size());
  }
  // False: that end is gone.
  bool Read(int fd) {
    ssize_t n = ::read(fd, buffer_.data(), buffer_.size());
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    begin_ = 0;
    end_ = static_cast<size_t>(n);
    return n > 0;
  }
  bool Write(int fd) {
    if (!wants_write()) return true;
    ssize_t n = ::send(fd, buffer_.data() + begin_, end_ - begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    begin_ += static_cast<size_t>(n);
    return true;
  }

 private:
  std::array<char, 128 << 10> buffer_{};
  size_t begin_ = 0, end_ = 0;
};

class Holder {
 public:
  Holder(const HolderPlan& plan, int status) : listener_(plan.listener), status_(status) {
    sigset_t mask;
    ::sigemptyset(&mask);
    ::sigaddset(&mask, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &mask, nullptr);
    children_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    Pair stream = MakePair(status), said = MakePair(status);
    stream_ = std::move(stream.ours);
    said_ = std::move(said.ours);
    starter_ = StartRunsc(plan, stream.theirs.get(), said.theirs.get());
    if (!children_ || starter_ < 0) Give(status, "cannot start runsc");
    for (size_t i = 0; i < plan.joins; ++i) ::close(plan.join.at(i));
  }

  [[noreturn]] void Run() {
    for (;;) {
      std::array<pollfd, 5> fds{};
      fds[0] = {children_.get(), POLLIN, 0};
      fds[1] = {said_ ? said_.get() : -1, POLLIN, 0};
      fds[2] = {starter_ == 0 && !ending_ ? listener_ : -1, POLLIN, 0};
      fds[3] = {peer_ ? peer_.get() : -1, Events(up_.wants_read(), down_.wants_write()), 0};
      fds[4] = {ending_ ? -1 : stream_.get(), Events(down_.wants_read(), up_.wants_write()), 0};
      int n = ::poll(fds.data(), fds.size(), ending_ ? kEndMs : -1);
      if ((n < 0 && errno != EINTR) || (n == 0 && ending_)) ::_exit(1);
      if (fds[1].revents != 0) Listen();
      if (fds[0].revents != 0) Reap();
      if (fds[3].revents != 0 || fds[4].revents != 0) Relay(fds[3].revents, fds[4].revents);
      if (fds[2].revents != 0) Accept();
    }
  }

 private:
  static short Events(bool read, bool write) { return static_cast<short>((read ? POLLIN : 0) | (write ? POLLOUT : 0)); }

  // What runsc says while it starts is the reason when it fails. Later it is the agent's own standard error.
  void Listen() {
    std::array<char, kMaxText> text{};
    ssize_t n = 0;
    while (said_ && (n = ::read(said_.get(), text.data(), text.size())) > 0) {
      if (starter_ != 0 && text_.size() < kMaxText) text_.append(text.data(), static_cast<size_t>(n));
      if (starter_ == 0) return;  // as it comes: it may never end
    }
    if (n == 0) said_.Reset();
  }

  void Reap() {
    signalfd_siginfo info{};
    while (::read(children_.get(), &info, sizeof info) > 0) {
    }
    for (;;) {
      int status = 0;
      pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
      if (pid <= 0) return;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (pid == sandbox_) ::_exit(code);
      // Only the sandbox's file server can be another: without it the sandbox ends too.
      if (pid != starter_) {
        ending_ = true;
        continue;
      }
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        Listen();
        while (text_.ends_with('\n')) text_.pop_back();
        Give(status_, "gVisor does not start the machine: " + (text_.empty() ? "no reason given" : text_));
      }
      starter_ = 0;
      sandbox_ = ReadPid();
      if (os::LimitCapabilitiesRaw(0) != 0) ::_exit(1);
      ::close(status_);
    }
  }

  // What runsc wrote down: the sandbox, which has become our child.
  static pid_t ReadPid() {
    std::array<char, 16> text{};
    Fd file(::open(kHolderPidFile, O_RDONLY | O_CLOEXEC));
    if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return 0;
    return static_cast<pid_t>(std::strtol(text.data(), nullptr, 10));
  }

  void Accept() {
    Fd fd(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) SetPeer(std::move(fd));
  }

  void Relay(short peer, short stream) {
    constexpr short kGone = POLLHUP | POLLERR;
    // A peer that is gone while its last words are still waiting takes them with it.
    if ((peer & kGone) != 0 && !up_.wants_read()) return SetPeer(Fd());
    if ((peer & (POLLIN | kGone)) != 0 && !up_.Read(peer_.get())) return SetPeer(Fd());
    bool lives = (stream & kGone) == 0 || down_.wants_read();
    if (lives && (stream & (POLLIN | kGone)) != 0) lives = down_.Read(stream_.get());
    if (lives) lives = up_.Write(stream_.get());
    // A sandbox without its stream is good for nothing, and most likely about to end.
    if (!lives) ending_ = true;
    if (!peer_) return down_.Set({});
    if (!lives || !down_.Write(peer_.get())) SetPeer(Fd());
  }

  // The rest of a message that the old peer sent is worthless without its beginning, and both ends know how to find the
  // first one of the new peer. With nobody there the agent is told so, and what it still says is thrown away: it must
  // never wait for somebody to listen.
  void SetPeer(Fd peer) {
    peer_ = std::move(peer);
    up_.Set(peer_ ? std::string_view() : kGoneMessage);
    down_.Set({});
  }

  int listener_, status_;
  pid_t starter_ = 0, sandbox_ = 0;
  bool ending_ = false;
  Fd children_, stream_, said_, peer_;
  std::string text_;
  Pump up_, down_;  // up: to the agent
};

}  // namespace

void RunHolder(const void* argument, int status) {
  ::prctl(PR_SET_NAME, "sandbar-holder");
  std::make_unique<Holder>(*static_cast<const HolderPlan*>(argument), status)->Run();
}

void RunProbe(const void* argument, int status) {
  Pair said = MakePair(status);
  int null = ::dup(0);
  pid_t pid = StartRunsc(*static_cast<const HolderPlan*>(argument), null, said.theirs.get());
  said.theirs.Reset();
  int result = 0;
  while (::waitpid(pid, &result, 0) < 0 && errno == EINTR) {
  }
  std::array<char, kMaxText> text{};
  ssize_t n = ::read(said.ours.get(), text.data(), text.size());
  if (n > 0) n = ::write(status, text.data(), static_cast<size_t>(n));
  ::_exit(WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result));
}

}  // namespace sandbar::spawner
