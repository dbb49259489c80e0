// Both kinds of link with a real kernel at the guest's end: the veth's own namespace, or one that stands for a virtual
// machine, with a tap of its own and a process that carries frames between the two taps. The frame generator is a
// packet socket there, which is what the guest's root has.
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "os/netns.h"
#include "os/netns_parts.h"
#include "os/netns_route.h"
#include "support/os/netns_fixture.h"
#include "support/os/netns_frames.h"

namespace sandbar::os {
namespace {

constexpr std::string_view kMarker = "sandbar-frame-canary";

// Runs f in the namespace and comes back.
template <class F>
auto Visit(const Fd& netns, F f) {
  auto home = OpenOwnNetns();
  SB_CHECK(home && ::setns(netns.get(), CLONE_NEWNET) == 0);
  NetnsVisit visit(*std::move(home));
  return f();
}

// Sees every frame of the namespace's devices; on `device`, also sends.
Fd PacketSocket(const char* device) {
  Fd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  if (device == nullptr) return fd;
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(::if_nametoindex(device));
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  return fd;
}

// What has arrived (not been sent) there so far.
std::vector<std::string> Arrived(const Fd& packets) {
  std::vector<std::string> frames;
  char buf[2048];
  sockaddr_ll from{};
  socklen_t size = sizeof from;
  ssize_t n = 0;
  while ((n = ::recvfrom(packets.get(), buf, sizeof buf, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size)) >=
         0) {
    if (from.sll_pkttype != PACKET_OUTGOING) frames.emplace_back(buf, static_cast<size_t>(n));
  }
  return frames;
}

[[noreturn]] void CarryFrames(const Fd& a, const Fd& b) {
  for (;;) {
    pollfd p[2] = {{a.get(), POLLIN, 0}, {b.get(), POLLIN, 0}};
    if (::poll(p, 2, -1) < 0) ::_exit(1);
    char buf[65536];
    for (int i = 0; i < 2; ++i) {
      if ((p[i].revents & POLLIN) == 0) continue;
      const ssize_t n = ::read(p[i].fd, buf, sizeof buf);
      if (n > 0 && ::write(p[1 - i].fd, buf, static_cast<size_t>(n)) != n) continue;  // a device that is still down
    }
  }
}

TEST(TapNet, TakesFramesOfItsOneMachineOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Mac own = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
  auto net = CreateTapNet(own);
  ASSERT_TRUE(net) << net.error().message;
  auto dropped_by = [&](const Mac& from) {
    const uint64_t before = DroppedPackets(net->netns.get()).value_or(0);
    const std::string frame = Ethernet(kLinkHostMac, from, ETHERTYPE_IP, UdpPacket({}, 5353, 53, "query"));
    EXPECT_EQ(::write(net->tap.get(), frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
    return DroppedPackets(net->netns.get()).value_or(0) - before;
  };
  EXPECT_EQ(dropped_by(own), 0u);
  EXPECT_EQ(dropped_by(kLinkGuestMac), 1u);
}

enum class Kind { kTap, kVeth };

class LinkNet : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    auto net = GetParam() == Kind::kTap ? CreateTapNet() : CreateVethNet();
    ASSERT_TRUE(net) << net.error().message;
    net_ = *std::move(net);
    if (GetParam() == Kind::kTap) {
      auto machine = MakeTapMachine();
      ASSERT_TRUE(machine) << machine.error().message;
    } else {
      guest_ = Fd(::fcntl(net_.inner.get(), F_DUPFD_CLOEXEC, 0));
    }
    packets_ = Visit(guest_, [] { return PacketSocket("eth0"); });
    ASSERT_TRUE(packets_);
  }
  void TearDown() override {
    if (carrier_ > 0) {
      ::kill(carrier_, SIGKILL);
      ::waitpid(carrier_, nullptr, 0);
    }
  }

  // The guest of a tap: configured as a guest kernel would configure itself, with ARP instead of a fixed neighbour.
  Result<> MakeTapMachine() {
    SB_TRY(Fd home, OpenOwnNetns());
    NetnsVisit visit(std::move(home));
    if (::unshare(CLONE_NEWNET) != 0) return FailErrno("unshare");
    SB_TRY(guest_, OpenOwnNetns());
    Fd nic(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    ifreq request{};
    std::strcpy(request.ifr_name, "eth0");
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (::ioctl(nic.get(), TUNSETIFF, &request) != 0) return FailErrno("TUNSETIFF");
    const Setting no_ipv6[] = {{"/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1", false}};
    SB_TRYV(WriteSettings(no_ipv6));
    SB_TRYV(LinkUp(kLoopbackIndex));
    SB_TRY(const unsigned device, DeviceIndex("eth0"));
    SB_TRYV(SetMac(device, kLinkGuestMac));
    SB_TRYV(AddAddress(device, kLinkGuestAddress, kLinkPrefix));
    carrier_ = ::fork();
    if (carrier_ == 0) CarryFrames(nic, net_.tap);
    SB_TRYV(LinkUp(device));
    return AddDefaultRoute(device, kLinkHostAddress);
  }

  pid_t Inside(const std::function<int()>& f) { return RunIn(guest_, f); }
  uint64_t Dropped() {
    auto n = DroppedPackets(net_.netns.get());
    EXPECT_TRUE(n) << n.error().message;
    return n.value_or(0);
  }
  void Send(std::string_view frame) {
    EXPECT_EQ(::send(packets_.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  }
  // The drop counter is what says that a frame has been checked.
  bool DroppedBecomes(uint64_t n) {
    for (int i = 0; i < 10000 && Dropped() < n; ++i) ::usleep(1000);
    return Dropped() == n;
  }
  // The first frame of this type that arrives at the guest; empty when none does.
  std::string Answer(uint32_t type) {
    while (Readable(packets_.get())) {
      for (const std::string& frame : Arrived(packets_)) {
        if (frame.substr(12, 2) == Be16(type)) return frame;
      }
    }
    return {};
  }
  Fd Accept() {
    EXPECT_TRUE(Readable(net_.tcp.get()));
    return Fd(::accept4(net_.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  MachineNet net_;
  Fd guest_, packets_;
  pid_t carrier_ = -1;
};

INSTANTIATE_TEST_SUITE_P(Kinds, LinkNet, testing::Values(Kind::kTap, Kind::kVeth),
                         [](const auto& i) { return i.param == Kind::kTap ? "Tap" : "Veth"; });

TEST_P(LinkNet, TcpToAnywhereArrivesAtTheListenerWithItsTarget) {
  pid_t child = Inside([] {
    Fd fd = Socket(SOCK_STREAM);
    if (Connect(fd, "203.0.113.7", 443) != 0) return 1;
    std::string data(1 << 20, 'x');
    if (::send(fd.get(), data.data(), data.size(), 0) != static_cast<ssize_t>(data.size())) return 2;
    char buf[8] = {};
    return ::recv(fd.get(), buf, 5, MSG_WAITALL) == 5 && std::string_view(buf) == "world" ? 0 : 3;
  });
  Fd conn = Accept();
  EXPECT_EQ(OriginalTarget(conn), "203.0.113.7:443");
  std::string data(1 << 20, 0);
  ASSERT_EQ(::recv(conn.get(), data.data(), data.size(), MSG_WAITALL), static_cast<ssize_t>(data.size()));
  EXPECT_EQ(std::ranges::count(data, 'x'), 1 << 20);
  ASSERT_EQ(::send(conn.get(), "world", 5, 0), 5);
  EXPECT_EQ(Wait(child), 0);
}

// Two connections that differ only in their target are one and the same after the redirect, unless the kernel helps.
TEST_P(LinkNet, OneSourcePortServesTwoTargets) {
  pid_t child = Inside([] {
    Fd fds[2];
    const char* targets[] = {"203.0.113.7", "203.0.113.8"};
    for (int i = 0; i < 2; ++i) {
      fds[i] = Socket(SOCK_STREAM);
      int one = 1;
      ::setsockopt(fds[i].get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      sockaddr_in from = Address("198.51.100.2", 40000);
      if (::bind(fds[i].get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0) return 1;
      if (Connect(fds[i], targets[i], 443) != 0) return 2;
    }
    char c = 0;
    if (::recv(fds[0].get(), &c, 1, 0) != 1 || c != '7') return 3;
    return ::recv(fds[1].get(), &c, 1, 0) == 1 && c == '8' ? 0 : 4;
  });
  for (int i = 0; i < 2; ++i) {
    Fd conn = Accept();
    const std::string target = OriginalTarget(conn);
    EXPECT_EQ(target, i == 0 ? "203.0.113.7:443" : "203.0.113.8:443");
    EXPECT_EQ(::send(conn.get(), &target[10], 1, 0), 1);
  }
  EXPECT_EQ(Wait(child), 0);
}

TEST_P(LinkNet, DnsArrivesAndTheAnswerComesFromTheServerThatWasAsked) {
  pid_t child = Inside([] {
    for (const char* server : {"192.0.2.53", "198.51.100.1", "198.51.100.9"}) {
      Fd fd = Socket(SOCK_DGRAM);
      sockaddr_in to = Address(server, 53);
      if (::sendto(fd.get(), "query", 5, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) != 5) return 1;
      sockaddr_in from{};
      socklen_t size = sizeof from;
      char buf[16] = {};
      if (::recvfrom(fd.get(), buf, sizeof buf, 0, reinterpret_cast<sockaddr*>(&from), &size) != 6) return 2;
      if (from.sin_addr.s_addr != to.sin_addr.s_addr || from.sin_port != to.sin_port) return 3;
    }
    return 0;
  });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Readable(net_.dns.get()));
    char buf[16] = {};
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    ASSERT_EQ(::recvfrom(net_.dns.get(), buf, sizeof buf, 0, reinterpret_cast<sockaddr*>(&peer), &size), 5);
    ASSERT_EQ(::sendto(net_.dns.get(), "answer", 6, 0, reinterpret_cast<sockaddr*>(&peer), size), 6);
  }
  EXPECT_EQ(Wait(child), 0);
}

TEST_P(LinkNet, TheListenerCannotBeReachedDirectly) {
  EXPECT_EQ(Wait(Inside([] {
              int i = 1;
              for (const char* ip : {"198.51.100.1", "203.0.113.7", "10.0.0.1"}) {
                Fd tcp = Socket(SOCK_STREAM);
                if (Connect(tcp, ip, 1) != ECONNREFUSED) return i;
                ++i;
              }
              return 0;
            })),
            0);
  EXPECT_EQ(Dropped(), 3U);
  EXPECT_FALSE(Pending(net_.tcp));
}

TEST_P(LinkNet, LoopbackIsTheMachinesOwn) {
  EXPECT_EQ(Wait(Inside([] {
              Fd server = Socket(SOCK_STREAM);
              sockaddr_in a = Address("127.0.0.1", 3000);
              if (::bind(server.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return 1;
              if (::listen(server.get(), 8) != 0) return 2;
              Fd client = Socket(SOCK_STREAM);
              return Connect(client, "127.0.0.1", 3000) == 0 ? 0 : 3;
            })),
            0);
  EXPECT_FALSE(Pending(net_.tcp));
  EXPECT_EQ(Dropped(), 0U);
}

TEST_P(LinkNet, DialReachesAServerInside) {
  Fd server = Visit(guest_, [] { return Socket(SOCK_STREAM); });
  sockaddr_in a = Address("0.0.0.0", 3000);
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  ASSERT_EQ(::listen(server.get(), 8), 0);
  auto conn = DialLink(net_.netns.get(), 3000);
  ASSERT_TRUE(conn) << conn.error().message;
  ASSERT_TRUE(Readable(server.get()));
  Fd inside(::accept(server.get(), nullptr, nullptr));
  ASSERT_EQ(::send(inside.get(), "x", 1, 0), 1);
  ASSERT_TRUE(Readable(conn->get()));
  char c = 0;
  EXPECT_EQ(::recv(conn->get(), &c, 1, 0), 1);
  EXPECT_EQ(c, 'x');
  EXPECT_FALSE(DialLink(net_.netns.get(), 1));
  EXPECT_FALSE(DialLink(net_.netns.get(), 0));
}

// ---- The frame generator.

struct Attack {
  const char* name;
  std::string frame;
};

std::string FromGuest(std::string_view ip_packet) {
  return Ethernet(kLinkHostMac, kLinkGuestMac, ETHERTYPE_IP, ip_packet);
}
std::string Tagged(uint32_t tag, std::string_view frame) {
  return std::string(frame.substr(0, 12)) + Be16(0x8100) + Be16(tag) + std::string(frame.substr(12));
}
std::string Ipv6(std::string_view payload) {
  std::string h = Be32(0x60000000) + Be16(static_cast<uint32_t>(payload.size())) + std::string("\x11\x40", 2);
  return h + std::string("\xfe\x80", 2) + std::string(13, 0) + "\x02" + std::string("\xff\x02", 2) +
         std::string(13, 0) + "\x01" + std::string(payload);
}

std::vector<Attack> LinkAttacks() {
  const std::string good = TcpPacket({}, 4000, 443, kSyn, kMarker);
  const auto other = [](uint32_t type) { return Ethernet(kLinkHostMac, kLinkGuestMac, type, kMarker); };
  std::vector<Attack> v = {
      {"another source MAC", Ethernet(kLinkHostMac, kStrangerMac, ETHERTYPE_IP, good)},
      {"the host's own MAC as source", Ethernet(kLinkHostMac, kLinkHostMac, ETHERTYPE_IP, good)},
      {"another target MAC", Ethernet(kStrangerMac, kLinkGuestMac, ETHERTYPE_IP, good)},
      {"broadcast", Ethernet(kBroadcastMac, kLinkGuestMac, ETHERTYPE_IP, good)},
      {"priority tag", Tagged(0, FromGuest(good))},
      {"VLAN 5", Tagged(5, FromGuest(good))},
      {"VLAN in VLAN", Tagged(5, Tagged(6, FromGuest(good)))},
      {"IPv6", Ethernet(kLinkHostMac, kLinkGuestMac, ETHERTYPE_IPV6, Ipv6(kMarker))},
      {"IPv6 multicast", Ethernet({0x33, 0x33, 0, 0, 0, 1}, kLinkGuestMac, ETHERTYPE_IPV6, Ipv6(kMarker))},
      {"LLDP", Ethernet({0x01, 0x80, 0xc2, 0, 0, 0x0e}, kLinkGuestMac, 0x88cc, kMarker)},
      {"802.3 length", other(static_cast<uint32_t>(kMarker.size()))},
      {"PPPoE", other(0x8863)},
      {"MPLS", other(0x8847)},
      {"EAPOL", other(0x888e)},
      {"unknown ethertype", other(0x1234)},
      {"IPv6 under the IPv4 type", FromGuest(Ipv6(kMarker))},
      {"IPv4 of three bytes", FromGuest(std::string_view("\x45\0\0", 3))},
      {"IPv4 that ends in its header", FromGuest(good.substr(0, 19))},
      {"IPv4 that claims to be longer", FromGuest(good.substr(0, 36))},
  };
  const auto arp = [&v](const char* name, const MacBytes& from, std::string_view packet) {
    v.push_back({name, Ethernet(kBroadcastMac, from, ETHERTYPE_ARP, std::string(packet) + std::string(kMarker))});
  };
  arp("ARP for another address", kLinkGuestMac, Arp(1, kLinkGuestMac, kLinkGuestAddress, 0xCB007107));
  arp("ARP for 127.0.0.1", kLinkGuestMac, Arp(1, kLinkGuestMac, kLinkGuestAddress, INADDR_LOOPBACK));
  arp("ARP answer for the guest from elsewhere", kLinkGuestMac,
      Arp(2, kStrangerMac, kLinkGuestAddress, kLinkHostAddress));
  arp("ARP claim of the host's address", kLinkGuestMac, Arp(1, kLinkGuestMac, kLinkHostAddress, kLinkHostAddress));
  arp("ARP with another sender inside", kLinkGuestMac, Arp(1, kStrangerMac, kLinkGuestAddress, kLinkHostAddress));
  arp("ARP from another MAC", kStrangerMac, Arp(1, kStrangerMac, kLinkGuestAddress, kLinkHostAddress));
  return v;
}

std::vector<Attack> PacketAttacks() {
  std::vector<Attack> v;
  const auto tcp = [&v](const char* name, const IpFields& f, uint32_t port = 443, uint8_t flags = kSyn) {
    v.push_back({name, FromGuest(TcpPacket(f, 4000, port, flags, kMarker))});
  };
  tcp("another source address", {.from = 0x0A000001});
  tcp("the host's address as source", {.from = kLinkHostAddress});
  tcp("source 127.0.0.1", {.from = INADDR_LOOPBACK});
  tcp("to 127.0.0.1", {.to = INADDR_LOOPBACK});
  tcp("to the listener on 127.0.0.1", {.to = INADDR_LOOPBACK}, 1);
  tcp("to 0.0.0.0", {.to = 0});
  tcp("to multicast", {.to = 0xE0000001});
  tcp("to broadcast", {.to = 0xFFFFFFFF});
  tcp("first fragment", {.fragment = 0x2000});
  tcp("later fragment", {.fragment = 0x0010});
  tcp("loose source route", {.options = std::string("\x83\x07\x04\x7f\x00\x00\x01\x00", 8)});
  tcp("a connection that never was", {}, 443, kAck);
  tcp("a piece of one with the listener", {.to = kLinkHostAddress}, 443, kAck);
  std::string bad = TcpPacket({}, 4000, 443, kSyn, kMarker);
  bad[36] ^= 0x55;
  v.push_back({"wrong checksum", FromGuest(bad)});
  for (uint32_t to : {0xCB007107U, kLinkHostAddress, 0xC6336403U}) {
    v.push_back({"UDP", FromGuest(UdpPacket({.to = to}, 4000, 443, kMarker))});
    v.push_back({"UDP to the DNS socket itself", FromGuest(UdpPacket({.to = to}, 4000, 1, kMarker))});
    v.push_back({"ping", FromGuest(Icmp({.to = to}, 8, kMarker))});
    v.push_back({"ICMP redirect", FromGuest(Icmp({.to = to}, 5, kMarker))});
    for (uint8_t proto : {2, 4, 41, 47, 50, 132, 255}) {
      v.push_back({"another protocol", FromGuest(Ipv4({.to = to, .proto = proto}, kMarker))});
    }
  }
  v.push_back({"DNS to multicast", FromGuest(UdpPacket({.to = 0xE00000FB}, 4000, 53, kMarker))});
  v.push_back({"DNS from a stranger", FromGuest(UdpPacket({.from = 0x0A000001}, 4000, 53, kMarker))});
  return v;
}

int TrackedConnections() {
  Fd f(::open("/proc/sys/net/netfilter/nf_conntrack_count", O_RDONLY | O_CLOEXEC));
  char text[16] = {};
  return f && ::read(f.get(), text, sizeof text - 1) > 0 ? std::atoi(text) : -1;
}

TEST_P(LinkNet, ForgedFramesGoNowhereAndAreCounted) {
  Fd host = PacketSocket(nullptr);
  std::vector<Attack> attacks = LinkAttacks();
  for (Attack& a : PacketAttacks()) attacks.push_back(std::move(a));
  uint64_t expected = Dropped();
  for (const Attack& a : attacks) {
    Send(a.frame);
    ++expected;
    EXPECT_TRUE(DroppedBecomes(expected)) << a.name << ": " << Dropped() << " instead of " << expected;
    expected = Dropped();
    EXPECT_FALSE(Pending(net_.tcp)) << a.name;
    EXPECT_FALSE(Pending(net_.dns)) << a.name;
  }
  EXPECT_EQ(Visit(net_.netns, TrackedConnections), 0);
  // Not one was answered, and the link still works for the next good frame.
  EXPECT_EQ(Arrived(packets_).size(), 0U);
  Send(FromGuest(UdpPacket({}, 4000, 53, "good")));
  EXPECT_TRUE(Readable(net_.dns.get()));
  for (const std::string& frame : Arrived(host)) EXPECT_EQ(frame.find(kMarker), std::string::npos) << "on the host";
  EXPECT_EQ(::if_nametoindex("link0"), 0U) << "a device of the link is in the host's namespace";
}

// The frames above are refused for what is wrong with them, not because none gets through.
TEST_P(LinkNet, TheGeneratorsGoodFramesArrive) {
  Send(Ethernet(kBroadcastMac, kLinkGuestMac, ETHERTYPE_ARP,
                Arp(1, kLinkGuestMac, kLinkGuestAddress, kLinkHostAddress)));
  std::string answer = Answer(ETHERTYPE_ARP);
  ASSERT_GE(answer.size(), 42U);
  EXPECT_EQ(answer.substr(0, 12), Bytes(kLinkGuestMac) + Bytes(kLinkHostMac));
  EXPECT_EQ(answer.substr(22, 10), Bytes(kLinkHostMac) + Be32(kLinkHostAddress));
  Send(FromGuest(TcpPacket({}, 4000, 443, kSyn)));
  answer = Answer(ETHERTYPE_IP);
  ASSERT_GE(answer.size(), 54U);
  EXPECT_EQ(answer[47], kSyn | kAck);
  EXPECT_EQ(answer.substr(26, 4), Be32(0xCB007107)) << "the answer comes from the address that was called";
  EXPECT_EQ(Dropped(), 0U);
}

// Forwarding and the rest are inherited from the host's namespace, where an operator may have them on.
TEST_P(LinkNet, NothingIsForwardedWhateverTheHostDoes) {
  const auto read = [](const char* path) {
    Fd f(::open(path, O_RDONLY | O_CLOEXEC));
    char c = 0;
    return f && ::read(f.get(), &c, 1) == 1 ? c : '?';
  };
  Visit(net_.netns, [&read] {
    EXPECT_EQ(read("/proc/sys/net/ipv4/ip_forward"), '0');
    EXPECT_EQ(read("/proc/sys/net/ipv4/conf/link0/forwarding"), '0');
    EXPECT_EQ(read("/proc/sys/net/ipv4/conf/link0/route_localnet"), '0');
    EXPECT_EQ(read("/proc/sys/net/ipv4/conf/link0/proxy_arp"), '0');
    EXPECT_NE(read("/proc/sys/net/ipv6/conf/link0/disable_ipv6"), '0');
    return 0;
  });
}

TEST_P(LinkNet, CallerStaysInItsOwnNamespace) {
  struct stat own{}, before{};
  ASSERT_EQ(::fstat(net_.netns.get(), &before), 0);
  ASSERT_EQ(::stat("/proc/self/ns/net", &own), 0);
  EXPECT_NE(own.st_ino, before.st_ino);
  ASSERT_EQ(::fstat(guest_.get(), &before), 0);
  EXPECT_NE(own.st_ino, before.st_ino);
}

}  // namespace
}  // namespace sandbar::os
