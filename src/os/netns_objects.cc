#include "os/netns_objects.h"

#include <libmnl/libmnl.h>
#include <linux/if_bridge.h>
#include <linux/neighbour.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "os/netns_parts.h"

namespace sandbar::os {
namespace {

using Socket = std::unique_ptr<mnl_socket, int (*)(mnl_socket*)>;

struct Kind {
  uint16_t request;
  uint8_t family;
  uint8_t flags;  // of a neighbour request
};

// The kernel answers a neighbour request for one sort at a time.
constexpr std::array<Kind, 5> kKinds = {{{RTM_GETNEIGH, AF_UNSPEC, 0},
                                         {RTM_GETNEIGH, AF_UNSPEC, NTF_PROXY},
                                         {RTM_GETNEIGH, AF_BRIDGE, 0},
                                         {RTM_GETMDB, AF_BRIDGE, 0},
                                         {RTM_GETNEXTHOP, AF_UNSPEC, 0}}};

Result<Socket> OpenIn(int netns) {
  SB_TRY(Fd home, OpenOwnNetns());
  if (::setns(netns, CLONE_NEWNET) != 0) return FailErrno("enter a network namespace");
  NetnsVisit visit(std::move(home));
  Socket socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC), mnl_socket_close);
  if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) != 0) return FailErrno("netlink socket");
  return socket;
}

Result<> Ask(mnl_socket* socket, const Kind& kind) {
  std::array<char, 256> buf{};
  nlmsghdr* header = mnl_nlmsg_put_header(buf.data());
  header->nlmsg_type = kind.request;
  header->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  if (kind.request == RTM_GETNEIGH) {
    auto* body = static_cast<ndmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(ndmsg)));
    body->ndm_family = kind.family;
    body->ndm_flags = kind.flags;
  } else if (kind.request == RTM_GETMDB) {
    static_cast<br_port_msg*>(mnl_nlmsg_put_extra_header(header, sizeof(br_port_msg)))->family = kind.family;
  } else {
    static_cast<nhmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(nhmsg)))->nh_family = kind.family;
  }
  if (mnl_socket_sendto(socket, header, header->nlmsg_len) < 0) return FailErrno("netlink send");
  return {};
}

size_t Objects(const nlmsghdr* message) {
  if (message->nlmsg_type != RTM_NEWMDB) return 1;
  // One message holds all multicast entries of a bridge, in some 64 bytes each.
  return std::max<size_t>(message->nlmsg_len / 64, 1);
}

// Kinds that this kernel does not have count as none.
Result<size_t> CountKind(int netns, const Kind& kind, size_t most) {
  // A socket each: an answer that is not read to its end would mix with the next one.
  SB_TRY(Socket socket, OpenIn(netns));
  SB_TRYV(Ask(socket.get(), kind));
  std::vector<char> buf(64 << 10);
  size_t count = 0;
  while (count <= most) {
    const ssize_t n = mnl_socket_recvfrom(socket.get(), buf.data(), buf.size());
    if (n < 0) return FailErrno("netlink receive");
    int left = static_cast<int>(n);
    for (auto* m = reinterpret_cast<const nlmsghdr*>(buf.data()); mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left)) {
      if (m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR) return count;
      count += Objects(m);
    }
  }
  return count;
}

}  // namespace

Result<size_t> CountUnchargedObjects(int netns, size_t most) {
  size_t count = 0;
  for (const Kind& kind : kKinds) {
    if (count > most) break;
    // One kind that cannot be counted does not hide the others.
    if (auto more = CountKind(netns, kind, most - count)) count += *more;
  }
  return count;
}

}  // namespace sandbar::os
