#include "protocol/vm_config.h"

#include <utility>

#include "base/bytes.h"

namespace sandbar::protocol {

std::string VmDriveDisk(size_t i) {
  return "drive" + std::to_string(i);
}

std::string EncodeVmConfig(const VmConfig& c) {
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

std::array<uint8_t, 6> VmMac(std::string_view key) {
  uint64_t hash = 14695981039346656037ULL;
  for (char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  std::array<uint8_t, 6> mac{0x02};  // chosen locally
  for (size_t i = 1; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(hash >> (8 * i));
  return mac;
}

Result<VmConfig> DecodeVmConfig(std::string_view bytes) {
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

}  // namespace sandbar::protocol
