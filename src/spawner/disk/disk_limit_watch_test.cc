// A disk limit counts what a sandbox holds: what it deletes or writes anew of its snapshot counts no longer, and
// nothing else makes room.
#include "spawner/disk/disk_limit_watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/btrfs.h"
#include "os/btrfs_extents.h"
#include "os/openat.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::EndsWith;

constexpr uint64_t kMiB = 1ULL << 20;
constexpr uint64_t kSlack = 8 * kMiB;  // that a machine which starts full gets beyond its limit, to delete something
constexpr uint64_t kLimit = 768 * kMiB, kOld = 480 * kMiB;

// 48 files of ten mebibytes, in place or anew. A write that is faster than the spawner's watch fails at first, so the
// script tries it again.
std::string Write(const std::string& options) {
  return "n=0; for i in $(seq 48); do until dd if=/dev/zero of=/opt/f$i bs=1M count=10 " + options +
         " 2>/dev/null; do n=$((n+1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done; done";
}

class DiskLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    ASSERT_EQ(host_->StartSpawner({"--disk-limit", "btrfs", "--disk-pool-bytes", "3221225472"}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    ASSERT_TRUE(client_->Call(HelloReq{}));
  }
  void Start(const std::string& id, const std::string& snapshot = "", uint64_t inherited = 0, uint64_t limit = kLimit) {
    BootReq boot = TestHost::SmallMachine(id);
    boot.limits.memory_bytes = 1ULL << 30;
    boot.limits.disk_bytes = limit;
    ASSERT_TRUE(client_->Call(boot));
    ConfigureReq configure = TestHost::Image(id);
    configure.owner = "team";
    if (!snapshot.empty()) configure.snapshots = {snapshot};
    configure.inherited_bytes = inherited;
    auto started = client_->Call(configure);
    ASSERT_TRUE(started) << started.error().message;
  }
  void Keep(const std::string& id, const std::string& as) { ASSERT_TRUE(client_->Call(DestroyReq{id, as})); }
  std::string Run(const std::string& id, const std::string& script) {
    return host_->Run(id, script).value_or("no answer");
  }
  // A machine on a snapshot of 480 MiB, in a limit of 768.
  void Begin() {
    Start("m1");
    ASSERT_EQ(Run("m1", Write("")), "exit:0\n");
    Keep("m1", "snap_a");
    Start("m2", "snap_a", kOld);
  }
  Fd Slot(const std::string& id) {
    auto dir = os::OpenPath(host_->UpperOf(id) + "/..", O_RDONLY | O_DIRECTORY);
    EXPECT_TRUE(dir) << dir.error().message;
    return dir ? std::move(*dir) : Fd();
  }
  uint64_t Inherited(const std::string& id) {
    Fd slot = Slot(id);
    auto bytes = os::InheritedBytes(slot.get(), true);
    EXPECT_TRUE(bytes) << bytes.error().message;
    return bytes.value_or(0);
  }
  os::Held HeldBy(const std::string& id) {
    auto meter = os::QuotaMeter::Open(Slot(id));
    EXPECT_TRUE(meter) << meter.error().message;
    auto held = meter->Read();
    return held.value_or(os::Held{});
  }
  // What the machine holds in all, which its limit is about.
  uint64_t Total(const std::string& id) { return HeldBy(id).total() + Inherited(id); }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(DiskLimitTest, WhatIsWrittenAnewInPlaceCountsOnce) {
  Begin();
  EXPECT_EQ(Run("m2", Write("conv=notrunc")), "exit:0\n");
  EXPECT_EQ(Run("m2", Write("conv=notrunc")), "exit:0\n") << "once more";
  EXPECT_LE(Total("m2"), kLimit);
  EXPECT_THAT(Run("m2", "fallocate -l 300M /opt/more"), EndsWith("exit:1\n")) << "780 MiB in a limit of 768";
}

TEST_F(DiskLimitTest, WhatIsDeletedMakesRoom) {
  Begin();
  EXPECT_THAT(Run("m2", "fallocate -l 300M /opt/more"), EndsWith("exit:1\n")) << "780 MiB in a limit of 768";
  ASSERT_EQ(Run("m2", "rm /opt/f*"), "exit:0\n");
  EXPECT_TRUE(Eventually([&] { return Run("m2", "fallocate -l 700M /opt/more") == "exit:0\n"; }));
  EXPECT_LE(Total("m2"), kLimit);
}

TEST_F(DiskLimitTest, WhoStandsAtItsLimitGetsRoomByDeleting) {
  Begin();
  ASSERT_THAT(Run("m2", "dd if=/dev/zero of=/opt/more bs=1M count=400 conv=fsync"), EndsWith("exit:1\n"));
  ASSERT_EQ(Run("m2", "rm /opt/f1 /opt/f2 /opt/f3 /opt/f4 /opt/f5"), "exit:0\n");
  EXPECT_TRUE(Eventually(
      [&] { return Run("m2", "dd if=/dev/zero of=/opt/again bs=1M count=40 conv=fsync").ends_with("exit:0\n"); }));
  EXPECT_LE(Total("m2"), kLimit);
}

TEST_F(DiskLimitTest, NothingIsGainedOverManySessions) {
  Begin();
  std::string last = "snap_a";
  for (int i = 3; i < 7; ++i) {
    const std::string before = "m" + std::to_string(i - 1), id = "m" + std::to_string(i);
    // Old files anew, and more and more of others.
    Run(before, "for i in $(seq 48); do dd if=/dev/zero of=/opt/f$i bs=1M count=10 conv=notrunc 2>/dev/null; done");
    Run(before, "dd if=/dev/zero of=/opt/more" + std::to_string(i) + " bs=1M count=200 conv=fsync 2>/dev/null");
    // A session that begins full gets 1 MiB, without which it could not even delete. What of that is metadata counts up
    // to three times when it is inherited (os/btrfs_extents.h).
    EXPECT_LE(Total(before), kLimit + kSlack + static_cast<uint64_t>(i - 2) * 2 * kMiB) << "session " << i;
    last = "snap_" + std::to_string(i);
    Keep(before, last);
    // The server's figure is too low here. The spawner measures the machine and corrects it.
    Start(id, last, kOld);
  }
  EXPECT_TRUE(Eventually([&] { return Run("m6", "fallocate -l 100M /opt/last") != "exit:0\n"; }));
}

TEST_F(DiskLimitTest, SmallFilesThatHoldLargeExtentsGiveTheNextSessionNoRoom) {
  Start("m1");
  ASSERT_EQ(Run("m1", "for i in 1 2 3 4 5 6; do fallocate -l 100M /opt/f$i && truncate -s 4096 /opt/f$i || exit; done"),
            "exit:0\n");
  Keep("m1", "snap_a");
  // The server adds up the files, which are small.
  Start("m2", "snap_a", kMiB);
  EXPECT_NE(Run("m2", "fallocate -l 400M /opt/g"), "exit:0\n") << "before anybody has measured";
}

TEST_F(DiskLimitTest, WithoutAnyFigureOfTheServerALimitHoldsAndIsWatched) {
  Begin();
  Keep("m2", "snap_b");
  // The server has not scanned the snapshot yet, and the sessions before had committed nothing when they were asked.
  Start("m3", "snap_b", 0);
  EXPECT_NE(Run("m3", "fallocate -l 400M /opt/g"), "exit:0\n") << "480 MiB are there, in a limit of 768";
  EXPECT_EQ(Run("m3", Write("conv=notrunc")), "exit:0\n");
  EXPECT_LE(Total("m3"), kLimit + kSlack);
}

TEST_F(DiskLimitTest, AnExtentCountsInFullAsLongAsABlockOfItIsUsed) {
  Start("m1");
  ASSERT_EQ(Run("m1", "dd if=/dev/zero of=/opt/f bs=1M count=100 conv=fsync 2>/dev/null"), "exit:0\n");
  Keep("m1", "snap_a");
  // The server's figure is far too low: 1 MiB of 100.
  Start("m2", "snap_a", kMiB);
  ASSERT_EQ(Run("m2", "dd if=/dev/zero of=/opt/f bs=1M count=99 conv=notrunc,fsync 2>/dev/null"), "exit:0\n");
  EXPECT_GE(Inherited("m2"), 99 * kMiB);
  EXPECT_TRUE(Eventually([&] { return Run("m2", "fallocate -l 600M /opt/g && rm /opt/g") != "exit:0\n"; }));
}

TEST_F(DiskLimitTest, MeasurementsAgreeWithTheKernel) {
  Begin();
  Fd old = Slot("m2");
  EXPECT_GE(Inherited("m2"), kOld);
  EXPECT_LT(Inherited("m2"), kOld + 4 * kMiB);
  // New bytes do not count as inherited, even when they are committed right after the copy was made.
  ASSERT_EQ(Run("m2", "dd if=/dev/zero of=/opt/new bs=1M count=30 conv=fsync 2>/dev/null; rm /opt/f1 /opt/f2"),
            "exit:0\n");
  EXPECT_TRUE(Eventually([&] { return Inherited("m2") < kOld - 16 * kMiB; }));
  EXPECT_GE(Inherited("m2"), kOld - 20 * kMiB);
}

// --- when to look, without a disk ---

constexpr uint64_t kSandbox = 320 * kMiB, kOwn = 240 * kMiB;

DiskLimitPolicy Policy() {
  DiskLimitPolicy policy;
  policy.Set(kSandbox, kOwn);
  return policy;
}

// One measurement from its beginning to its end.
void Measure(DiskLimitPolicy& policy, int64_t now, uint64_t gain, uint64_t took_ms = 1) {
  policy.Began(now);
  policy.Gained(gain, took_ms);
  policy.Ended(now);
}

TEST(DiskLimitPolicyTest, WhoWritesIsMeasuredOnceAndThenNearItsLimit) {
  DiskLimitPolicy policy = Policy();
  policy.Look(0, {.counted = 1000});
  EXPECT_FALSE(policy.wants());
  policy.Look(1000, {.counted = 2 * kMiB});
  EXPECT_TRUE(policy.wants());
  policy.Began(0);
  policy.Look(2000, {.counted = 230 * kMiB});
  EXPECT_FALSE(policy.wants()) << "it is at it";
  policy.Gained(0, 1);
  policy.Ended(2000);
  policy.Look(10'000, {.counted = 20 * kMiB});
  EXPECT_FALSE(policy.wants()) << "there is room";
  policy.Look(11'000, {.counted = 20 * kMiB, .data = 160 * kMiB});
  EXPECT_TRUE(policy.wants()) << "what is promised counts";
}

TEST(DiskLimitPolicyTest, WhoChangesNothingIsNotMeasuredAgain) {
  DiskLimitPolicy policy = Policy();
  policy.Look(0, {.counted = kOwn});
  ASSERT_TRUE(policy.wants());
  Measure(policy, 0, 0);
  policy.Look(1'000'000, {.counted = kOwn});
  EXPECT_FALSE(policy.wants());
  policy.Look(1'000'001, {.counted = kOwn, .generation = 1});
  EXPECT_TRUE(policy.wants()) << "something was changed that takes no room";
}

TEST(DiskLimitPolicyTest, MeasuringForNothingIsDoneLessAndLessOftenButWithinSeconds) {
  DiskLimitPolicy policy = Policy();
  int64_t now = 0;
  int count = 0;
  uint64_t stir = 0;
  for (; now < 60'000; now += 10) {
    policy.Look(now, {.counted = kOwn, .metadata = ++stir});
    if (!policy.wants()) continue;
    Measure(policy, now, 0);
    ++count;
  }
  EXPECT_LT(count, 25);
  EXPECT_GT(count, 10);
  // After a gain the next measurement may follow soon, but not after one that took long.
  Measure(policy, now, 10 * kMiB);
  policy.Look(now + 200, {.counted = kOwn, .metadata = ++stir});
  EXPECT_TRUE(policy.wants());
  Measure(policy, now, 10 * kMiB, 2000);
  policy.Look(now + 20'000, {.counted = kOwn, .metadata = ++stir});
  EXPECT_FALSE(policy.wants());
}

TEST(DiskLimitPolicyTest, AMeasurementThatFailsIsNotTriedAgainAtOnce) {
  DiskLimitPolicy policy = Policy();
  policy.Look(0, {.counted = kOwn});
  ASSERT_TRUE(policy.wants());
  policy.Began(0);
  policy.Ended(60'000);
  policy.Look(600'000, {.counted = kOwn, .metadata = 1});
  EXPECT_FALSE(policy.wants());
  policy.Look(1'260'001, {.counted = kOwn, .metadata = 2});
  EXPECT_TRUE(policy.wants());
}

TEST(DiskLimitPolicyTest, LooksFollowTheRoomAndAreRareForWhoDoesNothing) {
  DiskLimitPolicy policy;
  policy.Set(8192 * kMiB, 8192 * kMiB);
  EXPECT_EQ(policy.Look(0, {.counted = kMiB}), 1000);
  policy = Policy();
  EXPECT_EQ(policy.Look(0, {.counted = 239 * kMiB}), 50);
  EXPECT_EQ(policy.Look(0, {.counted = 239 * kMiB}), 250);
}

}  // namespace
}  // namespace sandbar::spawner
