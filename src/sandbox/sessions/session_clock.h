// The clock of one session: its deadline, and the idle timeout that runs while nobody uses it. Asks for a stop when one
// of them has passed. The spawner has a later deadline of its own, in case the server is dead or stuck. Single loop;
// a part of Session.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sandbox/commands/session_commands.h"
#include "sandbox/sessions/session_state.h"

namespace sandbar::sandbox {

class SessionClock {
 public:
  SessionClock(SessionState* state, const SessionCommands* commands)
      : state_(state), commands_(commands), moved_(state->core->ex) {}
  SessionClock(const SessionClock&) = delete;
  SessionClock& operator=(const SessionClock&) = delete;

  // In ms since the epoch.
  int64_t Deadline() const { return state_->row.started_at.value_or(state_->row.created_at) + state_->row.timeout_ms; }
  // Tells the spawner its deadline.
  Task<> Arm();
  Task<> Extend(int64_t duration_ms);
  void SetIdleTimeout(std::optional<int64_t> ms);
  // The session stops: the clock ends.
  void Notify() { moved_.Notify(); }

  // While the session runs. `expired` hears why it has to stop; `tick` is called about once a minute.
  Task<> Run(std::function<void(std::string why)> expired, std::function<Task<>()> tick);

  void BeginUse() { ++users_; }
  void EndUse();

 private:
  // How long the session may go on without being used; nothing: for ever.
  std::optional<int64_t> IdleLeft() const;

  SessionState* state_;
  const SessionCommands* commands_;
  std::optional<int64_t> idle_timeout_ms_;
  size_t users_ = 0;
  std::chrono::steady_clock::time_point last_used_ = std::chrono::steady_clock::now();
  Event moved_;
};

}  // namespace sandbar::sandbox
