#include "store/schema.h"
#include "store/sqlite_db.h"
#include "store/store.h"

namespace sandbar::store {
namespace {

Result<> Migrate(Db* db) {
  int64_t version = 0;
  {
    SB_TRY(auto q, db->Prepare("PRAGMA user_version"));
    SB_TRY(bool row, q.Step());
    if (row) version = q.Int(0);
  }
  if (version > static_cast<int64_t>(kMigrations.size())) {
    return Fail(Code::kInternal, "the database has schema " + std::to_string(version) + ", this version knows up to " +
                                     std::to_string(kMigrations.size()) +
                                     ": it was written by a newer sandbar; upgrade, or use another data directory");
  }
  for (size_t step = static_cast<size_t>(version); step < kMigrations.size(); ++step) {
    SB_TRY(auto tx, Transaction::Begin(db));
    SB_TRYV(db->Exec(kMigrations.at(step)));
    SB_TRYV(db->Exec("PRAGMA user_version = " + std::to_string(step + 1)));
    SB_TRYV(tx.Commit());
  }
  return {};
}

// A damaged file often opens well and fails much later; better to say so at start.
Result<> QuickCheck(Db* db) {
  SB_TRY(auto q, db->Prepare("PRAGMA quick_check(1)"));
  SB_TRY(bool row, q.Step());
  if (row && q.Text(0) == "ok") return {};
  return Fail(Code::kInternal, "the database file is damaged (" + (row ? q.Text(0) : std::string("no answer")) +
                                   "); restore it from a backup or move it away");
}

}  // namespace

Store::Store(std::unique_ptr<Db> db) : SqliteJournal(db.get()), SqliteDirectory(db.get()), db_(std::move(db)) {}
Store::~Store() = default;

Result<> Store::CreateSandbox(const Sandbox& sandbox, const Session& session, const std::string& claimed) {
  SB_TRY(auto tx, Transaction::Begin(db_.get()));
  SB_TRYV(PutNewSandbox(sandbox));
  SB_TRYV(PutNewSession(session));
  if (!claimed.empty()) SB_TRYV(ClaimPoolMember(claimed));
  return tx.Commit();
}

Result<Sandbox> Store::SaveSession(const Session& session, const SandboxEdit& edit) {
  SB_TRY(auto tx, Transaction::Begin(db_.get()));
  SB_TRYV(PutSession(session));
  SB_TRY(Sandbox sandbox, EditInTransaction(KeyOf(session), edit));
  SB_TRYV(tx.Commit());
  return sandbox;
}

Result<Sandbox> Store::SaveStopped(const Session& session, const Snapshot& snapshot, const SandboxEdit& edit) {
  SB_TRY(auto tx, Transaction::Begin(db_.get()));
  SB_TRYV(InsertSnapshot(snapshot));
  SB_TRYV(PutSession(session));
  SB_TRY(Sandbox sandbox, EditInTransaction(KeyOf(session), edit));
  SB_TRYV(tx.Commit());
  return sandbox;
}

Result<> Store::DeleteSandbox(const SandboxKey& key) {
  SB_TRY(auto tx, Transaction::Begin(db_.get()));
  SB_TRYV(DropSessions(key));
  SB_TRYV(DropSandbox(key));
  return tx.Commit();
}

Result<std::unique_ptr<Store>> OpenSqlite(const std::string& path) {
  SB_TRY(auto db, Db::Open(path));
  if (auto r = QuickCheck(db.get()); !r) return std::unexpected(std::move(r).error().Context("open " + path));
  if (auto r = Migrate(db.get()); !r) return std::unexpected(std::move(r).error().Context("open " + path));
  return std::make_unique<Store>(std::move(db));
}

}  // namespace sandbar::store
