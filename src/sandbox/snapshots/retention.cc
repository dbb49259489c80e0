#include "sandbox/snapshots/retention.h"

#include <algorithm>
#include <set>

#include "base/ids.h"
#include "sandbox/snapshots/converter.h"

namespace sandbar::sandbox {

namespace {

constexpr int kPageSize = 50;

Result<> ApplyKeepLast(store::Store& store, const store::Sandbox& sandbox) {
  if (!sandbox.keep_last_snapshots) return {};
  const store::KeepLastSnapshots keep = *sandbox.keep_last_snapshots;
  store::ListFilter filter{.team = sandbox.team, .project = sandbox.project, .limit = kPageSize};
  filter.sandbox = sandbox.name;
  int seen = 0;
  do {
    SB_TRY(auto page, store.ListSnapshots(filter));
    for (const store::Snapshot& snapshot : page.items) {
      if (snapshot.deleted) continue;
      const bool kept = seen++ < keep.count;
      if (kept ? !keep.expiration_ms : !keep.delete_evicted) continue;
      if (!kept) {
        SB_TRYV(MarkDeleted(store, snapshot.id));
        continue;
      }
      auto edit = [&](store::Snapshot& s) -> Result<> {
        s.expiration_ms = *keep.expiration_ms;
        s.updated_at = NowMs();
        return {};
      };
      SB_TRYV(store.EditSnapshot(snapshot.id, edit));
    }
    filter.cursor = page.next;
  } while (!filter.cursor.empty());
  return {};
}

// As long as the snapshots of a sandbox that somebody named.
void ClaimSnapshot(store::Snapshot& s) {
  if (!s.unclaimed) return;
  s.unclaimed = false;
  s.expiration_ms = kDefaultSnapshotExpirationMs;
}

}  // namespace

Result<store::Sandbox> SaveWithSnapshot(store::Store& store, const store::Session& session, store::Snapshot snapshot,
                                        const store::SandboxEdit& edit) {
  SB_TRY(auto record, store.FindSandbox(store::KeyOf(session)));
  const auto by_record = record ? record->snapshot_expiration_ms : std::nullopt;
  snapshot.expiration_ms = session.snapshot_expiration_ms.value_or(by_record.value_or(kDefaultSnapshotExpirationMs));
  const bool asked = snapshot.manual || snapshot.memory == "asked" || session.snapshot_expiration_ms.has_value();
  if (record && record->collect_after_ms > 0 && asked) SB_TRYV(Claim(store, store::KeyOf(*record)));
  if (record && record->collect_after_ms > 0 && !asked) {
    snapshot.unclaimed = true;
    snapshot.expiration_ms = std::min(snapshot.expiration_ms, record->collect_after_ms);
  }
  auto with_head = [&](store::Sandbox& s) -> Result<> {
    if (edit) SB_TRYV(edit(s));
    s.current_snapshot = snapshot.id;
    if (s.current_session == session.id && s.status != session.status) {
      s.status = session.status;
      s.status_updated_at = session.updated_at;
    }
    s.updated_at = session.updated_at;
    return {};
  };
  SB_TRY(auto sandbox, store.SaveStopped(session, snapshot, with_head));
  SB_TRYV(ApplyKeepLast(store, sandbox));
  return sandbox;
}

Result<> MarkUsed(store::Store& store, const std::string& id) {
  auto edit = [](store::Snapshot& s) -> Result<> {
    if (s.deleted) return Fail(Code::kSnapshotGone, "snapshot " + s.id + " was deleted");
    s.last_used_at = NowMs();
    ClaimSnapshot(s);
    return {};
  };
  SB_TRY(auto used, store.EditSnapshot(id, edit));
  return Claim(store, {used.team, used.project, used.sandbox});
}

int64_t CollectAfter(const store::Sandbox& sandbox, bool named, bool asked, int64_t collect_unnamed_ms) {
  const bool kept = !sandbox.tags.empty() || sandbox.snapshot_expiration_ms || sandbox.keep_last_snapshots;
  return named || asked || kept ? 0 : collect_unnamed_ms;
}

Result<> Claim(store::Store& store, const store::SandboxKey& key) {
  SB_TRY(auto sandbox, store.FindSandbox(key));
  if (!sandbox || sandbox->collect_after_ms == 0) return {};
  store::ListFilter filter{.team = key.team, .project = key.project, .limit = kPageSize};
  filter.sandbox = key.name;
  do {
    SB_TRY(auto page, store.ListSnapshots(filter));
    for (const store::Snapshot& snapshot : page.items) {
      if (!snapshot.unclaimed || snapshot.deleted) continue;
      auto edit = [](store::Snapshot& s) -> Result<> {
        ClaimSnapshot(s);
        return {};
      };
      SB_TRYV(store.EditSnapshot(snapshot.id, edit));
    }
    filter.cursor = page.next;
  } while (!filter.cursor.empty());
  auto edit = [](store::Sandbox& s) -> Result<> {
    s.collect_after_ms = 0;
    return {};
  };
  SB_TRYV(store.EditSandbox(key, edit));
  return {};
}

Result<> UndoSession(store::Store& store, const store::Session& session, const std::string& why) {
  SB_TRY(auto sandbox, store.FindSandbox(store::KeyOf(session)));
  if (!sandbox) return {};
  if (sandbox->current_session == session.id) return store.DeleteSandbox(store::KeyOf(session));
  store::Session failed = session;
  failed.status = store::Status::kFailed;
  failed.stop_reason = "resume failed: " + why;
  failed.stopped_at = failed.aborted_at = failed.updated_at = NowMs();
  SB_TRYV(store.SaveSession(failed, nullptr));
  return {};
}

Result<> ForgetMemory(store::Store& store, const std::string& id) {
  auto edit = [](store::Snapshot& s) -> Result<> {
    s.memory.clear();
    s.contexts.clear();
    return {};
  };
  // The note first: a memory without a row that speaks of it would stay for good.
  SB_TRYV(store.SetNote(std::string(kSpentMemory) + id, "1"));
  SB_TRYV(store.EditSnapshot(id, edit));
  return {};
}

Result<store::Snapshot> MarkDeleted(store::Store& store, const std::string& id) {
  SB_TRY(auto now, store.FindSnapshot(id));
  if (now && !now->memory.empty()) SB_TRYV(ForgetMemory(store, id));
  auto edit = [](store::Snapshot& s) -> Result<> {
    if (!s.deleted) s.updated_at = NowMs();
    s.deleted = true;
    s.contexts.clear();
    return {};
  };
  return store.EditSnapshot(id, edit);
}

namespace {

Result<std::vector<store::Snapshot>> SnapshotsOf(store::Store& store, const store::SandboxKey& key) {
  store::ListFilter filter{.team = key.team, .project = key.project, .limit = kPageSize};
  filter.sandbox = key.name;
  std::vector<store::Snapshot> out;
  do {
    SB_TRY(auto page, store.ListSnapshots(filter));
    for (store::Snapshot& snapshot : page.items)
      if (!snapshot.deleted) out.push_back(std::move(snapshot));
    filter.cursor = page.next;
  } while (!filter.cursor.empty());
  return out;
}

// Automatic snapshots of other sandboxes that this one stands on and whose sandboxes are gone: what it was promoted
// from. One that somebody made by hand is theirs, whoever goes on from it.
Result<std::vector<store::Snapshot>> Inherited(store::Store& store, const store::Sandbox& sandbox) {
  std::vector<store::Snapshot> out;
  std::set<std::string> seen;
  for (std::string id = sandbox.current_snapshot; !id.empty() && seen.insert(id).second;) {
    SB_TRY(auto snapshot, store.FindSnapshot(id));
    if (!snapshot) break;
    id = snapshot->parent;
    if (snapshot->deleted || snapshot->manual || snapshot->sandbox == sandbox.name) continue;
    SB_TRY(auto owner, store.FindSandbox({snapshot->team, snapshot->project, snapshot->sandbox}));
    // A younger sandbox of that name is another one.
    if (!owner || owner->created_at > snapshot->created_at) out.push_back(*std::move(snapshot));
  }
  return out;
}

// The snapshots that other sandboxes begin from.
Result<std::set<std::string>> HeadsOfOthers(store::Store& store, const store::SandboxKey& key) {
  std::set<std::string> heads;
  store::ListFilter filter{.team = key.team, .project = key.project, .limit = kPageSize};
  do {
    SB_TRY(auto page, store.ListSandboxes(filter));
    for (const store::Sandbox& other : page.items)
      if (other.name != key.name) heads.insert(other.current_snapshot);
    filter.cursor = page.next;
  } while (!filter.cursor.empty());
  return heads;
}

}  // namespace

Result<> DeleteSnapshotsOf(store::Store& store, const store::Sandbox& sandbox, bool by_hand_too) {
  const store::SandboxKey key = store::KeyOf(sandbox);
  SB_TRY(auto candidates, SnapshotsOf(store, key));
  SB_TRY(auto inherited, Inherited(store, sandbox));
  candidates.insert(candidates.end(), inherited.begin(), inherited.end());
  // Most sandboxes leave none: then nobody else's rows are read.
  if (candidates.empty()) return {};
  SB_TRY(auto heads, HeadsOfOthers(store, key));
  for (const store::Snapshot& snapshot : candidates) {
    if (heads.contains(snapshot.id)) continue;
    if (!snapshot.manual || by_hand_too) {
      SB_TRYV(MarkDeleted(store, snapshot.id));
    } else if (!snapshot.memory.empty()) {
      SB_TRYV(ForgetMemory(store, snapshot.id));
    }
  }
  return {};
}

Result<> ExpireSnapshots(store::Store& store, int64_t now) {
  SB_TRY(auto all, store.AllSnapshots());
  SB_TRY(auto running, store.UnfinishedSessions());
  std::set<std::string> used;
  for (const store::Session& session : running) used.insert(session.source_snapshot);
  for (const store::Snapshot& snapshot : all) {
    const auto at = snapshot.expires_at();
    if (snapshot.deleted || !at || *at > now || used.contains(snapshot.id)) continue;
    SB_TRYV(MarkDeleted(store, snapshot.id));
  }
  return {};
}

Result<std::optional<store::Snapshot>> FindLongChain(store::Store& store, size_t limit,
                                                     const std::set<std::string>& except) {
  SB_TRY(auto all, store.AllSnapshots());
  for (store::Snapshot& snapshot : all) {
    if (!snapshot.deleted && snapshot.snapshot_layers.size() >= limit && !except.contains(snapshot.id))
      return std::move(snapshot);
  }
  return std::nullopt;
}

Result<> ReplaceLayers(store::Store& store, const store::Snapshot& flattened, const std::string& layer) {
  auto edit = [&](store::Snapshot& s) -> Result<> {
    if (s.snapshot_layers != flattened.snapshot_layers) return {};
    s.snapshot_layers = {layer};
    s.durable_at = s.verified_at = 0;  // until the new layer has its manifest
    return {};
  };
  SB_TRYV(store.EditSnapshot(flattened.id, edit));
  return {};
}

Result<std::vector<std::string>> UnusedLayers(store::Store& store, const std::vector<std::string>& on_disk) {
  SB_TRY(auto all, store.AllSnapshots());
  SB_TRY(auto running, store.UnfinishedSessions());
  std::set<std::string> known, needed;
  for (const store::Snapshot& snapshot : all) {
    known.insert(snapshot.id);
    known.insert(snapshot.snapshot_layers.begin(), snapshot.snapshot_layers.end());
    if (!snapshot.deleted) needed.insert(snapshot.snapshot_layers.begin(), snapshot.snapshot_layers.end());
  }
  for (const store::Session& session : running) {
    needed.insert(session.snapshot_layers.begin(), session.snapshot_layers.end());
    needed.insert(session.snapshot);
  }
  std::vector<std::string> unused;
  for (const std::string& layer : on_disk) {
    // In another format it stays as long as the original.
    const std::string original = OriginalName(layer);
    const std::string& name = original.empty() ? layer : original;
    if (known.contains(name) && !needed.contains(name) && !needed.contains(layer)) unused.push_back(layer);
  }
  return unused;
}

}  // namespace sandbar::sandbox
