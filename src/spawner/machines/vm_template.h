// Templates from which microVMs start instead of booting. A template is the memory and the device state of a microVM
// whose agent waits in the initramfs for its configuration, before it has read any image or disk. There is one per size
// and number of drives. A process makes it when it is asked for the first time; every machine maps the memory
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

// Null when there is none. Then a process begins to make it; when another template is being made, this one is next.
// One wish is remembered, and a template without drives comes first.
const VmTemplate* FindTemplate(Microvm& vm, VmSize size);

// Whether the templates may hold this one too. Those with drives and those without have a share each, so that neither
// takes anything from the other. Removes templates that were not used for long when the share is used up.
bool FreeMemoryFor(VmTemplates& templates, const VmSize& size, int64_t now);

// Call it now and then: takes a template that has been made. True: one is still being made.
bool CollectTemplate(Microvm& vm);

// Waits until the agent in a QEMU waits for its configuration, and lets QEMU write the state of its devices to `state`.
// Its memory is a file already. Call it in a process of its own: it may take minutes.
Result<> SaveTemplate(int control, int state);

// The commands with which QEMU goes on from a template whose state is fd `state`. Nobody reads the answers.
std::string RestoreCommands(int state);

}  // namespace sandbar::spawner
