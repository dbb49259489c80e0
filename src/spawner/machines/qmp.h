// Commands to a running QEMU on its control socket. The guest may have taken QEMU over, so its answers are hostile: the
// length of a line, the length of all lines together and the time for an answer are bounded, and a lie can only spoil
// the snapshot of the machine that lied. Its calls wait: use it in a process of its own.
//
//   Qmp qmp(control.get(), deadline);
//   SB_TRYV(qmp.Ask("cont"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::spawner {

// The raw value of a key of the outermost object; empty when there is none, or when this is no object.
std::string_view QmpField(std::string_view object, std::string_view key);

class Qmp {
 public:
  // `socket` is not blocking and stays the caller's; `deadline` as os::BootTimeMs counts.
  Qmp(int socket, int64_t deadline) : socket_(socket), deadline_(deadline) {}

  // Waits for the answer; events that come meanwhile are dropped. `pass` is a descriptor that goes with it.
  Result<> Ask(std::string_view command, std::string_view arguments = "{}", int pass = -1);
  // Does not wait for the answer.
  Result<> Tell(std::string_view command, std::string_view arguments = "{}", int pass = -1);
  // The next line that has arrived; std::nullopt when there is none yet.
  Result<std::optional<std::string>> NextLine();
  // Waits for the next line.
  Result<std::string> AwaitLine();
  int fd() const { return socket_; }

 private:
  Result<> WaitFor(short events) const;

  int socket_;
  int64_t deadline_;
  uint64_t asked_ = 0;
  size_t said_ = 0;  // bytes, in all
  std::string buffer_;
};

}  // namespace sandbar::spawner
