// The state that the parts of one session share: its row, its machine, its phase. Only the session's own parts use it
// (commands, code contexts, network, clock, source). Single loop; owned by the Session.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sandbox/commands/commands.h"
#include "sandbox/core.h"
#include "sandbox/sessions/connected_machine.h"
#include "store/store.h"

namespace sandbar::sandbox {

enum class SessionPhase { kStarting, kRunning, kStopping, kEnded };

struct SessionState {
  SessionState(Core* c, store::Session r, std::map<std::string, std::string> e)
      : core(c), row(std::move(r)), env(std::move(e)), tasks(c->ex) {}
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // Why nothing can be done with the session now (kStopped, kStopping, kUnavailable), or success.
  Result<> Usable() const;
  // The connection to the agent, for a call on a usable session.
  Result<std::shared_ptr<engine::GuestLink>> Link() const;
  // The same in any phase; null while there is none.
  std::shared_ptr<engine::GuestLink> LinkIfAny() const { return connected ? connected->link() : nullptr; }

  // Writes the row and mirrors it on the sandbox. `edit` changes the sandbox besides; `then` runs afterwards.
  Task<store::Sandbox> Save();
  Task<store::Sandbox> SaveWith(store::SandboxEdit edit, std::function<Result<>(store::Store&)> then = nullptr);

  // The request that runs a command as the session's user, or as root.
  protocol::Exec MakeExec(const CommandSpec& spec, const std::string& id) const;
  // Whether a process with this exit code was a victim of the memory limit. `told`: the guest's own kernel says so.
  Task<bool> WasOutOfMemory(int code, bool told);
  std::string OutOfMemory() const { return "out of memory (limit " + std::to_string(row.memory_mb) + " MiB)"; }

  Core* core;
  store::Session row;                      // the truth while the session is active; written through to the store
  std::map<std::string, std::string> env;  // the sandbox's, for every command
  SessionPhase phase = SessionPhase::kStarting;
  std::unique_ptr<ConnectedMachine> connected;
  uint64_t oom_kills = 0;  // counted so far
  TaskGroup tasks;
};

}  // namespace sandbar::sandbox
