// What all microVMs of a spawner share, made once at start: QEMU, the file tree of its jail (libraries and firmware,
// the guest kernel and an initramfs with the agent, all read-only), its system call filter, and whether KVM works here.
//
//   auto vm = PrepareMicrovm(options, agent);      // an error says what is missing and how to get it
#pragma once

#include <linux/filter.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/machines/vm_template.h"
#include "spawner/options.h"

namespace sandbar::spawner {

struct Microvm {
  bool kvm = false;         // else emulated
  bool modules = false;     // a kernel of a distribution: finds its devices by ACPI, has drivers as modules
  bool containers = false;  // the kernel has what they need
  Fd program;               // O_PATH
  std::string jail_tree;    // path of the tree that becomes its root
  std::vector<sock_filter> filter;
  std::string version;   // of QEMU
  std::string cpu;       // the host's
  std::string kernel;    // sum of the guest kernel
  uint64_t tsc_khz = 0;  // an emulated guest cannot find out by itself
  VmTemplates templates;
};

// `agent`: bytes of the agent's executable.
Result<std::unique_ptr<Microvm>> PrepareMicrovm(const Options& options, const std::string& agent);

// The frequency of this host's time stamp counter; takes a moment.
uint64_t MeasureTscKhz();

enum class QemuMemory {
  kUnnamed,  // for machines whose memory is never saved
  kOwn,
  kShared,  // fd 8, to be kept as a template
  kCopy     // fd 8, privately
};

// The words for QEMU that name machine type, kernel and its command line.
std::vector<std::string> QemuBase(const Microvm& vm, bool kvm, const std::string& init_words,
                                  QemuMemory memory = QemuMemory::kUnnamed);
// All of them for a machine in the jail. Descriptors: 3 image, 4 disk, 5 the agent's listener, 6 configuration, 7 tap.
std::vector<std::string> QemuMachine(const Microvm& vm, VmSize size, QemuMemory memory, bool network);
// One more block device, which descriptor `fd` is.
std::vector<std::string> QemuDrive(size_t index, size_t fd);
// QEMU finds its modules through the path of its program, and in the jail it has none.
inline constexpr const char* kQemuModules = "QEMU_MODULE_DIR=/usr/lib/x86_64-linux-gnu/qemu";

// Paths in the jail's tree.
inline constexpr const char* kVmKernel = "/vm/kernel";
inline constexpr const char* kVmInitramfs = "/vm/initramfs";

}  // namespace sandbar::spawner
