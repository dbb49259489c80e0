#include "store/sqlite_directory.h"

#include "base/ids.h"
#include "store/directory.h"
#include "store/json_text.h"
#include "store/rows.h"
#include "store/sqlite_db.h"
#include "store/sqlite_listing.h"
#include "store/sqlite_read.h"

namespace sandbar::store {
namespace {

std::unexpected<Error> NoSandbox(const SandboxKey& key) {
  return Fail(Code::kNotFound, "sandbox not found: " + key.name);
}

}  // namespace

Result<std::optional<Sandbox>> SqliteDirectory::FindSandbox(const SandboxKey& key) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns + " FROM sandboxes" + kKeyWhere));
  BindKey(q, key);
  return ReadOne<Sandbox>(q, ReadSandbox);
}

Result<std::optional<Sandbox>> SqliteDirectory::FindSandboxBySubdomain(const std::string& subdomain) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns +
                              " FROM sandboxes WHERE row = (SELECT sandbox FROM subdomains WHERE subdomain = ?)"));
  q.Bind(subdomain);
  return ReadOne<Sandbox>(q, ReadSandbox);
}

Result<std::optional<Sandbox>> SqliteDirectory::FindSandboxById(const std::string& id) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns + " FROM sandboxes WHERE id = ?"));
  q.Bind(id);
  return ReadOne<Sandbox>(q, ReadSandbox);
}

Result<> SqliteDirectory::PutNewSandbox(const Sandbox& sandbox) {
  Sandbox row = sandbox;
  if (row.id.empty()) row.id = NewSandboxId();
  row.version = 1;
  SB_TRYV(InsertRow(*db_, "sandboxes", kSandboxColumns, row));
  return InsertSubdomains(row);
}

Result<> SqliteDirectory::InsertSandbox(const Sandbox& sandbox) {
  SB_TRY(auto tx, Transaction::Begin(db_));
  SB_TRYV(PutNewSandbox(sandbox));
  return tx.Commit();
}

Result<bool> SqliteDirectory::WriteIfUnchanged(const Sandbox& read, Sandbox& edited) {
  // Neither who it is nor how often it was written is the edit's to say.
  edited.team = read.team;
  edited.project = read.project;
  edited.name = read.name;
  edited.id = read.id;
  edited.version = read.version + 1;
  {
    SB_TRY(auto q,
           db_->Prepare("UPDATE sandboxes SET " + Assignments(kSandboxColumns) + " WHERE id = ? AND version = ?"));
    Bind(q, edited);
    SB_TRYV(q.Bind(read.id).Bind(read.version).Run());
  }
  if (db_->changes() != 1) return false;
  if (edited.routes != read.routes) {
    SB_TRYV(DeleteSubdomains(read.id));
    SB_TRYV(InsertSubdomains(edited));
  }
  return true;
}

Result<Sandbox> SqliteDirectory::EditSandbox(const SandboxKey& key, const SandboxEdit& edit) {
  std::string id;
  for (int attempt = 0; attempt < kMaxEditAttempts; ++attempt) {
    SB_TRY(auto read, FindSandbox(key));
    // Another sandbox that got the name in between is not the one that was to be edited.
    if (!read || (!id.empty() && read->id != id)) return NoSandbox(key);
    id = read->id;
    Sandbox edited = *read;
    SB_TRYV(edit(edited));
    SB_TRY(auto tx, Transaction::Begin(db_));
    SB_TRY(const bool written, WriteIfUnchanged(*read, edited));
    if (!written) continue;
    SB_TRYV(tx.Commit());
    return edited;
  }
  return Fail(Code::kConflict, "sandbox " + key.name + " is being changed by others all the time: try again");
}

Result<Sandbox> SqliteDirectory::EditInTransaction(const SandboxKey& key, const SandboxEdit& edit) {
  SB_TRY(auto read, FindSandbox(key));
  if (!read) return NoSandbox(key);
  if (!edit) return *std::move(read);
  Sandbox edited = *read;
  SB_TRYV(edit(edited));
  SB_TRY(const bool written, WriteIfUnchanged(*read, edited));
  if (!written) return Fail(Code::kInternal, "database: a row changed inside of a transaction");
  return edited;
}

Result<> SqliteDirectory::DropSandbox(const SandboxKey& key) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM sandboxes" + kKeyWhere));
  return BindKey(q, key).Run();
}

Result<> SqliteDirectory::RemoveSandbox(const SandboxKey& key) {
  return DropSandbox(key);
}

Result<> SqliteDirectory::InsertSubdomains(const Sandbox& sandbox) {
  for (const PortRoute& route : sandbox.routes) {
    SB_TRY(auto q,
           db_->Prepare("INSERT INTO subdomains (subdomain, sandbox) SELECT ?, row FROM sandboxes WHERE id = ?"));
    SB_TRYV(q.Bind(route.subdomain).Bind(sandbox.id).Run());
  }
  return {};
}

