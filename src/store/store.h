// The store of a one-machine server: journal and directory in one SQLite file, and the writes that change both.
//
// Calls are synchronous and block: the domain makes all of them on one thread of its own, never on the loop. An
// instance is used by one thread at a time. A call that returns success has committed. Code that needs one half only
// takes that half: a Journal& on the store's thread, or the Directory on the loop (async_directory.h makes one of a
// Store).
//
//   auto store = OpenSqlite("/var/lib/sandbar/sandbar.db");
//   (*store)->EditSandbox(key, [](Sandbox& s) -> Result<> { s.timeout_ms = 60000; return {}; });
//
// The combined writes below change rows of both halves in one transaction: all rows or none. A server whose directory
// is another database cannot do that, and its machines go on while that database is down. It has to write in the order
// that each comment gives: the journal first, with a note of what the directory has not heard yet, then the directory,
// then the note goes. The next start, or the directory's return, repeats what is noted. So each write to the directory
// has to be one that can be repeated.
//
// Usage is a combined write too: triggers of the schema add to the sums of a project in the transaction that writes a
// session's start or end. Across two databases each machine keeps its own sums in its journal and writes them, as they
// are, to a row of its own; Usage adds the rows up.
//
// Work that a function does on a Store& in several calls (retention, durability, drives, deletion in sandbox/) is not
// one transaction. It is in one piece only as long as one thread makes all calls; each of its steps can be repeated.
#pragma once

#include <memory>
#include <string>

#include "store/sqlite_directory.h"
#include "store/sqlite_journal.h"

namespace sandbar::store {

class Store final : public SqliteJournal, public SqliteDirectory {
 public:
  explicit Store(std::unique_ptr<Db> db);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() override;

  // A new sandbox with its first session. kConflict when the name is taken. A non-empty `claimed` pool member loses its
  // pool row in the same transaction: from then on the machine belongs to the session. The store gives the sandbox an
  // id when it has none.
  // Across two databases: journal (session pending, pool row gone), then directory. When the name is taken, or after a
  // crash in between, the machine is ended and the session's row removed: a pending session without a record was never
  // answered.
  Result<> CreateSandbox(const Sandbox& sandbox, const Session& session, const std::string& claimed);

  // A new session of an existing sandbox, or a new state of a known one, with the edit of its sandbox. kNotFound when
  // the sandbox is gone. A null `edit` leaves the sandbox as it is.
  // Across two databases: journal, then directory. To copy the session's state to the record again changes nothing. At
  // its end the edit adds the session's usage to the sandbox's totals, which a repetition would add twice: the record
  // has to name the session that it counted last, in the row that has the totals.
  Result<Sandbox> SaveSession(const Session& session, const SandboxEdit& edit);

  // The end of a session with the snapshot that it left, which the edit makes the sandbox's head.
  // Across two databases: journal, snapshot, head. The session has named its snapshot since before the machine ended; a
  // snapshot of that id which is there already is the same one. Never the head before the snapshot: it would name one
  // that does not exist.
  Result<Sandbox> SaveStopped(const Session& session, const Snapshot& snapshot, const SandboxEdit& edit);

  // Takes its sessions, commands and notices with it. Not an error when it is gone already.
  // Across two databases: first the pending deletion in the journal (sandbox/sandboxes/pending_deletion.h), then the
  // directory, then the journal's rows and the pending deletion. The next start finishes deletions that are still
  // pending. The pending deletion has the creation time, so a younger sandbox of the same name is not deleted.
  Result<> DeleteSandbox(const SandboxKey& key);

 private:
  std::unique_ptr<Db> db_;
};

// Opens or creates the database file and brings its schema up to date. Fails with a message for the operator when the
// file is damaged or was written by a newer version. A migration that is cut off leaves the file as it was before.
Result<std::unique_ptr<Store>> OpenSqlite(const std::string& path);

}  // namespace sandbar::store
