#include "cli/local_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include "base/fd.h"

namespace sandbar::cli {
namespace {

std::optional<LocalSize> SizeOf(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return std::nullopt;
  return LocalSize{size.ws_col, size.ws_row};
}

}  // namespace

LocalSize LocalTerminalSize() {
  for (const int fd : {1, 0})
    if (auto size = SizeOf(fd)) return *size;
  const Fd terminal(::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY));
  return SizeOf(terminal.get()).value_or(LocalSize{});
}

Result<> RawMode::Enter(int fd) {
  termios now{};
  if (::tcgetattr(fd, &now) != 0) return FailErrno("read the terminal's settings");
  termios raw = now;
  ::cfmakeraw(&raw);
  if (::tcsetattr(fd, TCSADRAIN, &raw) != 0) return FailErrno("change the terminal's settings");
  fd_ = fd;
  before_ = now;
  return {};
}

void RawMode::Leave() {
  if (before_) ::tcsetattr(fd_, TCSADRAIN, &*before_);
  before_.reset();
}

}  // namespace sandbar::cli
