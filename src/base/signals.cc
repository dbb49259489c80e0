#include "base/signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace sandbar {

void ResetSignals() {
  // The raw call: the library keeps 32 and 33 to itself, so whoever started us with those ignored would pass that on.
  // All zeros is the kernel's action for SIG_DFL.
  static constexpr uint64_t kDefault[4] = {};
  for (int s = 1; s <= 64; ++s) ::syscall(SYS_rt_sigaction, s, kDefault, nullptr, sizeof(uint64_t));
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace sandbar
