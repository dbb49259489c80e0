#include "protocol/spawner_messages.h"

#include "base/bytes.h"
#include "protocol/codec.h"

namespace sandbar::protocol {
namespace {

constexpr uint32_t kNewestSpawnerVersion = 8 + kAhead;
constexpr size_t kMaxId = 128;
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxMachines = 2048;

template <class A>
void Id(A& a, Is<std::string> auto& id) {
  a.Text(id, kMaxId);
}

}  // namespace

template <class A>
void Fields(A& a, Is<MachineLimits> auto& m) {
  a(m.vcpus), a(m.memory_bytes), a(m.pids), a(m.disk_bytes);
}
template <class A>
void Fields(A& a, Is<MachineEntry> auto& m) {
  Id(a, m.machine), a(m.state), a(m.pid), a(m.start_time), a(m.engine);
}
template <class A>
void Fields(A& a, Is<EngineEntry> auto& m) {
  a(m.id), Id(a, m.name), a(m.isolation_class), a(m.usable), a.CutText(m.why_not, kMaxText),
      a.CutText(m.no_nesting, kMaxText);
}
template <class A>
void Fields(A& a, Is<DriveMount> auto& m) {
  Id(a, m.drive), a.CutText(m.path, kMaxText), a(m.writable), a(m.uid), a(m.gid);
}
template <class A>
void Fields(A& a, Is<HelloReq> auto& m) {
  a(m.version);
}
template <class A>
void Fields(A& a, Is<BootReq> auto& m) {
  Id(a, m.machine), Fields(a, m.limits), a(m.deadline_ms), a(m.engine), a(m.nesting), a(m.project), a(m.project_bytes);
}
template <class A>
void Fields(A& a, Is<ConfigureReq> auto& m) {
  Id(a, m.machine), a.List(m.layers, kMaxLayers, kMaxId), Id(a, m.image_digest), Id(a, m.hostname);
  a.List(m.snapshots, kMaxSnapshotChain, kMaxId);
  a.Each(m.mounts, kMaxMounts, [&](auto& e) { Fields(a, e); });
  a(m.memory), Id(a, m.owner), a(m.inherited_bytes);
}
template <class A>
void Fields(A& a, Is<CreateDriveReq> auto& m) {
  Id(a, m.drive), a(m.max_bytes), a(m.project), a(m.project_bytes);
}
template <class A>
void Fields(A& a, Is<SnapshotDriveReq> auto& m) {
  Id(a, m.drive), Id(a, m.snapshot), Id(a, m.owner);
}
template <class A>
void Fields(A& a, Is<RemoveDriveReq> auto& m) {
  Id(a, m.name);
}
template <class A>
void Fields(A& a, Is<AttachReq> auto& m) {
  Id(a, m.machine);
}
template <class A>
void Fields(A& a, Is<UsageReq> auto& m) {
  Id(a, m.machine), a(m.packets);
}
template <class A>
void Fields(A& a, Is<DestroyReq> auto& m) {
  Id(a, m.machine), Id(a, m.keep_as);
}
template <class A>
void Fields(A& a, Is<ListSnapshotsReq> auto& m) {
  Id(a, m.after);
}
template <class A>
void Fields(A& a, Is<ListDrivesReq> auto& m) {
  Id(a, m.after);
}
template <class A>
void Fields(A& a, Is<RemoveSnapshotReq> auto& m) {
  Id(a, m.snapshot), a(m.memory_only);
}
template <class A>
void Fields(A& a, Is<FlattenReq> auto& m) {
  a.List(m.layers, kMaxSnapshotChain, kMaxId), Id(a, m.target), Id(a, m.owner);
}
template <class A>
void Fields(A& a, Is<ManifestReq> auto& m) {
  Id(a, m.snapshot), a(m.check), Id(a, m.owner);
}
template <class A>
void Fields(A& a, Is<MemorySnapshotReq> auto& m) {
  Id(a, m.machine), Id(a, m.snapshot), a(m.go_on);
}
template <class A>
void Fields(A& a, Is<MemorySnapshotResp> auto& m) {
  a(m.pause_ms), a(m.memory_bytes);
}
template <class A>
void Fields(A& a, Is<DiffReq> auto& m) {
  a.List(m.before, kMaxSnapshotChain, kMaxId), a.List(m.after, kMaxSnapshotChain, kMaxId);
  a.List(m.before_image, kMaxLayers, kMaxId), a.List(m.after_image, kMaxLayers, kMaxId), Id(a, m.owner);
}
template <class A>
void Fields(A& a, Is<ToBlockReq> auto& m) {
  Id(a, m.source), Id(a, m.target), a(m.drive), a(m.bytes), Id(a, m.owner);
}
template <class A>
void Fields(A& a, Is<DriveFormatReq> auto& m) {
  Id(a, m.name);
}
template <class A>
void Fields(A& a, Is<ReplaceDriveReq> auto& m) {
  Id(a, m.drive), Id(a, m.by);
}
template <class A>
void Fields(A& a, Is<SnapshotsResp> auto& m) {
  a.List(m.snapshots, kSnapshotsPerPage, kMaxId);
}
template <class A>
void Fields(A& a, Is<SetLimitsReq> auto& m) {
  Id(a, m.machine), Fields(a, m.limits), a(m.inherited_bytes);
}
template <class A>
void Fields(A& a, Is<AssignReq> auto& m) {
  Id(a, m.machine), a(m.project), a(m.project_bytes);
}
template <class A>
void Fields(A& a, Is<SetDeadlineReq> auto& m) {
  Id(a, m.machine), a(m.deadline_ms);
}
template <class A>
void Fields(A& a, Is<PauseReq> auto& m) {
  Id(a, m.machine), a(m.paused);
}
template <class A>
void Fields(A& a, Is<DialReq> auto& m) {
  Id(a, m.machine), a(m.port), a(m.ipv6);
}
template <class A>
void Fields(A& a, Is<HelloResp> auto& m) {
  a(m.version), Id(a, m.instance), a.CutText(m.disk_limit, kMaxText), a.CutText(m.cgroup, kMaxText),
      a(m.copies_snapshots);
  a.Each(m.engines, kMaxEngines, [&](auto& e) { Fields(a, e); });
}
template <class A>
void Fields(A& a, Is<ErrorResp> auto& m) {
  a(m.code), a.CutText(m.message, kMaxText), a(m.sys_errno);
}
template <class A>
void Fields(A& a, Is<BootResp> auto& m) {
  a.CutText(m.agent_socket, kMaxText), a.CutText(m.agent_key, kMaxText);
}
template <class A>
void Fields(A& a, Is<ListResp> auto& m) {
  a.Each(m.machines, kMaxMachines, [&](auto& e) { Fields(a, e); });
}
template <class A>
void Fields(A& a, Is<UsageResp> auto& m) {
  a(m.cpu_ns), a(m.memory_bytes), a(m.memory_peak_bytes), a(m.disk_bytes), a(m.pids), a(m.oom_kills),
      a(m.dropped_packets);
}
template <class A>
void Fields(A& a, Is<ExitedEvent> auto& m) {
  Id(a, m.machine), a(m.status), a(m.deadline);
}
template <class A>
void Fields(A&, Is<ListReq> auto&) {}
template <class A>
void Fields(A&, Is<ShutdownReq> auto&) {}
template <class A>
void Fields(A&, Is<OkResp> auto&) {}

namespace {

template <class Tagged>
std::string EncodeTagged(const Tagged& message) {
  Put put;
  put(message.tag);
  put(static_cast<uint8_t>(message.body.index()));
  std::visit([&](const auto& m) { Fields(put, m); }, message.body);
  return put.Take();
}

template <class Tagged>
Result<Tagged> DecodeTagged(std::string_view packet) {
  if (packet.size() > kMaxSpawnerMessage) return Fail(Code::kProtocol, "message is too large");
  ByteReader head(packet);
  Tagged out;
  out.tag = head.U32();
  const size_t index = head.U8();
  if (!head.ok() || index >= std::variant_size_v<decltype(out.body)>) return Fail(Code::kProtocol, "unknown message");
  if (!GetAlternative(index, head.Rest(), out.body)) return Fail(Code::kProtocol, "malformed message");
  return out;
}

}  // namespace

VersionRange SpawnerVersions() {
  return {kOldestSpawnerVersion, kNewestSpawnerVersion};
}

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
