// The network of one session: its policy on record and in force, and the CA that a policy with rules needs in the
// machine. Single loop; a part of Session.
#pragma once

#include <cstdint>
#include <string>

#include "egress/egress.h"
#include "sandbox/sessions/session_state.h"

namespace sandbar::sandbox {

class SessionNetwork {
 public:
  explicit SessionNetwork(SessionState* state) : state_(state), changed_(state->core->ex) {}
  SessionNetwork(const SessionNetwork&) = delete;
  SessionNetwork& operator=(const SessionNetwork&) = delete;

  // On record. Also in force, unless Set is under way or failed.
  const egress::PolicyRef& policy() const { return policy_; }
  // Reads the policy from the row. A policy that cannot be read is deny-all: never more open than what was asked for.
  void Load();
  // Puts the recorded policy in force.
  void Apply();
  // Denies at once what the new policy denies, before any slow step. The whole policy is in force when the call
  // succeeds. kUnavailable when the machine does not take the CA: then the new policy is on record, and only what both
  // the old and the new policy allow passes.
  Task<> Set(egress::PolicyRef policy);

  // The machine trusts our CA from then on, if the policy needs that.
  Task<> TrustCa(egress::PolicyRef policy);
  // In the background, for a machine that an earlier server may have left without the CA.
  void TrustCaAgain();
  // A Denial for this number of packets that were neither TCP nor DNS.
  egress::Denial DroppedPackets(uint64_t count);

 private:
  Task<> TrustRecorded();
  Task<> TellUnusable(std::string why);
  Task<> AwaitOtherPolicy(uint64_t change);

  SessionState* state_;
  egress::PolicyRef policy_ = egress::DenyAll();
  uint64_t changes_ = 0;  // calls of Set
  Event changed_;
  uint64_t dropped_packets_ = 0;  // counted so far
  int64_t dropped_at_ = 0;        // when there were more of them than before
};

}  // namespace sandbar::sandbox
