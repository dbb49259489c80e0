// Records of the directory: ids, versions, compare-and-set, and the asynchronous face.
#include "store/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "store/async_directory.h"
#include "support/store/store_test.h"

namespace sandbar::store {
namespace {

using testing::MakeSandbox;
using ::testing::StartsWith;

const SandboxKey kA{"t", "p", "a"};

SandboxEdit AddTag(std::string name) {
  return [name = std::move(name)](Sandbox& s) -> Result<> {
    s.tags[name] = "";
    return {};
  };
}

class DirectoryTest : public testing::StoreTest {
 protected:
  std::string Tags() {
    std::string out;
    for (const auto& [name, value] : (*store_->FindSandbox(kA))->tags) out += name;
    return out;
  }
};

TEST_F(DirectoryTest, EverySandboxHasAnIdOfItsOwn) {
  Sandbox given = MakeSandbox("a");
  given.id = NewSandboxId();
  EXPECT_THAT(given.id, StartsWith("sbid_"));
  Add(given);
  EXPECT_EQ((*store_->FindSandbox(kA))->id, given.id);
  EXPECT_EQ((*store_->FindSandboxById(given.id))->name, "a");
  Add(MakeSandbox("b"));
  const std::string made = (*store_->FindSandbox({"t", "p", "b"}))->id;
  EXPECT_THAT(made, StartsWith("sbid_"));
  EXPECT_NE(made, given.id);
  Sandbox copy = MakeSandbox("c");
  copy.id = given.id;
  EXPECT_EQ(store_->CreateSandbox(copy, testing::MakeSession(copy), "").error().code, Code::kConflict);
  EXPECT_FALSE(*store_->FindSandbox({"t", "p", "c"}));

  // One that gets the name later is another one.
  ASSERT_TRUE(store_->DeleteSandbox(kA));
  Add(MakeSandbox("a"));
  EXPECT_NE((*store_->FindSandbox(kA))->id, given.id);
  EXPECT_FALSE(*store_->FindSandboxById(given.id));
}

TEST_F(DirectoryTest, EveryWriteMakesTheVersionOneLarger) {
  Add(MakeSandbox("a"));
  EXPECT_EQ((*store_->FindSandbox(kA))->version, 1);
  EXPECT_EQ(store_->EditSandbox(kA, AddTag("x"))->version, 2);
  EXPECT_EQ((*store_->FindSandbox(kA))->version, 2);
  Session session = **store_->FindSession("sbx_a");
  EXPECT_EQ(store_->SaveSession(session, AddTag("y"))->version, 3);
  EXPECT_EQ(store_->SaveSession(session, nullptr)->version, 3) << "nothing was written";
  auto fail = [](Sandbox&) -> Result<> { return Fail(Code::kBadRequest, "no"); };
  EXPECT_FALSE(store_->EditSandbox(kA, fail));
  EXPECT_EQ((*store_->FindSandbox(kA))->version, 3);
  // Who it is and how often it was written is not an edit's to say.
  const std::string id = (*store_->FindSandbox(kA))->id;
  auto forge = [](Sandbox& s) -> Result<> {
    s.id = "sbid_other";
    s.version = 99;
    s.name = "other";
    return {};
  };
  auto edited = store_->EditSandbox(kA, forge);
  ASSERT_TRUE(edited) << edited.error().message;
  EXPECT_EQ(std::tie(edited->id, edited->version, edited->name), std::tuple(id, 4, "a"));
  EXPECT_EQ((*store_->FindSandbox(kA))->id, id);
}

TEST_F(DirectoryTest, AnEditRunsAgainOnWhatAnotherWriterLeft) {
  Add(MakeSandbox("a"));
  auto other = Another();
  int runs = 0;
  auto edit = [&](Sandbox& s) -> Result<> {
    if (++runs <= 2) {
      EXPECT_TRUE(other->EditSandbox(kA, AddTag(std::to_string(runs))));
    }
    s.tags["mine"] = "";
    return {};
  };
  auto edited = store_->EditSandbox(kA, edit);
  ASSERT_TRUE(edited) << edited.error().message;
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(edited->version, 4);
  EXPECT_EQ(Tags(), "12mine") << "neither writer lost anything";
}

TEST_F(DirectoryTest, AnEditGivesUpAfterSomeAttempts) {
  Add(MakeSandbox("a"));
  auto other = Another();
  int runs = 0;
  auto edit = [&](Sandbox& s) -> Result<> {
    ++runs;
    EXPECT_TRUE(other->EditSandbox(kA, AddTag("o")));
    s.tags["mine"] = "";
    return {};
  };
  auto edited = store_->EditSandbox(kA, edit);
  ASSERT_FALSE(edited);
  EXPECT_EQ(edited.error().code, Code::kConflict);
  EXPECT_EQ(runs, kMaxEditAttempts);
  EXPECT_EQ(Tags(), "o") << "nothing of it was written";
  EXPECT_TRUE(store_->EditSandbox(kA, AddTag("later")));
}

TEST_F(DirectoryTest, AnEditDoesNotReachAnotherSandboxOfTheName) {
  Add(MakeSandbox("a"));
  auto other = Another();
  auto edit = [&](Sandbox& s) -> Result<> {
    s.tags["mine"] = "";
    EXPECT_TRUE(other->DeleteSandbox(kA));
    Sandbox again = MakeSandbox("a");
    EXPECT_TRUE(other->CreateSandbox(again, testing::MakeSession(again), ""));
    return {};
  };
  EXPECT_EQ(store_->EditSandbox(kA, edit).error().code, Code::kNotFound);
  EXPECT_EQ(Tags(), "");
}

TEST_F(DirectoryTest, RoutesFollowTheRowOrNothingChanges) {
  Sandbox taken = MakeSandbox("taken");
  taken.routes = {{1, "sb-taken", ""}};
  Add(taken);
  Add(MakeSandbox("a"));
  auto clash = [](Sandbox& s) -> Result<> {
    s.routes = {{1, "sb-mine", ""}, {2, "sb-taken", ""}};
    return {};
  };
  EXPECT_FALSE(store_->EditSandbox(kA, clash));
  EXPECT_FALSE(*store_->FindSandboxBySubdomain("sb-mine"));
  EXPECT_TRUE((*store_->FindSandbox(kA))->routes.empty());
  EXPECT_EQ((*store_->FindSandbox(kA))->version, 1);
  EXPECT_EQ((*store_->FindSandboxBySubdomain("sb-taken"))->name, "taken");
}

TEST_F(DirectoryTest, RecordsWithoutSessions) {
  ASSERT_TRUE(store_->InsertSandbox(MakeSandbox("a")));
  EXPECT_EQ(store_->InsertSandbox(MakeSandbox("a")).error().code, Code::kConflict);
  Snapshot snapshot;
  snapshot.id = "snap_1";
  ASSERT_TRUE(store_->InsertSnapshot(snapshot));
  EXPECT_EQ(store_->InsertSnapshot(snapshot).error().code, Code::kConflict);
  ASSERT_TRUE(store_->RemoveSandbox(kA));
  ASSERT_TRUE(store_->RemoveSandbox(kA));
  EXPECT_EQ(*store_->CountSandboxes(), 0U);
}

// The same through the interface that the domain sees.
class AsyncDirectoryTest : public DirectoryTest {
 protected:
  ~AsyncDirectoryTest() override { pool_.join(); }
  template <class T>
  Result<T> Run(Task<T> task) {
    std::optional<Result<T>> out;
    Begin(std::move(task), &out);
    loop_.restart();
    loop_.run();
    return *std::move(out);
  }
  template <class T>
  void Begin(Task<T> task, std::optional<Result<T>>* out) {
    auto done = [out](std::exception_ptr e, Result<T> r) {
      SB_CHECK(!e);
      out->emplace(std::move(r));
    };
    asio::co_spawn(loop_.get_executor(), std::move(task), done);
  }

