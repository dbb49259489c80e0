// Real machines on gVisor: what is inside one, how runsc is kept, and that nothing stays when it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/files.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/unix_socket.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Of every process whose first process is `pid`, that one first.
std::vector<pid_t> Family(pid_t pid) {
  std::vector<pid_t> all = {pid};
  for (size_t i = 0; i < all.size(); ++i) {
    std::string dir = "/proc/" + std::to_string(all[i]) + "/task";
    std::error_code ec;
    for (const auto& task : fs::directory_iterator(dir, ec)) {
      std::ifstream children(task.path() / "children");
      for (pid_t child = 0; children >> child;) all.push_back(child);
    }
  }
  return all;
}

std::string StatusOf(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":\t")) return line.substr(field.size() + 2);
  }
  return {};
}

std::string CommandOf(pid_t pid) {
  auto text = os::ReadFile("/proc/" + std::to_string(pid) + "/cmdline", 1 << 16);
  std::string words = text ? *text : "";
  for (char& c : words) {
    if (c == 0) c = ' ';
  }
  return words;
}

class GvisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
    host_->UseGvisor();
    ASSERT_NO_FATAL_FAILURE(Begin());
    auto hello = client_->Call(HelloReq{});
    ASSERT_TRUE(hello);
    for (const EngineEntry& e : std::get<HelloResp>(hello->body).engines) {
      if (e.id == kGvisorEngine) {
        ASSERT_TRUE(e.usable) << e.why_not;
      }
    }
  }
  void Begin() {
    ASSERT_EQ(host_->StartSpawner({}), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
  }
  void StartMachine(const std::string& id = "m1") {
    auto started = host_->Start(*client_, id);
    ASSERT_TRUE(started) << started.error().message;
    network_ = std::move(started->fds);
  }
  std::string Run(const std::string& script, const std::string& id = "m1") {
    auto out = host_->Run(id, script);
    return out ? *out : "error: " + out.error().message;
  }
  void Destroy(const std::string& id = "m1", const std::string& keep_as = "") {
    auto gone = client_->Call(DestroyReq{id, keep_as});
    ASSERT_TRUE(gone) << gone.error().message;
  }
  // The process that has the guest's kernel.
  pid_t Sandbox(const std::string& id = "m1") {
    for (pid_t pid : Family(host_->MachinePid(*client_, id))) {
      if (CommandOf(pid).find(" boot ") != std::string::npos) return pid;
    }
    return 0;
  }
  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
  std::vector<Fd> network_;
};

TEST_F(GvisorTest, RunsAScriptOnAKernelOfItsOwn) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(Run("id -u; hostname; cat /etc/hostname; touch /x && echo wrote"), "0\nsandbox\nsandbox\nwrote\nexit:0\n");
  utsname kernel{};
  ASSERT_EQ(::uname(&kernel), 0);
  EXPECT_THAT(Run("cat /proc/version"), Not(HasSubstr(kernel.release)));
  EXPECT_THAT(Run("busybox dmesg"), HasSubstr("gVisor"));
  // Its own processes and nobody else's.
  EXPECT_THAT(Run("ls -d /proc/[0-9]*"), ::testing::MatchesRegex("(/proc/[0-9][0-9]?\n)+exit:0\n"));
  EXPECT_THAT(Run("cat /proc/meminfo"), HasSubstr("MemTotal:         262144 kB"));
  EXPECT_EQ(Run("nproc"), "1\nexit:0\n");
  Destroy();
}

TEST_F(GvisorTest, ItsConnectionsComeOutOfTheListener) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(host_->Fetch("m1", network_[0].get()), "from outside\nexit:0\n");
  Destroy();
}