Result<> SqliteDirectory::DeleteSubdomains(const std::string& sandbox_id) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM subdomains WHERE sandbox = (SELECT row FROM sandboxes WHERE id = ?)"));
  return q.Bind(sandbox_id).Run();
}

Result<Listing<Sandbox>> SqliteDirectory::ListSandboxes(const ListFilter& filter) {
  ListSql sql{.listing = "sandboxes/createdAt", .column = "created_at"};
  if (filter.sort_by == SortBy::kName) sql = {.listing = "sandboxes/name", .column = "name", .by_text = true};
  if (filter.sort_by == SortBy::kStatusUpdatedAt) {
    sql = {.listing = "sandboxes/statusUpdatedAt", .column = "status_updated_at"};
  }
  if (!filter.name_prefix.empty()) sql.where += " AND substr(name, 1, length(?)) = ?";
  if (filter.tag) sql.where += " AND EXISTS (SELECT 1 FROM json_each(tags) AS t WHERE t.key = ? AND t.value = ?)";
  auto bind = [&filter](Query& q) {
    if (!filter.name_prefix.empty()) q.Bind(filter.name_prefix).Bind(filter.name_prefix);
    if (filter.tag) q.Bind(filter.tag->first).Bind(filter.tag->second);
  };
  return ListRows<Sandbox>(*db_, filter, std::move(sql), "sandboxes", kSandboxColumns, bind, ReadSandbox);
}

Result<uint64_t> SqliteDirectory::CountSandboxes() {
  SB_TRY(auto q, db_->Prepare("SELECT count(*) FROM sandboxes"));
  SB_TRY(bool row, q.Step());
  return row ? static_cast<uint64_t>(q.Int(0)) : 0;
}

Result<std::vector<Sandbox>> SqliteDirectory::SandboxesToCollect(int64_t now) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns +
                              " FROM sandboxes WHERE collect_after_ms > 0 AND status IN ('stopped', 'failed', "
                              "'aborted') AND status_updated_at <= ? - collect_after_ms "
                              "ORDER BY status_updated_at LIMIT 500"));
  q.Bind(now);
  return ReadAll<Sandbox>(q, ReadSandbox);
}

Result<std::vector<ProjectUsage>> SqliteDirectory::Usage() {
  SB_TRY(auto q, db_->Prepare("SELECT team, project, creations, cpu_ms, memory_mb_ms, ingress, egress FROM usage "
                              "ORDER BY team, project"));
  auto read = [](const Query& row, int c) -> Result<ProjectUsage> {
    auto number = [&row, c](int column) { return static_cast<uint64_t>(row.Int(c + column)); };
    return ProjectUsage{row.Text(c), row.Text(c + 1), number(2), number(3), number(4), number(5), number(6)};
  };
  return ReadAll<ProjectUsage>(q, read);
}

Result<std::optional<Snapshot>> SqliteDirectory::FindSnapshot(const std::string& id) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSnapshotColumns + " FROM snapshots WHERE id = ?"));
  q.Bind(id);
  return ReadOne<Snapshot>(q, ReadSnapshot);
}

Result<> SqliteDirectory::InsertSnapshot(const Snapshot& snapshot) {
  return InsertRow(*db_, "snapshots", kSnapshotColumns, snapshot);
}

Result<Snapshot> SqliteDirectory::EditSnapshot(const std::string& id, const SnapshotEdit& edit) {
  SB_TRY(auto tx, Transaction::Begin(db_));
  SB_TRY(auto found, FindSnapshot(id));
  if (!found) return Fail(Code::kNotFound, "snapshot not found: " + id);
  SB_TRYV(edit(*found));
  {
    SB_TRY(auto q, db_->Prepare("UPDATE snapshots SET " + Assignments(kSnapshotColumns) + " WHERE id = ?"));
    Bind(q, *found);
    SB_TRYV(q.Bind(id).Run());
  }
  SB_TRYV(tx.Commit());
  return *std::move(found);
}

Result<Listing<Snapshot>> SqliteDirectory::ListSnapshots(const ListFilter& filter) {
  ListSql sql{.listing = "snapshots/createdAt", .column = "created_at"};
  if (!filter.sandbox.empty()) sql.where += " AND sandbox = ?";
  auto bind = [&filter](Query& q) {
    if (!filter.sandbox.empty()) q.Bind(filter.sandbox);
  };
  return ListRows<Snapshot>(*db_, filter, std::move(sql), "snapshots", kSnapshotColumns, bind, ReadSnapshot);
}

