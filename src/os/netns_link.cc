// The kinds of network that bring their own kernel (or netstack) to the other end of a link: everything that arrives is
// whatever the guest's root chose to write, from the first byte of the Ethernet header on.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/sched.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "os/netns.h"
#include "os/netns_parts.h"
#include "os/netns_route.h"
#include "os/openat.h"
#include "os/process.h"

namespace sandbar::os {
namespace {

constexpr char kHostDevice[] = "link0";
constexpr char kGuestDevice[] = "eth0";

// Two gates. The first sees raw frames before the kernel looks at them: only IPv4 without options, fragments or VLAN
// tag (raw offsets: `ether type` would look behind a tag), from the guest's one address pair to the host's MAC, TCP or
// DNS, for a unicast target; and ARP questions for the host's address. Everything else never reaches the IP layer. The
// second is like the rules of the local kind, on the way in: a packet for port 1 that was not redirected is a guest
// that talks to the listener itself, and gets a reset. Connections that the host dials are its own business. GUEST is
// the guest's MAC.
constexpr char kRules[] = R"(
table netdev sandbar {
  counter dropped { }
  chain arriving {
    type filter hook ingress device "link0" priority 0; policy drop;
    @ll,0,48 0x025342000001 @ll,48,48 0xGUEST @ll,96,16 0x0800 goto ipv4
    @ll,48,48 0xGUEST @ll,96,16 0x0806 goto questions
    counter name dropped drop
  }
  chain ipv4 {
    @nh,0,8 != 0x45 goto lost
    ip frag-off & 0x3fff != 0 goto lost
    ip saddr != 198.51.100.2 goto lost
    ip daddr 0.0.0.0/8 goto lost
    ip daddr 127.0.0.0/8 goto lost
    ip daddr 224.0.0.0/3 goto lost
    meta l4proto tcp accept
    udp dport 53 accept
    counter name dropped drop
  }
  chain questions {
    arp htype 1 arp ptype 0x0800 arp hlen 6 arp plen 4 arp operation request @nh,64,48 0xGUEST arp saddr ip 198.51.100.2 arp daddr ip 198.51.100.1 accept
    counter name dropped drop
  }
  chain lost {
    counter name dropped drop
  }
}
table ip sandbar {
  counter dropped { }
  chain redirected {
    type nat hook prerouting priority -100; policy accept;
    tcp dport != 1 redirect to :1
    udp dport 53 redirect to :1
  }
  chain checked {
    type filter hook prerouting priority -90; policy accept;
    ct state invalid counter name dropped drop
    tcp dport 1 ct status & dnat != dnat counter name dropped reject with tcp reset
  }
  chain incoming {
    type filter hook input priority 0; policy drop;
    ct state established accept
    ct state new ct count over 8192 counter name dropped drop
    ct state new ct status & dnat == dnat accept
    counter name dropped
  }
  chain passing {
    type filter hook forward priority 0; policy drop;
    counter name dropped
  }
  chain outgoing {
    type filter hook output priority 0; policy drop;
    ct direction reply accept
    ip daddr 198.51.100.2 meta l4proto tcp accept
  }
}
)";

std::string RulesFor(const Mac& guest) {
  constexpr std::string_view kWord = "GUEST", kDigits = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : guest) hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  std::string rules = kRules;
  for (size_t at = 0; (at = rules.find(kWord, at)) != std::string::npos;) rules.replace(at, kWord.size(), hex);
  return rules;
}

