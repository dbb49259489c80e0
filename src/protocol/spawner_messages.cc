#include "protocol/spawner_messages.h"

#include <type_traits>

#include "base/bytes.h"

namespace sandbar::protocol {
namespace {

constexpr size_t kMaxId = 128;
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxMachines = 2048;

// One description of each message's fields serves both directions: Put writes them, Get reads them.
class Put {
 public:
  explicit Put(ByteWriter* w) : w_(w) {}
  void operator()(uint8_t v) { w_->U8(v); }
  void operator()(bool v) { w_->U8(v ? 1 : 0); }
  void operator()(uint32_t v) { w_->U32(v); }
  void operator()(uint64_t v) { w_->U64(v); }
  void operator()(int32_t v) { w_->I32(v); }
  void operator()(int64_t v) { w_->I64(v); }
  void Id(const std::string& v) { w_->Str(v); }
  void Text(const std::string& v) { w_->Str(std::string_view(v).substr(0, kMaxText)); }
  void Ids(const std::vector<std::string>& v, size_t) { w_->StrList(v); }
  size_t Count(size_t n, size_t) {
    w_->U32(static_cast<uint32_t>(n));
    return n;
  }

 private:
  ByteWriter* w_;
};

class Get {
 public:
  explicit Get(ByteReader* r) : r_(r) {}
  void operator()(uint8_t& v) { v = r_->U8(); }
  void operator()(bool& v) { v = r_->U8() != 0; }
  void operator()(uint32_t& v) { v = r_->U32(); }
  void operator()(uint64_t& v) { v = r_->U64(); }
  void operator()(int32_t& v) { v = r_->I32(); }
  void operator()(int64_t& v) { v = r_->I64(); }
  void Id(std::string& v) { v = r_->Str(kMaxId); }
  void Text(std::string& v) { v = r_->Str(kMaxText); }
  void Ids(std::vector<std::string>& v, size_t max) { v = r_->StrList(max, kMaxId); }
  size_t Count(size_t, size_t max) {
    size_t n = r_->U32();
    // An entry is at least four bytes: a lying count cannot make us reserve.
    if (n > max || n > r_->remaining() / 4) return bad_ = true, 0;
    return n;
  }
  bool bad() const { return bad_; }

