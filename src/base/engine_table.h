// The table of engines: what each engine is called, what separates its guests from the host's kernel, and how its
// machines differ from those of the other engines. The spawner, the daemon and the command line read it, so that none
// of them compares names or numbers of engines. Whether an engine works on this host is no fact of this table: the
// spawner finds that out at start (spawner/host_resources.h).
//
//   if (const EngineTraits* engine = FindEngine(name)) … engine->has_own_kernel …
//
// The checklist for a new engine is in spawner/machines/launch.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sandbar {

// What a machine's root filesystem and its snapshots consist of.
enum class RootfsFormat { kDir, kBlock };

// How a machine reaches its network: a namespace in which every address is local, a tap device of a virtual machine,
// or one end of a veth pair.
enum class NetworkKind { kLocal, kTap, kVeth };

struct EngineTraits {
  std::string_view name;      // stored, shown, and used in requests: a name never changes
  uint8_t id = 0;             // on the wire between daemon and spawner; two rows may share the program behind it
  int isolation_class = 1;    // 1: the host's kernel, 2: a kernel in user space, 3: a virtual machine
  std::string_view boundary;  // for people: what stands between guest and host
  NetworkKind network = NetworkKind::kLocal;
  RootfsFormat format = RootfsFormat::kDir;
  bool has_own_kernel = true;        // the guest's clock, page cache and processes are not the host's
  bool keeps_memory = false;         // a running machine can be saved with its memory, and can go on from it
  bool emulated = false;             // on an emulated processor: the operator decides which class that is worth
  bool restores_slowly = false;      // a machine that runs already, or goes on from its memory, may answer late
  bool agent_has_key = false;        // the agent proves with a key that it read the spawner's configuration
  bool prestarts_init = false;       // the first process waits in its namespaces before there is an image
  bool host_dials_loopback = false;  // the spawner reaches the machine's loopback addresses without the agent
};

inline constexpr EngineTraits kNamespaces = {
    .name = "namespaces",
    .id = 1,
    .isolation_class = 1,
    .boundary = "shares the host's kernel",
    .network = NetworkKind::kLocal,
    .format = RootfsFormat::kDir,
    .has_own_kernel = false,
    .prestarts_init = true,
    .host_dials_loopback = true,
};
// QEMU without KVM. Its authors do not consider emulation a security boundary, so its class is 1.
inline constexpr EngineTraits kMicrovmEmulated = {
    .name = "microvm-emulated",
    .id = 3,
    .isolation_class = 1,
    .boundary = "a virtual machine without KVM, no security boundary",
    .network = NetworkKind::kTap,
    .format = RootfsFormat::kBlock,
    .keeps_memory = true,
    .emulated = true,
    .restores_slowly = true,
    .agent_has_key = true,
};
inline constexpr EngineTraits kGvisor = {
    .name = "gvisor",
    .id = 2,
    .isolation_class = 2,
    .boundary = "a kernel in user space",
    .network = NetworkKind::kVeth,
    .format = RootfsFormat::kDir,
};
inline constexpr EngineTraits kMicrovm = {
    .name = "microvm",
    .id = 3,
    .isolation_class = 3,
    .boundary = "a virtual machine",
    .network = NetworkKind::kTap,
    .format = RootfsFormat::kBlock,
    .keeps_memory = true,
    .agent_has_key = true,
};

// In the order of classes.
inline constexpr std::array kEngines = {&kNamespaces, &kMicrovmEmulated, &kGvisor, &kMicrovm};

// The words by which options and settings name an engine: "auto", then the names in the order of the table.
std::vector<std::string> EngineChoices();

// Null when there is no such engine.
constexpr const EngineTraits* FindEngine(std::string_view name) {
  for (const EngineTraits* engine : kEngines) {
    if (engine->name == name) return engine;
  }
  return nullptr;
}

// The row of the strongest engine with this number. Rows with the same number are the same program: they differ in
// class, in the words for people, in `emulated` and in `restores_slowly` only.
constexpr const EngineTraits* FindEngine(uint8_t id) {
  const EngineTraits* found = nullptr;
  for (const EngineTraits* engine : kEngines) {
    if (engine->id == id) found = engine;
  }
  return found;
}

}  // namespace sandbar
