// On the host's own hierarchies. What needs a controller that is not there is skipped and says so.
#include "os/cgroup.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "os/cgroup_trees.h"
#include "os/statfs_calls.h"

namespace sandbar::os {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

// A child that joined the group and then runs f; its exit status comes from Wait(). Returns when it has joined.
pid_t Spawn(const std::vector<Fd>& join, const std::function<int()>& f) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd in(ends[0]), out(ends[1]);
  pid_t pid = ::fork();
  if (pid == 0) {
    for (const Fd& fd : join) {
      if (::write(fd.get(), "0", 1) != 1) ::_exit(120);
    }
    out.Reset();
    ::_exit(f());
  }
  out.Reset();
  char end = 0;
  EXPECT_EQ(::read(in.get(), &end, 1), 0);
  return pid;
}
int Wait(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
int Sleep() {
  for (;;) ::pause();
}

class HostCgroups : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    instance_ = "test-" + std::to_string(::getpid());
    auto tree = CgroupTree::Open(instance_, 80);
    if (!tree && tree.error().code == Code::kUnsupported) GTEST_SKIP() << tree.error().message;
    ASSERT_TRUE(tree) << tree.error().message;
    tree_ = std::move(*tree);
  }

  void TearDown() override {
    if (!group_) return;
    EXPECT_TRUE(group_->KillAll());
    Gone(*group_);
  }

  void Make(const CgroupLimits& limits) {
    auto group = tree_->Create("m1", limits);
    ASSERT_TRUE(group) << group.error().message;
    group_ = std::move(*group);
  }

  static void Gone(MachineCgroup& group) {
    Result<> removed;
    for (int i = 0; i < 2000; ++i) {
      removed = group.Remove();
      if (removed || removed.error().code != Code::kConflict) break;
      ::usleep(1000);
    }
    EXPECT_TRUE(removed) << removed.error().message;
  }

  std::vector<Fd> AgentJoin() { return *group_->OpenAgentJoin(); }
  std::vector<Fd> CommandJoin() { return *group_->OpenCommandJoin(); }
  // First the agent's part, then the commands': as a command does in a machine.
  std::vector<Fd> BothJoins() {
    auto out = AgentJoin();
    for (auto& fd : CommandJoin()) out.push_back(std::move(fd));
    return out;
  }

  std::string instance_;
  std::unique_ptr<CgroupTree> tree_;
  std::unique_ptr<MachineCgroup> group_;
};

TEST_F(HostCgroups, CreateListOpenRemove) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  EXPECT_THAT(tree_->List(), ElementsAre("m1"));
  EXPECT_EQ(tree_->Create("m1", {}).error().code, Code::kConflict);
  EXPECT_TRUE(tree_->OpenExisting("m1"));
  EXPECT_EQ(tree_->OpenExisting("m2").error().code, Code::kNotFound);
  for (const char* bad : {"", "..", "a/b", "a b", "x.y"}) {
    EXPECT_EQ(tree_->Create(bad, {}).error().code, Code::kBadRequest) << bad;
    EXPECT_EQ(tree_->OpenExisting(bad).error().code, Code::kBadRequest) << bad;
  }
  EXPECT_TRUE(*group_->Empty());
  Gone(*group_);
  group_.reset();
  EXPECT_THAT(tree_->List(), IsEmpty());
}

TEST_F(HostCgroups, AnotherInstanceDoesNotSeeOurs) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  auto other = CgroupTree::Open(instance_ + "-b", 50);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_THAT((*other)->List(), IsEmpty());
}

// A restarted spawner finds the machines, and dropping the tree meanwhile does not remove them.
TEST_F(HostCgroups, SurvivesTheTree) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  pid_t pid = Spawn(BothJoins(), Sleep);
  group_.reset();
  tree_.reset();
  auto tree = CgroupTree::Open(instance_, 80);
  ASSERT_TRUE(tree) << tree.error().message;
  tree_ = std::move(*tree);
  EXPECT_THAT(tree_->List(), Contains("m1"));
  auto group = tree_->OpenExisting("m1");
  ASSERT_TRUE(group);
  group_ = std::move(*group);
  ASSERT_TRUE(group_->KillAll());
  EXPECT_EQ(Wait(pid), 1000 + SIGKILL);
}

// The agent has no rights on the host: only the inherited descriptors let its children change their group.
TEST_F(HostCgroups, AProcessInAUserNamespaceJoinsByInheritedFd) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  auto agent = AgentJoin();
  auto commands = CommandJoin();
  pid_t pid = Spawn(agent, [&] {
    if (::unshare(CLONE_NEWCGROUP) != 0) return 1;
    if (::setresgid(65000, 65000, 65000) != 0 || ::setresuid(65000, 65000, 65000) != 0) return 2;
    if (::unshare(CLONE_NEWUSER) != 0) return 3;
    pid_t child = ::fork();
    if (child == 0) {
      for (const Fd& fd : commands) {
        if (::write(fd.get(), "0", 1) != 1) ::_exit(4);
      }
      // In the commands' part the limit of 16 holds.
      for (int i = 0; i < 32; ++i) {
        pid_t p = ::fork();
        if (p == 0) Sleep();
        if (p < 0) ::_exit(errno == EAGAIN ? 0 : 5);
      }
      ::_exit(6);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
  });
  EXPECT_EQ(Wait(pid), 0);
}

