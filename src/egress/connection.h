// One redirected TCP connection of a machine. The policy decides about it; then it is dialled and relayed both ways,
// handed to the interceptor, or answered with a denial. Single loop. The task that runs it owns it; the Egress keeps a
// pointer while it lives, to cut it.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "async/task.h"
#include "egress/decide.h"
#include "egress/dns_relay.h"
#include "egress/first_bytes.h"
#include "egress/guarded_connect.h"
#include "egress/splice.h"
#include "egress/state.h"

namespace sandbar::egress {

class EgressConnection {
 public:
  // Charges the connection to `state` until it is destroyed. `state` and `dns` outlive it.
  EgressConnection(Stream guest, EgressState* state, DnsRelay* dns);
  EgressConnection(const EgressConnection&) = delete;
  EgressConnection& operator=(const EgressConnection&) = delete;
  ~EgressConnection();

  Task<> Run(Result<Endpoint> target);
  // Ends it now, with RST on both sides: not one more byte passes. Run() returns soon after.
  void Cut();
  // Whether the connection may go on under another policy. A connection that was not allowed yet survives: it is
  // decided when it is about to be allowed. A denial that is being sent, and DNS to the machine's own resolver, survive
  // every policy.
  bool Survives(const CompiledPolicy& now) const;
  // Carries bytes and has not for a while.
  bool IdleSince(std::chrono::steady_clock::time_point when) const;
  int guest_fd() { return guest_.native_handle(); }

 private:
  Task<> Serve();
  Task<ConnectionPlan> MakePlan();
  Task<> Refuse(ConnectionPlan plan);
  Task<> SayWhy(const Denial* denial);
  Task<> Drain();
  Task<Stream> Dial();
  Task<Stream> DialOpened();
  Task<> StartPostgres(Stream* upstream);
  Task<> DialFailed(Error error);
  Task<> Carry();
  Task<> CarryOut();
  Task<> CarryIn();
  Task<> Intercept();
  Task<> AwaitCut();
  template <class T>
  Task<T> UnlessCut(Task<T> task);

  void OnHost(const std::string& host);
  bool SameTreatment(const CompiledPolicy& now, const std::string& host) const;
  void NoteAllowed(std::string kind, std::string host, std::string address);
  void NotePeeked();
  void NoLongerHalfOpen();

  Stream guest_;
  std::optional<Stream> upstream_;
  std::optional<IpAddress> peer_;  // that was dialled
  EgressState* state_;
  DnsRelay* dns_;
  Endpoint target_;
  std::string target_name_;  // the name that the target's address was made up for
  FirstBytes first_bytes_;
  PolicyRef policy_;                       // that let it through
  std::optional<ConnectionPlan> granted_;  // and how; points into policy_
  std::set<std::string> hosts_;            // of requests that the interceptor let through
  bool too_many_hosts_ = false;
  bool half_open_ = true;
  bool carrying_ = false;
  bool noted_ = false;
  RelayState relay_;
  Event cut_;
};

}  // namespace sandbar::egress