TEST_F(GvisorTest, AnotherDaemonTakesTheStreamOver) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  auto first = os::ConnectUnixPath(host_->data() + "/run/agents/m1.sock", SOCK_STREAM);
  ASSERT_TRUE(first);
  ASSERT_TRUE(WriteAll(first->get(), "27\nsleep 0.2; echo interrupted"));
  client_->Close();
  // The newest connection wins, and the stream is the same: what the old one started is answered here.
  EXPECT_THAT(Run("echo next"), HasSubstr("exit:0\n"));
  pollfd p{first->get(), POLLIN, 0};
  ASSERT_EQ(::poll(&p, 1, 60'000), 1);
  char c = 0;
  ssize_t n = ::read(first->get(), &c, 1);
  EXPECT_LE(n, 0) << "the old connection is closed";
  first->Reset();
  EXPECT_THAT(Run("echo again"), HasSubstr("exit:0\n"));
}

TEST_F(GvisorTest, WithNobodyThereNothingWaitsForAListener) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  auto peer = os::ConnectUnixPath(host_->data() + "/run/agents/m1.sock", SOCK_STREAM);
  ASSERT_TRUE(peer);
  // More output than all buffers on the way hold: the script ends only if somebody takes it.
  const std::string script = "touch /begun; dd if=/dev/zero bs=1M count=20; touch /done";
  ASSERT_TRUE(WriteAll(peer->get(), std::to_string(script.size()) + "\n" + script));
  const std::string upper = host_->UpperOf("m1");
  ASSERT_TRUE(Eventually([&] { return fs::exists(upper + "/begun"); }));
  EXPECT_FALSE(fs::exists(upper + "/done")) << "the listener is there and reads nothing";
  peer->Reset();
  EXPECT_TRUE(Eventually([&] { return fs::exists(upper + "/done"); }));
}

TEST_F(GvisorTest, WhatItWroteBecomesASnapshotEvenWhenItWasKilled) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(Run("echo kept > /home/user/a; echo rest >> /home/user/a; mkdir /etc/d; rm /opt/moved/file; "
                "echo t > /opt/t; busybox chown 1000:1000 /opt/t; chmod 4711 /opt/t"),
            "exit:0\n");
  ::kill(Sandbox(), SIGKILL);
  auto event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  ASSERT_NO_FATAL_FAILURE(Destroy("m1", "snap1"));
  BootReq boot = TestHost::SmallMachine("m2");
  boot.engine = kGvisorEngine;
  ASSERT_TRUE(client_->Call(boot));
  ConfigureReq configure = TestHost::Image("m2");
  configure.snapshots = {"snap1"};
  auto configured = client_->Call(configure);
  ASSERT_TRUE(configured) << configured.error().message;
  EXPECT_EQ(Run("cat /home/user/a; ls -d /etc/d; ls /opt/moved; stat -c '%a %u %g' /opt/t", "m2"),
            "kept\nrest\n/etc/d\n4711 1000 1000\nexit:0\n");
  Destroy("m2");
}

// What an escape from gVisor's kernel would find: no id of the host, no file but the machine's, no way to gain more.
TEST_F(GvisorTest, RunscIsJailed) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  auto family = Family(host_->MachinePid(*client_, "m1"));
  ASSERT_GE(family.size(), 3U);
  for (pid_t pid : family) {
    SCOPED_TRACE(CommandOf(pid));
    EXPECT_EQ(StatusOf(pid, "NoNewPrivs"), "1");
    // Root of the machine's own range, or nobody of it.
    EXPECT_GE(std::atoi(StatusOf(pid, "Uid").c_str()), 65536);
    EXPECT_GE(std::atoi(StatusOf(pid, "Gid").c_str()), 65536);
    for (const char* name : {"mnt", "pid", "ipc", "net", "user", "cgroup"}) {
      std::error_code ec;
      const std::string ns = std::string("/ns/") + name;
      EXPECT_NE(fs::read_symlink("/proc/" + std::to_string(pid) + ns, ec), fs::read_symlink("/proc/self" + ns, ec));
    }
  }
  EXPECT_EQ(StatusOf(family[0], "CapEff"), "0000000000000000") << "the holder";
  pid_t sandbox = Sandbox();
  ASSERT_GT(sandbox, 1);
  EXPECT_EQ(StatusOf(sandbox, "Seccomp"), "2");
  EXPECT_EQ(StatusOf(sandbox, "Seccomp_filters"), "2") << "ours around its own";
  // The holder's tree has what the jail was given and nothing of the host.
  std::ifstream mounts("/proc/" + std::to_string(family[0]) + "/mountinfo");
  std::vector<std::string> points;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    points.push_back(word);
  }
  EXPECT_THAT(points, ::testing::UnorderedElementsAre("/", "/root", "/dev", "/agent", "/runsc", "/proc", "/visible",
                                                      "/proc/meminfo", "/proc/sys/net/core"));
  std::vector<std::string> open;
  for (const auto& e : fs::directory_iterator("/proc/" + std::to_string(family[0]) + "/fd"))
    open.push_back(fs::read_symlink(e.path()).string());
  for (const std::string& target : open)
    EXPECT_THAT(target, ::testing::MatchesRegex("/null|socket:.*|anon_inode:.*|/.*cgroup.*|/.*tasks|.*cgroup.procs"))
        << target;
  Destroy();
}

