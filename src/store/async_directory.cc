#include "store/async_directory.h"

namespace sandbar::store {

// Every call has one shape: a named closure that owns its arguments, and one await. g++ 12 demands it.

Task<std::optional<Sandbox>> AsyncDirectory::FindSandbox(SandboxKey key) {
  auto call = [rows = rows_, key = std::move(key)] { return rows->FindSandbox(key); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::optional<Sandbox>> AsyncDirectory::FindSandboxById(std::string id) {
  auto call = [rows = rows_, id = std::move(id)] { return rows->FindSandboxById(id); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::optional<Sandbox>> AsyncDirectory::FindSandboxBySubdomain(std::string subdomain) {
  auto call = [rows = rows_, subdomain = std::move(subdomain)] { return rows->FindSandboxBySubdomain(subdomain); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::InsertSandbox(Sandbox sandbox) {
  auto call = [rows = rows_, sandbox = std::move(sandbox)] { return rows->InsertSandbox(sandbox); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Sandbox> AsyncDirectory::EditSandbox(SandboxKey key, SandboxEdit edit) {
  auto call = [rows = rows_, key = std::move(key), edit = std::move(edit)] { return rows->EditSandbox(key, edit); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::RemoveSandbox(SandboxKey key) {
  auto call = [rows = rows_, key = std::move(key)] { return rows->RemoveSandbox(key); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Listing<Sandbox>> AsyncDirectory::ListSandboxes(ListFilter filter) {
  auto call = [rows = rows_, filter = std::move(filter)] { return rows->ListSandboxes(filter); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<uint64_t> AsyncDirectory::CountSandboxes() {
  auto call = [rows = rows_] { return rows->CountSandboxes(); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::vector<Sandbox>> AsyncDirectory::SandboxesToCollect(int64_t now) {
  auto call = [rows = rows_, now] { return rows->SandboxesToCollect(now); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::vector<ProjectUsage>> AsyncDirectory::Usage() {
  auto call = [rows = rows_] { return rows->Usage(); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::optional<Snapshot>> AsyncDirectory::FindSnapshot(std::string id) {
  auto call = [rows = rows_, id = std::move(id)] { return rows->FindSnapshot(id); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::InsertSnapshot(Snapshot snapshot) {
  auto call = [rows = rows_, snapshot = std::move(snapshot)] { return rows->InsertSnapshot(snapshot); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Snapshot> AsyncDirectory::EditSnapshot(std::string id, SnapshotEdit edit) {
  auto call = [rows = rows_, id = std::move(id), edit = std::move(edit)] { return rows->EditSnapshot(id, edit); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Listing<Snapshot>> AsyncDirectory::ListSnapshots(ListFilter filter) {
  auto call = [rows = rows_, filter = std::move(filter)] { return rows->ListSnapshots(filter); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::vector<Snapshot>> AsyncDirectory::SnapshotChildren(std::string parent) {
  auto call = [rows = rows_, parent = std::move(parent)] { return rows->SnapshotChildren(parent); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::vector<Snapshot>> AsyncDirectory::AllSnapshots() {
  auto call = [rows = rows_] { return rows->AllSnapshots(); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::InsertDrive(Drive drive) {
  auto call = [rows = rows_, drive = std::move(drive)] { return rows->InsertDrive(drive); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::optional<Drive>> AsyncDirectory::FindDrive(std::string team, std::string project, std::string name) {
  auto call = [rows = rows_, team = std::move(team), project = std::move(project), name = std::move(name)] {
    return rows->FindDrive(team, project, name);
  };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Listing<Drive>> AsyncDirectory::ListDrives(ListFilter filter) {
  auto call = [rows = rows_, filter = std::move(filter)] { return rows->ListDrives(filter); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Drive> AsyncDirectory::EditDrive(std::string id, DriveEdit edit) {
  auto call = [rows = rows_, id = std::move(id), edit = std::move(edit)] { return rows->EditDrive(id, edit); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::vector<Drive>> AsyncDirectory::AllDrives() {
  auto call = [rows = rows_] { return rows->AllDrives(); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::ForgetDrive(std::string id) {
  auto call = [rows = rows_, id = std::move(id)] { return rows->ForgetDrive(id); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::InsertKey(Key key) {
  auto call = [rows = rows_, key = std::move(key)] { return rows->InsertKey(key); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<Key> AsyncDirectory::EditKey(std::string id, KeyEdit edit) {
  auto call = [rows = rows_, id = std::move(id), edit = std::move(edit)] { return rows->EditKey(id, edit); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<std::vector<Key>> AsyncDirectory::AllKeys() {
  auto call = [rows = rows_] { return rows->AllKeys(); };
  co_return co_await Offload(*pool_, std::move(call));
}

Task<> AsyncDirectory::ForgetKey(std::string id) {
  auto call = [rows = rows_, id = std::move(id)] { return rows->ForgetKey(id); };
  co_return co_await Offload(*pool_, std::move(call));
}

}  // namespace sandbar::store
