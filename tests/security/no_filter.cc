// Linked instead of os/seccomp.cc: machines of this test run without a filter.
#include "os/seccomp.h"

namespace sandbar::os {

Result<std::vector<sock_filter>> BuildGuestFilter() {
  return std::vector<sock_filter>{{BPF_RET | BPF_K, 0, 0, 0x7fff0000}};
}

Result<std::vector<sock_filter>> BuildNestingFilter() {
  return BuildGuestFilter();
}

int LoadFilterRaw(const sock_fprog*) {
  return 0;
}

}  // namespace sandbar::os