  asio::io_context loop_{1};
  asio::thread_pool pool_{1};
  AsyncDirectory rows_{store_.get(), &pool_};
  Directory& directory_ = rows_;
};

TEST_F(AsyncDirectoryTest, EveryCallReachesTheRows) {
  Sandbox box = MakeSandbox("a");
  box.routes = {{1, "sb-one", ""}};
  box.status = Status::kStopped;
  box.collect_after_ms = 1;
  ASSERT_TRUE(Run(directory_.InsertSandbox(box)));
  auto found = Run(directory_.FindSandbox(kA));
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*Run(directory_.FindSandboxById((*found)->id)))->name, "a");
  EXPECT_EQ((*Run(directory_.FindSandboxBySubdomain("sb-one")))->name, "a");
  EXPECT_EQ(Run(directory_.EditSandbox(kA, AddTag("x")))->version, 2);
  EXPECT_EQ(Run(directory_.EditSandbox({"t", "p", "none"}, AddTag("x"))).error().code, Code::kNotFound);
  EXPECT_EQ(Run(directory_.ListSandboxes({}))->items.size(), 1U);
  EXPECT_EQ(*Run(directory_.CountSandboxes()), 1U);
  EXPECT_EQ(Run(directory_.SandboxesToCollect(1'000'000))->size(), 1U);
  EXPECT_TRUE(Run(directory_.Usage())->empty());

