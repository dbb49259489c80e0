#include "guest/terminal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "base/signals.h"

namespace sandbar::guest {
namespace {

constexpr unsigned short kCols = 80, kRows = 24;

// A name directly in the directory: no link, and nothing that somebody has mounted there.
Fd OpenIn(int dir, const std::string& name, int flags) {
  flags |= O_NOCTTY | O_NOFOLLOW | O_CLOEXEC;
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH;
  long fd = ::syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how);
  // gVisor has no openat2. There the guest cannot mount anything in /dev/pts.
  if (fd < 0 && errno == ENOSYS) fd = ::openat(dir, name.c_str(), flags);
  return Fd(static_cast<int>(fd));
}

bool IsDevice(int fd, unsigned major, unsigned minor) {
  struct stat st{};
  return ::fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(major, minor);
}

Result<> OpenSlave(const Fd& pts, Terminal& t) {
  t.slave = Fd(::ioctl(t.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (t.slave) return {};
  // gVisor does not know this request.
  t.lacks_signals = true;
  unsigned number = 0;
  if (::ioctl(t.master.get(), TIOCGPTN, &number) != 0) return FailErrno("terminal's number");
  t.slave = OpenIn(pts.get(), std::to_string(number), O_RDWR);
  if (!t.slave) return FailErrno("open the terminal");
  if (::isatty(t.slave.get()) != 1) return Fail(Code::kInternal, "the terminal is none");
  return {};
}

[[noreturn]] void RunSignaller(int pipe) {
  ::setpgid(0, 0);
  ResetSignals();
  if (::dup2(pipe, 3) != 3) ::_exit(1);
  ::close_range(1, 2, 0);
  ::close_range(4, INT_MAX, 0);
  unsigned char signal = 0;
  while (::read(3, &signal, 1) == 1) {
    const pid_t group = ::tcgetpgrp(0);
    if (group > 1) ::kill(-group, signal);
  }
  ::_exit(0);
}

}  // namespace

// Asks ptmx, not fstatfs for the filesystem's type: in class 1 the agent would have to answer that call itself.
Fd OpenPtsDir() {
  Fd dir(::open("/dev/pts", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  Fd ptmx(dir ? ::openat(dir.get(), "ptmx", O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1);
  if (ptmx && IsDevice(ptmx.get(), 5, 2)) return dir;
  return {};
}

Result<Terminal> OpenTerminal(const Fd& pts, protocol::TerminalSize size, uid_t owner) {
  if (!pts) return Fail(Code::kUnavailable, "the machine has no terminals");
  Terminal t;
  t.master = OpenIn(pts.get(), "ptmx", O_RDWR | O_NONBLOCK);
  if (!t.master) return FailErrno("make a terminal");
  if (!IsDevice(t.master.get(), 5, 2)) return Fail(Code::kInternal, "the machine's ptmx is none");
  int unlock = 0;
  if (::ioctl(t.master.get(), TIOCSPTLCK, &unlock) != 0) return FailErrno("unlock the terminal");
  SB_TRYV(OpenSlave(pts, t));
  // Only a comfort, hence unchecked: the command has its terminal open.
  [[maybe_unused]] int r = ::fchown(t.slave.get(), owner, static_cast<gid_t>(-1));
  termios modes{};
  if (::tcgetattr(t.slave.get(), &modes) == 0) {
    // The kernel erases whole characters then, not bytes.
    modes.c_iflag |= IUTF8;
    ::tcsetattr(t.slave.get(), TCSANOW, &modes);
  }
  SetTerminalSize(t.master.get(), size);
  return t;
}

void SetTerminalSize(int fd, protocol::TerminalSize size) {
  winsize to{};
  to.ws_col = size.cols == 0 ? kCols : static_cast<unsigned short>(size.cols);
  to.ws_row = size.rows == 0 ? kRows : static_cast<unsigned short>(size.rows);
  ::ioctl(fd, TIOCSWINSZ, &to);
}

std::string EndOfFileCharacters(int fd, bool in_line) {
  termios modes{};
  if (::tcgetattr(fd, &modes) != 0) return {};
  const auto character = static_cast<char>(modes.c_cc[VEOF]);
  if (character == _POSIX_VDISABLE) return {};
  return std::string((modes.c_lflag & ICANON) != 0 && in_line ? 2 : 1, character);
}

bool ReadsKeys(int fd) {
  termios modes{};
  return ::tcgetattr(fd, &modes) == 0 && (modes.c_lflag & ICANON) == 0;
}

SignalKey FindSignalKey(int fd, std::string_view input) {
  SignalKey first;
  termios modes{};
  if (::tcgetattr(fd, &modes) != 0 || (modes.c_lflag & ISIG) == 0) return first;
  for (auto [key, signal] : {std::pair(VINTR, SIGINT), {VQUIT, SIGQUIT}, {VSUSP, SIGTSTP}}) {
    const auto character = static_cast<char>(modes.c_cc[key]);
    const size_t at = character == _POSIX_VDISABLE ? std::string_view::npos : input.find(character);
    if (at < first.at) first = {at, signal};
  }
  return first;
}

bool StartSignaller(int pipe) {
  const pid_t middle = ::fork();
  // The process in the middle ends at once, so that the command has no child that it did not start.
  if (middle == 0) {
    if (::fork() == 0) RunSignaller(pipe);
    ::_exit(0);
  }
  return middle > 0 && ::waitpid(middle, nullptr, 0) == middle;
}

}  // namespace sandbar::guest
