// The role Sessions. Single loop; owned by the domain.
#pragma once

#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sessions/active_sessions.h"
#include "sandbox/sessions/sessions.h"
#include "sandbox/sessions/stopper.h"

namespace sandbar::sandbox {

class SessionsImpl final : public Sessions {
 public:
  SessionsImpl(Core* core, Records* records, ActiveSessions* active, Stopper* stopper)
      : core_(core), records_(records), active_(active), stopper_(stopper) {}

  Task<Page<store::Session>> List(Scope scope, ListQuery query) override;
  Task<SandboxView> Get(Scope scope, std::string session) override;
  Task<SandboxView> Stop(Scope scope, std::string session) override;
  Task<store::Session> ExtendTimeout(Scope scope, std::string session, int64_t duration_ms) override;
  Task<store::Session> SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy) override;
  Task<NetworkView> Network(Scope scope, std::string session) override;
  std::shared_ptr<void> Use(const Scope& scope, const std::string& session) override;
  std::optional<store::Session> Running(const Scope& scope, const std::string& session) const override;

 private:
  Core* core_;
  Records* records_;
  ActiveSessions* active_;
  Stopper* stopper_;
};

}  // namespace sandbar::sandbox
