// Every byte that leaves a machine passes here. One Egress per machine: accepts what the netns redirected to its TCP
// listener, answers its DNS, applies the policy, dials from the host's side through GuardedConnect, counts bytes.
// Single loop. A policy change applies to new connections at once and cuts open ones that it forbids.
//
//   auto egress = MakeEgress(ex, std::move(listener), std::move(dns), DenyAll(), &config, interceptor.get());
//   egress->SetPolicy(*Compile(wanted));
//   co_await egress->Close();
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "base/fd.h"
#include "egress/address.h"
#include "egress/policy.h"

namespace sandbar::egress {

class Interceptor;  // intercept.h

// Connections of all machines together, so that their sockets and pipes leave descriptors for the API. Single loop.
class ConnectionBudget {
 public:
  explicit ConnectionBudget(size_t limit) : limit_(limit) {}
  // `held`: how many the asking machine has already. The last quarter is for machines that hold few.
  bool Take(size_t held);
  void Give() { --used_; }
  size_t limit() const { return limit_; }
  size_t used() const { return used_; }

 private:
  size_t limit_;
  size_t used_ = 0;
};
// As many connections as the process's descriptor limit carries with a reserve for everything else.
std::shared_ptr<ConnectionBudget> BudgetFromFdLimit();

// What the operator decided for the whole server.
struct EgressConfig {
  std::vector<std::string> allow_addresses;  // CIDRs that GuardedConnect may dial although they are not global
  std::vector<std::string> own_names;  // canonical: this server, and so is what is below them; dialled for nobody,
                                       // unless allow_addresses has the address
  std::string resolver;                // "ip:port"; empty: first nameserver of /etc/resolv.conf
  size_t max_connections = 1024;       // per machine, charged at accept
  size_t max_half_open = 256;
  std::shared_ptr<ConnectionBudget> budget;  // of all machines; null: none
  uint64_t bytes_per_second = 0;             // per machine, both directions together; 0: no limit
  bool strict = false;                       // a rule's matchers deny what they do not match; SNI must equal Host
  bool dns_for_subnets = false;              // subnets.allow lets the machine ask the operator's resolver for any name
  bool allow_ech = false;                    // TLS with an encrypted (or decoy) hello passes by its outer name
  uint32_t dns_per_second = 200;             // also the burst
  size_t max_dns_outstanding = 64;
  std::chrono::milliseconds protocol_timeout{1000};     // how long a denied client may take to show its protocol
  std::chrono::milliseconds first_bytes_timeout{5000};  // how long a client may take for the bytes that decide
  std::chrono::milliseconds head_timeout{20000};        // for a TLS handshake or an HTTP head, from first to last byte
  std::chrono::milliseconds connect_timeout{15000};
  std::chrono::milliseconds dns_timeout{4000};
  std::chrono::milliseconds idle_timeout{std::chrono::minutes{15}};  // neither side sent anything
};

// The nameserver in every machine's resolv.conf: whatever the guest sends to it is answered here.
inline constexpr std::string_view kGuestResolver = "192.0.2.53";

// The `rule` of what the operator's settings or limits refuse, whatever the sandbox's policy.
inline constexpr std::string_view kServerRule = "server";

// The record of one denied attempt. The same one again only counts.
struct Denial {
  int64_t at_ms = 0;   // the newest of `count`
  std::string kind;    // "dns", "tls", "http", "tcp"
  std::string target;  // for people: name, name:port or address:port
  std::string host;    // canonical name, else address; may be empty
  uint16_t port = 0;   // 0: DNS
  std::string rule;    // what decided: "deny-all", "no rule allows it", "subnets.deny 10.0.0.0/8", "server"
  std::string reason;  // one sentence
  std::string hint;    // the smallest change that would allow it
  uint64_t count = 1;
};

// The record of what the machine tried, allowed or denied. A policy is suggested from these and tried out on them.
struct Attempt {
  int64_t first_ms = 0, last_ms = 0;
  std::string kind;     // "dns", "tls", "http", "tcp"
  std::string host;     // canonical name, empty when none is known
  std::string address;  // that the guest connected to; empty for DNS and where only the name counted
  uint16_t port = 0;
  bool allowed = false;
  std::string reason;  // why not, or why it failed
  uint64_t count = 1;
  std::string rule;  // of a denied one: what decided, as in Denial
};

struct EgressCounters {
  uint64_t ingress_bytes = 0;  // into the machine
  uint64_t egress_bytes = 0;   // out of it
  uint64_t connections = 0;
  uint64_t denied = 0;
};

class Egress {
 public:
  virtual ~Egress() = default;
  virtual void SetPolicy(PolicyRef policy) = 0;
  // Call it before SetPolicy(next) when slow work comes in between. From now on only connections pass that the policy
  // in force and `next` both allow. Open connections that `next` forbids are cut. A connection that both allow, but
  // with different rules, waits until SetPolicy(next) or Relax. Several changes may be pending; all of them count.
  virtual void Tighten(PolicyRef next) = 0;
  // `next` will not be set after all.
  virtual void Relax(const PolicyRef& next) = 0;
  // Changes before this one have been replaced by it.
  virtual void DropEarlier(const PolicyRef& next) = 0;
  // The slow part failed. Everything stays as tight as it is, and what waits is refused with this reason.
  virtual void FailChange(std::string reason) = 0;
  virtual PolicyRef policy() const = 0;
  virtual EgressCounters counters() const = 0;
  virtual std::vector<Denial> denials() const = 0;    // the newest few hundred
  virtual std::vector<Attempt> attempts() const = 0;  // a few hundred distinct ones
  // Cancels connections and joins. Await before destruction.
  virtual asio::awaitable<void> Close() = 0;
};

// Where a redirected connection wanted to go. The default asks the kernel (SO_ORIGINAL_DST); tests give their own.
using OriginalDestination = std::function<Result<Endpoint>(int fd)>;

// `config` and `interceptor` outlive it. Without an interceptor, what needs one is refused. Sockets are made
// non-blocking.
std::unique_ptr<Egress> MakeEgress(asio::any_io_executor ex, Fd tcp_listener, Fd dns, PolicyRef policy,
                                   const EgressConfig* config, Interceptor* interceptor = nullptr,
                                   OriginalDestination original = {});

// Why an address may not be dialled ("loopback", "link-local", "private", …), or empty when it may. The one dialler of
// the product (guarded_connect.h) asks this about the very address it dials.
std::string AddressDenied(const std::array<uint8_t, 16>& v6_or_mapped, const EgressConfig& config);

// Whether allow_addresses has it.
bool OperatorAllows(const std::array<uint8_t, 16>& v6_or_mapped, const EgressConfig& config);

}  // namespace sandbar::egress
