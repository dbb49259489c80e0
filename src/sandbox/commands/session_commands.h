// The commands that run in one session: start, output, exit, kill. Rows and logs are written here. Single loop; a part
// of Session.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/commands/command_log.h"
#include "sandbox/commands/commands.h"
#include "sandbox/memory/restored_memory.h"
#include "sandbox/sessions/session_state.h"
#include "sandbox/shared_result.h"

namespace sandbar::sandbox {

// A command that has not ended.
struct RunningCommand {
  store::Command row;
  std::shared_ptr<CommandLog> log;
  std::shared_ptr<SharedResult<store::Command>> done;
  uint64_t acked = 0;
  bool killed = false;      // by a caller: its 137 needs no explanation
  bool ending = false;      // its exit is being recorded
  bool has_writer = false;  // somebody writes to its standard input
};

class SessionCommands {
 public:
  explicit SessionCommands(SessionState* state) : state_(state), ended_(state->core->ex) {}
  SessionCommands(const SessionCommands&) = delete;
  SessionCommands& operator=(const SessionCommands&) = delete;

  Task<StartedCommand> Start(CommandSpec spec);
  // Null when it has ended, or there is none.
  std::shared_ptr<RunningCommand> Find(const std::string& command) const;
  Result<> Kill(const std::string& command, int signal);
  // Where its standard input continues. kConflict: it takes none.
  Result<protocol::StdinState> InputState(const std::string& command) const;
  Task<> Resize(std::string command, protocol::TerminalSize size);
  // The connection to the agent, while the session is usable.
  Result<std::shared_ptr<engine::GuestLink>> Link() const { return state_->Link(); }
  bool empty() const { return commands_.empty(); }
  std::chrono::steady_clock::time_point last_ended() const { return last_ended_; }

  // Events of the machine. False: not a command of ours.
  bool OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes);
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes);
  bool OnExit(const protocol::Exit& exit);
  void OnConnected();

  // After a restart of the server: the commands that had not ended, with their logs.
  Task<> Recover(std::vector<store::Command> unfinished);
  // Ends those that the agent does not know: they will not report.
  void EndUnknown(const std::vector<protocol::CommandState>& known);
  // A command of a restored memory, under a new id. `produced`: the bytes that it had written when it was saved.
  Task<std::string> TakeOver(const RestoredMemory* restored, store::Command row, uint64_t produced);

  // At a stop: no reader holds the output back any more.
  void ReleasePins();
  // Waits for exits that are on their way, until `until` (ms). `expected`: more may come.
  Task<> AwaitExits(int64_t until, std::function<bool()> expected);
  // The machine has ended: every command that is left was killed with it.
  Task<> EndAll();
  // At shutdown: the logs call nobody any more.
  void Detach();

 private:
  std::shared_ptr<RunningCommand> Track(store::Command row, CommandLog::State log);
  Task<> InsertRow(store::Command row);
  Task<> Finish(std::shared_ptr<RunningCommand> run, protocol::Exit exit);
  // Holds the output of ended commands to the session's budget, once enough of it is new.
  Task<> TrimOutput(uint64_t added);
  void Ack(RunningCommand& run, bool all);

  SessionState* state_;
  std::map<std::string, std::shared_ptr<RunningCommand>> commands_;
  std::vector<std::string> unacked_exits_;  // recorded while no connection was at hand
  uint64_t untrimmed_ = UINT64_MAX / 2;     // bytes of output since the last trim; the first is at once
  std::chrono::steady_clock::time_point last_ended_;
  Event ended_;
};

}  // namespace sandbar::sandbox
