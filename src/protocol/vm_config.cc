#include "protocol/vm_config.h"

#include "base/bytes.h"
#include "protocol/codec.h"

namespace sandbar::protocol {
namespace {

constexpr size_t kMaxField = 1 << 20;

}  // namespace

template <class A>
void Fields(A& a, Is<VmFile> auto& m) {
  a.Text(m.path, kMaxField), a(m.mode), a.Text(m.bytes, kMaxVmConfig);
}
template <class A>
void Fields(A& a, Is<VmDrive> auto& m) {
  a.Text(m.path, kMaxField), a(m.writable), a(m.uid), a(m.gid);
}
template <class A>
void Fields(A& a, Is<VmConfig> auto& m) {
  a.Text(m.hostname, kMaxField), a(m.clock_ns), a.Text(m.entropy, kMaxField), a(m.pids), a.Text(m.key, kMaxField);
  a(m.restored);
  a.Each(m.files, kMaxVmConfig, [&](auto& e) { Fields(a, e); });
  a.Each(m.drives, kMaxVmConfig, [&](auto& e) { Fields(a, e); });
  a(m.nesting);
}

std::string VmDriveDisk(size_t i) {
  return "drive" + std::to_string(i);
}

std::string EncodeVmConfig(const VmConfig& config) {
  Put put;
  Fields(put, config);
  const std::string fields = put.Take();
  ByteWriter out;
  out.U32(static_cast<uint32_t>(fields.size()));
  out.Raw(fields);
  return out.Take();
}

Result<VmConfig> DecodeVmConfig(std::string_view bytes) {
  VmConfig config;
  Get get(bytes);
  Fields(get, config);
  if (!get.ok()) return Fail(Code::kProtocol, "malformed configuration");
  return config;
}

std::array<uint8_t, 6> VmMac(std::string_view key) {
  uint64_t hash = 14695981039346656037ULL;
  for (char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  std::array<uint8_t, 6> mac{0x02};  // chosen locally
  for (size_t i = 1; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(hash >> (8 * i));
  return mac;
}

}  // namespace sandbar::protocol
