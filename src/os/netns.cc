#include "os/netns.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <charconv>
#include <string>
#include <string_view>

#include "os/netns_parts.h"
#include "os/netns_route.h"

namespace sandbar::os {
namespace {

// Read from the top: what stays in the machine, what is redirected, and that nothing else goes anywhere.
//  - Loopback is not tracked: it cannot fill the connection table. Port 1 is ours alone, so it is never such traffic.
//    (@th,0,16 and @th,16,16 are both ports of TCP and UDP; sets would double the cost of loading the rules.)
//  - A packet for port 1 that was not redirected is a guest that talks to the listener itself: SO_ORIGINAL_DST would
//    then name a target that the guest never had to reach by the rules. It gets "connection refused".
//  - Dropping on output makes the system call fail at once (EPERM), so programs try their next way without waiting;
//    TCP would repeat its first packet instead, so it gets a reset.
//  - Original direction packets of redirected connections go to 127.0.0.1 when they come to the filter.
constexpr char kRules[] = R"(
table inet sandbar {
  counter dropped { }
  chain untracked {
    type filter hook output priority raw; policy accept;
    @th,0,16 1 accept
    @th,16,16 1 accept
    ip saddr 127.0.0.0/8 ip daddr 127.0.0.0/8 notrack
    ip6 daddr ::1 notrack
  }
  chain redirected {
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.0/8 return
    meta nfproto ipv4 tcp dport != 1 redirect to :1
    meta nfproto ipv4 udp dport 53 redirect to :1
  }
  chain outgoing {
    type filter hook output priority 0; policy drop;
    ct direction reply accept
    ct state related accept
    ct state new ct count over 8192 counter name dropped drop
    ip daddr 127.0.0.0/8 accept
    ip6 daddr ::1 accept
    counter name dropped
    meta l4proto tcp reject with tcp reset
  }
  chain incoming {
    type filter hook input priority 0; policy accept;
    tcp dport 1 ct status & dnat != dnat counter name dropped reject with tcp reset
    udp dport 1 ct status & dnat != dnat counter name dropped reject
  }
}
)";

// These are per network namespace; the guest sees /proc/sys read-only.
constexpr Setting kSettings[] = {
    {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "2", true},
    kUnpaced,
    {"/proc/sys/net/ipv4/ping_group_range", "0 4294967294", false},
    {"/proc/sys/net/ipv6/conf/all/accept_ra", "0", false},
    {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "10", false},
    {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream", "30", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "10", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", "5", false},
};

}  // namespace

Result<MachineNet> CreateLocalNet() {
  SB_TRY(Fd home, OpenOwnNetns());
  if (::unshare(CLONE_NEWNET) != 0) return FailErrno("new network namespace");
  NetnsVisit visit(std::move(home));
  MachineNet net;
  SB_TRY(net.netns, OpenOwnNetns());
  // Rules first: nothing may ever pass without them.
  SB_TRYV(RunNft(kRules));
  SB_TRYV(WriteSettings(kSettings));
  SB_TRYV(LinkUp(kLoopbackIndex));
  SB_TRYV(AddAnyAddressRoute());
  // On 127.0.0.1 and not on any address: answers must leave from the address that the redirect rewrote to, or the
  // connection table does not recognise them.
  SB_TRY(net.tcp, BindPortOne(SOCK_STREAM, INADDR_LOOPBACK));
  SB_TRY(net.dns, BindPortOne(SOCK_DGRAM, INADDR_LOOPBACK));
  return net;
}

Result<Fd> DialIn(int netns, uint16_t port, bool ipv6) {
  if (port <= kListenPort) return Fail(Code::kBadRequest, "this port cannot be reached");
  SB_TRY(Fd fd, TcpSocketIn(netns, ipv6 ? AF_INET6 : AF_INET));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_loopback;
  const auto* addr = ipv6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  const socklen_t size = ipv6 ? sizeof v6 : sizeof v4;
  if (::connect(fd.get(), addr, size) != 0 && errno != EINPROGRESS) return FailErrno("connect into the machine");
  return fd;
}

Result<uint64_t> DroppedPackets(int netns) {
  SB_TRY(Fd home, OpenOwnNetns());
  if (::setns(netns, CLONE_NEWNET) != 0) return FailErrno("enter the machine's network");
  NetnsVisit visit(std::move(home));
  SB_TRY(std::string text, RunNft("list counters"));
  constexpr std::string_view kLabel = "packets ";
  uint64_t sum = 0;
  for (size_t at = text.find(kLabel); at != std::string::npos; at = text.find(kLabel, at)) {
    at += kLabel.size();
    uint64_t n = 0;
    const auto [end, ec] = std::from_chars(text.data() + at, text.data() + text.size(), n);
    if (ec != std::errc()) return Fail(Code::kInternal, "nftables: a counter without a number");
    sum += n;
  }
  return sum;
}

}  // namespace sandbar::os
