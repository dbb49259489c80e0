// What the spawner tells the agent of a virtual machine when it starts, through the port "config": one message, host to
// guest only. The guest believes it; nothing comes back.
//
//   port.write(EncodeVmConfig(config));          // u32 length, then the fields (base/bytes.h)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace sandbar {

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

inline std::string VmDriveDisk(size_t i) {
  return "drive" + std::to_string(i);
}

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

inline std::string EncodeVmConfig(const VmConfig& c) {
  ByteWriter w;
  w.Str(c.hostname);
  w.I64(c.clock_ns);
  w.Str(c.entropy);
  w.U32(c.pids);
  w.Str(c.key);
  w.U8(c.restored ? 1 : 0);
  w.U32(static_cast<uint32_t>(c.files.size()));
  for (const VmFile& f : c.files) {
    w.Str(f.path);
    w.U32(f.mode);
    w.Str(f.bytes);
  }
  w.U32(static_cast<uint32_t>(c.drives.size()));
  for (const VmDrive& d : c.drives) {
    w.Str(d.path);
    w.U8(d.writable ? 1 : 0);
    w.U32(d.uid);
    w.U32(d.gid);
  }
  w.U8(c.nesting ? 1 : 0);
  ByteWriter out;
  out.U32(static_cast<uint32_t>(w.str().size()));
  out.Raw(w.str());
  return out.Take();
}

// The address of the machine's network card, known to both ends of the link by the key: no other machine has it.
inline std::array<uint8_t, 6> VmMac(std::string_view key) {
  uint64_t hash = 14695981039346656037ULL;
  for (char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  std::array<uint8_t, 6> mac{0x02};  // chosen locally
  for (size_t i = 1; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(hash >> (8 * i));
  return mac;
}

// Without the length.
inline Result<VmConfig> DecodeVmConfig(std::string_view bytes) {
  ByteReader r(bytes);
  VmConfig c;
  c.hostname = r.Str();
  c.clock_ns = r.I64();
  c.entropy = r.Str();
  c.pids = r.U32();
  c.key = r.Str();
  c.restored = r.U8() != 0;
  uint32_t files = r.U32();
  for (uint32_t i = 0; i < files && r.ok(); ++i) {
    VmFile f;
    f.path = r.Str();
    f.mode = r.U32();
    f.bytes = r.Str(kMaxVmConfig);
    c.files.push_back(std::move(f));
  }
  uint32_t drives = r.U32();
  for (uint32_t i = 0; i < drives && r.ok(); ++i) {
    VmDrive d;
    d.path = r.Str();
    d.writable = r.U8() != 0;
    d.uid = r.U32();
    d.gid = r.U32();
    c.drives.push_back(std::move(d));
  }
  c.nesting = r.U8() != 0;
  if (!r.Done()) return Fail(Code::kProtocol, "malformed configuration");
  return c;
}

}  // namespace sandbar