 private:
  ByteReader* r_;
  bool bad_ = false;
};

template <class A, class L>
void LimitFields(A& a, L& l) {
  a(l.vcpus), a(l.memory_bytes), a(l.pids), a(l.disk_bytes);
}

template <class A, class M>
void Fields(A& a, M& m) {
  using T = std::remove_const_t<M>;
  if constexpr (std::is_same_v<T, HelloReq>) {
    a(m.version);
  } else if constexpr (std::is_same_v<T, BootReq>) {
    a.Id(m.machine), LimitFields(a, m.limits), a(m.deadline_ms), a(m.engine), a(m.nesting), a(m.project),
        a(m.project_bytes);
  } else if constexpr (std::is_same_v<T, ConfigureReq>) {
    a.Id(m.machine), a.Ids(m.layers, kMaxLayers), a.Id(m.image_digest), a.Id(m.hostname);
    a.Ids(m.snapshots, kMaxSnapshotChain);
    size_t n = a.Count(m.mounts.size(), kMaxMounts);
    if constexpr (!std::is_const_v<M>) m.mounts.resize(n);
    for (auto& e : m.mounts) Fields(a, e);
    a(m.memory), a.Id(m.owner), a(m.inherited_bytes);
  } else if constexpr (std::is_same_v<T, DriveMount>) {
    a.Id(m.drive), a.Text(m.path), a(m.writable), a(m.uid), a(m.gid);
  } else if constexpr (std::is_same_v<T, CreateDriveReq>) {
    a.Id(m.drive), a(m.max_bytes), a(m.project), a(m.project_bytes);
  } else if constexpr (std::is_same_v<T, FreezeDriveReq>) {
    a.Id(m.drive), a.Id(m.state), a.Id(m.owner);
  } else if constexpr (std::is_same_v<T, RemoveDriveReq>) {
    a.Id(m.name);
  } else if constexpr (std::is_same_v<T, AttachReq>) {
    a.Id(m.machine);
  } else if constexpr (std::is_same_v<T, UsageReq>) {
    a.Id(m.machine), a(m.packets);
  } else if constexpr (std::is_same_v<T, DestroyReq>) {
    a.Id(m.machine), a.Id(m.keep_as);
  } else if constexpr (std::is_same_v<T, ListSnapshotsReq> || std::is_same_v<T, ListDrivesReq>) {
    a.Id(m.after);
  } else if constexpr (std::is_same_v<T, RemoveSnapshotReq>) {
    a.Id(m.snapshot), a(m.memory_only);
  } else if constexpr (std::is_same_v<T, FlattenReq>) {
    a.Ids(m.layers, kMaxSnapshotChain), a.Id(m.target), a.Id(m.owner);
  } else if constexpr (std::is_same_v<T, ManifestReq>) {
    a.Id(m.snapshot), a(m.check), a.Id(m.owner);
  } else if constexpr (std::is_same_v<T, LiveSnapshotReq>) {
    a.Id(m.machine), a.Id(m.snapshot), a(m.go_on);
  } else if constexpr (std::is_same_v<T, LiveSnapshotResp>) {
    a(m.pause_ms), a(m.memory_bytes);
  } else if constexpr (std::is_same_v<T, DiffReq>) {
    a.Ids(m.before, kMaxSnapshotChain), a.Ids(m.after, kMaxSnapshotChain);
    a.Ids(m.before_image, kMaxLayers), a.Ids(m.after_image, kMaxLayers), a.Id(m.owner);
  } else if constexpr (std::is_same_v<T, ToBlockReq>) {
    a.Id(m.source), a.Id(m.target), a(m.drive), a(m.bytes), a.Id(m.owner);
  } else if constexpr (std::is_same_v<T, DriveFormatReq>) {
    a.Id(m.name);
  } else if constexpr (std::is_same_v<T, ReplaceDriveReq>) {
    a.Id(m.drive), a.Id(m.by);
  } else if constexpr (std::is_same_v<T, SnapshotsResp>) {
    a.Ids(m.snapshots, kSnapshotsPerPage);
  } else if constexpr (std::is_same_v<T, SetLimitsReq>) {
    a.Id(m.machine), LimitFields(a, m.limits), a(m.inherited_bytes);
  } else if constexpr (std::is_same_v<T, AssignReq>) {
    a.Id(m.machine), a(m.project), a(m.project_bytes);
  } else if constexpr (std::is_same_v<T, SetDeadlineReq>) {
    a.Id(m.machine), a(m.deadline_ms);
  } else if constexpr (std::is_same_v<T, FreezeReq>) {
    a.Id(m.machine), a(m.frozen);
  } else if constexpr (std::is_same_v<T, DialReq>) {
    a.Id(m.machine), a(m.port), a(m.ipv6);
  } else if constexpr (std::is_same_v<T, HelloResp>) {
    a(m.version), a.Id(m.instance), a.Text(m.disk_limit), a.Text(m.cgroup), a(m.copies_snapshots);
    size_t n = a.Count(m.engines.size(), kMaxEngines);
    if constexpr (!std::is_const_v<M>) m.engines.resize(n);
    for (auto& e : m.engines) Fields(a, e);
  } else if constexpr (std::is_same_v<T, EngineEntry>) {
    a(m.id), a.Id(m.name), a(m.isolation_class), a(m.usable), a.Text(m.why_not), a.Text(m.no_nesting);
  } else if constexpr (std::is_same_v<T, ErrorResp>) {
    a(m.code), a.Text(m.message), a(m.sys_errno);
  } else if constexpr (std::is_same_v<T, BootResp>) {
    a.Text(m.agent_socket), a.Text(m.agent_key);
  } else if constexpr (std::is_same_v<T, MachineEntry>) {
    a.Id(m.machine), a(m.state), a(m.pid), a(m.start_time), a(m.engine);
  } else if constexpr (std::is_same_v<T, ListResp>) {
    size_t n = a.Count(m.machines.size(), kMaxMachines);
    if constexpr (!std::is_const_v<M>) m.machines.resize(n);
    for (auto& e : m.machines) Fields(a, e);
  } else if constexpr (std::is_same_v<T, UsageResp>) {
    a(m.cpu_ns), a(m.memory_bytes), a(m.memory_peak_bytes), a(m.disk_bytes), a(m.pids), a(m.oom_kills),
        a(m.dropped_packets);
  } else if constexpr (std::is_same_v<T, ExitedEvent>) {
    a.Id(m.machine), a(m.status), a(m.deadline);
  } else {
    static_assert(std::is_same_v<T, ListReq> || std::is_same_v<T, ShutdownReq> || std::is_same_v<T, OkResp>);
  }
}

template <class Tagged>
std::string EncodeTagged(const Tagged& message) {
  ByteWriter w;
  w.U32(message.tag);
  w.U8(static_cast<uint8_t>(message.body.index()));
  Put put(&w);
  std::visit([&](const auto& m) { Fields(put, m); }, message.body);
  return w.Take();
}

template <class Variant, size_t I = 0>
bool DecodeAlternative(size_t index, Get& get, Variant& out) {
  if constexpr (I < std::variant_size_v<Variant>) {
    if (index != I) return DecodeAlternative<Variant, I + 1>(index, get, out);
    Fields(get, out.template emplace<I>());
    return true;
  } else {
    return false;
  }
}

template <class Tagged>
Result<Tagged> DecodeTagged(std::string_view packet) {
  if (packet.size() > kMaxSpawnerMessage) return Fail(Code::kProtocol, "message is too large");
  ByteReader r(packet);
  Tagged out;
  out.tag = r.U32();
  size_t index = r.U8();
  Get get(&r);
  if (!r.ok() || !DecodeAlternative(index, get, out.body)) return Fail(Code::kProtocol, "unknown message");
  if (!r.Done() || get.bad()) return Fail(Code::kProtocol, "malformed message");
  return out;
}

}  // namespace

std::string Encode(const TaggedRequest& request) {
  return EncodeTagged(request);
}

std::string Encode(const TaggedResponse& response) {
  return EncodeTagged(response);
}

Result<TaggedRequest> DecodeRequest(std::string_view packet) {
  return DecodeTagged<TaggedRequest>(packet);
}

Result<TaggedResponse> DecodeResponse(std::string_view packet) {
  return DecodeTagged<TaggedResponse>(packet);
}

}  // namespace sandbar::protocol
