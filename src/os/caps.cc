#include "os/caps.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace sandbar::os {
namespace {

constexpr uint64_t Bit(int capability) {
  return uint64_t{1} << capability;
}

}  // namespace

// What package managers, sudo, useradd and servers need. NET_RAW and IPC_LOCK have no effect here (the network
// namespace and the memory limits belong to the host's user namespace) but programs that carry them as file
// capabilities, such as ping, cannot even be executed when they are outside the bounding set.
const uint64_t kGuestCapabilities = Bit(CAP_CHOWN) | Bit(CAP_DAC_OVERRIDE) | Bit(CAP_FOWNER) | Bit(CAP_FSETID) |
                                    Bit(CAP_KILL) | Bit(CAP_SETGID) | Bit(CAP_SETUID) | Bit(CAP_SETPCAP) |
                                    Bit(CAP_NET_BIND_SERVICE) | Bit(CAP_NET_RAW) | Bit(CAP_IPC_LOCK) |
                                    Bit(CAP_IPC_OWNER) | Bit(CAP_SYS_CHROOT) | Bit(CAP_SETFCAP);

// What a container runtime does, and what it hands to containers by default.
const uint64_t kNestingCapabilities =
    kGuestCapabilities | Bit(CAP_SYS_ADMIN) | Bit(CAP_NET_ADMIN) | Bit(CAP_MKNOD) | Bit(CAP_AUDIT_WRITE);

int SetCapabilitiesRaw(uint64_t permitted, uint64_t effective) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  data[0].permitted = static_cast<uint32_t>(permitted);
  data[1].permitted = static_cast<uint32_t>(permitted >> 32);
  data[0].effective = static_cast<uint32_t>(effective);
  data[1].effective = static_cast<uint32_t>(effective >> 32);
  return ::syscall(SYS_capset, &header, data) == 0 ? 0 : -errno;
}

int LimitCapabilitiesRaw(uint64_t kept, uint64_t reserved) {
  // The kernel may know more capabilities than our headers: drop up to the first that it does not know.
  for (unsigned long c = 0; c < 64; ++c) {
    if ((kept >> c & 1) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, c, 0, 0, 0) == 0) continue;
    if (errno == EINVAL && c > CAP_LAST_CAP) break;
    return -errno;
  }
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return -errno;
  // Inheritable stays empty: nothing but root's own exec rule hands capabilities on.
  return SetCapabilitiesRaw(kept | reserved, kept);
}

}  // namespace sandbar::os
