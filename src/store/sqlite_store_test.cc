#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "store/json_text.h"
#include "store/store.h"
#include "support/store/store_test.h"

namespace sandbar::store {
namespace {

using ::testing::HasSubstr;
using testing::MakeSandbox;
using testing::MakeSession;

class SqliteStoreTest : public testing::StoreTest {
 protected:
  std::vector<std::string> AllNames(ListFilter filter) {
    std::vector<std::string> names;
    for (;;) {
      auto page = store_->ListSandboxes(filter);
      EXPECT_TRUE(page) << (page ? "" : page.error().message);
      if (!page) return names;
      EXPECT_LE(page->items.size(), static_cast<size_t>(filter.limit));
      for (const auto& s : page->items) names.push_back(s.name);
      if (page->next.empty()) return names;
      filter.cursor = page->next;
    }
  }
};

TEST_F(SqliteStoreTest, EveryFieldComesBack) {
  Sandbox s = MakeSandbox("full");
  s.v1 = true;
  s.persistent = false;
  s.status = Status::kSnapshotting;
  s.region = "fra1";
  s.failover_regions = {"iad1", "sfo1"};
  s.network_id = "net";
  s.vcpus = 4;
  s.memory_mb = 8192;
  s.runtime = "node24";
  s.image = "r@sha256:x";
  s.cwd = "/vercel";
  s.timeout_ms = 77;
  s.network = NetworkPolicyRow{"custom", R"({"mode":"custom"})", "sealed"};
  s.env = {{"A", "quote\" and \\ and \n and ü"}, {"B", ""}};
  s.tags = {{"k", "v"}};
  s.routes = {{3000, "sb-one", ""}, {4000, "sb-two", "secret"}};
  s.snapshot_expiration_ms = 0;
  s.keep_last_snapshots = KeepLastSnapshots{3, 86400000, false};
  s.isolation = {3, "microvm"};
  s.engine = "fake";
  s.isolation_class = 3;
  s.total_cpu_ms = 5;
  s.total_duration_ms = 6;
  s.total_egress = 7;
  s.total_ingress = 1ULL << 40;
  Session session = MakeSession(s);
  session.status = Status::kAborted;
  session.started_at = 1;
  session.requested_stop_at = 2;
  session.stopped_at = 3;
  session.aborted_at = 4;
  session.cpu_ms = 5;
  session.ingress = 6;
  session.egress = 7;
  session.stop_reason = "why";
  session.engine = "fake";
  session.isolation_class = 3;
  session.user = "ubuntu";
  session.home = "/vercel";
  session.uid = 12;
  session.gid = 13;
  session.image_env = {{"PATH", "/bin"}};
  session.network = NetworkPolicyRow{"allow-all", R"({"mode":"allow-all"})", ""};
  session.carried_ingress = 21;
  session.carried_egress = 22;
  ASSERT_TRUE(store_->CreateSandbox(s, session, ""));
  Command c{"cmd_1", session.id, "sh", "/tmp", {"-c", "echo \"x\""}, 99, 137, 12, true, true};
  ASSERT_TRUE(store_->InsertCommand(c));
  Open();

  auto got = *store_->FindSandbox(KeyOf(s));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->env, s.env);
  EXPECT_EQ(got->tags, s.tags);
  EXPECT_EQ(got->routes, s.routes);
  EXPECT_EQ(got->failover_regions, s.failover_regions);
  EXPECT_EQ(std::tie(got->v1, got->persistent, got->status, got->region, got->network_id, got->vcpus, got->memory_mb),
            std::tie(s.v1, s.persistent, s.status, s.region, s.network_id, s.vcpus, s.memory_mb));
  EXPECT_EQ(std::tie(got->runtime, got->image, got->cwd, got->timeout_ms, got->network),
            std::tie(s.runtime, s.image, s.cwd, s.timeout_ms, s.network));
  EXPECT_EQ(std::tie(got->isolation, got->engine, got->isolation_class),
            std::tie(s.isolation, s.engine, s.isolation_class));
  EXPECT_EQ(got->snapshot_expiration_ms, 0);
  ASSERT_TRUE(got->keep_last_snapshots);
  EXPECT_EQ(got->keep_last_snapshots->expiration_ms, 86400000);
  EXPECT_FALSE(got->keep_last_snapshots->delete_evicted);
  EXPECT_EQ(std::tie(got->total_cpu_ms, got->total_duration_ms, got->total_egress, got->total_ingress),
            std::tie(s.total_cpu_ms, s.total_duration_ms, s.total_egress, s.total_ingress));

