#include "os/netns_route.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

#include <memory>
#include <string_view>

namespace sandbar::os {
namespace {

// One request and the kernel's verdict on it.
class Request {
 public:
  explicit Request(uint16_t type) : header_(mnl_nlmsg_put_header(buf_)) {
    header_->nlmsg_type = type;
    header_->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    header_->nlmsg_seq = 1;
    if (type != RTM_SETLINK) header_->nlmsg_flags |= NLM_F_CREATE | NLM_F_EXCL;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Zeroed. Comes before the attributes; inside a nest, once more for the peer of a veth.
  template <class T>
  T* Body() {
    return static_cast<T*>(mnl_nlmsg_put_extra_header(header_, sizeof(T)));
  }
  void Put(uint16_t type, uint32_t value) { mnl_attr_put_u32(header_, type, value); }
  void PutAddress(uint16_t type, uint32_t address) { mnl_attr_put_u32(header_, type, htonl(address)); }
  void Put(uint16_t type, const Mac& mac) { mnl_attr_put(header_, type, mac.size(), mac.data()); }
  void Put(uint16_t type, const char* text) { mnl_attr_put_strz(header_, type, text); }
  nlattr* Open(uint16_t type) { return mnl_attr_nest_start(header_, type); }
  void Close(nlattr* nest) { mnl_attr_nest_end(header_, nest); }

  Result<> Send(std::string_view doing) {
    std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC),
                                                             mnl_socket_close);
    if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) != 0) return FailErrno("netlink socket");
    if (mnl_socket_sendto(socket.get(), header_, header_->nlmsg_len) < 0) return FailErrno("netlink send");
    const ssize_t n = mnl_socket_recvfrom(socket.get(), buf_, sizeof buf_);
    if (n < 0) return FailErrno("netlink receive");
    const unsigned port = mnl_socket_get_portid(socket.get());
    if (mnl_cb_run(buf_, static_cast<size_t>(n), 1, port, nullptr, nullptr) < 0) return FailErrno(doing);
    return {};
  }

 private:
  alignas(nlmsghdr) char buf_[8192] = {};
  nlmsghdr* header_;
};

}  // namespace

Result<unsigned> DeviceIndex(const char* name) {
  const unsigned index = ::if_nametoindex(name);
  if (index == 0) return FailErrno(name);
  return index;
}

Result<> AddVeth(const VethEnd& here, const VethEnd& there, int netns) {
  Request r(RTM_NEWLINK);
  r.Body<ifinfomsg>();
  r.Put(IFLA_IFNAME, here.name);
  r.Put(IFLA_ADDRESS, here.mac);
  nlattr* info = r.Open(IFLA_LINKINFO);
  r.Put(IFLA_INFO_KIND, "veth");
  nlattr* data = r.Open(IFLA_INFO_DATA);
  nlattr* peer = r.Open(VETH_INFO_PEER);
  r.Body<ifinfomsg>();
  r.Put(IFLA_IFNAME, there.name);
  r.Put(IFLA_ADDRESS, there.mac);
  r.Put(IFLA_NET_NS_FD, static_cast<uint32_t>(netns));
  r.Close(peer);
  r.Close(data);
  r.Close(info);
  return r.Send("add the veth pair");
}

Result<> SetMac(unsigned device, const Mac& mac) {
  Request r(RTM_SETLINK);
  r.Body<ifinfomsg>()->ifi_index = static_cast<int>(device);
  r.Put(IFLA_ADDRESS, mac);
  return r.Send("set the link's address");
}

Result<> LinkUp(unsigned device) {
  Request r(RTM_SETLINK);
  auto* link = r.Body<ifinfomsg>();
  link->ifi_index = static_cast<int>(device);
  link->ifi_flags = IFF_UP;
  link->ifi_change = IFF_UP;
  return r.Send("set the link up");
}

Result<> AddAddress(unsigned device, uint32_t address, uint8_t prefix) {
  Request r(RTM_NEWADDR);
  auto* body = r.Body<ifaddrmsg>();
  body->ifa_family = AF_INET;
  body->ifa_prefixlen = prefix;
  body->ifa_index = device;
  r.PutAddress(IFA_LOCAL, address);
  r.PutAddress(IFA_ADDRESS, address);
  return r.Send("add the address");
}

Result<> AddAnyAddressRoute() {
  Request r(RTM_NEWROUTE);
  auto* route = r.Body<rtmsg>();
  route->rtm_family = AF_INET;
  route->rtm_table = RT_TABLE_LOCAL;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = RT_SCOPE_HOST;
  route->rtm_type = RTN_LOCAL;
  r.Put(RTA_OIF, kLoopbackIndex);
  return r.Send("add the local route");
}

Result<> AddDefaultRoute(unsigned device, uint32_t gateway) {
  Request r(RTM_NEWROUTE);
  auto* route = r.Body<rtmsg>();
  route->rtm_family = AF_INET;
  route->rtm_table = RT_TABLE_MAIN;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = RT_SCOPE_UNIVERSE;
  route->rtm_type = RTN_UNICAST;
  r.PutAddress(RTA_GATEWAY, gateway);
  r.Put(RTA_OIF, device);
  return r.Send("add the default route");
}

Result<> AddNeighbour(unsigned device, uint32_t address, const Mac& mac) {
  Request r(RTM_NEWNEIGH);
  auto* entry = r.Body<ndmsg>();
  entry->ndm_family = AF_INET;
  entry->ndm_ifindex = static_cast<int>(device);
  entry->ndm_state = NUD_PERMANENT;
  r.PutAddress(NDA_DST, address);
  r.Put(NDA_LLADDR, mac);
  return r.Send("add the neighbour");
}

}  // namespace sandbar::os
