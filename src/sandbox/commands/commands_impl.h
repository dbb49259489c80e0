// The role Commands: those of active sessions from memory, the others from the store and the log files. Single loop;
// owned by the domain.
#pragma once

#include "sandbox/commands/commands.h"
#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sessions/active_sessions.h"

namespace sandbar::sandbox {

class CommandsImpl final : public Commands {
 public:
  CommandsImpl(Core* core, Records* records, ActiveSessions* active)
      : core_(core), records_(records), active_(active) {}

  Task<StartedCommand> Start(Scope scope, std::string session, CommandSpec spec) override;
  Task<store::Command> Get(Scope scope, std::string session, std::string command) override;
  Task<store::Command> Wait(Scope scope, std::string session, std::string command) override;
  Task<std::vector<store::Command>> List(Scope scope, std::string session) override;
  Task<store::Command> Kill(Scope scope, std::string session, std::string command, int signal) override;
  Task<std::unique_ptr<LogReader>> OpenLog(Scope scope, std::string session, std::string command,
                                           ReadFrom from = {}) override;
  Task<protocol::StdinState> GetInput(Scope scope, std::string session, std::string command) override;
  Task<std::unique_ptr<InputWriter>> OpenInput(Scope scope, std::string session, std::string command) override;
  Task<> Resize(Scope scope, std::string session, std::string command, protocol::TerminalSize size) override;

 private:
  // Null when it has ended, or there is none.
  std::shared_ptr<RunningCommand> FindRunning(const std::string& session, const std::string& command) const;

  Core* core_;
  Records* records_;
  ActiveSessions* active_;
};

}  // namespace sandbar::sandbox
