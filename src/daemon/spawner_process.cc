#include "daemon/spawner_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/server_endpoint.h"
#include "cli/server_process.h"
#include "os/unix_socket.h"
#include "protocol/spawner_messages.h"

namespace sandbar::daemon {
namespace {

constexpr int kShutdownMs = 60'000;

Fd OpenPidfd(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

// Whoever listens on the socket; the kernel names the process.
Result<SpawnerRef> FindSpawner(const std::string& data) {
  SpawnerRef found;
  SB_TRY(found.connection, os::ConnectUnixPath(SpawnerSocket(data), SOCK_SEQPACKET));
  SB_TRY(auto peer, os::PeerOf(found.connection.get()));
  found.pidfd = OpenPidfd(peer.pid);
  if (!found.pidfd) return FailErrno("pidfd_open");
  return found;
}

std::vector<std::string> SpawnerWords(const Config& c, Identity daemon) {
  std::string dir = cli::ProgramDirectory();
  std::vector<std::string> words = {dir + "/sandbar-spawner",
                                    "--data",
                                    c.data,
                                    "--images",
                                    c.images,
                                    "--guest",
                                    dir + "/sandbar-guest",
                                    "--scanner",
                                    dir + "/sandbar-scanner",
                                    "--daemon-uid",
                                    std::to_string(daemon.uid),
                                    "--daemon-gid",
                                    std::to_string(daemon.gid),
                                    "--host-share",
                                    std::to_string(c.host_share),
                                    "--disk-limit",
                                    c.disk_limit};
  auto add = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    words.push_back(name);
    words.push_back(value);
  };
  add("--extra-ca", c.extra_ca);
  add("--log", c.log == "info" ? "" : c.log);
  add("--disk-pool-bytes", c.disk_pool_bytes == 0 ? "" : std::to_string(c.disk_pool_bytes));
  add("--force-fallback", c.force_fallback);
  add("--kernel", c.kernel);
  add("--qemu", c.qemu);
  add("--vm-start", c.vm_start == "restore" ? "" : c.vm_start);
  add("--runsc", c.runsc);
  add("--gvisor-platform", c.gvisor_platform == "auto" ? "" : c.gvisor_platform);
  if (c.ephemeral) words.push_back("--ephemeral");
  if (c.domain.allow_nesting_on_class1) words.push_back("--allow-nesting");
  return words;
}

// Its complaints before it detached: the way to know why it did not start.
std::string Drain(int fd) {
  std::string text(4096, '\0');
  ssize_t n = ::read(fd, text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<> Launch(const Config& config, Identity daemon) {
  auto words = SpawnerWords(config, daemon);
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  // Nothing of the caller's environment reaches a root process that outlives it.
  char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* const environment[] = {path, nullptr};
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  Fd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));

  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    ::dup2(null.get(), 0);
    ::dup2(write_end.get(), 1);
    ::dup2(write_end.get(), 2);
    ::close_range(3, ~0U, 0);
    ::execve(argv[0], argv.data(), environment);
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string why = Drain(read_end.get());
  if (why.empty() && WIFEXITED(status) && WEXITSTATUS(status) == 127) why = "cannot execute " + words.front();
  if (why.empty()) why = "see " + config.data + "/log/spawner.log";
  return Fail(Code::kUnavailable, "the spawner did not start: " + why);
}

}  // namespace

std::string SpawnerSocket(const std::string& data) {
  return data + "/run/spawner.sock";
}

Result<SpawnerRef> EnsureSpawner(const Config& config, Identity daemon) {
  // A crash may leave the socket file, so its existence says nothing: only a connection does.
  if (auto found = FindSpawner(config.data)) {
    found->adopted = true;
    return found;
  }
  SB_TRYV(Launch(config, daemon));
  return FindSpawner(config.data);
}

namespace {

Result<> RequestShutdown(const Fd& socket) {
  for (const auto& request :
       {protocol::TaggedRequest{1, protocol::HelloReq{}}, protocol::TaggedRequest{2, protocol::ShutdownReq{}}}) {
    SB_TRY(bool sent, os::SendPacket(socket.get(), protocol::Encode(request), {}));
    if (!sent) return Fail(Code::kUnavailable, "the spawner does not read");
  }
  // It closes the connection when it is done.
  for (;;) {
    pollfd p{socket.get(), POLLIN, 0};
    int n = ::poll(&p, 1, kShutdownMs);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return Fail(Code::kTimeout, "the spawner did not end in time");
    auto packet = os::ReceivePacket(socket.get(), protocol::kMaxSpawnerMessage, false);
    if (!packet) return {};
  }
}

// The process that holds the data directory's lock, told to end by this signal. False: nobody holds it.
Result<bool> EndServer(const std::string& data, int signal) {
  SB_TRY(pid_t holder, LockHolder(data));
  if (holder <= 0) return false;
  Fd pidfd = OpenPidfd(holder);
  if (!pidfd) return FailErrno("pidfd_open");
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) != 0) return FailErrno("signal the server");
  if (!WaitGone(pidfd, 2 * kShutdownMs))
    return Fail(Code::kTimeout, "the server (pid " + std::to_string(holder) + ") did not stop");
  return true;
}

}  // namespace

Result<> RequestSpawnerShutdown(const std::string& data) {
  SB_TRY(Fd socket, os::ConnectUnixPath(SpawnerSocket(data), SOCK_SEQPACKET));
  return RequestShutdown(socket);
}

Result<> StopSpawner(const std::string& data, const SpawnerRef& spawner) {
  auto asked = RequestSpawnerShutdown(data);
  return asked ? asked : RequestShutdown(spawner.connection);
}

bool WaitGone(const Fd& pidfd, int timeout_ms) {
  pollfd p{pidfd.get(), POLLIN, 0};
  int n = 0;
  while ((n = ::poll(&p, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  return n > 0;
}

Result<bool> ShutDown(const std::string& data) {
  struct stat st{};
  if (::stat(data.c_str(), &st) != 0 && errno == ENOENT) return false;
  if (::geteuid() != 0) return cli::FailNeedsRoot("stopping the server needs root", "sudo ./sandbar down");
  // SIGUSR1: stop the machines too. A plain SIGTERM would leave them for the next daemon.
  SB_TRY(bool stopped, EndServer(data, SIGUSR1));
  // After a crash of the daemon the spawner is all there is.
  if (auto spawner = FindSpawner(data)) {
    SB_TRYV(RequestSpawnerShutdown(data));
    if (!WaitGone(spawner->pidfd, kShutdownMs)) return Fail(Code::kTimeout, "the spawner did not stop");
    stopped = true;
  }
  return stopped;
}

Result<bool> Leave(const std::string& data) {
  if (::geteuid() != 0) return cli::FailNeedsRoot("restarting the server needs root", "sudo ./sandbar restart");
  return EndServer(data, SIGTERM);
}

}  // namespace sandbar::daemon
