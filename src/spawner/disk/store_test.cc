// The store is everybody's: what a project may have of it, what nobody can take, and what a machine's limit counts.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/btrfs.h"
#include "os/openat.h"
#include "spawner/disk/store_groups.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr uint64_t kMiB = 1ULL << 20, kGiB = 1ULL << 30;

// Fills the disk by promises alone, in smaller and smaller pieces.
constexpr const char* kBomb =
    "i=0; for size in 1T 1G 128M 16M 1M; do while fallocate -l $size /opt/f$i 2>/dev/null; do i=$((i+1)); done; "
    "rm -f /opt/f$i; done";

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    Begin();
  }
  void Begin() {
    ASSERT_EQ(host_->StartSpawner({"--disk-pool-bytes", std::to_string(512 * kMiB)}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    ASSERT_TRUE(client_->Call(HelloReq{}));
  }
  Result<> Boot(const std::string& id, uint64_t project, uint64_t budget, uint64_t limit = 0) {
    BootReq boot = TestHost::SmallMachine(id);
    boot.limits.disk_bytes = limit;
    boot.project = project;
    boot.project_bytes = budget;
    SB_TRYV(client_->Call(boot));
    return {};
  }
  Result<> Start(const std::string& id, uint64_t project, uint64_t budget, uint64_t limit = 0,
                 std::vector<std::string> snapshots = {}, uint64_t inherited = 0) {
    SB_TRYV(Boot(id, project, budget, limit));
    ConfigureReq configure = TestHost::Image(id);
    configure.snapshots = std::move(snapshots);
    configure.inherited_bytes = inherited;
    SB_TRYV(client_->Call(configure));
    return {};
  }
  std::string Run(const std::string& id, const std::string& script) {
    return host_->Run(id, script).value_or("no answer");
  }
  Result<> Destroy(const std::string& id, const std::string& keep_as = "") {
    SB_TRYV(client_->Call(DestroyReq{id, keep_as}));
    return {};
  }
  // Some directory of the store.
  Fd Store(const std::string& machine) {
    auto dir = os::OpenPath(host_->UpperOf(machine), O_RDONLY | O_DIRECTORY);
    return dir ? std::move(*dir) : Fd();
  }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(StoreTest, AProjectHasItsBudgetInAllItsMachinesTogetherAndOthersHaveTheirs) {
  ASSERT_TRUE(Start("m1", 7, 100 * kMiB));
  ASSERT_TRUE(Start("m2", 7, 100 * kMiB));
  ASSERT_TRUE(Start("m3", 8, 100 * kMiB));
  EXPECT_EQ(Run("m1", "fallocate -l 70M /opt/f"), "exit:0\n");
  EXPECT_THAT(Run("m2", "fallocate -l 70M /opt/f"), EndsWith("exit:1\n"));
  EXPECT_EQ(Run("m3", "fallocate -l 70M /opt/f"), "exit:0\n");
  // A snapshot goes on counting, and so does what stands on it.
  ASSERT_TRUE(Destroy("m1", "snap_a"));
  ASSERT_TRUE(Start("m4", 7, 100 * kMiB, 0, {"snap_a"}));
  EXPECT_THAT(Run("m4", "fallocate -l 70M /opt/g"), EndsWith("exit:1\n"));
  EXPECT_EQ(Run("m4", "fallocate -l 20M /opt/g"), "exit:0\n");
  // The cause gone, the room is back.
  ASSERT_TRUE(Destroy("m4"));
  ASSERT_TRUE(client_->Call(RemoveSnapshotReq{"snap_a", false}));
  EXPECT_TRUE(Eventually([&] { return Run("m2", "fallocate -l 70M /opt/f") == "exit:0\n"; }));
}

TEST_F(StoreTest, WhoIsOverItsBudgetGetsNoMachineUntilItIsNot) {
  ASSERT_TRUE(Start("m1", 7, 60 * kMiB));
  EXPECT_THAT(Run("m1", "dd if=/dev/zero of=/opt/f bs=1M count=100 conv=fsync"), EndsWith("exit:1\n"));
  Result<> refused;
  // The kernel has counted a write when it is on disk.
  ASSERT_TRUE(Eventually([&] {
    refused = Boot("m2", 7, 50 * kMiB);
    return !refused || !Destroy("m2");
  }));
  EXPECT_EQ(refused.error().code, Code::kQuota) << refused.error().message;
  EXPECT_THAT(refused.error().message, HasSubstr("budget is 50 MiB"));
  auto drive = client_->Call(CreateDriveReq{"drv_a", kGiB, 7, 50 * kMiB});
  ASSERT_FALSE(drive);
  EXPECT_EQ(drive.error().code, Code::kQuota);
  EXPECT_TRUE(Boot("m3", 8, 50 * kMiB)) << "another project";
  ASSERT_TRUE(Destroy("m1"));
  EXPECT_TRUE(Eventually([&] { return Boot("m4", 7, 50 * kMiB).has_value(); }));
}

TEST_F(StoreTest, PromisesOfEverythingTakeNeitherTheReserveNorTheServer) {
  ASSERT_TRUE(Start("hog", 7, kGiB));
  ASSERT_TRUE(Start("other", 8, kGiB));
  EXPECT_EQ(Run("hog", kBomb), "exit:0\n");
  Fd store = Store("hog");
  ASSERT_TRUE(store);
  auto space = os::SpaceOf(store.get());
  ASSERT_TRUE(space);
  EXPECT_GT(space->metadata_free + space->unallocated, 8 * kMiB) << "data took the room of metadata";
  EXPECT_GT(space->data_free + space->unallocated, 8 * kMiB);
  // Many small files, which take metadata alone.
  EXPECT_THAT(Run("hog",
                  "mkdir /opt/small; i=0; while echo x > /opt/small/$i; do i=$((i+1)); done 2>/dev/null; "
                  "[ $i -lt 200000 ]"),
              EndsWith("exit:0\n"));
  auto refused = Boot("late", 9, kGiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace) << refused.error().message;
  // Nothing of the server's needs room that is not there: a stop with its files kept, too.
  ASSERT_TRUE(Destroy("other", "snap_other"));
  store.Reset();
  ASSERT_TRUE(Destroy("hog"));
  EXPECT_TRUE(Eventually([&] { return Start("after", 9, kGiB).has_value(); }));
  EXPECT_TRUE(Eventually([&] { return Run("after", "fallocate -l 100M /opt/f") == "exit:0\n"; }));
}

TEST_F(StoreTest, AMachineThatWasBootedForNobodyIsItsProjectsWhenItIsClaimed) {
  ASSERT_TRUE(Start("m1", 0, 0));
  EXPECT_EQ(Run("m1", "dd if=/dev/zero of=/opt/f bs=1M count=30 conv=fsync 2>/dev/null"), "exit:0\n");
  ASSERT_TRUE(client_->Call(AssignReq{"m1", 7, 50 * kMiB}));
  EXPECT_THAT(Run("m1", "fallocate -l 30M /opt/g"), EndsWith("exit:1\n"));
  EXPECT_EQ(Run("m1", "fallocate -l 10M /opt/g"), "exit:0\n");
  Fd store = Store("m1");
  auto counted = os::QuotaGroupUsage(store.get(), os::GroupId(1, 7));
  ASSERT_TRUE(counted);
  EXPECT_GE(*counted, 30 * kMiB);
}

TEST_F(StoreTest, WhatASnapshotHoldsCountsForWhoStandsOnIt) {
  constexpr uint64_t kLimit = 64 * kMiB, kBudget = 400 * kMiB;
  ASSERT_TRUE(Start("m1", 7, kBudget, kLimit));
  EXPECT_EQ(Run("m1", "fallocate -l 40M /opt/f"), "exit:0\n");
  ASSERT_TRUE(Destroy("m1", "snap_a"));
  ASSERT_TRUE(Start("m2", 7, kBudget, kLimit, {"snap_a"}, 40 * kMiB));
  EXPECT_THAT(Run("m2", "fallocate -l 40M /opt/g"), EndsWith("exit:1\n")) << "80 MiB in a limit of 64";
  EXPECT_EQ(Run("m2", "fallocate -l 15M /opt/g"), "exit:0\n");
  // The server's figure is too low now. It holds until the machine was measured, which happens soon.
  SetLimitsReq limits{"m2", TestHost::SmallMachine("m2").limits, 10 * kMiB};
  limits.limits.disk_bytes = kLimit;
  ASSERT_TRUE(client_->Call(limits));
  EXPECT_TRUE(Eventually([&] { return Run("m2", "fallocate -l 30M /opt/h && rm /opt/h").ends_with("exit:1\n"); }));
  // A figure that is too high is corrected too.
  ASSERT_TRUE(Start("m3", 7, kBudget, kLimit, {"snap_a"}, 60 * kMiB));
  EXPECT_TRUE(Eventually([&] { return Run("m3", "fallocate -l 20M /opt/g") == "exit:0\n"; }));
  ASSERT_TRUE(Destroy("m3"));
  // One that is full already still starts, and can delete.
  ASSERT_TRUE(Start("m4", 7, kBudget, 2 * kLimit));
  EXPECT_EQ(Run("m4", "fallocate -l 66M /opt/f"), "exit:0\n");
  ASSERT_TRUE(Destroy("m4", "snap_b"));
  ASSERT_TRUE(Start("m5", 7, kBudget, kLimit, {"snap_b"}, kLimit + 2 * kMiB));
  EXPECT_THAT(Run("m5", "fallocate -l 12M /opt/g"), EndsWith("exit:1\n"));
  EXPECT_EQ(Run("m5", "rm /opt/f && echo x > /opt/x && cat /opt/x"), "x\nexit:0\n");
}

TEST_F(StoreTest, GroupsGoWithTheLastThatTheyCounted) {
  ASSERT_TRUE(Start("m1", 7, kGiB));
  ASSERT_TRUE(Start("m2", 8, kGiB));
  EXPECT_EQ(Run("m1", "dd if=/dev/zero of=/opt/f bs=1M count=3 conv=fsync 2>/dev/null"), "exit:0\n");
  Fd store = Store("m2");
  auto has = [&](uint64_t group) {
    auto groups = os::ListQuotaGroups(store.get());
    return groups && std::ranges::find(*groups, group) != groups->end();
  };
  EXPECT_TRUE(has(os::GroupId(1, 7)));
  ASSERT_TRUE(Destroy("m1"));
  EXPECT_TRUE(Eventually([&] { return !has(os::GroupId(1, 7)); }));
  EXPECT_TRUE(has(os::GroupId(1, 8)));
  // What a process leaves behind that was killed, the next one finds.
  store.Reset();
  host_->KillSpawner();
  client_.reset();
  Begin();
  ASSERT_TRUE(Start("m3", 9, kGiB));
  store = Store("m3");
  EXPECT_TRUE(Eventually([&] { return !has(os::GroupId(1, 8)); }));
}

TEST(StoreSpaceTest, FollowsTheScarcestOfThree) {
  os::BtrfsSpace space;
  space.total = 100 * kGiB;
  space.unallocated = 50 * kGiB;
  space.data_free = 10 * kGiB;
  space.metadata_free = kGiB;
  space.used = 30 * kGiB;
  const StoreSpace room = SpaceOf(space, 500 * kGiB, 1000 * kGiB, 30 * kGiB);
  EXPECT_GT(room.left, 50 * kGiB);
  EXPECT_LT(room.left, 51 * kGiB) << "metadata";
  EXPECT_LT(SpaceOf(space, 20 * kGiB, 1000 * kGiB, 30 * kGiB).left, 19 * kGiB) << "the disk below";
  EXPECT_LT(SpaceOf(space, 20 * kGiB, 1000 * kGiB, 15 * kGiB).left, 4 * kGiB) << "promised, not yet written";
  EXPECT_EQ(SpaceOf(space, kGiB, 1000 * kGiB, 30 * kGiB).left, 0U);
  space.unallocated = 0;
  space.data_free = 60 * kGiB;
  EXPECT_LT(SpaceOf(space, 500 * kGiB, 1000 * kGiB, 30 * kGiB).left, kGiB) << "no room for small files";
  EXPECT_GT(SpaceOf(space, 500 * kGiB, 1000 * kGiB, 30 * kGiB).left, kGiB / 2);
}

}  // namespace
}  // namespace sandbar::spawner
