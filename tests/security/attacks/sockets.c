// Sockets: only TCP, UDP, ping, unix and route netlink; the network's rules are the host's.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attacks.h"

static int families(void) {
  for (int family = 0; family < 64; ++family) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) continue;
    for (int type = 1; type < 11; ++type) {
      int fd = socket(family, type, 0);
      if (fd >= 0) return fail("family %d, type %d works", family, type);
    }
    int pair[2];
    if (socketpair(family, SOCK_STREAM, 0, pair) == 0) return fail("a socketpair of family %d works", family);
  }
  return PASS;
}

// Not namespaced: it would reach the host of a virtual machine.
static int vsock(void) {
  return must_fail(socket(40, SOCK_STREAM, 0), "an AF_VSOCK socket");
}

static int raw(void) {
  for (int protocol = 0; protocol < 256; ++protocol) {
    if (socket(AF_INET, SOCK_RAW, protocol) >= 0) return fail("raw IPv4 socket, protocol %d", protocol);
    if (socket(AF_INET6, SOCK_RAW, protocol) >= 0) return fail("raw IPv6 socket, protocol %d", protocol);
  }
  if (socket(AF_INET, SOCK_PACKET, htons(3)) >= 0) return fail("SOCK_PACKET works");
  return must_fail(socket(17, SOCK_RAW, htons(3)), "a packet socket");
}

static int protocols(void) {
  static const int stream[] = {132 /* SCTP */, 262 /* MPTCP */, 33 /* DCCP */, 115 /* L2TP */, 256 /* SMC */};
  for (size_t i = 0; i < sizeof(stream) / sizeof(stream[0]); ++i) {
    for (int type = 1; type < 7; ++type) {
      if (socket(AF_INET, type, stream[i]) >= 0) return fail("IPv4 type %d protocol %d works", type, stream[i]);
      if (socket(AF_INET6, type, stream[i]) >= 0) return fail("IPv6 type %d protocol %d works", type, stream[i]);
    }
  }
  return must_fail(socket(AF_INET, SOCK_DGRAM, 136), "UDP-Lite");
}

static int netlink(void) {
  for (int protocol = 1; protocol < 32; ++protocol) {
    if (socket(AF_NETLINK, SOCK_RAW, protocol) >= 0) return fail("netlink protocol %d works", protocol);
  }
  return PASS;
}

// One request on route netlink; the kernel's errno, 0 when it did it.
static int route_request(unsigned short type, unsigned short flags, const void* body, size_t size) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return errno;
  struct {
    struct nlmsghdr header;
    char body[256];
  } message = {.header = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags, .nlmsg_seq = 1}};
  memcpy(message.body, body, size);
  message.header.nlmsg_len = (unsigned)(sizeof message.header + size);
  if (send(fd, &message, message.header.nlmsg_len, 0) < 0) return errno;
  struct {
    struct nlmsghdr header;
    struct nlmsgerr error;
    char rest[4096];
  } answer;
  ssize_t n = recv(fd, &answer, sizeof answer, 0);
  close(fd);
  if (n < (ssize_t)(sizeof answer.header + sizeof answer.error) || answer.header.nlmsg_type != NLMSG_ERROR)
    return EPROTO;
  return -answer.error.error;
}

static int change_network(void) {
  struct ifinfomsg down = {.ifi_index = 1, .ifi_change = IFF_UP};
  int error = route_request(RTM_NEWLINK, 0, &down, sizeof down);
  if (error != EPERM) return fail("taking lo down: %s", strerror(error));
  struct {
    struct ifinfomsg info;
    struct rtattr nest, kind;
    char name[8];
  } dummy = {.nest = {16, IFLA_LINKINFO}, .kind = {10, IFLA_INFO_KIND}, .name = "dummy"};
  error = route_request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &dummy, sizeof dummy);
  if (error != EPERM) return fail("making a device: %s", strerror(error));
  struct {
    struct ifaddrmsg addr;
    struct rtattr local;
    unsigned ip;
  } address = {{AF_INET, 32, 0, 0, 1}, {8, IFA_LOCAL}, htonl(0x0a000001)};
  error = route_request(RTM_NEWADDR, NLM_F_CREATE, &address, sizeof address);
  if (error != EPERM) return fail("adding an address: %s", strerror(error));
  struct rtmsg route = {
      .rtm_family = AF_INET, .rtm_table = RT_TABLE_LOCAL, .rtm_type = RTN_LOCAL, .rtm_scope = RT_SCOPE_HOST};
  error = route_request(RTM_DELROUTE, 0, &route, sizeof route);
  if (error != EPERM) return fail("removing the route: %s", strerror(error));
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {0};
  strcpy(request.ifr_name, "lo");
  return must_fail(ioctl(fd, SIOCSIFFLAGS, &request), "SIOCSIFFLAGS");
}

