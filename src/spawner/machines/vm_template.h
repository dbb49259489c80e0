// Machines that start where another one has got to: a template is the memory and the device state of a microVM whose
// agent waits in the initramfs for its configuration, before it has looked at any image or disk. One per size and
// number of drives, made by a process of its own when they are asked for first; every machine maps the memory
// privately. Single thread.
//
//   if (const VmTemplate* t = FindTemplate(vm, {memory_mib, vcpus, drives})) …      // null: boot this one
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

struct Microvm;

struct VmSize {
  uint64_t mib = 0;
  uint32_t vcpus = 0;
  size_t drives = 0;  // devices that it has besides its own
  auto operator<=>(const VmSize&) const = default;
};

struct VmTemplate {
  Fd ram, state;        // sealed: nobody writes to them any more
  uint64_t mib = 0;     // that it holds of the host's memory
  int64_t used_at = 0;  // as os::BootTimeMs counts
};

struct VmTemplates {
  bool used = true;       // false: no template is made, every machine boots
  uint64_t most_mib = 0;  // that all of them may hold; those with drives half of it, in addition
  std::map<VmSize, VmTemplate> ready;
  std::map<VmSize, int> failures;  // after a few there will be no other attempt
  std::optional<VmSize> next;      // asked for while another one was being made
  // The one that is being made.
  std::optional<VmSize> size;
  Fd process;
  VmTemplate making;
};

// Starts making the one that is missing, or does so when the one that is being made is done: one is remembered, of
// machines without drives rather than with.
const VmTemplate* FindTemplate(Microvm& vm, VmSize size);

// Whether there is room for this one. Those with drives and those without have their own, so that neither takes
// anything from the other. When all is taken, those that nobody has used for long go.
bool FreeMemoryFor(VmTemplates& templates, const VmSize& size, int64_t now);

// To be called now and then: takes the one that was being made when it is done. True: it is still being made.
bool CollectTemplate(Microvm& vm);

// Waits until the agent in a QEMU waits for its configuration, and has QEMU write its devices' state to `state`; its
// memory is a file already. For a process of its own: it may take minutes.
Result<> SaveTemplate(int control, int state);

// What QEMU is told to go on from a template whose state is fd `state`, without anybody waiting for its answers.
std::string RestoreCommands(int state);

}  // namespace sandbar::spawner
