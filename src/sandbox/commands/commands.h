// The role Commands: processes in a session, their exit codes, their input and their output. Single loop. Every call
// takes the caller's Scope; a session of another project answers as unknown.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "protocol/guest_commands.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

struct CommandSpec {
  std::string command;
  std::vector<std::string> args;
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
  bool sudo = false;
  std::optional<int64_t> timeout_ms;
  bool standard_input = false;                     // a pipe that OpenInput feeds; otherwise there is nothing to read
  std::optional<protocol::TerminalSize> terminal;  // takes input too
  // The caller attaches a log reader at once and wants every byte, with back-pressure.
  bool follow_from_start = false;
};

struct LogChunk {
  uint8_t stream = 1;  // 1 stdout, 2 stderr
  std::string bytes;   // raw; empty together with gap == 0 means the end of the log
  uint64_t gap = 0;    // this many bytes are missing before what follows
};

// A position in a command's output: replays from the start, then follows until the command ended.
class LogReader {
 public:
  virtual ~LogReader() = default;
  virtual Task<LogChunk> Next() = 0;
  // The reader has returned all output so far and the command still runs: Next() would wait.
  virtual bool caught_up() const = 0;
};

struct ReadFrom {
  uint64_t since = 0;  // position in the output: bytes of both streams and gaps before it
  // The command waits for this reader, which gets every byte from here on.
  bool pinned = false;
};

// The one writer of a command's standard input; another can be opened when this one is destroyed. Offsets count all
// bytes since the command began. When nobody reads any more, Write and End succeed and discard.
class InputWriter {
 public:
  virtual ~InputWriter() = default;
  virtual Result<protocol::StdinState> State() const = 0;
  // Returns when the bytes are on their way to the machine. Waits as long as the command does not read: cancel it.
  // kBadRequest: the machine does not have the bytes before `offset` yet.
  virtual Task<> Write(uint64_t offset, std::string bytes) = 0;
  // The input ends at `offset`, up to which all bytes were written.
  virtual Task<> End(uint64_t offset) = 0;
};

struct StartedCommand {
  store::Command command;
  std::unique_ptr<LogReader> log;  // set when follow_from_start
};

class Commands {
 public:
  virtual ~Commands() = default;
  virtual Task<StartedCommand> Start(Scope scope, std::string session, CommandSpec spec) = 0;
  virtual Task<store::Command> Get(Scope scope, std::string session, std::string command) = 0;
  virtual Task<store::Command> Wait(Scope scope, std::string session, std::string command) = 0;
  virtual Task<std::vector<store::Command>> List(Scope scope, std::string session) = 0;
  virtual Task<store::Command> Kill(Scope scope, std::string session, std::string command, int signal) = 0;
  // kBadRequest: the command has not written so much.
  virtual Task<std::unique_ptr<LogReader>> OpenLog(Scope scope, std::string session, std::string command,
                                                   ReadFrom from = {}) = 0;
  // Where the standard input of a command continues. kConflict: it was started without one.
  virtual Task<protocol::StdinState> GetInput(Scope scope, std::string session, std::string command) = 0;
  // kConflict also: somebody else writes.
  virtual Task<std::unique_ptr<InputWriter>> OpenInput(Scope scope, std::string session, std::string command) = 0;
  // kConflict: it has no terminal.
  virtual Task<> Resize(Scope scope, std::string session, std::string command, protocol::TerminalSize size) = 0;
};

}  // namespace sandbar::sandbox
