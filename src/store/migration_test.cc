// Databases of earlier servers: every row is there after the upgrade, and a cut-off upgrade leaves the old file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "store/schema.h"
#include "store/store.h"
#include "support/store/database_v10.h"
#include "support/store/store_test.h"

namespace sandbar::store {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Raw {
 public:
  explicit Raw(const std::string& path) { EXPECT_EQ(sqlite3_open(path.c_str(), &db_), SQLITE_OK); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  ~Raw() { sqlite3_close(db_); }
  void Exec(const std::string& sql) {
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << (message ? message : "");
    sqlite3_free(message);
  }
  // All rows as one text.
  std::string Rows(const std::string& sql) {
    std::string out;
    auto row = [](void* to, int n, char** values, char**) {
      for (int i = 0; i < n; ++i) *static_cast<std::string*>(to) += std::string(values[i] ? values[i] : "NULL") + "|";
      *static_cast<std::string*>(to) += "\n";
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), row, &out, nullptr), SQLITE_OK) << sqlite3_errmsg(db_);
    return out;
  }
  std::string Version() { return Rows("PRAGMA user_version"); }

 private:
  sqlite3* db_ = nullptr;
};

class MigrationTest : public testing::StoreTest {
 protected:
  MigrationTest() {
    store_.reset();
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(File() + suffix);
    Raw(File()).Exec(testing::kDatabaseV10);
  }
  // Everything that the file holds, table by table.
  std::string Contents() {
    Raw raw(File());
    std::string all = raw.Version() + raw.Rows("SELECT sql FROM sqlite_master ORDER BY name");
    for (const char* table : {"sandboxes", "sessions", "commands", "subdomains", "snapshots", "drives", "layers",
                              "notes", "tokens", "usage", "pool", "notices"})
      all += raw.Rows("SELECT * FROM " + std::string(table));
    return all;
  }
};

TEST_F(MigrationTest, RowsOfTheFormerSchemaAreAllThere) {
  std::string before;
  {
    Raw raw(File());
    before = raw.Rows("SELECT name, status, current_session, current_snapshot, env, network_sealed FROM sandboxes");
  }
  Open();
  ASSERT_TRUE(store_);
  std::set<std::string> ids;
  for (const char* name : {"alpha", "beta", "gamma"}) {
    auto found = *store_->FindSandbox({"team_a", "prj_a", name});
    ASSERT_TRUE(found) << name;
    EXPECT_THAT(found->id, StartsWith("sbid_"));
    EXPECT_EQ(found->id.size(), 37U) << "128 bits in hexadecimal digits";
    EXPECT_EQ(found->version, 1);
    EXPECT_EQ(found->status, Status::kStopped);
    EXPECT_EQ((*store_->FindSandboxById(found->id))->name, name);
    EXPECT_TRUE(store_->FindSession(found->current_session)->has_value());
    EXPECT_TRUE(store_->FindSnapshot(found->current_snapshot)->has_value());
    ids.insert(found->id);
  }
  EXPECT_EQ(ids.size(), 3U) << "each has one of its own";
  EXPECT_EQ((*store_->FindSandboxBySubdomain("sb-wgavv8suy58o"))->name, "alpha");
  EXPECT_EQ(store_->ListCommands("sbx_8iI9JTBShxCqgOxanTSINB1X")->size(), 1U);
  EXPECT_TRUE(store_->FindDrive("team_a", "prj_a", "data")->has_value());
  EXPECT_EQ(store_->AllLayers()->size(), 3U);
  auto keys = store_->AllKeys();
  ASSERT_TRUE(keys && keys->size() == 1);
  const Key& key = keys->front();
  EXPECT_EQ(key.id, "tok_fT5MjGLKsCUdCdJIx9CzhCdu");
  EXPECT_EQ(key.sha256_hex, "1b31e0b41586b826714b638d1c6288dc7c5f254a9553844033ae5bbedffdd135");
  EXPECT_EQ(key.team + key.project, "**");
  EXPECT_EQ(key.role, KeyRole::kAdmin) << "a token could do everything";
  EXPECT_FALSE(key.expires_at || key.revoked_at || key.last_used_at);
  EXPECT_EQ(key.made_by, "server");
  EXPECT_EQ(store_->Usage()->at(0).creations, 3U) << "the upgrade itself counts nothing";
  // The next start changes nothing, the ids least of all.
  Open();
  for (const char* name : {"alpha", "beta", "gamma"})
    EXPECT_TRUE(ids.contains((*store_->FindSandbox({"team_a", "prj_a", name}))->id));
  store_.reset();
  Raw raw(File());
  EXPECT_EQ(raw.Rows("SELECT name, status, current_session, current_snapshot, env, network_sealed FROM sandboxes"),
            before);
  EXPECT_EQ(raw.Version(), std::to_string(kMigrations.size()) + "|\n");
}

TEST_F(MigrationTest, AFailingStepLeavesTheOldDatabase) {
  // The last statement of the step finds its name taken; by then the others have run.
  Raw(File()).Exec("CREATE INDEX sandboxes_by_id ON sandboxes (name)");
  const std::string before = Contents();
  auto failed = OpenSqlite(File());
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("sandboxes_by_id"));
  EXPECT_EQ(Contents(), before);
  Raw(File()).Exec("DROP INDEX sandboxes_by_id");
  Open();
  ASSERT_TRUE(store_);
  EXPECT_EQ(*store_->CountSandboxes(), 3U);
}

// Ends the process before the statement that has `die_at` in it.
const char* die_at = nullptr;
int DieAt(sqlite3* db, char**, const sqlite3_api_routines*) {
  auto look = [](unsigned, void*, void*, void* text) {
    if (std::string_view(static_cast<const char*>(text)).contains(die_at)) ::_exit(77);
    return 0;
  };
  return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, look, nullptr);
}

TEST_F(MigrationTest, AKilledUpgradeIsMadeUpForAtTheNextStart) {
  const std::string before = Contents();
  for (const char* point : {"ADD COLUMN version", "SET id =", "sandboxes_by_id", "user_version =", "COMMIT"}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      die_at = point;
      sqlite3_auto_extension(reinterpret_cast<void (*)()>(DieAt));
      auto opened = OpenSqlite(File());
      ::_exit(opened ? 1 : 2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 77) << point << ": " << status;
    EXPECT_EQ(Contents(), before) << point;
  }
  Open();
  ASSERT_TRUE(store_);
  EXPECT_EQ(*store_->CountSandboxes(), 3U);
  EXPECT_FALSE((*store_->FindSandbox({"team_a", "prj_a", "alpha"}))->id.empty());
}

}  // namespace
}  // namespace sandbar::store