Result<std::vector<Snapshot>> SqliteDirectory::SnapshotChildren(const std::string& parent) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSnapshotColumns + " FROM snapshots WHERE parent = ? ORDER BY row"));
  q.Bind(parent);
  return ReadAll<Snapshot>(q, ReadSnapshot);
}

Result<std::vector<Snapshot>> SqliteDirectory::AllSnapshots() {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSnapshotColumns + " FROM snapshots ORDER BY row"));
  return ReadAll<Snapshot>(q, ReadSnapshot);
}

Result<> SqliteDirectory::InsertDrive(const Drive& drive) {
  return InsertRow(*db_, "drives", kDriveColumns, drive);
}

Result<std::optional<Drive>> SqliteDirectory::FindDrive(const std::string& team, const std::string& project,
                                                        const std::string& name) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kDriveColumns + " FROM drives" + kKeyWhere + " AND deleted = 0"));
  BindKey(q, {team, project, name});
  return ReadOne<Drive>(q, ReadDrive);
}

Result<Listing<Drive>> SqliteDirectory::ListDrives(const ListFilter& filter) {
  ListSql sql{.listing = "drives/createdAt", .column = "created_at"};
  if (filter.sort_by == SortBy::kName) sql = {.listing = "drives/name", .column = "name", .by_text = true};
  if (filter.sort_by == SortBy::kUpdatedAt) sql = {.listing = "drives/updatedAt", .column = "updated_at"};
  sql.where = "deleted = 0";
  if (!filter.name_prefix.empty()) sql.where += " AND substr(name, 1, length(?)) = ?";
  auto bind = [&filter](Query& q) {
    if (!filter.name_prefix.empty()) q.Bind(filter.name_prefix).Bind(filter.name_prefix);
  };
  return ListRows<Drive>(*db_, filter, std::move(sql), "drives", kDriveColumns, bind, ReadDrive);
}

Result<Drive> SqliteDirectory::EditDrive(const std::string& id, const DriveEdit& edit) {
  SB_TRY(auto tx, Transaction::Begin(db_));
  std::optional<Drive> found;
  {
    SB_TRY(auto q, db_->Prepare("SELECT " + kDriveColumns + " FROM drives WHERE id = ?"));
    q.Bind(id);
    SB_TRY(found, ReadOne<Drive>(q, ReadDrive));
  }
  if (!found) return Fail(Code::kNotFound, "drive not found: " + id);
  SB_TRYV(edit(*found));
  {
    SB_TRY(auto q, db_->Prepare("UPDATE drives SET " + Assignments(kDriveColumns) + " WHERE id = ?"));
    Bind(q, *found);
    SB_TRYV(q.Bind(id).Run());
  }
  SB_TRYV(tx.Commit());
  return *std::move(found);
}

Result<std::vector<Drive>> SqliteDirectory::AllDrives() {
  SB_TRY(auto q, db_->Prepare("SELECT " + kDriveColumns + " FROM drives ORDER BY row"));
  return ReadAll<Drive>(q, ReadDrive);
}

Result<> SqliteDirectory::ForgetDrive(const std::string& id) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM drives WHERE id = ?"));
  return q.Bind(id).Run();
}

// Keys are in the table `tokens`, which is older than their roles.
Result<> SqliteDirectory::InsertKey(const Key& key) {
  return InsertRow(*db_, "tokens", kKeyColumns, key);
}

Result<Key> SqliteDirectory::EditKey(const std::string& id, const KeyEdit& edit) {
  SB_TRY(auto tx, Transaction::Begin(db_));
  std::optional<Key> found;
  {
    SB_TRY(auto q, db_->Prepare("SELECT " + kKeyColumns + " FROM tokens WHERE id = ?"));
    q.Bind(id);
    SB_TRY(found, ReadOne<Key>(q, ReadKey));
  }
  if (!found) return Fail(Code::kNotFound, "key not found: " + id);
  SB_TRYV(edit(*found));
  {
    SB_TRY(auto q, db_->Prepare("UPDATE tokens SET " + Assignments(kKeyColumns) + " WHERE id = ?"));
    Bind(q, *found);
    SB_TRYV(q.Bind(id).Run());
  }
  SB_TRYV(tx.Commit());
  return *std::move(found);
}

Result<std::vector<Key>> SqliteDirectory::AllKeys() {
  SB_TRY(auto q, db_->Prepare("SELECT " + kKeyColumns + " FROM tokens ORDER BY created_at, rowid"));
  return ReadAll<Key>(q, ReadKey);
}

Result<> SqliteDirectory::ForgetKey(const std::string& id) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM tokens WHERE id = ?"));
  return q.Bind(id).Run();
}

}  // namespace sandbar::store