  auto back = *store_->FindSession(session.id);
  ASSERT_TRUE(back);
  EXPECT_EQ(
      std::tie(back->status, back->started_at, back->requested_stop_at, back->stopped_at, back->aborted_at),
      std::tie(session.status, session.started_at, session.requested_stop_at, session.stopped_at, session.aborted_at));
  EXPECT_EQ(std::tie(back->cpu_ms, back->ingress, back->egress, back->stop_reason, back->engine, back->isolation_class),
            std::tie(session.cpu_ms, session.ingress, session.egress, session.stop_reason, session.engine,
                     session.isolation_class));
  EXPECT_EQ(std::tie(back->user, back->home, back->uid, back->gid, back->image_env, back->network),
            std::tie(session.user, session.home, session.uid, session.gid, session.image_env, session.network));
  EXPECT_EQ(std::tie(back->carried_ingress, back->carried_egress),
            std::tie(session.carried_ingress, session.carried_egress));
  EXPECT_EQ((*store_->FindSessionByMachine(session.machine_id))->id, session.id);
  EXPECT_EQ((*store_->FindSandboxBySubdomain("sb-two"))->name, s.name);
  ASSERT_TRUE(store_->EditSandbox(KeyOf(s), [](Sandbox& e) -> Result<> {
    e.routes = {{3000, "sb-one", ""}, {5000, "sb-three", ""}};
    return {};
  }));
  EXPECT_EQ((*store_->FindSandboxBySubdomain("sb-one"))->name, s.name);
  EXPECT_EQ((*store_->FindSandboxBySubdomain("sb-three"))->name, s.name);
  EXPECT_FALSE(*store_->FindSandboxBySubdomain("sb-two"));

  auto command = *store_->FindCommand(session.id, "cmd_1");
  ASSERT_TRUE(command);
  EXPECT_EQ(command->args, c.args);
  EXPECT_EQ(std::tie(command->exit_code, command->duration_ms, command->timed_out, command->oom_killed),
            std::tie(c.exit_code, c.duration_ms, c.timed_out, c.oom_killed));
  EXPECT_FALSE(*store_->FindCommand("sbx_other", "cmd_1"));
}

TEST_F(SqliteStoreTest, NamesAreUniquePerProject) {
  Add(MakeSandbox("a"));
  Sandbox again = MakeSandbox("a");
  again.current_session = "sbx_2";
  auto r = store_->CreateSandbox(again, MakeSession(again), "");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kConflict);
  EXPECT_FALSE(*store_->FindSession("sbx_2")) << "both rows or none";
  again.project = "p2";
  EXPECT_TRUE(store_->CreateSandbox(again, MakeSession(again), ""));
  ASSERT_TRUE(store_->DeleteSandbox({"t", "p", "a"}));
  EXPECT_FALSE(*store_->FindSession("sbx_a")) << "sessions go with their sandbox";
  Add(MakeSandbox("a"));
}

TEST_F(SqliteStoreTest, EditsRollBackWhenTheyFail) {
  Add(MakeSandbox("a"));
  auto fail = [](Sandbox& s) -> Result<> {
    s.timeout_ms = 1;
    return Fail(Code::kBadRequest, "no");
  };
  EXPECT_EQ(store_->EditSandbox({"t", "p", "a"}, fail).error().code, Code::kBadRequest);
  EXPECT_EQ((*store_->FindSandbox({"t", "p", "a"}))->timeout_ms, 300000);
  auto change = [](Sandbox& s) -> Result<> {
    s.timeout_ms = 5;
    return {};
  };
  Session session = **store_->FindSession("sbx_a");
  session.status = Status::kRunning;
  ASSERT_TRUE(store_->SaveSession(session, change));
  EXPECT_EQ((*store_->FindSandbox({"t", "p", "a"}))->timeout_ms, 5);
  EXPECT_EQ(store_->UnfinishedSessions()->size(), 1U);
  session.status = Status::kStopped;
  ASSERT_TRUE(store_->SaveSession(session, nullptr));
  EXPECT_TRUE(store_->UnfinishedSessions()->empty());
  EXPECT_EQ(store_->EditSandbox({"t", "p", "none"}, change).error().code, Code::kNotFound);
}

