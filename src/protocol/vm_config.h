// What the spawner tells the agent of a virtual machine when it starts, through the port "config": one message, host to
// guest only. The guest believes it; nothing comes back.
//
//   port.write(EncodeVmConfig(config));          // u32 length, then the fields (base/bytes.h)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbar::protocol {

inline constexpr const char* kVmConfigPort = "config";
inline constexpr const char* kVmAgentPort = "agent";
// What an agent that cannot start says on its port before the machine ends, in front of why.
inline constexpr const char* kVmFailure = "sandbar-guest: ";
// Serial numbers of the block devices.
inline constexpr const char* kVmImageDisk = "image";
inline constexpr const char* kVmWritableDisk = "disk";
inline constexpr size_t kMaxVmConfig = 32 << 20;

struct VmFile {
  std::string path;  // relative to the root, of plain directories
  uint32_t mode = 0644;
  std::string bytes;
};

// A block device with the serial number VmDriveDisk(its place in the list).
struct VmDrive {
  std::string path;  // absolute; what is missing of it is made
  bool writable = false;
  uint32_t uid = 0, gid = 0;  // whose it is when it is used for the first time
};

std::string VmDriveDisk(size_t i);

struct VmConfig {
  std::string hostname;
  int64_t clock_ns = 0;       // real time
  std::string entropy;        // for the guest's random numbers: no two machines get the same
  uint32_t pids = 0;          // 0: as many as the kernel can
  std::string key;            // the agent says it to the daemon: proof that this message reached it
  bool restored = false;      // from a template: devices and addresses are other ones than those seen before
  std::vector<VmFile> files;  // lie between the image and what the machine writes
  std::vector<VmDrive> drives;
  bool nesting = false;  // it runs containers
};

std::string EncodeVmConfig(const VmConfig& config);

// The address of the machine's network card, known to both ends of the link by the key: no other machine has it.
std::array<uint8_t, 6> VmMac(std::string_view key);

// Without the length.
Result<VmConfig> DecodeVmConfig(std::string_view bytes);

}  // namespace sandbar::protocol