static int connect_to(int type, unsigned ip, unsigned short port) {
  int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  struct timeval limit = {10, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(ip)};
  if (connect(fd, (struct sockaddr*)&to, sizeof to) != 0) {
    int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

// Connections to the egress listener itself.
static int listener(void) {
  static const unsigned addresses[] = {0x7f000001, 0x7f000002, 0x7fffffff, 0, 0xcb007107, 0x0a000001, 0xc0000235};
  for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); ++i) {
    if (connect_to(SOCK_STREAM, addresses[i], 1) >= 0) return fail("TCP port 1 of %#x answers", addresses[i]);
    int fd = connect_to(SOCK_DGRAM, addresses[i], 1);
    char answer[16];
    struct timeval timeout = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (fd >= 0 && send(fd, "x", 1, 0) == 1 && recv(fd, answer, sizeof answer, 0) >= 0)
      return fail("UDP port 1 answers");
    if (fd >= 0) close(fd);
  }
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(1), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return must_fail(connect(fd, (struct sockaddr*)&v6, sizeof v6), "TCP port 1 of ::1");
}

static int bind_listener(void) {
  static const unsigned addresses[] = {0, 0x7f000001, 0x7f000002, 0xcb007107};
  for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); ++i) {
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; ++type) {
      int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
      struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(addresses[i])};
      if (bind(fd, (struct sockaddr*)&at, sizeof at) == 0) return fail("bound port 1 of %#x", addresses[i]);
      close(fd);
    }
  }
  return PASS;
}

static int other_udp(void) {
  static const unsigned short ports[] = {443, 123, 5353, 1900, 67};
  for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); ++i) {
    int fd = connect_to(SOCK_DGRAM, 0xcb007107, ports[i]);
    if (fd >= 0 && send(fd, "x", 1, 0) == 1) return fail("UDP to port %d was sent", ports[i]);
    if (fd >= 0) close(fd);
  }
  return PASS;
}

static int ipv6_outside(void) {
  struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
  inet_pton(AF_INET6, "2606:4700::1111", &to.sin6_addr);
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return PASS;
  return must_fail_with(connect(fd, (struct sockaddr*)&to, sizeof to), "IPv6 to the outside", ENETUNREACH,
                        EADDRNOTAVAIL);
}

static int urgent_data(void) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return fail("socketpair");
  if (send(pair[0], "x", 1, MSG_OOB) >= 0) return fail("send(MSG_OOB) worked");
  struct iovec part = {"x", 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (sendmsg(pair[0], &message, MSG_OOB) >= 0) return fail("sendmsg(MSG_OOB) worked");
  struct mmsghdr many = {.msg_hdr = message};
  return must_fail(sendmmsg(pair[0], &many, 1, MSG_OOB), "sendmmsg(MSG_OOB)");
}

static int upper_layers(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  static const char* const names[] = {"tls", "mptcp", "espintcp", "smc"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, names[i], (socklen_t)strlen(names[i])) == 0)
      return fail("TCP_ULP %s worked", names[i]);
  }
  char rules[256] = {0};
  return must_fail(setsockopt(fd, IPPROTO_IP, 64 /* IPT_SO_SET_REPLACE */, rules, sizeof rules),
                   "replacing iptables rules");
}

static const struct attack list[] = {
    {"families", families},
    {"vsock", vsock},
    {"raw", raw},
    {"protocols", protocols},
    {"netlink", netlink},
    {"change-network", change_network},
    {"listener", listener},
    {"bind-listener", bind_listener},
    {"other-udp", other_udp},
    {"ipv6-outside", ipv6_outside},
    {"urgent-data", urgent_data},
    {"upper-layers", upper_layers},
};
GROUP(sockets, list);