// A new namespace inherits the host's IPv4 settings, so whatever opens a way is closed by name.
constexpr Setting kHostSettings[] = {
    {"/proc/sys/net/ipv4/ip_forward", "0", true},
    {"/proc/sys/net/ipv4/conf/all/route_localnet", "0", true},
    {"/proc/sys/net/ipv4/conf/link0/route_localnet", "0", true},
    {"/proc/sys/net/ipv4/conf/all/proxy_arp", "0", true},
    {"/proc/sys/net/ipv4/conf/link0/proxy_arp", "0", true},
    {"/proc/sys/net/ipv4/conf/all/accept_source_route", "0", true},
    {"/proc/sys/net/ipv4/conf/link0/arp_ignore", "1", true},
    kUnpaced,
    {"/proc/sys/net/ipv6/conf/all/disable_ipv6", "1", false},
    {"/proc/sys/net/ipv6/conf/link0/disable_ipv6", "1", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0", true},
    {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "10", false},
    {"/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream", "30", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "10", false},
    {"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", "5", false},
};
// The guest's ::1 is its own; on the link, IPv6 would only ask questions that nobody answers.
constexpr Setting kGuestSettings[] = {
    {"/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1", false},
    kUnpaced,
};

Result<Fd> EnterNewNetns() {
  if (::unshare(CLONE_NEWNET) != 0) return FailErrno("new network namespace");
  return OpenOwnNetns();
}

// Made by a process that is in the user namespace, because the owner is that of the maker.
Result<Fd> NewNetnsOwnedBy(int userns) {
  std::array<int, 2> news{}, hold{};
  if (::pipe2(news.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd told(news[0]), tell(news[1]);
  if (::pipe2(hold.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd held(hold[0]), release(hold[1]);
  int pidfd = -1;
  const pid_t pid = Clone3Raw(CLONE_PIDFD, &pidfd);
  if (pid < 0) return FailErrno("clone");
  if (pid == 0) {
    CloseAllBut({news[1], hold[0], hold[1], userns});
    const int err = ::setns(userns, CLONE_NEWUSER) == 0 && ::unshare(CLONE_NEWNET) == 0 ? 0 : errno;
    [[maybe_unused]] ssize_t n = ::write(news[1], &err, sizeof err);
    ::close(hold[1]);
    char c = 0;
    n = ::read(hold[0], &c, 1);
    ::_exit(0);
  }
  const Fd process(pidfd);
  tell.Reset();
  int err = EIO;
  ssize_t n = 0;
  while ((n = ::read(told.get(), &err, sizeof err)) < 0 && errno == EINTR) {
  }
  Result<Fd> made = FailErrno("make the machine's network namespace", n == sizeof err ? err : EIO);
  if (n == sizeof err && err == 0) made = OpenPath("/proc/" + std::to_string(pid) + "/ns/net", O_RDONLY);
  release.Reset();
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(process.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  return made;
}

// Without IFF_VNET_HDR: its holder, who may be a virtual machine's broken process, gets no say about offloads.
Result<Fd> OpenTap() {
  Fd fd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return FailErrno("open /dev/net/tun");
  ifreq request{};
  std::strcpy(request.ifr_name, kHostDevice);
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL);
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return FailErrno("make the tap device");
  // The device goes with its namespace, in the kernel's own time; closing the fd would wait some 30 ms for it.
  if (::ioctl(fd.get(), TUNSETPERSIST, 1) != 0) return FailErrno("keep the tap device");
  return fd;
}

// For the namespace that has the device, which stays down until everything else is in force. Its lo stays down for
// good.
Result<> FinishHostEnd(MachineNet* net, const Mac& guest) {
  SB_TRYV(RunNft(RulesFor(guest).c_str()));
  SB_TRYV(WriteSettings(kHostSettings));
  SB_TRY(const unsigned device, DeviceIndex(kHostDevice));
  SB_TRYV(AddAddress(device, kLinkHostAddress, kLinkPrefix));
  SB_TRY(net->tcp, BindPortOne(SOCK_STREAM, kLinkHostAddress));
  SB_TRY(net->dns, BindPortOne(SOCK_DGRAM, kLinkHostAddress));
  SB_TRYV(LinkUp(device));
  return AddNeighbour(device, kLinkGuestAddress, guest);
}

Result<> ConfigureGuestEnd() {
  SB_TRYV(WriteSettings(kGuestSettings));
  SB_TRYV(LinkUp(kLoopbackIndex));
  SB_TRY(const unsigned device, DeviceIndex(kGuestDevice));
  SB_TRYV(AddAddress(device, kLinkGuestAddress, kLinkPrefix));
  SB_TRYV(LinkUp(device));
  SB_TRYV(AddNeighbour(device, kLinkHostAddress, kLinkHostMac));
  return AddDefaultRoute(device, kLinkHostAddress);
}

}  // namespace

Result<MachineNet> CreateTapNet(const Mac& guest) {
  SB_TRY(Fd home, OpenOwnNetns());
  NetnsVisit visit(std::move(home));
  MachineNet net;
  SB_TRY(net.netns, EnterNewNetns());
  SB_TRY(net.tap, OpenTap());
  SB_TRY(const unsigned device, DeviceIndex(kHostDevice));
  SB_TRYV(SetMac(device, kLinkHostMac));
  SB_TRYV(FinishHostEnd(&net, guest));
  return net;
}

Result<MachineNet> CreateVethNet(int owner) {
  SB_TRY(Fd home, OpenOwnNetns());
  NetnsVisit visit(std::move(home));
  MachineNet net;
  SB_TRY(net.inner, owner < 0 ? EnterNewNetns() : NewNetnsOwnedBy(owner));
  SB_TRY(net.netns, EnterNewNetns());
  SB_TRYV(AddVeth({kHostDevice, kLinkHostMac}, {kGuestDevice, kLinkGuestMac}, net.inner.get()));
  SB_TRYV(FinishHostEnd(&net, kLinkGuestMac));
  if (::setns(net.inner.get(), CLONE_NEWNET) != 0) return FailErrno("enter the machine's network");
  SB_TRYV(ConfigureGuestEnd());
  return net;
}

Result<Fd> DialLink(int netns, uint16_t port) {
  if (port <= kListenPort) return Fail(Code::kBadRequest, "this port cannot be reached");
  SB_TRY(Fd fd, TcpSocketIn(netns, AF_INET));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(kLinkGuestAddress);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS)
    return FailErrno("connect into the machine");
  return fd;
}

}  // namespace sandbar::os
