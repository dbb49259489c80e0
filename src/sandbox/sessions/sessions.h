// The role Sessions: the runs of a sandbox, by session id. Single loop. Every call takes the caller's Scope; a session
// of another project answers as unknown.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "egress/egress.h"
#include "egress/policy.h"
#include "sandbox/sandboxes/sandbox_view.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

// The connections that a session's network allowed and denied. The list ends with the session.
struct NetworkView {
  egress::PolicyRef policy;  // in force; deny-all for a session that has ended
  std::vector<egress::Denial> denials;
  std::vector<egress::Attempt> attempts;
};

class Sessions {
 public:
  virtual ~Sessions() = default;

  virtual Task<Page<store::Session>> List(Scope scope, ListQuery query) = 0;
  virtual Task<SandboxView> Get(Scope scope, std::string session) = 0;
  virtual Task<SandboxView> Stop(Scope scope, std::string session) = 0;  // returns once stopped; idempotent
  virtual Task<store::Session> ExtendTimeout(Scope scope, std::string session, int64_t duration_ms) = 0;

  // Replaces the policy of the running session, and returns when the new one is in force. Connections that the new
  // policy denies are denied at once.
  virtual Task<store::Session> SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy) = 0;
  virtual Task<NetworkView> Network(Scope scope, std::string session) = 0;

  // The session counts as used, and its idle clock stands, while the caller holds the result. Null when no such session
  // is active.
  virtual std::shared_ptr<void> Use(const Scope& scope, const std::string& session) = 0;
  // The session's row if its machine runs now.
  virtual std::optional<store::Session> Running(const Scope& scope, const std::string& session) const = 0;
};

}  // namespace sandbar::sandbox
