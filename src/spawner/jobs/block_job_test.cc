// From directories to block devices: what the spawner makes of snapshots and drives that machines of class 1 left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "os/openat.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

using testing::HasSubstr;

std::string Kernel() {
  const char* cache = std::getenv("SANDBAR_CACHE");
  return std::string(cache != nullptr ? cache : "/var/cache/sandbar") + "/kernel";
}

class BlockTest : public testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    ASSERT_EQ(host_->StartSpawner({"--disk-limit", "btrfs", "--kernel", Kernel()}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    auto hello = client_->Call(HelloReq{});
    ASSERT_TRUE(hello);
    const auto& engines = std::get<HelloResp>(hello->body).engines;
    for (const EngineEntry& e : engines)
      if (e.id == kMicrovmEngine && e.usable) return;
    GTEST_SKIP() << "no microVMs here";
  }
  Code Refusal(Request request) {
    auto answer = client_->Call(std::move(request));
    EXPECT_FALSE(answer);
    return answer ? Code::kInternal : answer.error().code;
  }
  std::string Format(const std::string& drive) {
    auto answer = client_->Call(DriveFormatReq{drive});
    return answer ? std::get<SnapshotsResp>(answer->body).snapshots.front() : answer.error().message;
  }
  // A machine of class 1 that runs this and leaves a snapshot.
  void Leave(const std::string& snapshot, const std::string& script, std::vector<DriveMount> mounts = {}) {
    BootReq boot = TestHost::SmallMachine("m-" + snapshot);
    boot.limits.disk_bytes = 200 << 20;
    ASSERT_TRUE(client_->Call(boot));
    ConfigureReq configure = TestHost::Image("m-" + snapshot);
    configure.mounts = std::move(mounts);
    auto configured = client_->Call(configure);
    ASSERT_TRUE(configured) << configured.error().message;
    auto said = host_->Run("m-" + snapshot, script);
    ASSERT_TRUE(said);
    ASSERT_THAT(*said, HasSubstr("exit:0"));
    ASSERT_TRUE(client_->Call(DestroyReq{"m-" + snapshot, snapshot}));
  }
  // What debugfs says about a device that the host made and no guest has seen.
  std::string Look(const std::string& place, const std::string& command) {
    const std::string store = "/proc/" + std::to_string(host_->spawner_pid()) + "/root/run/sandbar/mnt/store/";
    const std::string line = "debugfs -R '" + command + "' " + store + place + "/upper/disk.img 2>&1";
    std::string out;
    FILE* pipe = ::popen(line.c_str(), "r");
    char text[512];
    while (pipe != nullptr && std::fgets(text, sizeof text, pipe) != nullptr) out += text;
    if (pipe != nullptr) ::pclose(pipe);
    return out;
  }

  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(BlockTest, ASnapshotAsADevice) {
  Leave("snap_a", "mkdir /d && echo hello > /d/f && chown 12:34 /d/f && chmod 4750 /d/f && ln -s f /d/l && rm /bin/sh");
  ASSERT_TRUE(client_->Call(ToBlockReq{"snap_a", "snap_a-block", false, 64 << 20}));
  ASSERT_TRUE(client_->Call(ToBlockReq{"snap_a", "snap_a-block", false, 64 << 20})) << "done is done";
  EXPECT_THAT(Look("snapshots/snap_a-block", "stat /upper/d/f"),
              testing::AllOf(HasSubstr("Mode:  04750"), HasSubstr("User:    12   Group:    34")));
  EXPECT_THAT(Look("snapshots/snap_a-block", "cat /upper/d/f"), HasSubstr("hello"));
  EXPECT_THAT(Look("snapshots/snap_a-block", "stat /upper/bin/sh"), HasSubstr("character special")) << "a whiteout";
  EXPECT_EQ(Refusal(ToBlockReq{"snap_a-block", "again", false, 64 << 20}), Code::kConflict);
  EXPECT_EQ(Refusal(ToBlockReq{"nobody", "x", false, 0}), Code::kNotFound);
  EXPECT_EQ(Refusal(ToBlockReq{"snap_a", "../x", false, 0}), Code::kBadRequest);
}

TEST_F(BlockTest, WhatDoesNotFitIsRefusedAndLeavesNothing) {
  Leave("snap_b", "dd if=/dev/urandom of=/big bs=1M count=90 2>/dev/null");
  EXPECT_EQ(Refusal(ToBlockReq{"snap_b", "snap_b-block", false, 64 << 20}), Code::kNoSpace);
  auto left = client_->Call(ListSnapshotsReq{});
  ASSERT_TRUE(left);
  EXPECT_THAT(std::get<SnapshotsResp>(left->body).snapshots, testing::ElementsAre("snap_b"));
}

TEST_F(BlockTest, ADriveWithFilesIsUsedWhateverItsOwnerAndMode) {
  ASSERT_TRUE(client_->Call(CreateDriveReq{"drv_r", 32 << 20}));
  // What a drive looks like that nobody has used.
  Leave("snap_r", "echo kept > /data/f && chown 0:0 /data && chmod 700 /data", {{"drv_r", "/data", true, 0, 0}});
  EXPECT_EQ(Format("drv_r"), "dir");
}

TEST_F(BlockTest, ADriveTakesAnothersPlace) {
  ASSERT_TRUE(client_->Call(CreateDriveReq{"drv_a", 32 << 20}));
  EXPECT_EQ(Format("drv_a"), "") << "it may become either";
  Leave("snap_c", "echo hello > /data/f", {{"drv_a", "/data", true, 0, 0}});
  EXPECT_EQ(Format("drv_a"), "dir");
  auto made = client_->Call(ToBlockReq{"drv_a", "drv_a-new", true, 0});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(Format("drv_a-new"), "block");
  ASSERT_TRUE(client_->Call(ReplaceDriveReq{"drv_a", "drv_a-new"}));
  EXPECT_EQ(Format("drv_a"), "block");
  EXPECT_THAT(Format("drv_a-new"), HasSubstr("not on this host"));
  EXPECT_THAT(Look("drives/drv_a", "cat /upper/f"), HasSubstr("hello"));
  EXPECT_THAT(Look("drives/drv_a", "show_super_stats -h"), HasSubstr("Block count:              32768"));
  // A machine of class 1 does not get to see it.
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m-x")));
  ConfigureReq configure = TestHost::Image("m-x");
  configure.mounts = {{"drv_a", "/data", true, 0, 0}};
  auto refused = client_->Call(configure);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("block"), HasSubstr("dir")));
}

