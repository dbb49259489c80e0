// What the spawner tells the agent of a virtual machine when it starts, through the port "config": one message, host to
// guest only. The guest believes it; nothing comes back.
//
//   port.write(EncodeVmConfig(config));          // u32 length, then the fields (base/bytes.h)
#pragma once

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
// Serial numbers of the block devices.
inline constexpr const char* kVmImageDisk = "image";
inline constexpr const char* kVmWritableDisk = "disk";
inline constexpr size_t kMaxVmConfig = 32 << 20;

struct VmFile {
  std::string path;  // relative to the root, of plain directories
  uint32_t mode = 0644;
  std::string bytes;
};

struct VmConfig {
  std::string hostname;
  int64_t clock_ns = 0;       // real time
  std::string entropy;        // for the guest's random numbers: no two machines get the same
  uint32_t pids = 0;          // 0: as many as the kernel can
  bool restored = false;      // from a template: devices and addresses are other ones than those seen before
  std::vector<VmFile> files;  // lie between the image and what the machine writes
  bool nesting = false;       // it runs containers
};

inline std::string EncodeVmConfig(const VmConfig& c) {
  ByteWriter w;
  w.Str(c.hostname);
  w.I64(c.clock_ns);
  w.Str(c.entropy);
  w.U32(c.pids);
  w.U8(c.restored ? 1 : 0);
  w.U32(static_cast<uint32_t>(c.files.size()));
  for (const VmFile& f : c.files) {
    w.Str(f.path);
    w.U32(f.mode);
    w.Str(f.bytes);
  }
  w.U8(c.nesting ? 1 : 0);
  ByteWriter out;
  out.U32(static_cast<uint32_t>(w.str().size()));
  out.Raw(w.str());
  return out.Take();
}

// Without the length.
inline Result<VmConfig> DecodeVmConfig(std::string_view bytes) {
  ByteReader r(bytes);
  VmConfig c;
  c.hostname = r.Str();
  c.clock_ns = r.I64();
  c.entropy = r.Str();
  c.pids = r.U32();
  c.restored = r.U8() != 0;
  uint32_t files = r.U32();
  for (uint32_t i = 0; i < files && r.ok(); ++i) {
    VmFile f;
    f.path = r.Str();
    f.mode = r.U32();
    f.bytes = r.Str(kMaxVmConfig);
    c.files.push_back(std::move(f));
  }
  c.nesting = r.U8() != 0;
  if (!r.Done()) return Fail(Code::kProtocol, "malformed configuration");
  return c;
}

}  // namespace sandbar