TEST_F(SqliteStoreTest, PagesAreStableForEqualTimes) {
  std::vector<std::string> names;
  for (int i = 0; i < 25; ++i) {
    names.push_back("n" + std::to_string(100 + i));
    Add(MakeSandbox(names.back(), 5000 + i / 10));  // ten of each time
  }
  for (bool ascending : {true, false}) {
    for (SortBy by : {SortBy::kCreatedAt, SortBy::kName, SortBy::kStatusUpdatedAt}) {
      for (int limit : {1, 3, 7, 25, 26}) {
        ListFilter f;
        f.team = "t";
        f.project = "p";
        f.limit = limit;
        f.sort_by = by;
        f.ascending = ascending;
        auto expected = names;
        if (!ascending) std::reverse(expected.begin(), expected.end());
        EXPECT_EQ(AllNames(f), expected);
      }
    }
  }
}

TEST_F(SqliteStoreTest, FiltersAndForeignCursors) {
  Sandbox tagged = MakeSandbox("tagged", 10);
  tagged.tags = {{"we\"ird.key", "1"}, {"k", "v"}};
  Add(tagged);
  Add(MakeSandbox("other", 20));
  Add(MakeSandbox("other-2", 30));
  ListFilter f;
  f.team = "t";
  f.project = "p";
  f.tag = {"we\"ird.key", "1"};
  EXPECT_EQ(AllNames(f), std::vector<std::string>{"tagged"});
  f.tag = {"k", "1"};
  EXPECT_TRUE(AllNames(f).empty());
  f.tag.reset();
  f.sort_by = SortBy::kName;
  f.ascending = true;
  f.name_prefix = "other";
  EXPECT_EQ(AllNames(f), (std::vector<std::string>{"other", "other-2"}));
  f.name_prefix = "o%";
  EXPECT_TRUE(AllNames(f).empty());
  f.name_prefix.clear();
  f.since = 10;
  f.until = 30;
  EXPECT_EQ(AllNames(f), std::vector<std::string>{"other"}) << "bounds are exclusive";
  f.since.reset();
  f.until.reset();
  f.limit = 1;
  auto page = store_->ListSandboxes(f);
  ASSERT_FALSE(page->next.empty());
  f.cursor = page->next;
  f.sort_by = SortBy::kCreatedAt;
  EXPECT_EQ(store_->ListSandboxes(f).error().code, Code::kBadRequest);
  f.cursor = "no cursor!";
  EXPECT_EQ(store_->ListSandboxes(f).error().code, Code::kBadRequest);
  f.cursor.clear();
  f.project = "p2";
  EXPECT_TRUE(AllNames(f).empty());
  f.project.clear();
  EXPECT_EQ(AllNames(f).size(), 3U) << "every project of the team";
}

TEST_F(SqliteStoreTest, Drives) {
  for (int i = 0; i < 3; ++i) {
    Drive d;
    d.id = "drv_" + std::to_string(i);
    d.team = "t";
    d.project = "p";
    d.name = "n" + std::to_string(i);
    d.region = "sfo1";
    d.max_size_bytes = 1ULL << 41;
    d.created_at = 10 + i;
    d.updated_at = 30 - i;
    ASSERT_TRUE(store_->InsertDrive(d));
    d.id += "x";
    EXPECT_EQ(store_->InsertDrive(d).error().code, Code::kConflict);
  }
  auto found = store_->FindDrive("t", "p", "n1");
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->id, "drv_1");
  EXPECT_EQ((*found)->region, "sfo1");
  EXPECT_EQ((*found)->max_size_bytes, 1ULL << 41);
  EXPECT_EQ((*found)->updated_at, 29);
  EXPECT_FALSE(store_->FindDrive("t", "other", "n1")->has_value());
  ListFilter filter{.team = "t", .project = "p", .limit = 2, .sort_by = SortBy::kUpdatedAt, .ascending = true};
  auto page = store_->ListDrives(filter);
  ASSERT_TRUE(page);
  ASSERT_EQ(page->items.size(), 2U);
  EXPECT_EQ(page->items[0].name, "n2");
  filter.cursor = page->next;
  page = store_->ListDrives(filter);
  ASSERT_TRUE(page);
  ASSERT_EQ(page->items.size(), 1U);
  EXPECT_EQ(page->items[0].name, "n0");

  auto edit = [](Drive& d) -> Result<> {
    d.state = 4;
    d.deleted = true;
    return {};
  };
  ASSERT_TRUE(store_->EditDrive("drv_1", edit));
  EXPECT_EQ(store_->EditDrive("drv_9", edit).error().code, Code::kNotFound);
  EXPECT_FALSE(store_->FindDrive("t", "p", "n1")->has_value());
  EXPECT_EQ(store_->AllDrives()->at(1).state, 4);
  Drive reborn = **found;
  reborn.id = "drv_again";
  EXPECT_TRUE(store_->InsertDrive(reborn)) << "the name of a deleted one is free";
  ASSERT_TRUE(store_->ForgetDrive("drv_1"));
  EXPECT_EQ(store_->AllDrives()->size(), 3U);
}

