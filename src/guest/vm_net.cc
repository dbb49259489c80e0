#include "guest/vm_net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/fd.h"

namespace sandbar::guest {
namespace {

constexpr const char* kDevice = "eth0";

sockaddr Address(uint32_t address) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  sockaddr out{};
  std::memcpy(&out, &in, sizeof in);
  return out;
}

ifreq Named(const char* name) {
  ifreq r{};
  std::strncpy(r.ifr_name, name, IFNAMSIZ - 1);
  return r;
}

Result<> Do(int socket, unsigned long what, void* argument, const char* doing) {
  if (::ioctl(socket, what, argument) != 0) return FailErrno(doing);
  return {};
}

Result<> Up(int socket, const char* name) {
  ifreq r = Named(name);
  r.ifr_flags = IFF_UP | IFF_RUNNING;
  return Do(socket, SIOCSIFFLAGS, &r, "bring a network device up");
}

// The template's device has one that all machines would share.
Result<> SetMac(int socket, const os::Mac& mac) {
  ifreq r = Named(kDevice);
  r.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(r.ifr_hwaddr.sa_data, mac.data(), mac.size());
  return Do(socket, SIOCSIFHWADDR, &r, "set the MAC");
}

}  // namespace

Result<> ConfigureNetwork(const os::Mac& mac) {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return FailErrno("socket");
  SB_TRYV(Up(socket.get(), "lo"));
  // The guest's ::1 is its own; on the link, IPv6 would only ask questions that nobody answers.
  Fd ipv6(::open("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", O_WRONLY | O_CLOEXEC));
  if (ipv6 && ::write(ipv6.get(), "1", 1) != 1) return FailErrno("turn IPv6 off on the link");
  SB_TRYV(SetMac(socket.get(), mac));
  ifreq address = Named(kDevice);
  address.ifr_addr = Address(os::kLinkGuestAddress);
  SB_TRYV(Do(socket.get(), SIOCSIFADDR, &address, "set the address"));
  ifreq mask = Named(kDevice);
  mask.ifr_netmask = Address(~0U << (32 - os::kLinkPrefix));
  SB_TRYV(Do(socket.get(), SIOCSIFNETMASK, &mask, "set the network mask"));
  SB_TRYV(Up(socket.get(), kDevice));
  // For good: nothing on the link has to be asked.
  arpreq neighbour{};
  neighbour.arp_pa = Address(os::kLinkHostAddress);
  neighbour.arp_ha.sa_family = ARPHRD_ETHER;
  std::memcpy(neighbour.arp_ha.sa_data, os::kLinkHostMac.data(), os::kLinkHostMac.size());
  neighbour.arp_flags = ATF_PERM | ATF_COM;
  std::strncpy(neighbour.arp_dev, kDevice, sizeof neighbour.arp_dev - 1);
  SB_TRYV(Do(socket.get(), SIOCSARP, &neighbour, "name the neighbour"));
  rtentry route{};
  route.rt_dst = Address(0);
  route.rt_genmask = Address(0);
  route.rt_gateway = Address(os::kLinkHostAddress);
  route.rt_flags = RTF_UP | RTF_GATEWAY;
  return Do(socket.get(), SIOCADDRT, &route, "set the default route");
}

Result<> ChangeMac(const os::Mac& mac) {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return FailErrno("socket");
  return SetMac(socket.get(), mac);
}

}  // namespace sandbar::guest