  Snapshot snapshot;
  snapshot.id = "snap_2";
  snapshot.parent = "snap_1";
  ASSERT_TRUE(Run(directory_.InsertSnapshot(snapshot)));
  EXPECT_TRUE(Run(directory_.FindSnapshot("snap_2"))->has_value());
  auto remove = [](Snapshot& s) -> Result<> {
    s.deleted = true;
    return {};
  };
  EXPECT_TRUE(Run(directory_.EditSnapshot("snap_2", remove))->deleted);
  EXPECT_EQ(Run(directory_.ListSnapshots({}))->items.size(), 1U);
  EXPECT_EQ(Run(directory_.SnapshotChildren("snap_1"))->size(), 1U);
  EXPECT_EQ(Run(directory_.AllSnapshots())->size(), 1U);

  Drive drive;
  drive.id = "drv_1";
  drive.team = "t";
  drive.project = "p";
  drive.name = "d";
  ASSERT_TRUE(Run(directory_.InsertDrive(drive)));
  EXPECT_TRUE(Run(directory_.FindDrive("t", "p", "d"))->has_value());
  EXPECT_EQ(Run(directory_.ListDrives({}))->items.size(), 1U);
  auto next = [](Drive& d) -> Result<> {
    d.state = 4;
    return {};
  };
  EXPECT_EQ(Run(directory_.EditDrive("drv_1", next))->state, 4);
  EXPECT_EQ(Run(directory_.AllDrives())->size(), 1U);
  ASSERT_TRUE(Run(directory_.ForgetDrive("drv_1")));
  EXPECT_TRUE(Run(directory_.AllDrives())->empty());

  ASSERT_TRUE(Run(directory_.InsertKey({.id = "key_1", .sha256_hex = "ab", .name = "n"})));
  auto revoke = [](Key& k) -> Result<> {
    k.revoked_at = 9;
    return {};
  };
  EXPECT_EQ(Run(directory_.EditKey("key_1", revoke))->revoked_at, 9);
  EXPECT_EQ(Run(directory_.AllKeys())->at(0).revoked_at, 9);
  ASSERT_TRUE(Run(directory_.ForgetKey("key_1")));
  ASSERT_TRUE(Run(directory_.ForgetKey("key_1"))) << "again";
  EXPECT_TRUE(Run(directory_.AllKeys())->empty());
  ASSERT_TRUE(Run(directory_.RemoveSandbox(kA)));
  EXPECT_EQ(*Run(directory_.CountSandboxes()), 0U);
}

TEST_F(AsyncDirectoryTest, CallsMadeInOrderTakeEffectInOrderOffTheLoop) {
  Add(MakeSandbox("a"));
  constexpr int kEdits = 20;
  std::string order;  // only the pool's one thread writes it
  std::vector<std::optional<Result<Sandbox>>> edited(kEdits);
  for (int i = 0; i < kEdits; ++i) {
    auto edit = [&order, i, loop = std::this_thread::get_id()](Sandbox& s) -> Result<> {
      if (std::this_thread::get_id() == loop) return Fail(Code::kInternal, "on the loop's thread");
      order += static_cast<char>('a' + i);
      s.timeout_ms = i;
      return {};
    };
    Begin(directory_.EditSandbox(kA, std::move(edit)), &edited.at(static_cast<size_t>(i)));
  }
  loop_.run();
  for (int i = 0; i < kEdits; ++i) {
    const auto& r = edited.at(static_cast<size_t>(i));
    ASSERT_TRUE(r && *r) << i;
    EXPECT_EQ((*r)->version, i + 2);
  }
  EXPECT_EQ(order, "abcdefghijklmnopqrst");
  EXPECT_EQ((*Run(directory_.FindSandbox(kA)))->timeout_ms, kEdits - 1);
}

}  // namespace
}  // namespace sandbar::store