TEST_F(SqliteStoreTest, Mounts) {
  Sandbox sandbox = MakeSandbox("a");
  sandbox.mounts = {{"/data", {"d", "read-write"}}, {"/o", {"e", "snapshot"}}};
  Session session = MakeSession(sandbox);
  session.mounts = {{"/data", "drv_1", true, 7}, {"/o", "drv_2", false, 2}};
  ASSERT_TRUE(store_->CreateSandbox(sandbox, session, ""));
  Open();
  EXPECT_EQ((*store_->FindSandbox(KeyOf(sandbox)))->mounts, sandbox.mounts);
  EXPECT_EQ(store_->UnfinishedSessions()->at(0).mounts, session.mounts);
}

TEST_F(SqliteStoreTest, Commands) {
  Add(MakeSandbox("a"));
  for (int i = 0; i < 3; ++i) {
    Command c{"cmd_" + std::to_string(i), "sbx_a", "sh", "/", {}, 7, {}, {}, false, false};
    ASSERT_TRUE(store_->InsertCommand(c));
  }
  Command done{"cmd_1", "sbx_a", "sh", "/", {}, 7, 0, 3, false, false};
  ASSERT_TRUE(store_->UpdateCommand(done));
  auto all = *store_->ListCommands("sbx_a");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].id, "cmd_2") << "newest first, also within one millisecond";
  EXPECT_EQ(store_->UnfinishedCommands("sbx_a")->size(), 2U);
  ASSERT_TRUE(store_->DeleteCommand("cmd_0"));
  EXPECT_EQ(store_->ListCommands("sbx_a")->size(), 2U);
  Command orphan{"cmd_9", "sbx_none", "sh", "/", {}, 7, {}, {}, false, false};
  EXPECT_FALSE(store_->InsertCommand(orphan)) << "foreign keys are on";
}

TEST_F(SqliteStoreTest, ClaimingAPoolMemberIsPartOfTheCreate) {
  ASSERT_TRUE(store_->InsertPoolMember({"p-1", "img", 2, 5}));
  Add(MakeSandbox("taken"));
  Sandbox clash = MakeSandbox("taken");
  clash.current_session = "sbx_x";
  EXPECT_FALSE(store_->CreateSandbox(clash, MakeSession(clash), "p-1"));
  EXPECT_EQ(store_->PoolMembers()->size(), 1U) << "a failed create claims nothing";
  Sandbox fresh = MakeSandbox("fresh");
  ASSERT_TRUE(store_->CreateSandbox(fresh, MakeSession(fresh), "p-1"));
  EXPECT_TRUE(store_->PoolMembers()->empty());
  Sandbox late = MakeSandbox("late");
  EXPECT_FALSE(store_->CreateSandbox(late, MakeSession(late), "p-1")) << "never twice";
  EXPECT_FALSE(*store_->FindSandbox(KeyOf(late)));
}

TEST_F(SqliteStoreTest, Keys) {
  Key key{.id = "key_1", .sha256_hex = "ab", .name = "ci", .team = "t", .project = "p", .created_at = 5};
  key.role = KeyRole::kOperator;
  key.expires_at = 70;
  key.made_by = "key_0";
  key.ends_with = "key_9";
  ASSERT_TRUE(store_->InsertKey(key));
  key.id = "key_2";
  EXPECT_EQ(store_->InsertKey(key).error().code, Code::kConflict) << "two keys with one secret";
  auto use = [](Key& k) -> Result<> {
    k.last_used_at = 60;
    k.revoked_at = 65;
    return {};
  };
  ASSERT_TRUE(store_->EditKey("key_1", use));
  EXPECT_EQ(store_->EditKey("key_3", use).error().code, Code::kNotFound);
  auto refuse = [](Key& k) -> Result<> {
    k.role = KeyRole::kAdmin;
    return Fail(Code::kForbidden, "no");
  };
  EXPECT_EQ(store_->EditKey("key_1", refuse).error().code, Code::kForbidden);
  Open();
  auto all = store_->AllKeys();
  ASSERT_TRUE(all && all->size() == 1);
  const Key& kept = all->front();
  EXPECT_EQ(kept.sha256_hex, "ab");
  EXPECT_EQ(kept.name + kept.team + kept.project + kept.made_by, "citpkey_0");
  EXPECT_EQ(kept.ends_with, "key_9");
  EXPECT_EQ(kept.role, KeyRole::kOperator);
  EXPECT_EQ(kept.expires_at, 70);
  EXPECT_EQ(kept.revoked_at, 65);
  EXPECT_EQ(kept.last_used_at, 60);
}

