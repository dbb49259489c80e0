// Drives: directories that outlive machines, one writer at a time, and drive snapshots for any number of readers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kNoLimit = 1ULL << 60;  // more than any disk: held by the disk itself

class DriveTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    Begin();
  }
  void Begin() {
    // "older": a kernel that takes overlay's layers by path only and has no simple quotas.
    const bool older = std::string_view(GetParam()) == "older";
    std::vector<std::string> options = {"--disk-limit", older ? "btrfs" : GetParam()};
    if (older) options.insert(options.end(), {"--force-fallback", "overlay,quota"});
    ASSERT_EQ(host_->StartSpawner(options), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    ASSERT_TRUE(client_->Call(HelloReq{}));
  }
  bool plain() const { return std::string_view(GetParam()) == "none"; }
  Result<> Start(const std::string& id, std::vector<DriveMount> mounts, std::vector<std::string> snapshots = {}) {
    BootReq boot = TestHost::SmallMachine(id);
    if (plain()) boot.limits.disk_bytes = 0;
    SB_TRYV(client_->Call(boot));
    ConfigureReq configure = TestHost::Image(id);
    configure.mounts = std::move(mounts);
    configure.snapshots = std::move(snapshots);
    SB_TRYV(client_->Call(configure));
    return {};
  }
  static DriveMount Writable(const std::string& path, const std::string& drive = "drv_a") {
    return {drive, path, true, 1000, 1000};
  }
  static DriveMount ReadOnly(const std::string& path, const std::string& snapshot) {
    return {snapshot, path, false, 0, 0};
  }
  Result<> Make(const std::string& drive, uint64_t bytes = kNoLimit) {
    SB_TRYV(client_->Call(CreateDriveReq{drive, bytes}));
    return {};
  }
  Result<> SnapshotDrive(const std::string& drive, const std::string& snapshot) {
    SB_TRYV(client_->Call(SnapshotDriveReq{drive, snapshot}));
    return {};
  }
  Result<> End(const std::string& id) {
    SB_TRYV(client_->Call(DestroyReq{id, ""}));
    return {};
  }
  std::string Run(const std::string& id, const std::string& script) {
    return host_->Run(id, script).value_or("no answer");
  }
  std::vector<std::string> List() {
    auto answer = client_->Call(ListDrivesReq{});
    if (!answer) return {"error: " + answer.error().message};
    return std::get<SnapshotsResp>(answer->body).snapshots;
  }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_P(DriveTest, WhatOneMachineWroteTheNextOneHas) {
  ASSERT_TRUE(Make("drv_a"));
  ASSERT_TRUE(Make("drv_a")) << "twice is once";
  auto started = Start("m1", {Writable("/mnt/deep/data")});
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(Run("m1", "stat -c '%u:%g %a' /mnt/deep/data /mnt/deep"), "1000:1000 755\n0:0 755\nexit:0\n");
  EXPECT_EQ(Run("m1",
                "cd /mnt/deep/data; echo one > f; chown 7:8 f; chmod 640 f; mkdir d; ln -s f l; ln f h; mkfifo p; "
                "mv d e; echo x > e/x; rm e/x; sync"),
            "exit:0\n");
  EXPECT_EQ(Start("m2", {Writable("/data")}).error().code, Code::kConflict);
  ASSERT_TRUE(End("m2"));
  ASSERT_TRUE(End("m1"));
  started = Start("m3", {Writable("/data")});
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(Run("m3", "cd /data; cat f; stat -c '%u:%g %a %h' f; readlink l; ls; ls e"),
            "one\n7:8 640 2\nf\ne\nf\nh\nl\np\nexit:0\n");
  // Root inside may take the drive over for good.
  EXPECT_EQ(Run("m3", "chown 0:0 /data; chmod 700 /data/e"), "exit:0\n");
}

TEST_P(DriveTest, ReadersSeeTheStateAndNotTheWriter) {
  ASSERT_TRUE(Make("drv_a"));
  ASSERT_TRUE(Start("w", {Writable("/data")}));
  EXPECT_EQ(Run("w", "echo one > /data/f; mkfifo /data/p; chmod 666 /data/p"), "exit:0\n");
  EXPECT_EQ(SnapshotDrive("drv_a", "drv_a-1").error().code, Code::kConflict) << "somebody writes";
  ASSERT_TRUE(End("w"));
  auto taken = SnapshotDrive("drv_a", "drv_a-1");
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_TRUE(SnapshotDrive("drv_a", "drv_a-1")) << "twice is once";
  EXPECT_THAT(List(), ElementsAre("drv_a", "drv_a-1"));

  ASSERT_TRUE(Start("w2", {Writable("/data")}));
  EXPECT_EQ(Run("w2", "echo two > /data/f; echo new > /data/n"), "exit:0\n");
  auto r1 = Start("r1", {ReadOnly("/data", "drv_a-1")});
  ASSERT_TRUE(r1) << r1.error().message;
  ASSERT_TRUE(Start("r2", {ReadOnly("/data", "drv_a-1")}));
  for (const char* id : {"r1", "r2"}) {
    EXPECT_EQ(Run(id, "cat /data/f; ls /data"), "one\nf\np\nexit:0\n");
    EXPECT_THAT(Run(id, "echo x > /data/f"), HasSubstr("Read-only file system"));
    EXPECT_THAT(Run(id, "mount -o remount,rw /data; umount /data; touch /data/x"), HasSubstr("exit:1"));
  }
  // A FIFO of a drive snapshot is each machine's own: what one writes, the other does not read.
  EXPECT_EQ(Run("r1", "sleep 100 <>/data/p >/dev/null 2>&1 & echo held"), "held\nexit:0\n");
  EXPECT_EQ(Run("r2", "echo secret 1<>/data/p"), "exit:0\n");
  EXPECT_EQ(Run("r1", "echo own 1<>/data/p; timeout 1 cat /data/p"), "own\nexit:143\n");

  EXPECT_EQ(client_->Call(RemoveDriveReq{"drv_a-1"}).error().code, Code::kConflict);
  EXPECT_EQ(client_->Call(RemoveDriveReq{"drv_a"}).error().code, Code::kConflict);
  for (const char* id : {"r1", "r2", "w2"}) ASSERT_TRUE(End(id));
  ASSERT_TRUE(client_->Call(RemoveDriveReq{"drv_a-1"}));
  EXPECT_THAT(List(), ElementsAre("drv_a"));
  ASSERT_TRUE(client_->Call(RemoveDriveReq{"drv_a"}));
  ASSERT_TRUE(client_->Call(RemoveDriveReq{"drv_a"}));
  EXPECT_THAT(List(), IsEmpty());
}

TEST_P(DriveTest, NoPrivilegeComesFromADrive) {
  ASSERT_TRUE(Make("drv_a"));
  ASSERT_TRUE(Start("m1", {Writable("/data")}));
  EXPECT_EQ(Run("m1", "cp /bin/busybox /data/echo; chmod 4755 /data/echo; stat -c %a /data/echo"), "4755\nexit:0\n");
  EXPECT_THAT(Run("m1", "grep ' /data ' /proc/mounts"), HasSubstr("nosuid,nodev"));
  EXPECT_THAT(Run("m1", "mknod /data/null c 1 3"), HasSubstr("exit:1"));
  EXPECT_THAT(Run("m1", "mknod /data/wh c 0 0"), HasSubstr("exit:1"));
  // Executable all the same.
  EXPECT_EQ(Run("m1", "/data/echo hello"), "hello\nexit:0\n");
  // Nothing of the host's disk shows.
  EXPECT_EQ(Run("m1", "grep -c 'drv_a\\|/store\\|loop' /proc/self/mountinfo"), "0\nexit:1\n");
}

TEST_P(DriveTest, ATreeOfAGuestCannotRedirectTheMount) {
  ASSERT_TRUE(Make("drv_a"));
  ASSERT_TRUE(Start("m1", {}));
  EXPECT_EQ(Run("m1", "ln -s /etc /data; mkdir /real; ln -s /real /way; touch /file"), "exit:0\n");
  ASSERT_TRUE(client_->Call(DestroyReq{"m1", "snap_a"}));
  int n = 0;
  for (const char* path : {"/data", "/data/sub", "/way/there", "/file", "/file/x"}) {
    const std::string id = "t" + std::to_string(n++);
    auto started = Start(id, {Writable(path)}, {"snap_a"});
    ASSERT_FALSE(started) << path;
    EXPECT_EQ(started.error().code, Code::kBadRequest) << path;
    EXPECT_THAT(started.error().message, HasSubstr("is not a directory in this sandbox"));
    ASSERT_TRUE(End(id));
  }
  for (const char* path : {"/proc/x", "/dev/shm", "relative", "/", ""}) {
    const std::string id = "t" + std::to_string(n++);
    EXPECT_FALSE(Start(id, {Writable(path)}, {"snap_a"})) << path;
    ASSERT_TRUE(End(id));
  }
  ASSERT_TRUE(Start("ok", {Writable("/real")}, {"snap_a"}));
  EXPECT_EQ(Run("ok", "echo x > /way/f; ls /real"), "f\nexit:0\n");
}

TEST_P(DriveTest, OutlivesTheSpawner) {
  ASSERT_TRUE(Make("drv_a"));
  ASSERT_TRUE(Start("m1", {Writable("/data")}));
  EXPECT_EQ(Run("m1", "echo kept > /data/f; sync"), "exit:0\n");
  client_->Close();
  host_->KillSpawner();
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_TRUE(SnapshotDrive("drv_a", "drv_a-1"));
  ASSERT_TRUE(Start("m2", {Writable("/data"), ReadOnly("/old", "drv_a-1")}));
  EXPECT_EQ(Run("m2", "cat /data/f /old/f"), "kept\nkept\nexit:0\n");
}

TEST_P(DriveTest, TheLimitHoldsInsideOnly) {
  if (plain()) {
    EXPECT_EQ(Make("drv_s", 16 << 20).error().code, Code::kUnsupported) << "never promised without being held";
    return;
  }
  ASSERT_TRUE(Make("drv_s", 16 << 20));
  ASSERT_TRUE(Make("drv_b"));
  ASSERT_TRUE(Start("m1", {Writable("/small", "drv_s"), Writable("/big", "drv_b")}));
  EXPECT_THAT(Run("m1", "dd if=/dev/zero of=/small/f bs=1M count=40 2>&1 && sync"), HasSubstr("uota"));
  EXPECT_EQ(Run("m1", "dd if=/dev/zero of=/big/f bs=1M count=40 2>/dev/null && echo fits"), "fits\nexit:0\n");
  EXPECT_EQ(Run("m1", "rm /small/f; sync; sleep 1; echo again > /small/f && cat /small/f"), "again\nexit:0\n");
}

TEST_P(DriveTest, BadNamesAreRefused) {
  EXPECT_EQ(Make("../x").error().code, Code::kBadRequest);
  ASSERT_TRUE(Make("drv_a"));
  EXPECT_EQ(SnapshotDrive("drv_a", "../y").error().code, Code::kBadRequest);
  EXPECT_EQ(SnapshotDrive("drv_none", "drv_n-1").error().code, Code::kNotFound);
  EXPECT_EQ(Start("m1", {Writable("/data", "../../machines")}).error().code, Code::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Disks, DriveTest, testing::Values("btrfs", "none", "older"));

}  // namespace
}  // namespace sandbar::spawner