// Root of a user namespace divides what it was given; it gets neither out of it nor at the limits.
TEST_F(HostCgroups, ADelegatedSubtreeIsTheGuestsAndEndsWithIt) {
  if (!tree_->can_delegate()) GTEST_SKIP() << "no cgroup version 2 here";
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  auto given = group_->Delegate(65000);
  ASSERT_TRUE(given) << given.error().message;
  const std::string dir = ::access("/sys/fs/cgroup/unified", F_OK) == 0
                              ? "/sys/fs/cgroup/unified/sandbar/" + instance_ + "/m1/guest"
                              : "/sys/fs/cgroup/sandbar/" + instance_ + "/m1/cmds/guest";
  pid_t pid = Spawn(given->commands, [&] {
    if (::setresgid(65000, 65000, 65000) != 0 || ::setresuid(65000, 65000, 65000) != 0) return 1;
    if (::mkdir((dir + "/pod").c_str(), 0755) != 0) return 2;
    CgroupFs fs;
    if (!fs.Write(dir + "/pod/cgroup.procs", std::to_string(::getpid()))) return 3;
    if (fs.Write(dir + "/../cgroup.procs", std::to_string(::getpid()))) return 4;
    if (fs.Write(dir + "/cgroup.max.descendants", "max")) return 5;
    if (::mkdir((dir + "/../mine").c_str(), 0755) == 0) return 6;
    return 0;
  });
  EXPECT_EQ(Wait(pid), 0);
  Gone(*group_);
  group_.reset();
  EXPECT_NE(::access(dir.c_str(), F_OK), 0);
}

TEST_F(HostCgroups, AForkBombLeavesTheAgentItsAllowance) {
  Make({.vcpus = 1, .memory_bytes = 256 << 20, .pids = 20});
  pid_t bomb = Spawn(BothJoins(), [] {
    for (int i = 0; i < 1000; ++i) {
      if (::fork() == 0) Sleep();
    }
    return Sleep();
  });
  // Wait until it is at its limit.
  for (int i = 0; i < 5000 && group_->Usage()->pids < 20; ++i) ::usleep(1000);
  EXPECT_GE(group_->Usage()->pids, 20u);
  EXPECT_LE(group_->Usage()->pids, 20u + kAgentPidsAllowance);
  pid_t agent = Spawn(AgentJoin(), [] {
    pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    return child > 0 ? Wait(child) : 1;
  });
  EXPECT_EQ(Wait(agent), 0);
  ASSERT_TRUE(group_->KillAll());
  EXPECT_EQ(Wait(bomb), 1000 + SIGKILL);
  for (int i = 0; i < 5000 && !*group_->Empty(); ++i) ::usleep(1000);
  EXPECT_TRUE(*group_->Empty());
}

int EatMemory(size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 1;
  std::memset(p, 1, bytes);
  return 0;
}

TEST_F(HostCgroups, AMemoryBombIsKilledCountedAndSparesTheAgent) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 20});
  pid_t agent = Spawn(AgentJoin(), Sleep);
  EXPECT_EQ(group_->Usage()->oom_kills, 0u);
  EXPECT_EQ(Wait(Spawn(BothJoins(), [] { return EatMemory(200 << 20); })), 1000 + SIGKILL);
  auto usage = group_->Usage();
  ASSERT_TRUE(usage) << usage.error().message;
  EXPECT_EQ(usage->oom_kills, 1u);
  EXPECT_GE(usage->memory_peak_bytes, 60u << 20);
  EXPECT_GT(usage->cpu_ns, 0u);
  EXPECT_EQ(::kill(agent, 0), 0);
  // What fits is let alone.
  EXPECT_EQ(Wait(Spawn(BothJoins(), [] { return EatMemory(16 << 20); })), 0);
  ASSERT_TRUE(group_->KillAll());
  EXPECT_EQ(Wait(agent), 1000 + SIGKILL);
}

TEST_F(HostCgroups, LimitsCanBeRaisedAndLowered) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 20});
  for (uint64_t mib : {256, 48, 512, 64}) {
    auto set = group_->SetLimits({.vcpus = 2, .memory_bytes = mib << 20, .pids = 40});
    EXPECT_TRUE(set) << mib << " " << set.error().message;
  }
  EXPECT_EQ(Wait(Spawn(BothJoins(), [] { return EatMemory(200 << 20); })), 1000 + SIGKILL);
  EXPECT_TRUE(group_->SetLimits({.vcpus = 1, .memory_bytes = 0, .pids = 0}));
  EXPECT_EQ(Wait(Spawn(BothJoins(), [] { return EatMemory(200 << 20); })), 0);
}

// More processors than the instance's share allows must be cut to the share, not refused by the kernel.
TEST_F(HostCgroups, TakesMoreVcpusThanTheHostHas) {
  Make({.vcpus = 64, .memory_bytes = 64 << 20, .pids = 16});
}

