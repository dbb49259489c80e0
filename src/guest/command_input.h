// The standard input of one command: bytes of the server, buffered and passed on as the command reads. Loop thread;
// owned by Commands. protocol/guest_commands.h has the rules of offsets and windows.
//
// It never blocks. It holds at most protocol::kStdinWindow bytes. When nobody reads any more it discards everything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "guest/loop.h"
#include "protocol/guest_commands.h"

namespace sandbar::guest {

class CommandInput {
 public:
  enum class Kind { kPipe, kTerminal };
  // `fd`: the non-blocking writing end of a pipe, or the master of a terminal. `on_change`: taken() or closed() may
  // have changed.
  CommandInput(Loop* loop, Fd fd, Kind kind, std::function<void()> on_change);
  // For a terminal that lacks signals (terminal.h): keys that stand for signals go here as the signals' numbers.
  void SetSignaller(Fd signals) { signals_ = std::move(signals); }
  // To the programs in the foreground, if there is a signaller.
  void Signal(int signal);
  CommandInput(const CommandInput&) = delete;
  CommandInput& operator=(const CommandInput&) = delete;

  // Both return how the server broke the protocol, or nullptr.
  const char* Accept(uint64_t offset, std::string_view bytes);
  const char* End(uint64_t offset);
  // The command has ended, or has closed its end of the pipe.
  void Close();

  uint64_t accepted() const { return accepted_; }
  uint64_t taken() const { return taken_; }
  bool closed() const { return closed_; }
  protocol::StdinState State(const std::string& id) const { return {id, accepted_, taken_, ended_, closed_}; }

 private:
  size_t buffered() const { return buffer_.size() - start_; }
  void Pump();
  // Writes once; false when no more can be written now.
  bool Write();
  void TookBytes(size_t n);
  void Arm();
  void RepeatEnd(int left);
  void CloseFd();

  Loop* loop_;
  Fd fd_;  // empty: everything was passed on up to the end of the input, or nobody reads any more
  Fd signals_;
  Kind kind_;
  std::function<void()> on_change_;
  std::string buffer_;
  size_t start_ = 0;  // of what is not yet written
  uint64_t accepted_ = 0;
  uint64_t taken_ = 0;
  char last_ = '\n';  // of the bytes that were passed on
  bool ended_ = false;
  bool end_passed_on_ = false;
  bool closed_ = false;
  Watch watch_;
  Timer end_again_;
};

}  // namespace sandbar::guest
