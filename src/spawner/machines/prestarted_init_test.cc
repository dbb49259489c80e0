// The processes that wait for machines, and what becomes of them. With the real agent, which goes on as the machine's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "os/caps.h"
#include "os/openat.h"
#include "protocol/disk_figures.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PrestartedInitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    if (TestHost::SmallMachine("m1").engine != kNamespacesEngine) GTEST_SKIP() << "of machines of class 1";
    ASSERT_EQ(host_->StartSpawner({"--guest", std::string(SB_BINARY_DIR) + "/bin/sandbar-guest", "--stage", ""}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
  }
  // All of the spawner's children: those that wait and the machines.
  std::vector<pid_t> Children() {
    const std::string pid = std::to_string(host_->spawner_pid());
    std::ifstream list("/proc/" + pid + "/task/" + pid + "/children");
    return {std::istream_iterator<pid_t>(list), {}};
  }
  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(PrestartedInitTest, TheAgentKeepsNothingOfTheHosts) {
  auto started = host_->Start(*client_, "m1");
  ASSERT_TRUE(started) << started.error().message;
  const std::string proc = "/proc/" + std::to_string(host_->MachinePid(*client_, "m1"));
  std::vector<std::string> open;
  for (const auto& e : fs::directory_iterator(proc + "/fd")) {
    std::string to = fs::read_symlink(e.path());
    struct stat its{}, hosts{};
    // The machine has terminals of its own.
    if (to == "/dev/pts" && ::stat(e.path().c_str(), &its) == 0 && ::stat("/dev/pts", &hosts) == 0 &&
        its.st_dev != hosts.st_dev)
      to = "own terminals";
    open.push_back(to.starts_with("socket:")                          ? "socket"
                   : to.contains("/tasks") || to.contains("/cgroup.") ? "group"
                                                                      : to);
  }
  std::ranges::sort(open);
  open.erase(std::unique(open.begin(), open.end()), open.end());
  EXPECT_THAT(open, ::testing::IsSubsetOf({"/dev/null", "own terminals", "anon_inode:[eventpoll]",
                                           "anon_inode:[signalfd]", "group", "socket", "/memfd:disk-figures (deleted)",
                                           "anon_inode:[eventfd]", "anon_inode:seccomp notify"}));
  EXPECT_EQ(
      std::ranges::count_if(fs::directory_iterator(proc + "/fd"),
                            [](const auto& e) { return fs::read_symlink(e.path()).string().starts_with("socket:"); }),
      1);  // that it listens on
  auto status = os::ReadFile(proc + "/status", 8192);
  ASSERT_TRUE(status);
  auto line = [](const char* set, uint64_t caps) {
    char text[32];
    std::snprintf(text, sizeof text, "%s:\t%016llx\n", set, static_cast<unsigned long long>(caps));
    return std::string(text);
  };
  for (const char* set : {"CapEff", "CapBnd"}) EXPECT_THAT(*status, HasSubstr(line(set, os::kGuestCapabilities)));
  // To answer statfs; no program in the machine can have it.
  EXPECT_THAT(*status, HasSubstr(line("CapPrm", os::kGuestCapabilities | uint64_t{1} << CAP_SYS_PTRACE)));
  EXPECT_THAT(*status, HasSubstr("CapInh:\t0000000000000000\n"));
  EXPECT_THAT(*status, HasSubstr("CapAmb:\t0000000000000000\n"));
  EXPECT_THAT(*status, HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(*status, HasSubstr("Groups:\t \n"));
  EXPECT_THAT(*status, HasSubstr("Umask:\t0022"));
  // Closed, and of the host's user namespace: then the kernel shows its files as the host's root's.
  struct stat memory{};
  ASSERT_EQ(::stat((proc + "/mem").c_str(), &memory), 0);
  EXPECT_EQ(memory.st_uid, 0U);
  auto environment = os::ReadFile(proc + "/environ", 4096);
  ASSERT_TRUE(environment);
  EXPECT_EQ(*environment, "");
  auto score = os::ReadFile(proc + "/oom_score_adj", 16);
  ASSERT_TRUE(score);
  EXPECT_EQ(*score, "300\n");
  auto limits = os::ReadFile(proc + "/limits", 8192);
  ASSERT_TRUE(limits);
  EXPECT_THAT(*limits, ::testing::ContainsRegex("Max core file size +1 +1 +bytes"));
  EXPECT_EQ(fs::read_symlink(proc + "/cwd"), "/");
}

TEST_F(PrestartedInitTest, TheSpawnerTellsAMachineItsFiguresWhenItAsks) {
  ASSERT_TRUE(client_->Call(CreateDriveReq{"drv_a", 32 << 20}));
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m1")));
  ConfigureReq image = TestHost::Image("m1");
  image.mounts = {{"drv_a", "/data", true, 0, 0}};
  ASSERT_TRUE(client_->Call(image));
  const pid_t agent = host_->MachinePid(*client_, "m1");
  // The agent's own descriptors, as its process for statfs has them.
  Fd agent_fd(static_cast<int>(::syscall(SYS_pidfd_open, agent, 0)));
  Fd page_file, ask;
  for (const auto& e : fs::directory_iterator("/proc/" + std::to_string(agent) + "/fd")) {
    const std::string to = fs::read_symlink(e.path());
    const int number = std::stoi(e.path().filename());
    auto take = [&] { return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, agent_fd.get(), number, 0))); };
    if (to.starts_with("/memfd:disk-figures")) page_file = take();
    if (to == "anon_inode:[eventfd]") ask = take();
  }
  ASSERT_TRUE(page_file && ask);
  EXPECT_EQ(::mmap(nullptr, protocol::kFiguresBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page_file.get(), 0),
            MAP_FAILED)
      << "only the spawner writes";
  EXPECT_NE(::ftruncate(page_file.get(), 0), 0);
  void* map = ::mmap(nullptr, protocol::kFiguresBytes, PROT_READ, MAP_SHARED, page_file.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto& page = *static_cast<const protocol::FiguresPage*>(map);
  auto before = protocol::ReadFigures(page);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->at_ms, 0);
  EXPECT_EQ(before->figures[0].total, 64U << 20);
  auto next = [&](int64_t after) {
    const uint64_t one = 1;
    EXPECT_EQ(::write(ask.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    EXPECT_TRUE(Eventually([&] { return page.at_ms > after; }));
    return protocol::ReadFigures(page).value_or(protocol::FiguresReading{});
  };
  const protocol::FiguresReading first = next(0);
  EXPECT_EQ(first.figures[0].total, 64U << 20);
  EXPECT_GT(first.figures[0].available, 50U << 20);
  EXPECT_LE(first.figures[0].available, first.figures[0].free);
  EXPECT_LE(first.figures[0].free, 64U << 20);
  EXPECT_EQ(first.figures[1].total, 32U << 20);
  EXPECT_GT(first.figures[1].available, 20U << 20);
  // The next answer is a while later, and shows another limit.
  ASSERT_TRUE(client_->Call(SetLimitsReq{"m1", {1, 256 << 20, 128, 128 << 20}, 0}));
  const protocol::FiguresReading second = next(first.at_ms);
  EXPECT_GE(second.at_ms - first.at_ms, protocol::kFiguresMs - 1);
  EXPECT_EQ(second.figures[0].total, 128U << 20);
  ::munmap(map, protocol::kFiguresBytes);
  ASSERT_TRUE(client_->Call(DestroyReq{"m1"}));
}

TEST_F(PrestartedInitTest, OneThatDiedIsNotUsed) {
  ASSERT_TRUE(host_->Start(*client_, "m1"));
  ASSERT_TRUE(Eventually([&] { return Children().size() > 8; }));
  const pid_t machine = host_->MachinePid(*client_, "m1");
  for (pid_t pid : Children()) {
    if (pid == machine) continue;
    ::kill(pid, SIGKILL);
    ASSERT_TRUE(Eventually([&] {
      auto stat = os::ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
      return !stat || stat->contains(") Z ");
    }));
  }
  auto started = host_->Start(*client_, "m2");
  ASSERT_TRUE(started) << started.error().message;
  ASSERT_TRUE(client_->Call(DestroyReq{"m1"}));
  ASSERT_TRUE(client_->Call(DestroyReq{"m2"}));
  host_->StopSpawner();
  EXPECT_THAT(host_->Leftovers(), ::testing::IsEmpty());
}

TEST_F(PrestartedInitTest, AMachineThatNeverGotAnImageLeavesNothing) {
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m1")));
  ASSERT_TRUE(client_->Call(DestroyReq{"m1"}));
  host_->StopSpawner();
  EXPECT_THAT(host_->Leftovers(), ::testing::IsEmpty());
}

TEST_F(PrestartedInitTest, TheyEndWithTheSpawner) {
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m1")));
  ASSERT_TRUE(Eventually([&] { return Children().size() > 8; }));
  const std::vector<pid_t> waiting = Children();
  host_->KillSpawner();
  EXPECT_TRUE(Eventually([&] { return std::ranges::all_of(waiting, [](pid_t p) { return ::kill(p, 0) != 0; }); }));
}

}  // namespace
}  // namespace sandbar::spawner
