// One redirected TCP connection of a machine: judged, then dialled and pumped both ways, or told why not.
// Single loop. Owned by the task that runs it; the Egress keeps a pointer while it lives, to cut it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "async/task.h"
#include "net/dns_relay.h"
#include "net/egress_state.h"
#include "net/guarded_connect.h"

namespace sandbar::net {

// What a client's first bytes are; decides the language in which a denial is said.
enum class Speech { kUnknownYet, kTls, kHttp, kOther };
Speech Classify(std::string_view first_bytes);

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
  // A denial being said, or DNS to the machine's own resolver, goes on under any policy.
  bool CutByPolicy() const { return established_ || dialling_; }
  std::chrono::steady_clock::time_point last_activity() const { return last_activity_; }
  bool established() const { return established_; }
  int guest_fd() { return guest_.native_handle(); }

 private:
  Task<> Refuse(std::string reason, std::string hint);
  Task<> SayWhy(std::string reason, std::string hint);
  Task<std::string> ReadOpening();
  Task<> Drain();
  Task<> Pump(Stream* from, Stream* to, uint64_t* counter);
  void NoLongerHalfOpen();

  Stream guest_;
  std::optional<Stream> upstream_;
  EgressState* state_;
  DnsRelay* dns_;
  Endpoint target_;
  bool half_open_ = true;
  bool dialling_ = false;
  bool established_ = false;
  bool cut_ = false;
  std::chrono::steady_clock::time_point last_activity_ = std::chrono::steady_clock::now();
};

}  // namespace sandbar::net
