// Ends sessions. A session never stops itself: it asks here, because a stop ends the very tasks that would run it.
// A stop decides once what becomes of the files (Keep), and everyone who asks meanwhile gets the same result.
// Single loop; owned by the domain.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "sandbox/core.h"
#include "sandbox/housekeeper.h"
#include "sandbox/sessions/active_sessions.h"
#include "sandbox/snapshots/layer_keeper.h"

namespace sandbar::sandbox {

class Stopper {
 public:
  Stopper(Core* core, ActiveSessions* active, LayerKeeper* layers, Housekeeper* housekeeper)
      : core_(core), active_(active), layers_(layers), housekeeper_(housekeeper) {}

  // A new active session that asks this object when it has to stop.
  std::shared_ptr<Session> Add(store::Session row, std::map<std::string, std::string> env);
  // Null when the session is not active. A stop that is under way already goes on as it was asked for first.
  SharedStop Request(const std::string& session, StopCause cause, std::string why, Keep keep = {});
  // Stops all sessions, and returns when they have ended.
  Task<> StopAll();

 private:
  Task<store::Sandbox> Stop(std::shared_ptr<Session> session, StopCause cause, std::string why, Keep keep);

  Core* core_;
  ActiveSessions* active_;
  LayerKeeper* layers_;
  Housekeeper* housekeeper_;
};

}  // namespace sandbar::sandbox
