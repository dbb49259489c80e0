// sandbar-guest as the first program of a virtual machine: from the initramfs to the machine's own root.
//
// Loads the modules that came with it, waits for the configuration on the port "config", mounts the image and the
// writable disk as one root, moves there, brings the network up, and hands back the port on which the agent goes on,
// and the key that it says there.
// Runs once, before anything of the guest does; blocks. In a machine that was restored from a template it executes
// itself once more (kVmRestored CONFIG-FD AGENT-FD), so that the agent's addresses and stack guard are the machine's
// own.
//
//   auto vm = BecomeVm();          // an error is the end of the machine: there is nobody to tell but the console
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::guest {

struct VmStart {
  Fd agent;    // the port
  Fd written;  // the directory with what the machine wrote, out of reach by any path
  std::string machine_key;
};

Result<VmStart> BecomeVm();
inline constexpr const char* kVmRestored = "restored";
Result<VmStart> ResumeVm(Fd config, Fd agent);

// What the kernel knew about random numbers and time belongs to the moment in which its memory was saved.
Result<> RefreshKernel(std::string_view entropy, int64_t clock_ns);

}  // namespace sandbar::guest
