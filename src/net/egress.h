// Every byte that leaves a machine passes here. One Egress per machine: accepts what the netns redirected to its TCP
// listener, answers its DNS, applies the policy, dials from the host's side through GuardedConnect, counts bytes.
// Single loop. A policy change applies to new connections at once and cuts open ones that it forbids.
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
#include "net/address.h"
#include "net/policy.h"

namespace sandbar::net {

struct EgressPolicy {
  EgressMode mode = EgressMode::kDenyAll;
};

// What the operator decided for the whole server.
struct EgressConfig {
  std::vector<std::string> allow_addresses;  // CIDRs that GuardedConnect may dial although they are not global
  std::string resolver;                      // "ip:port"; empty: first nameserver of /etc/resolv.conf
  size_t max_connections = 256;              // per machine, charged at accept
  size_t max_half_open = 64;
  uint32_t dns_per_second = 200;  // also the burst
  size_t max_dns_outstanding = 64;
  std::chrono::milliseconds first_byte_timeout{1000};  // how long a denied client may take to say what it speaks
  std::chrono::milliseconds connect_timeout{15000};
  std::chrono::milliseconds dns_timeout{4000};
  std::chrono::milliseconds idle_timeout{std::chrono::minutes{15}};  // neither side sent anything
  std::chrono::milliseconds head_timeout{
      20000};           // for a TLS handshake or an HTTP head, from its first byte to its last
  bool strict = false;  // requests that no rule of their domain matches are denied
};

// The nameserver in every machine's resolv.conf: whatever the guest sends to it is answered here.
inline constexpr std::string_view kGuestResolver = "192.0.2.53";

struct Denial {
  int64_t at_ms = 0;
  std::string kind;    // "dns", "tcp"
  std::string target;  // name or address:port
  std::string reason;  // e.g. "deny-all", "address not allowed: loopback"
  std::string hint;    // what would allow it
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
  virtual void SetPolicy(EgressPolicy policy) = 0;
  virtual EgressPolicy policy() const = 0;
  virtual EgressCounters counters() const = 0;
  virtual std::vector<Denial> denials() const = 0;  // the newest few hundred
  // Cancels connections and joins. Await before destruction.
  virtual asio::awaitable<void> Close() = 0;
};

// Where a redirected connection wanted to go. The default asks the kernel (SO_ORIGINAL_DST); tests give their own.
using OriginalDestination = std::function<Result<Endpoint>(int fd)>;

// `config` outlives it. Sockets are made non-blocking.
std::unique_ptr<Egress> MakeEgress(asio::any_io_executor ex, Fd tcp_listener, Fd dns, EgressPolicy policy,
                                   const EgressConfig* config, OriginalDestination original = {});

// Why an address may not be dialled ("loopback", "link-local", "private", …), or empty when it may. The one dialler of
// the product (guarded_connect.h) asks this about the very address it dials.
std::string AddressDenied(const std::array<uint8_t, 16>& v6_or_mapped, const EgressConfig& config);

}  // namespace sandbar::net