TEST_F(HostCgroups, FreezeStopsAndKillEndsFrozenMembers) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  Fd in(ends[0]), out(ends[1]);
  pid_t ticker = Spawn(BothJoins(), [&]() -> int {
    for (;;) {
      (void)!::write(out.get(), "t", 1);
      ::usleep(1000);
    }
  });
  pollfd p{in.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&p, 1, 10000), 1);
  ASSERT_TRUE(group_->Freeze(true));
  char buf[65536];
  while (::read(in.get(), buf, sizeof buf) > 0) continue;
  EXPECT_EQ(::poll(&p, 1, 50), 0);
  ASSERT_TRUE(group_->Freeze(false));
  EXPECT_EQ(::poll(&p, 1, 10000), 1);
  ASSERT_TRUE(group_->Freeze(true));
  EXPECT_EQ(group_->Remove().error().code, Code::kConflict);
  ASSERT_TRUE(group_->KillAll());
  EXPECT_EQ(Wait(ticker), 1000 + SIGKILL);
}

// The caller of a statfs that is being answered cannot be frozen, and who answers it is frozen already.
TEST_F(HostCgroups, FreezesAProcessThatWaitsForAnother) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd in(ends[0]), out(ends[1]);
  pid_t server = Spawn(BothJoins(), [&]() -> int {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // for a test without root
    auto calls = TakeStatfsCalls();
    if (!calls) return 1;
    if (::fork() == 0) {
      struct statfs fs{};
      ::statfs("/", &fs);
      for (;;) ::pause();
    }
    seccomp_notif call{};
    if (!ReceiveCall(calls->listener.get(), &call)) return 2;
    (void)!::write(out.get(), "r", 1);
    ::usleep(15'000);
    AnswerCall(calls->listener.get(), call.id, 0);
    for (;;) ::pause();
  });
  out.Reset();
  char received = 0;
  ASSERT_EQ(::read(in.get(), &received, 1), 1);
  EXPECT_TRUE(group_->Freeze(true));
  ASSERT_TRUE(group_->KillAll());
  EXPECT_EQ(Wait(server), 1000 + SIGKILL);
}

TEST_F(HostCgroups, OnlyHarmlessDevicesOpen) {
  Make({.vcpus = 1, .memory_bytes = 64 << 20, .pids = 16});
  if (tree_->Describe().find("devices") == std::string::npos) GTEST_SKIP() << "no devices controller";
  EXPECT_EQ(Wait(Spawn(AgentJoin(),
                       [] {
                         if (::open("/dev/null", O_RDWR) < 0 || ::open("/dev/urandom", O_RDONLY) < 0) return 1;
                         if (::open("/dev/ptmx", O_RDWR) < 0) return 2;
                         if (::open("/dev/kmsg", O_RDONLY) >= 0 || errno != EPERM) return 3;
                         const std::string node = "/tmp/sandbar-node-" + std::to_string(::getpid());
                         if (::mknod(node.c_str(), S_IFCHR | 0600, 0x103) == 0) {
                           ::unlink(node.c_str());
                           return 4;
                         }
                         return errno == EPERM ? 0 : 5;
                       })),
            0);
}

// Version 2's rule for devices, on whatever version 2 tree there is (a hybrid host has an empty one).
TEST(DeviceFilter, OnlyHarmlessDevicesOpenInVersion2) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  CgroupFs fs;
  CgroupMounts mounts = ParseCgroupMounts(*fs.Read("/proc/self/mountinfo"), "");
  if (mounts.v2.empty()) GTEST_SKIP() << "no version 2 tree is mounted";
  const std::string dir = mounts.v2 + "/sandbar-test-" + std::to_string(::getpid());
  ASSERT_TRUE(fs.MakeDir(dir));
  {
    Fd fd = *fs.OpenDir(dir);
    auto attached = AttachDeviceFilter(fd.get(), true);
    EXPECT_TRUE(attached) << attached.error().message;
    attached = AttachDeviceFilter(fd.get(), false);  // a restarted spawner
    EXPECT_TRUE(attached) << attached.error().message;
  }
  std::vector<Fd> join;
  join.push_back(*fs.OpenForJoin(dir + "/cgroup.procs"));
  EXPECT_EQ(Wait(Spawn(join,
                       [] {
                         for (const char* good :
                              {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx"}) {
                           if (::open(good, O_RDWR) < 0) return 1;
                         }
                         if (::open("/dev/kmsg", O_RDONLY) >= 0 || errno != EPERM) return 2;
                         const std::string node = "/tmp/sandbar-node-" + std::to_string(::getpid());
                         if (::mknod(node.c_str(), S_IFCHR | 0600, 0x103) == 0) {
                           ::unlink(node.c_str());
                           return 3;
                         }
                         if (errno != EPERM) return 4;
                         return ::mknod(node.c_str(), S_IFIFO | 0600, 0) == 0 && ::unlink(node.c_str()) == 0 ? 0 : 5;
                       })),
            0);
  for (int i = 0; i < 1000 && !fs.RemoveDir(dir); ++i) ::usleep(1000);
  EXPECT_FALSE(fs.Exists(dir));
}

}  // namespace
}  // namespace sandbar::os
