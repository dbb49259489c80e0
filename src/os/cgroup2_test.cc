// Version 2 on a recorded tree: the control files of a 6.1 kernel with their first contents, under the kernel's rules
// for which of them a new group gets (what the parent's subtree_control lists) and when a group can be removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "os/cgroup_trees.h"

namespace sandbar::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::map<std::string, std::map<std::string, std::string>> kRecorded = {
    {"",
     {{"cgroup.procs", ""},
      {"cgroup.subtree_control", ""},
      {"cgroup.events", "populated 0\nfrozen 0\n"},
      {"cgroup.freeze", "0\n"},
      {"cgroup.kill", ""},
      {"cgroup.max.descendants", "max\n"},
      {"cgroup.max.depth", "max\n"},
      {"cpu.stat", "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"}}},
    {"cpu", {{"cpu.max", "max 100000\n"}, {"cpu.weight", "100\n"}}},
    {"memory",
     {{"memory.max", "max\n"},
      {"memory.swap.max", "max\n"},
      {"memory.oom.group", "0\n"},
      {"memory.current", "4096\n"},
      {"memory.peak", "8192\n"},
      {"memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n"}}},
    {"pids", {{"pids.max", "max\n"}, {"pids.current", "7\n"}}},
};

class RecordedFs final : public CgroupFs {
 public:
  struct Seen {
    std::set<std::string> delegated;
    int device_filters = 0;
    std::map<std::string, uint32_t> given;  // to another owner
    std::vector<std::string> moved;         // pids written to a cgroup.procs
    std::string busy;                       // a directory whose subtree_control answers EBUSY
  };
  explicit RecordedFs(Seen* seen) : seen_(seen) {}

  Result<> MakeDir(const std::string& path) override {
    SB_TRYV(CgroupFs::MakeDir(path));
    const std::string parent = path.substr(0, path.rfind('/'));
    SB_TRY(std::string enabled, Read(parent + "/cgroup.subtree_control"));
    for (const auto& [controller, files] : kRecorded) {
      if (!controller.empty() && enabled.find(controller) == std::string::npos) continue;
      for (const auto& [name, text] : files) std::ofstream(path + "/" + name) << text;
    }
    std::ofstream(path + "/cgroup.controllers") << enabled;
    return {};
  }

  Result<> RemoveDir(const std::string& path) override {
    if (!Exists(path)) return {};
    if (!SubDirs(path).empty() || !Read(path + "/cgroup.procs")->empty()) {
      return Fail(Code::kConflict, path + " still has members");
    }
    std::filesystem::remove_all(path);
    return {};
  }

  Result<> Write(const std::string& path, std::string_view text) override {
    if (!Exists(path)) return FailErrno("open " + path, ENOENT);
    if (path.ends_with("/cgroup.procs")) seen_->moved.emplace_back(text);
    if (path.ends_with("/cgroup.subtree_control")) return Enable(path, text);
    std::ofstream(path) << text << '\n';
    if (path.ends_with("/cgroup.freeze")) {
      std::ofstream(path.substr(0, path.rfind('/')) + "/cgroup.events") << "populated 1\nfrozen " << text << "\n";
    }
    return {};
  }

  Result<> AttachDevices(int, bool) override {
    ++seen_->device_filters;
    return {};
  }
  bool IsDelegated(const std::string& path) const override { return seen_->delegated.contains(path); }
  Result<> GiveAway(const std::string& path, uint32_t owner) override {
    seen_->given[path] = owner;
    return {};
  }

 private:
  Result<> Enable(const std::string& path, std::string_view text) {
    if (path == seen_->busy + "/cgroup.subtree_control") return FailErrno("write", EBUSY);
    SB_TRY(std::string available, Read(path.substr(0, path.rfind('/')) + "/cgroup.controllers"));
    SB_TRY(std::string now, Read(path));
    std::istringstream words{std::string(text)};
    std::string word;
    while (words >> word) {
      word.erase(0, 1);
      if (available.find(word) == std::string::npos) return FailErrno("write", ENOENT);
      if (now.find(word) == std::string::npos) now += word + " ";
    }
    std::ofstream(path) << now;
    return {};
  }

  Seen* seen_;
};

class Cgroup2 : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sandbar-cgroup2-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    Put("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n");
    Put("cgroup.subtree_control", "");
    Put("cgroup.procs", "1\n2\n");
  }
  void TearDown() override {
    tree_.reset();
    std::filesystem::remove_all(root_);
  }

  void Put(const std::string& path, const std::string& text) { std::ofstream(root_ + "/" + path) << text; }
  std::string Get(const std::string& path) { return CgroupFs().Read(root_ + "/" + path).value_or("missing"); }

  Result<> Open(const std::string& self = "/", const CgroupHost& host = {8ull << 30, 4}) {
    CgroupMounts mounts;
    mounts.v2 = root_;
    mounts.self_v2 = self;
    CgroupTreeOptions options{.instance = "i1", .host_share_percent = 50, .host = host};
    SB_TRY(tree_, OpenCgroup2(std::make_unique<RecordedFs>(&seen_), mounts, options));
    return {};
  }

  RecordedFs::Seen seen_;
  std::string root_;
  std::unique_ptr<CgroupTree> tree_;
};