// It reads what guests wrote, so it has what reading takes and nothing else.
TEST_F(BlockTest, WhoeverMakesADeviceIsLockedIn) {
  Leave("snap_d",
        "mkdir /many && cd /many && dd if=/dev/urandom of=f bs=1M count=20 2>/dev/null && "
        "i=0; while [ $i -lt 1500 ]; do echo $i > $i; i=$((i+1)); done; true");
  auto read = [](const std::string& file) { return os::ReadFile(file, 1 << 20).value_or(""); };
  const std::string spawner = std::to_string(host_->spawner_pid());
  // It is soon over: stopped as soon as it is seen, and made again when it was missed.
  pid_t pid = 0;
  for (int i = 0; i < 20 && pid == 0; ++i) {
    client_->Send(ToBlockReq{"snap_d", "try" + std::to_string(i), false, 64 << 20}, 1000U + static_cast<uint32_t>(i));
    for (int look = 0; look < 2000 && pid == 0; ++look) {
      std::istringstream children(read("/proc/" + spawner + "/task/" + spawner + "/children"));
      for (pid_t child = 0; children >> child;)
        if (read("/proc/" + std::to_string(child) + "/cmdline").starts_with("mke2fs")) pid = child;
    }
  }
  ASSERT_NE(pid, 0) << "never seen";
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const std::string at = "/proc/" + std::to_string(pid);
  const std::string status = read(at + "/status");
  for (const char* line : {"CapPrm:\t0000000000200004", "CapEff:\t0000000000200004", "CapBnd:\t0000000000200004",
                           "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"})
    EXPECT_THAT(status, HasSubstr(line));
  for (const char* ns : {"mnt", "pid", "net", "ipc", "uts"})
    EXPECT_NE(std::filesystem::read_symlink(at + "/ns/" + ns),
              std::filesystem::read_symlink("/proc/" + spawner + "/ns/" + ns))
        << ns;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(at + "/root")) names.insert(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("dev", "lib", "lib64", "proc", "usr", "vm"));
  std::istringstream mounts(read(at + "/mountinfo"));
  for (std::string line; std::getline(mounts, line);)
    EXPECT_THAT(line, testing::ContainsRegex("^([^ ]+ ){5}ro,nosuid")) << "nothing to write to";
  for (const auto& entry : std::filesystem::directory_iterator(at + "/fd")) {
    const std::string file = std::filesystem::read_symlink(entry.path());
    EXPECT_TRUE(file.ends_with("null") || file.starts_with("/memfd:") || file.contains("/disk.") || file == "/" ||
                file.starts_with("/usr/lib/") || file.contains("snap_d") || file.contains("many"))
        << file;
  }
  ::kill(pid, SIGCONT);
}

}  // namespace
}  // namespace sandbar::spawner
