#include "sandbox/sandboxes/pending_deletion.h"

#include <charconv>

#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

constexpr std::string_view kPrefix = "delete/";
constexpr std::string_view kWithSnapshots = "with snapshots", kAlone = "alone";

// Neither teams nor projects have a slash in them.
std::string NoteOf(const store::SandboxKey& key) {
  return std::string(kPrefix) + key.team + "/" + key.project + "/" + key.name;
}

}  // namespace

Result<> AddPendingDeletion(store::Journal& journal, const PendingDeletion& pending) {
  std::string value(pending.with_snapshots ? kWithSnapshots : kAlone);
  if (pending.created_at != 0) value += "/" + std::to_string(pending.created_at);
  return journal.SetNote(NoteOf(pending.key), value);
}

Result<> CancelDeletion(store::Journal& journal, const store::SandboxKey& key) {
  return journal.SetNote(NoteOf(key), "");
}

Result<std::vector<PendingDeletion>> PendingDeletions(store::Journal& journal) {
  SB_TRY(auto notes, journal.Notes(std::string(kPrefix)));
  std::vector<PendingDeletion> out;
  for (const auto& [note, value] : notes) {
    const size_t team = kPrefix.size(), project = note.find('/', team) + 1, name = note.find('/', project) + 1;
    store::SandboxKey key{note.substr(team, project - team - 1), note.substr(project, name - project - 1),
                          note.substr(name)};
    PendingDeletion pending{std::move(key), value.starts_with(kWithSnapshots)};
    if (size_t at = value.find('/'); at != std::string::npos)
      std::from_chars(value.data() + at + 1, value.data() + value.size(), pending.created_at);
    out.push_back(std::move(pending));
  }
  return out;
}

Result<std::vector<std::string>> RemoveSandbox(store::Store& store, const store::SandboxKey& key, bool with_snapshots) {
  SB_TRY(auto sessions, store.SessionIds(key));
  SB_TRY(auto sandbox, store.FindSandbox(key));
  // Once the deletion is pending, the next start finishes it: no crash leaves snapshots, or a record without them.
  if (sandbox && !sandbox->current_snapshot.empty())
    SB_TRYV(AddPendingDeletion(store, {key, with_snapshots, sandbox->created_at}));
  if (sandbox) SB_TRYV(DeleteSnapshotsOf(store, *sandbox, with_snapshots));
  SB_TRYV(store.DeleteSandbox(key));
  SB_TRYV(CancelDeletion(store, key));
  return sessions;
}

}  // namespace sandbar::sandbox