TEST_F(Cgroup2, InstanceGetsItsShareOfTheHost) {
  ASSERT_TRUE(Open());
  EXPECT_EQ(Get("sandbar/i1/cpu.max"), "200000 100000\n");
  EXPECT_EQ(Get("sandbar/i1/memory.max"), std::to_string((8ull << 30) / 100 * 50 / 4096 * 4096) + "\n");
  EXPECT_EQ(seen_.device_filters, 1);
  EXPECT_THAT(seen_.moved, IsEmpty());
}

TEST_F(Cgroup2, MachineLimits) {
  ASSERT_TRUE(Open());
  auto group = tree_->Create("m1", {.vcpus = 2, .memory_bytes = 1ull << 30, .pids = 100});
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(Get("sandbar/i1/m1/cpu.max"), "200000 100000\n");
  EXPECT_EQ(Get("sandbar/i1/m1/cpu.weight"), "200\n");
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/memory.max"), "1073741824\n");
  EXPECT_EQ(Get("sandbar/i1/m1/memory.max"), std::to_string((1ull << 30) + kAgentMemoryAllowance) + "\n");
  EXPECT_EQ(Get("sandbar/i1/m1/memory.swap.max"), "0\n");
  EXPECT_EQ(Get("sandbar/i1/m1/memory.oom.group"), "0\n");
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/pids.max"), "100\n");
  EXPECT_EQ(Get("sandbar/i1/m1/pids.max"), std::to_string(100 + kAgentPidsAllowance) + "\n");
  EXPECT_EQ(Get("sandbar/i1/m1/agent/memory.max"), "max\n");
  ASSERT_TRUE((*group)->SetLimits({.vcpus = 8, .memory_bytes = 0, .pids = 0}));
  EXPECT_EQ(Get("sandbar/i1/m1/cpu.max"), "200000 100000\n") << "never above the instance's share";
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/memory.max"), "max\n");
  EXPECT_EQ(Get("sandbar/i1/m1/pids.max"), "max\n");
}

TEST_F(Cgroup2, WhatIsGivenAwayLiesBelowTheLimits) {
  ASSERT_TRUE(Open());
  auto group = tree_->Create("m1", {.vcpus = 1, .memory_bytes = 1ull << 30, .pids = 100});
  ASSERT_TRUE(group) << group.error().message;
  auto given = (*group)->Delegate(7000);
  ASSERT_TRUE(given) << given.error().message;
  const std::string cmds = root_ + "/sandbar/i1/m1/cmds";
  EXPECT_EQ(seen_.given, (std::map<std::string, uint32_t>{{cmds + "/guest", 7000}, {cmds + "/guest/init", 7000}}));
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/memory.max"), "1073741824\n");
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/guest/cgroup.max.descendants"), "1000\n");
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/guest/cgroup.controllers"), "memory pids ");
  EXPECT_EQ(given->root.size() + given->agent.size() + given->commands.size(), 3u);
  // A guest leaves groups behind.
  RecordedFs fs(&seen_);
  ASSERT_TRUE(fs.MakeDir(cmds + "/guest/pod"));
  ASSERT_TRUE(fs.MakeDir(cmds + "/guest/pod/one"));
  EXPECT_TRUE((*group)->Remove());
  EXPECT_EQ(Get("sandbar/i1/m1/cgroup.procs"), "missing");
}

TEST_F(Cgroup2, UsageFreezeKillJoin) {
  ASSERT_TRUE(Open());
  auto group = tree_->Create("m1", {.vcpus = 1, .memory_bytes = 1ull << 30, .pids = 100});
  ASSERT_TRUE(group);
  auto usage = (*group)->Usage();
  ASSERT_TRUE(usage) << usage.error().message;
  EXPECT_EQ(usage->cpu_ns, 1234000u);
  EXPECT_EQ(usage->memory_bytes, 4096u);
  EXPECT_EQ(usage->memory_peak_bytes, 8192u);
  EXPECT_EQ(usage->pids, 7u);
  EXPECT_EQ(usage->oom_kills, 2u);
  std::filesystem::remove(root_ + "/sandbar/i1/m1/memory.peak");  // before 5.19
  EXPECT_EQ((*group)->Usage()->memory_peak_bytes, 4096u);
  EXPECT_TRUE((*group)->Freeze(true));
  EXPECT_EQ(Get("sandbar/i1/m1/cgroup.freeze"), "1\n");
  EXPECT_FALSE(*(*group)->Empty());
  EXPECT_TRUE((*group)->Freeze(false));
  EXPECT_TRUE((*group)->KillAll());
  EXPECT_EQ(Get("sandbar/i1/m1/cgroup.kill"), "1\n");
  auto join = (*group)->OpenCommandJoin();
  ASSERT_TRUE(join);
  ASSERT_EQ(join->size(), 1u);
  ASSERT_EQ(::write(join->front().get(), "0", 1), 1);
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/cgroup.procs"), "0");
  EXPECT_EQ((*group)->Remove().error().code, Code::kConflict);
  Put("sandbar/i1/m1/cmds/cgroup.procs", "");
  EXPECT_TRUE((*group)->Remove());
  EXPECT_THAT(tree_->List(), IsEmpty());
  tree_.reset();
  EXPECT_FALSE(std::filesystem::exists(root_ + "/sandbar"));
}

