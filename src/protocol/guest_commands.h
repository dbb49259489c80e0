// Frames about commands. Part of protocol/guest_frames.h, which says how they become bytes.
//
// Commands have string ids chosen by the daemon; they outlive connections. Output carries absolute offsets, counted
// over stdout, stderr and the channel together. The agent keeps bytes until Ack: Ack(offset) both frees them and opens
// the window (the agent sends at most kOutputWindow bytes past the last Ack, and while connected reads no more from the
// pipes than it may send, so a daemon that withholds Acks slows the command down: back-pressure). While no daemon is
// connected the agent goes on reading: it keeps the first and last part of the unacknowledged bytes and reports the
// hole as a Gap. An Exit is sent again on every connection until ExitAck.
//
// A command may be started with a channel: one end of a socket pair as its descriptor 3, or 0. Input frames are written
// to it, what it says comes as Output of stream 3, never before what it wrote to stdout and stderr earlier. The agent
// holds at most kMaxInput bytes that the command did not read yet; a daemon that sends more loses the command.
//
// A command may be started with standard input (version 3): a pipe, or a terminal. Stdin carries absolute offsets that
// begin at 0. The agent buffers bytes and passes them on as the command reads; StdinTaken says up to which offset it
// has done so. The daemon sends at most kStdinWindow bytes beyond that offset. Bytes that the agent has already are
// skipped; a gap, or a byte beyond the window, breaks the protocol. StdinEnd says that the input ends at this offset:
// the agent closes the pipe after the last byte. A terminal gets its end-of-file character instead. The end of a
// connection is not the end of the input: the command waits. HelloAck says for each such command which bytes the agent
// has (StdinState), and the next daemon continues there. StdinClosed says that nobody reads any more: the command
// closed its standard input, or has ended. The agent discards what it has and all that follows, and counts it as taken.
// Nothing about input comes after the command's Exit.
//
// A command may be started with a terminal (version 3): a pseudo-terminal is its controlling terminal and its
// descriptors 0, 1 and 2. All output comes as stream 1. Resize changes the terminal's size, and the kernel tells the
// foreground programs (SIGWINCH).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/guest_limits.h"
#include "protocol/versions.h"

namespace sandbar::protocol {

inline constexpr Feature kStandardInput{3, "give standard input to a command"};
inline constexpr Feature kTerminals{3, "give a terminal to a command"};

// Which descriptor of a command is its channel to the daemon.
enum class Channel : uint8_t { kNone, kDescriptor3, kStandardInput };

struct TerminalSize {
  uint32_t cols = 0, rows = 0;  // at most kMaxTerminalSide; 0: 80 columns, 24 rows
  bool operator==(const TerminalSize&) const = default;
};

// daemon -> guest
struct Exec {
  std::string id;
  std::vector<std::string> argv;  // argv[0] is looked up in PATH of env unless it has a slash
  std::vector<std::string> env;   // complete environment, "K=V"
  std::string cwd;                // absolute
  uint32_t uid = 0, gid = 0;
  std::string user;                  // supplementary groups are those of this user in the guest's /etc/group
  uint64_t timeout_ms = 0;           // 0: none; SIGKILL to the group, exit code 137
  Channel channel = Channel::kNone;  // on the wire only when there is one
  bool standard_input = false;       // a pipe that Stdin feeds; otherwise there is nothing to read
  // Has standard input too, whatever `standard_input` says. Not together with Channel::kStandardInput.
  std::optional<TerminalSize> terminal;

  bool TakesInput() const { return standard_input || terminal.has_value(); }
};
struct Ack {
  std::string id;
  uint64_t offset = 0;
};
struct ExitAck {
  std::string id;
};
struct Kill {
  std::string id;
  int32_t signal = 15;
};  // to the command's process group
struct Input {
  std::string id;
  std::string bytes;
};  // for a command's channel; of one that has ended: dropped
struct Stdin {
  std::string id;
  uint64_t offset = 0;
  std::string bytes;
};  // of a command that has ended: dropped
struct StdinEnd {
  std::string id;
  uint64_t offset = 0;
};
struct Resize {
  std::string id;
  TerminalSize size;
};  // of a command that has ended or has no terminal: dropped

// guest -> daemon
struct CommandState {
  std::string id;
  uint64_t produced = 0;
  bool exited = false;
};
struct StdinState {
  std::string id;
  uint64_t accepted = 0;  // the agent has all bytes before this offset
  uint64_t taken = 0;     // the command got all bytes before this offset
  bool ended = false;     // StdinEnd was received
  bool closed = false;    // nobody reads any more
  bool operator==(const StdinState&) const = default;
};
struct ExecStarted {
  std::string id;
  int32_t pid = 0;
};
enum class ExecFailure : uint8_t { kNotFound, kNotExecutable, kBadCwd, kDuplicate, kQuiescing, kNoResources, kOther };
struct ExecFailed {
  std::string id;
  ExecFailure kind = ExecFailure::kOther;
  std::string message;
};
struct Output {
  std::string id;
  uint64_t offset = 0;
  uint8_t stream = 1;
  std::string bytes;
};  // stream 1, 2, or 3: the channel
struct Gap {
  std::string id;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};  // bytes lost at this offset
struct Exit {
  std::string id;
  int32_t code = 0;  // shell style: 128+n for a signal
  bool timed_out = false;
  uint64_t duration_ms = 0;
  uint64_t final_offset = 0;   // all Output (or Gap) up to here was sent before
  bool out_of_memory = false;  // the machine's own kernel has killed for want of memory; of others the host knows
};
struct StdinTaken {
  std::string id;
  uint64_t offset = 0;
};
struct StdinClosed {
  std::string id;
};

}  // namespace sandbar::protocol