TEST_F(SqliteStoreTest, ANewerSchemaIsRefused) {
  store_.reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(File().c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version = 999", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  auto r = OpenSqlite(File());
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message, HasSubstr("newer sandbar"));
  EXPECT_THAT(r.error().message, HasSubstr("999"));
}

TEST_F(SqliteStoreTest, DamageIsSaidAtOpen) {
  for (int i = 0; i < 200; ++i) Add(MakeSandbox("s" + std::to_string(i)));
  store_.reset();
  {
    std::ofstream out(dir_ + "/garbage.db");
    for (int i = 0; i < 1000; ++i) out << "this is no database ";
  }
  auto garbage = OpenSqlite(dir_ + "/garbage.db");
  ASSERT_FALSE(garbage);
  EXPECT_THAT(garbage.error().message, HasSubstr("damaged"));
  {
    std::fstream f(File(), std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(4096);
    for (int i = 0; i < 3000; ++i) f << "scribble";
  }
  auto torn = OpenSqlite(File());
  ASSERT_FALSE(torn);
  EXPECT_THAT(torn.error().message, HasSubstr("damaged"));
  EXPECT_FALSE(OpenSqlite(dir_ + "/no/such/dir.db"));
}

TEST(JsonText, CursorsAreOpaqueAndChecked) {
  Cursor c{.listing = "x/asc", .text = "name", .number = -5, .row = 1LL << 40};
  std::string text = EncodeCursor(c);
  EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
            std::string::npos);
  auto back = DecodeCursor(text, "x/asc");
  ASSERT_TRUE(back);
  EXPECT_EQ(std::tie(back->text, back->number, back->row), std::tie(c.text, c.number, c.row));
  EXPECT_FALSE(DecodeCursor(text, "x/desc"));
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(DecodeCursor(text.substr(0, n), "x/asc")) << n;
  EXPECT_FALSE(DecodeCursor(std::string(5000, 'A'), "x/asc"));
}

TEST(JsonText, StatusNames) {
  for (Status s : {Status::kPending, Status::kRunning, Status::kStopping, Status::kStopped, Status::kFailed,
                   Status::kAborted, Status::kSnapshotting}) {
    EXPECT_EQ(StatusFromName(StatusName(s)), s);
  }
  EXPECT_FALSE(StatusFromName("sleeping"));
}

TEST_F(SqliteStoreTest, DeletedValuesLeaveTheFiles) {
  // Long ones fill pages of their own, short ones are cells among others.
  const std::string canaries[] = {"canary-short", "canary-long-" + std::string(20'000, 'x'), "canary-old-value",
                                  "canary-notice"};
  Sandbox s = MakeSandbox("box");
  s.tags = {{"a", canaries[0]}, {"b", canaries[1]}, {"c", canaries[2]}};
  Add(MakeSandbox("neighbour"));
  Add(s);
  Command c;
  c.id = "cmd_1";
  c.session = s.current_session;
  c.name = canaries[0];
  ASSERT_TRUE(store_->InsertCommand(c));
  ASSERT_TRUE(store_->AddNotice({1, "t", "p", "box", canaries[3]}));
  auto replace = [](Sandbox& row) -> Result<> {
    row.tags["c"] = "new";
    return {};
  };
  ASSERT_TRUE(store_->EditSandbox(KeyOf(s), replace));
  auto found = [&] {
    std::string all;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      std::ifstream file(entry.path(), std::ios::binary);
      all.append(std::istreambuf_iterator<char>(file), {});
    }
    std::string names;
    for (const std::string& canary : canaries)
      if (all.contains(canary.substr(0, 12))) names += canary.substr(0, 12) + " ";
    return names;
  };
  EXPECT_EQ(found(), "canary-short canary-long- canary-old-v canary-notic ");
  ASSERT_TRUE(store_->DeleteSandbox(KeyOf(s)));
  ASSERT_TRUE(store_->PurgeLog());
  EXPECT_EQ(found(), "");
  EXPECT_TRUE(store_->FindSandbox({"t", "p", "neighbour"})->has_value());
}

}  // namespace
}  // namespace sandbar::store
