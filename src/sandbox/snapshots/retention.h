// How long snapshots and sandboxes are kept: the rows that a stop writes, expiry, and the removal of unused layers. All
// functions run on the store's thread.
#pragma once

#include <set>
#include <string>

#include "store/store.h"

namespace sandbar::sandbox {

// A snapshot expires this long after its last use, unless the sandbox or the caller sets another time.
inline constexpr int64_t kDefaultSnapshotExpirationMs = 30LL * 24 * 3600 * 1000;

// Saves the stopped session with its snapshot, makes it the sandbox's current one, then applies keepLastSnapshots.
Result<store::Sandbox> SaveWithSnapshot(store::Store& store, const store::Session& session, store::Snapshot snapshot,
                                        const store::SandboxEdit& edit);

// Sandboxes without a name of their own are mostly made by programs for one task, and each stop leaves a record and a
// snapshot. The server removes such a sandbox some time after its end (Sandbox::collect_after_ms), and its snapshots
// expire with it. The following claims it, and a claimed sandbox is kept like others: a resume, a fork, a sandbox made
// from one of its snapshots, a snapshot or pause that a caller asked for, tags, settings of its snapshots, any change
// after its end.

// The collect_after_ms of a new sandbox. `asked`: the request says that its files are to be kept.
int64_t CollectAfter(const store::Sandbox& sandbox, bool named, bool asked, int64_t collect_unnamed_ms);
// Not an error when it is gone, or claimed already.
Result<> Claim(store::Store& store, const store::SandboxKey& key);

// A sandbox boots from the snapshot: its expiry starts anew, and the snapshot's own sandbox is claimed. kSnapshotGone
// when the snapshot was deleted meanwhile.
Result<> MarkUsed(store::Store& store, const std::string& id);

// Undoes a session that never ran: a resumed one is marked as failed, the first one of a sandbox removes the sandbox.
Result<> UndoSession(store::Store& store, const store::Session& session, const std::string& why);

// Deletes the snapshot and its memory for all callers. The housekeeper removes its files from disk later.
Result<store::Snapshot> MarkDeleted(store::Store& store, const std::string& id);

// Notes that the memory of a snapshot has to be removed; its files stay. MemoryKeeper removes it and clears the note.
inline constexpr std::string_view kSpentMemory = "spent/";
Result<> ForgetMemory(store::Store& store, const std::string& id);

// Deletes the snapshots that go with a deleted sandbox: those that its stops made, those of deleted forks that it was
// promoted from, and every memory. Snapshots that were made by hand stay, unless `by_hand_too`. Snapshots that another
// sandbox begins from stay too.
Result<> DeleteSnapshotsOf(store::Store& store, const store::Sandbox& sandbox, bool by_hand_too);

// Marks expired snapshots. A snapshot that a session runs on does not expire.
Result<> ExpireSnapshots(store::Store& store, int64_t now);

// A living snapshot that stands on at least `limit` layers, if there is one besides `except`.
Result<std::optional<store::Snapshot>> FindLongChain(store::Store& store, size_t limit,
                                                     const std::set<std::string>& except);
// From now on the snapshot stands on one layer, unless its layers changed meanwhile.
Result<> ReplaceLayers(store::Store& store, const store::Snapshot& flattened, const std::string& layer);

// The layers on disk that are neither part of a snapshot nor of an unfinished session. Layers that no record knows are
// not among them: the database may be the thing that was lost.
Result<std::vector<std::string>> UnusedLayers(store::Store& store, const std::vector<std::string>& on_disk);

}  // namespace sandbar::sandbox
