// The terminal that this program was started in: its size, and raw mode while a command in a sandbox has the keyboard.
// Main thread.
//
//   RawMode raw;                       // keys arrive one by one, nothing is echoed here
//   SB_TRYV(raw.Enter(0));
//   …                                  // the destructor restores what was there, also when an error unwinds
#pragma once

#include <termios.h>

#include <optional>

#include "base/result.h"

namespace sandbar::cli {

struct LocalSize {
  int cols = 80;
  int rows = 24;
  bool operator==(const LocalSize&) const = default;
};
// Of stdout, else of stdin, else of the controlling terminal. 80x24 when there is none.
LocalSize LocalTerminalSize();

class RawMode {
 public:
  RawMode() = default;
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  ~RawMode() { Leave(); }
  // `fd` is a terminal and outlives this.
  Result<> Enter(int fd);
  void Leave();
  bool entered() const { return before_.has_value(); }

 private:
  int fd_ = -1;
  std::optional<termios> before_;
};

}  // namespace sandbar::cli
