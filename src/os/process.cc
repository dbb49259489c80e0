#include "os/process.h"

#include <linux/sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/files.h"
#include "os/openat.h"

namespace sandbar::os {
namespace {

constexpr uint64_t kClearSignalHandlers = 0x100000000ULL;  // CLONE_CLEAR_SIGHAND

}  // namespace

pid_t Clone3Raw(uint64_t flags, int* pidfd) {
  clone_args args{};
  args.flags = flags | kClearSignalHandlers;
  args.pidfd = reinterpret_cast<uint64_t>(pidfd);
  args.exit_signal = SIGCHLD;
  return static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
}

Result<> SendSignal(int pidfd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) != 0 && errno != ESRCH)
    return FailErrno("signal process");
  return {};
}

Result<std::optional<int>> TryReap(int pidfd) {
  siginfo_t info{};
  for (;;) {
    if (::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) == 0) break;
    if (errno != EINTR) return FailErrno("wait for process");
  }
  if (info.si_pid == 0) return std::optional<int>();
  return std::optional<int>(info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status);
}

Result<uint64_t> ProcessStartTime(pid_t pid) {
  SB_TRY(std::string stat, ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096));
  // The name in parentheses may hold anything, so count fields from the last ')': start time is field 22.
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return Fail(Code::kInternal, "unreadable /proc/<pid>/stat");
  uint64_t ticks = 0;
  std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  return ticks;
}

Result<> RunProgram(const std::vector<std::string>& argv, std::string* said) {
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (const auto& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  std::vector<char*> env = {path.data(), nullptr};
  Fd output(::memfd_create("output", MFD_CLOEXEC));
  if (!output) return FailErrno("memfd");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 2);
  pid_t pid = 0;
  int err = ::posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (err != 0) return FailErrno("start " + argv[0], err);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return FailErrno("wait for " + argv[0]);
  }
  ::lseek(output.get(), 0, SEEK_SET);
  auto text = ReadAll(output.get(), 64 << 10);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    if (said != nullptr) *said = text.value_or("");
    return {};
  }
  return Fail(Code::kIo, argv[0] + " failed" + (text ? ": " + *text : ""));
}

void CloseAllBut(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned from = 3;
  for (int fd : kept) {
    if (static_cast<unsigned>(fd) > from) ::syscall(SYS_close_range, from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  ::syscall(SYS_close_range, from, ~0U, 0);
}

int64_t BootTimeMs() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000 + t.tv_nsec / 1'000'000;
}

}  // namespace sandbar::os