TEST_F(Cgroup2, AgentAndCommandsHaveGroupsOfTheirOwn) {
  ASSERT_TRUE(Open());
  auto group = tree_->Create("m1", {});
  ASSERT_TRUE(group);
  auto join = (*group)->OpenAgentJoin();
  ASSERT_TRUE(join);
  ASSERT_EQ(::write(join->front().get(), "0", 1), 1);
  EXPECT_EQ(Get("sandbar/i1/m1/agent/cgroup.procs"), "0");
  EXPECT_EQ(Get("sandbar/i1/m1/cmds/cgroup.procs"), "");
  EXPECT_EQ(tree_->Create("m1", {}).error().code, Code::kConflict);
  EXPECT_THAT(tree_->List(), ElementsAre("m1"));
  EXPECT_EQ(tree_->OpenExisting("nope").error().code, Code::kNotFound);
}

TEST_F(Cgroup2, StaysInsideADelegatedUnitAndLeavesItsOwnGroup) {
  for (const char* dir : {"system.slice", "system.slice/sandbar.service"}) {
    std::filesystem::create_directory(root_ + "/" + dir);
    Put(std::string(dir) + "/cgroup.controllers", "cpu memory pids\n");
    Put(std::string(dir) + "/cgroup.subtree_control", "");
    Put(std::string(dir) + "/cgroup.procs", "41\n42\n");
  }
  seen_.delegated.insert(root_ + "/system.slice/sandbar.service");
  ASSERT_TRUE(Open("/system.slice/sandbar.service"));
  EXPECT_THAT(seen_.moved, ElementsAre("41", "42"));
  EXPECT_NE(Get("system.slice/sandbar.service/sandbar/i1/memory.max"), "missing");
  EXPECT_EQ(Get("sandbar/i1/memory.max"), "missing");
  // A second spawner starts in the leaf.
  tree_.reset();
  ASSERT_TRUE(Open("/system.slice/sandbar.service/supervisor"));
  EXPECT_NE(Get("system.slice/sandbar.service/sandbar/i1/memory.max"), "missing");
}

TEST_F(Cgroup2, UsesTheRootWhenTheUnitIsNotDelegated) {
  std::filesystem::create_directories(root_ + "/system.slice/ssh.service");
  ASSERT_TRUE(Open("/system.slice/ssh.service"));
  EXPECT_NE(Get("sandbar/i1/memory.max"), "missing");
  EXPECT_THAT(seen_.moved, IsEmpty());
}

TEST_F(Cgroup2, RefusesWhatItCannotEnforce) {
  Put("cgroup.controllers", "cpu pids\n");
  auto opened = Open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_THAT(opened.error().message, HasSubstr("'memory'"));
  Put("cgroup.controllers", "cpu memory pids\n");
  seen_.busy = root_;
  opened = Open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_THAT(opened.error().message, HasSubstr("holds processes"));
}

TEST(CgroupMounts, ParsesHybridCoMountedAndUnified) {
  const char* hybrid =
      "25 30 0:23 / /sys rw,nosuid - sysfs sysfs rw\n"
      "34 25 0:30 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate\n"
      "35 25 0:31 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd\n"
      "38 25 0:34 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
      "39 25 0:35 / /sys/fs/cgroup/memory rw shared:16 - cgroup cgroup rw,memory\n"
      "40 25 0:35 / /mnt/again rw shared:16 - cgroup cgroup rw,memory\n"
      "garbage\n";
  CgroupMounts m = ParseCgroupMounts(hybrid, "4:memory:/x\n0::/user.slice/a\n");
  EXPECT_EQ(m.v2, "/sys/fs/cgroup/unified");
  EXPECT_EQ(m.self_v2, "/user.slice/a");
  ASSERT_EQ(m.v1.size(), 2u);
  EXPECT_EQ(m.v1[0].dir, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_THAT(m.v1[0].controllers, ElementsAre("cpu", "cpuacct"));
  EXPECT_EQ(m.v1[1].dir, "/sys/fs/cgroup/memory");
  CgroupMounts v2 = ParseCgroupMounts("30 25 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n", "0::/\n");
  EXPECT_EQ(v2.v2, "/sys/fs/cgroup");
  EXPECT_THAT(v2.v1, IsEmpty());
  EXPECT_EQ(v2.self_v2, "/");
}

}  // namespace
}  // namespace sandbar::os
