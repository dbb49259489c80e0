#include "os/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <nftables/libnftables.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace sandbar::os {
namespace {

constexpr uint16_t kListenPort = 1;
constexpr unsigned kLoopbackIndex = 1;  // in every network namespace

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
    ct state new ct count over 8192 drop
    ip daddr 127.0.0.0/8 accept
    ip6 daddr ::1 accept
    meta l4proto tcp reject with tcp reset
  }
  chain incoming {
    type filter hook input priority 0; policy accept;
    tcp dport 1 ct status & dnat != dnat reject with tcp reset
    udp dport 1 ct status & dnat != dnat reject
  }
}
)";

struct Setting {
  const char* path;
  const char* value;
  bool required;
};
// These are per network namespace; the guest sees /proc/sys read-only.
constexpr Setting kSettings[] = {
    {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "2", true},
    {"/proc/sys/net/ipv4/ping_group_range", "0 4294967294", false},
    {"/proc/sys/net/ipv6/conf/all/accept_ra", "0", false},
    {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "10", false},
    {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream", "30", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "10", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", "5", false},
};

Result<Fd> OpenOwnNetns() {
  Fd fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!fd) return FailErrno("open the network namespace");
  return fd;
}

// In another network namespace until it goes out of scope. Not coming back would make every later socket of the
// process a guest's, so that is the end of the process.
class NetnsVisit {
 public:
  explicit NetnsVisit(Fd home) : home_(std::move(home)) {}
  NetnsVisit(const NetnsVisit&) = delete;
  NetnsVisit& operator=(const NetnsVisit&) = delete;
  ~NetnsVisit() { SB_CHECK(::setns(home_.get(), CLONE_NEWNET) == 0); }

 private:
  Fd home_;
};

Result<> WriteSetting(const Setting& s) {
  Fd fd(::open(s.path, O_WRONLY | O_CLOEXEC));
  ssize_t n = static_cast<ssize_t>(std::strlen(s.value));
  if (fd && ::write(fd.get(), s.value, static_cast<size_t>(n)) == n) return {};
  if (!s.required) return {};
  return FailErrno(std::string("write ") + s.path);
}

Result<> SetLoopbackUp() {
  Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return FailErrno("socket");
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return FailErrno("set lo up");
  return {};
}

// "local 0.0.0.0/0 dev lo": every IPv4 address is the machine's own, so a packet to any of them can be redirected.
Result<> AddAnyAddressRoute() {
  std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC),
                                                           mnl_socket_close);
  if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) != 0) return FailErrno("netlink socket");
  alignas(nlmsghdr) char buf[8192];
  nlmsghdr* header = mnl_nlmsg_put_header(buf);
  header->nlmsg_type = RTM_NEWROUTE;
  header->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK;
  header->nlmsg_seq = 1;
  auto* route = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(rtmsg)));
  route->rtm_family = AF_INET;
  route->rtm_table = RT_TABLE_LOCAL;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = RT_SCOPE_HOST;
  route->rtm_type = RTN_LOCAL;
  mnl_attr_put_u32(header, RTA_OIF, kLoopbackIndex);
  if (mnl_socket_sendto(socket.get(), header, header->nlmsg_len) < 0) return FailErrno("netlink send");
  ssize_t n = mnl_socket_recvfrom(socket.get(), buf, sizeof buf);
  if (n < 0) return FailErrno("netlink receive");
  unsigned port = mnl_socket_get_portid(socket.get());
  if (mnl_cb_run(buf, static_cast<size_t>(n), 1, port, nullptr, nullptr) < 0) return FailErrno("add the local route");
  return {};
}

Result<> ApplyRules() {
  std::unique_ptr<nft_ctx, void (*)(nft_ctx*)> context(nft_ctx_new(NFT_CTX_DEFAULT), nft_ctx_free);
  if (!context) return Fail(Code::kInternal, "nftables context");
  nft_ctx_buffer_error(context.get());
  if (nft_run_cmd_from_buffer(context.get(), kRules) != 0) {
    return Fail(Code::kUnsupported, std::string("nftables: ") + nft_ctx_get_error_buffer(context.get()));
  }
  return {};
}

// On 127.0.0.1 and not on any address: answers must leave from the address that the redirect rewrote to, or the
// connection table does not recognise them.
Result<Fd> BindLoopback(int type) {
  Fd fd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return FailErrno("socket");
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_port = htons(kListenPort);
  addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&addr), sizeof addr) != 0) return FailErrno("bind port 1");
  if (type == SOCK_STREAM && ::listen(fd.get(), 1024) != 0) return FailErrno("listen");
  return fd;
}

}  // namespace

Result<MachineNet> CreateLocalNet() {
  SB_TRY(Fd home, OpenOwnNetns());
  if (::unshare(CLONE_NEWNET) != 0) return FailErrno("new network namespace");
  NetnsVisit visit(std::move(home));
  MachineNet net;
  SB_TRY(net.netns, OpenOwnNetns());
  // Rules first: nothing may ever pass without them.
  SB_TRYV(ApplyRules());
  for (const Setting& s : kSettings) SB_TRYV(WriteSetting(s));
  SB_TRYV(SetLoopbackUp());
  SB_TRYV(AddAnyAddressRoute());
  SB_TRY(net.tcp, BindLoopback(SOCK_STREAM));
  SB_TRY(net.dns, BindLoopback(SOCK_DGRAM));
  return net;
}

Result<Fd> DialIn(int netns, uint16_t port, bool ipv6) {
  if (port <= kListenPort) return Fail(Code::kBadRequest, "this port cannot be reached");
  Fd fd;
  {
    SB_TRY(Fd home, OpenOwnNetns());
    if (::setns(netns, CLONE_NEWNET) != 0) return FailErrno("enter the machine's network");
    NetnsVisit visit(std::move(home));
    fd = Fd(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return FailErrno("socket");
  }
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

}  // namespace sandbar::os
