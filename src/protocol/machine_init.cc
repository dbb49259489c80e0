#include "protocol/machine_init.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/bytes.h"

namespace sandbar::protocol {
namespace {

constexpr uint8_t kStart = 1, kPlan = 2;
constexpr size_t kMaxInitPath = 4096;
constexpr size_t kMaxItems = 256;

class Packer {
 public:
  explicit Packer(uint8_t kind) { bytes_.U8(kind); }
  ByteWriter& bytes() { return bytes_; }
  void One(int fd) {
    bytes_.I32(fd < 0 ? -1 : static_cast<int32_t>(fds_.size()));
    if (fd >= 0) fds_.push_back(fd);
  }
  void Many(const std::vector<int>& fds) {
    bytes_.U32(static_cast<uint32_t>(fds.size()));
    for (int fd : fds) One(fd);
  }
  void Covers(const std::vector<ProcCover>& covers) {
    bytes_.U32(static_cast<uint32_t>(covers.size()));
    for (const ProcCover& c : covers) {
      bytes_.Str(c.source);
      bytes_.Str(c.target);
    }
  }
  EntryMessage Take() { return {bytes_.Take(), std::move(fds_)}; }

 private:
  ByteWriter bytes_;
  std::vector<int> fds_;
};

class Unpacker {
 public:
  Unpacker(std::string_view bytes, const std::vector<Fd>& fds, uint8_t kind) : bytes_(bytes), fds_(fds) {
    ok_ = bytes_.U8() == kind;
  }
  ByteReader& bytes() { return bytes_; }
  int One() {
    const int32_t at = bytes_.I32();
    if (at < 0) return -1;
    if (static_cast<size_t>(at) < fds_.size()) return fds_[static_cast<size_t>(at)].get();
    ok_ = false;
    return -1;
  }
  uint32_t Count(size_t max) {
    const uint32_t n = bytes_.U32();
    if (n <= max) return n;
    ok_ = false;
    return 0;
  }
  std::vector<int> Many() {
    std::vector<int> out(Count(fds_.size()));
    for (int& fd : out) fd = One();
    return out;
  }
  std::vector<ProcCover> Covers() {
    std::vector<ProcCover> out(Count(kMaxItems));
    for (ProcCover& c : out) {
      c.source = bytes_.Str(kMaxInitPath);
      c.target = bytes_.Str(kMaxInitPath);
    }
    return out;
  }
  Result<> Done() const {
    if (!ok_ || !bytes_.Done()) return Fail(Code::kProtocol, "bad entry message");
    return {};
  }

 private:
  ByteReader bytes_;
  const std::vector<Fd>& fds_;
  bool ok_ = true;
};

// Plain values of the same kernel on both sides.
template <class T>
std::string_view BytesOf(const T& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]};
}

}  // namespace

EntryMessage Encode(const EntryStart& start) {
  Packer p(kStart);
  p.One(start.netns);
  p.bytes().Str(start.proc_at);
  p.Covers(start.covers);
  p.bytes().StrList(start.read_only);
  p.bytes().U64(start.open_files);
  p.bytes().Str(BytesOf(start.filter));
  p.bytes().U64(start.capabilities);
  p.bytes().U8(start.nesting ? 1 : 0);
  p.Many(start.group_root);
  p.Many(start.group_home);
  return p.Take();
}

EntryMessage Encode(const EntryPlan& plan) {
  Packer p(kPlan);
  for (int fd : {plan.userns, plan.root, plan.dev, plan.pts, plan.shm, plan.sys, plan.hidden, plan.agent}) p.One(fd);
  p.bytes().U32(static_cast<uint32_t>(plan.mounts.size()));
  for (const GuestMount& m : plan.mounts) {
    p.One(m.mount);
    p.bytes().Str(m.path);
  }
  p.bytes().Str(plan.mount_point);
  p.Covers(plan.covers);
  p.bytes().Str(plan.hostname);
  p.bytes().Str(plan.cpus ? BytesOf(std::bit_cast<std::array<char, sizeof(cpu_set_t)>>(*plan.cpus)) : "");
  p.Many(plan.keep);
  p.bytes().StrList(plan.argv);
  return p.Take();
}

Result<EntryStart> DecodeEntryStart(std::string_view bytes, const std::vector<Fd>& fds) {
  Unpacker u(bytes, fds, kStart);
  EntryStart start;
  start.netns = u.One();
  start.proc_at = u.bytes().Str(kMaxInitPath);
  start.covers = u.Covers();
  start.read_only = u.bytes().StrList(kMaxItems, kMaxInitPath);
  start.open_files = u.bytes().U64();
  const std::string_view filter = u.bytes().Str(kMaxEntryBytes);
  start.filter.resize(filter.size() / sizeof(sock_filter));
  if (!start.filter.empty()) std::memcpy(start.filter.data(), filter.data(), start.filter.size() * sizeof(sock_filter));
  start.capabilities = u.bytes().U64();
  start.nesting = u.bytes().U8() != 0;
  start.group_root = u.Many();
  start.group_home = u.Many();
  SB_TRYV(u.Done());
  return start;
}

Result<EntryPlan> DecodeEntryPlan(std::string_view bytes, const std::vector<Fd>& fds) {
  Unpacker u(bytes, fds, kPlan);
  EntryPlan plan;
  for (int* fd : {&plan.userns, &plan.root, &plan.dev, &plan.pts, &plan.shm, &plan.sys, &plan.hidden, &plan.agent})
    *fd = u.One();
  plan.mounts.resize(u.Count(fds.size()));
  for (GuestMount& m : plan.mounts) {
    m.mount = u.One();
    m.path = u.bytes().Str(kMaxInitPath);
  }
  plan.mount_point = u.bytes().Str(kMaxInitPath);
  plan.covers = u.Covers();
  plan.hostname = u.bytes().Str(kMaxInitPath);
  const std::string_view cpus = u.bytes().Str(sizeof(cpu_set_t));
  if (cpus.size() == sizeof(cpu_set_t)) std::memcpy(&plan.cpus.emplace(), cpus.data(), cpus.size());
  plan.keep = u.Many();
  plan.argv = u.bytes().StrList(kMaxItems, kMaxInitPath);
  SB_TRYV(u.Done());
  return plan;
}

}  // namespace sandbar::protocol