// gVisor's kernel is one process of the host: what bursts a limit ends it, and never reaches the host.
TEST_F(GvisorTest, AMemoryBombEndsTheMachineOnly) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_NO_FATAL_FAILURE(StartMachine("m2"));
  auto out = host_->Run("m1", "dd if=/dev/zero of=/dev/null bs=600M count=1; echo survived");
  auto usage = client_->Call(UsageReq{"m1"});
  if (usage) {
    EXPECT_LE(std::get<UsageResp>(usage->body).memory_peak_bytes, (256ULL + 64 + 64) << 20);
  }
  EXPECT_EQ(Run("echo alive", "m2"), "alive\nexit:0\n");
  auto gone = client_->Call(DestroyReq{"m1"});
  ASSERT_TRUE(gone) << gone.error().message;
  const auto& last = std::get<UsageResp>(gone->body);
  // It was refused or killed; it never had the memory.
  EXPECT_LE(last.memory_peak_bytes, (256ULL + 64 + 64) << 20);
  EXPECT_TRUE(last.oom_kills > 0 || (out && out->find("survived") != std::string::npos)) << (out ? *out : "");
}

TEST_F(GvisorTest, PausedItStandsStill) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(Run("(while true; do echo x >> /ticks; done) > /dev/null 2>&1 & echo on"), "on\nexit:0\n");
  ASSERT_TRUE(client_->Pause("m1"));
  auto cpu = [&] {
    auto usage = client_->Call(UsageReq{"m1"});
    return usage ? std::get<UsageResp>(usage->body).cpu_ns : 0;
  };
  const uint64_t before = cpu();
  // Another machine starts, runs and ends meanwhile.
  ASSERT_NO_FATAL_FAILURE(StartMachine("m2"));
  EXPECT_EQ(Run("echo alive", "m2"), "alive\nexit:0\n");
  ASSERT_NO_FATAL_FAILURE(Destroy("m2"));
  EXPECT_EQ(cpu(), before);
  ASSERT_TRUE(client_->Call(PauseReq{"m1", false}));
  EXPECT_EQ(Run("echo alive"), "alive\nexit:0\n");
  ASSERT_TRUE(client_->Pause("m1"));
  Destroy();
}

TEST_F(GvisorTest, ADriveIsMountedWhereNothingElseIs) {
  ASSERT_TRUE(client_->Call(CreateDriveReq{"drv_a", 0}));
  for (const char* path : {"/proc/x", "/dev/shm", "/sys", "/tmp/.sandbar"}) {
    BootReq boot = TestHost::SmallMachine("bad");
    boot.engine = kGvisorEngine;
    ASSERT_TRUE(client_->Call(boot));
    ConfigureReq configure = TestHost::Image("bad");
    configure.mounts = {{"drv_a", path, true, 0, 0}};
    auto refused = client_->Call(configure);
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, Code::kBadRequest) << path;
    Destroy("bad");
  }
}

TEST_F(GvisorTest, TheEndOfItsKernelIsTheEndOfTheMachine) {
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  auto family = Family(host_->MachinePid(*client_, "m1"));
  ASSERT_GE(family.size(), 3U) << "holder, sandbox, file server";
  pid_t sandbox = Sandbox();
  ASSERT_GT(sandbox, 1);
  ASSERT_EQ(::kill(sandbox, SIGKILL), 0);
  auto event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(event->machine, "m1");
  Destroy();
  for (pid_t pid : family) EXPECT_EQ(::kill(pid, 0), -1) << pid << " " << CommandOf(pid);
  host_->StopSpawner();
  EXPECT_THAT(host_->Leftovers(), IsEmpty());
}

}  // namespace
}  // namespace sandbar::spawner
