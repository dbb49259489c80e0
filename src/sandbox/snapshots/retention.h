// What a stop writes besides its session: the snapshot, the sandbox's new head, and which older snapshots have to go.
// Runs on the store's thread.
#pragma once

#include <set>
#include <string>

#include "store/store.h"

namespace sandbar::sandbox {

// A snapshot lives this long after its last use unless the sandbox or the caller says otherwise.
inline constexpr int64_t kDefaultSnapshotExpirationMs = 30LL * 24 * 3600 * 1000;

// Saves the stopped session with its snapshot, makes it the sandbox's current one, then applies keepLastSnapshots.
Result<store::Sandbox> SaveWithSnapshot(store::Store& store, const store::Session& session, store::Snapshot snapshot,
                                        const store::SandboxEdit& edit);

// Sandboxes that nobody named. Most are made by programs for one task, and each stop leaves a record and a snapshot.
// Such a sandbox is removed some time after its end (Sandbox::collect_after_ms), and its snapshots expire with it. Any
// of these claims it, and then it is kept like others: a resume, a fork, a sandbox made from one of its snapshots, a
// snapshot or pause that somebody asked for, tags, settings of its snapshots, any change after its end.

// What a new sandbox gets. `asked`: the request says that its files are to be kept.
int64_t CollectAfter(const store::Sandbox& sandbox, bool named, bool asked, int64_t collect_unnamed_ms);
// Not an error when it is gone, or claimed already.
Result<> Claim(store::Store& store, const store::SandboxKey& key);

// A sandbox boots from it: its time starts anew, and its sandbox is claimed. kSnapshotGone when it was deleted
// meanwhile.
Result<> MarkUsed(store::Store& store, const std::string& id);

// Undoes a session that never ran: a resumed one is marked, the first one of a sandbox takes the sandbox with it.
Result<> UndoSession(store::Store& store, const store::Session& session, const std::string& why);

// The snapshot is gone for everybody, and its memory with it. Its files leave the disk with the next round of tidying.
Result<store::Snapshot> MarkDeleted(store::Store& store, const std::string& id);

// The memory of a snapshot is to go; its files stay. Whoever removes the file clears the note.
inline constexpr std::string_view kSpentMemory = "spent/";
Result<> ForgetMemory(store::Store& store, const std::string& id);

// What a sandbox that is being deleted takes along: the snapshots that its stops made, those of deleted forks that it
// was promoted from, and every memory. Snapshots that were made by hand stay, unless `by_hand_too`. So do those that
// another sandbox begins from.
Result<> DeleteSnapshotsOf(store::Store& store, const store::Sandbox& sandbox, bool by_hand_too);

// Marks what has expired. A snapshot that a session runs on does not expire.
Result<> ExpireSnapshots(store::Store& store, int64_t now);

// A living snapshot that stands on at least `limit` layers, if there is one besides `except`.
Result<std::optional<store::Snapshot>> FindLongChain(store::Store& store, size_t limit,
                                                     const std::set<std::string>& except);
// From now on the snapshot stands on one layer, unless its layers changed meanwhile.
Result<> ReplaceLayers(store::Store& store, const store::Snapshot& flattened, const std::string& layer);

// Which of the layers on disk nothing can ask for any more: not part of a living snapshot nor of an unfinished session.
// Layers that no record knows are not among them: the database may be the thing that was lost.
Result<std::vector<std::string>> UnusedLayers(store::Store& store, const std::vector<std::string>& on_disk);

}  // namespace sandbar::sandbox
