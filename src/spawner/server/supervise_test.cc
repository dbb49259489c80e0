// The spawner as supervisor: it outlives its daemon, ends machines at their deadlines, and never touches another's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "os/openat.h"
#include "os/process.h"
#include "os/unix_socket.h"
#include "spawner/program.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SuperviseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
  }
  void Begin(const std::vector<std::string>& extra = {}) {
    ASSERT_EQ(host_->StartSpawner(extra), 0);
    Reconnect();
  }
  void Reconnect() {
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
  }
  void StartMachine(const std::string& id = "m1") {
    auto started = host_->Start(*client_, id);
    ASSERT_TRUE(started) << started.error().message;
  }
  int StateOf(const std::string& id) {
    auto list = client_->Call(ListReq{});
    if (!list) return -2;
    for (const auto& m : std::get<ListResp>(list->body).machines) {
      if (m.machine == id) return m.state;
    }
    return -1;
  }
  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(SuperviseTest, MachinesSurviveTheDaemonAndAreHandedOutAgain) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  // A daemon that is killed in the middle: a process of its own with its own connection.
  pid_t daemon = ::fork();
  if (daemon == 0) {
    auto client = host_->Connect();
    bool ok = client && host_->Start(**client, "m1");
    ::raise(ok ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(daemon, &status, 0), daemon);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(StateOf("m1"), 1);
  auto attached = client_->Call(AttachReq{"m1"});
  ASSERT_TRUE(attached) << attached.error().message;
  ASSERT_EQ(attached->fds.size(), 2U);
  EXPECT_THAT(std::get<BootResp>(attached->body).agent_socket, HasSubstr("/run/agents/m1.sock"));
  EXPECT_EQ(host_->Fetch("m1", attached->fds[0].get()), "from outside\nexit:0\n");
}

TEST_F(SuperviseTest, TheNewestConnectionWins) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  auto old = std::move(client_);
  Reconnect();
  ASSERT_TRUE(client_->Call(ListReq{}));
  auto refused = old->NextEvent();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kClosed);
}

TEST_F(SuperviseTest, AStrangerIsNotServed) {
  Begin({"--daemon-uid", "65534", "--daemon-gid", "65534"});
  // Root may; uid 65534 may; anybody else is refused even with the socket wide open.
  ::chmod((host_->data() + "/run").c_str(), 0777);
  ::chmod((host_->data() + "/run/spawner.sock").c_str(), 0777);
  for (auto [uid, expected] : {std::pair(65534, 0), std::pair(12345, 1)}) {
    pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(static_cast<gid_t>(uid)) != 0 || ::setuid(static_cast<uid_t>(uid)) != 0) ::_exit(9);
      auto client = host_->Connect();
      ::_exit(client && (*client)->Call(ListReq{}) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << uid << " ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), expected) << uid;
  }
}

TEST_F(SuperviseTest, GarbageEndsTheConnectionOnly) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(os::SendPacket(client_->fd(), "garbage", {}));
  EXPECT_EQ(client_->NextEvent().error().code, Code::kClosed);
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(StateOf("m1"), 1);
}

TEST_F(SuperviseTest, ExitsAreReportedAndRemembered) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(host_->Run("m1", "agent-exit 7"));
  auto event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(event->machine, "m1");
  EXPECT_EQ(event->status, 7);
  EXPECT_FALSE(event->deadline);
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(StateOf("m1"), 2);
  ASSERT_TRUE(client_->Call(AttachReq{"m1"}));
  event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(event->status, 7);
  ASSERT_TRUE(client_->Call(DestroyReq{"m1"}));
  EXPECT_EQ(StateOf("m1"), -1);
}

TEST_F(SuperviseTest, DeadlineHoldsWithoutADaemon) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(client_->Call(SetDeadlineReq{"m1", 300}));
  client_->Close();
  std::string pid_dir = "/proc/" + std::to_string(host_->spawner_pid());
  ASSERT_TRUE(Eventually([&] { return !host_->Run("m1", "true"); }));
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_TRUE(Eventually([&] { return StateOf("m1") == 2; }));
  ASSERT_TRUE(client_->Call(AttachReq{"m1"}));
  auto event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_TRUE(event->deadline);
}

TEST_F(SuperviseTest, DeadlineGivesALiveDaemonTimeToStopGracefully) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(client_->Call(SetDeadlineReq{"m1", 1}));
  const int64_t set = os::BootTimeMs();
  ASSERT_TRUE(Eventually([&] { return os::BootTimeMs() > set + 1; }));
  // The spawner looks at deadlines between two requests, so the second answer is of a spawner that saw this one pass.
  EXPECT_EQ(StateOf("m1"), 1);
  EXPECT_EQ(StateOf("m1"), 1);
  auto ran = host_->Run("m1", "echo stopping");
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(*ran, "stopping\nexit:0\n");
  auto event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_TRUE(event->deadline);
}

TEST_F(SuperviseTest, DeadlineHoldsForAMachineThatNeverGotAnImage) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  BootReq boot = TestHost::SmallMachine("m1");
  boot.deadline_ms = 200;
  ASSERT_TRUE(client_->Call(boot));
  // Seen from outside: a daemon that connects would get more time.
  const std::string socket = host_->data() + "/run/agents/m1.sock";
  ASSERT_TRUE(fs::exists(socket));
  client_->Close();
  ASSERT_TRUE(Eventually([&] { return !fs::exists(socket); }));
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(StateOf("m1"), -1);
  EXPECT_EQ(client_->Call(TestHost::Image("m1")).error().code, Code::kNotFound);
}

TEST_F(SuperviseTest, AnAgentThatEndsAtOnceIsReported) {
  ASSERT_NO_FATAL_FAILURE(host_->UseAgent("int main() { return 5; }"));
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m1")));
  // Whether the answer to Configure comes before the end or tells of it, the event follows.
  auto configured = client_->Call(TestHost::Image("m1"));
  auto event = client_->NextEvent();
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(event->status, 5);
  if (!configured) {
    EXPECT_EQ(configured.error().code, Code::kUnavailable);
  }
  EXPECT_EQ(StateOf("m1"), 2);
}

TEST_F(SuperviseTest, AnAgentThatCannotRunFailsTheStart) {
  std::ofstream(host_->dir() + "/agent", std::ios::trunc) << "not a program";
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m1")));
  auto configured = client_->Call(TestHost::Image("m1"));
  ASSERT_FALSE(configured);
  EXPECT_THAT(configured.error().message, HasSubstr("cannot start the agent"));
  EXPECT_EQ(configured.error().sys_errno, ENOEXEC);
}

TEST_F(SuperviseTest, HostNamesComeAndGo) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  for (const char* name : {"one", "two"}) {
    ASSERT_TRUE(client_->Call(TestHost::SmallMachine(name)));
    ConfigureReq request = TestHost::Image(name);
    request.hostname = name;
    ASSERT_TRUE(client_->Call(request));
    EXPECT_EQ(*host_->Run(name, "hostname; cat /etc/hostname; grep -c localhost /etc/hosts"),
              std::string(name) + "\n" + name + "\n2\nexit:0\n");
  }
  std::string site = "/proc/" + std::to_string(host_->spawner_pid()) + "/root/run/sandbar/mnt/store/site";
  auto layers = [&] { return std::distance(fs::directory_iterator(site), {}); };
  EXPECT_EQ(layers(), 3);  // the image's and one per name
  ASSERT_TRUE(client_->Call(DestroyReq{"one"}));
  EXPECT_EQ(layers(), 2);
}

TEST_F(SuperviseTest, PausedMachinesStandStillAndDie) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(host_->Run("m1", "(while true; do echo x >> /ticks; sleep 0.01; done) > /dev/null 2>&1 &"));
  ASSERT_TRUE(client_->Pause("m1"));
  ASSERT_TRUE(client_->Call(PauseReq{"m1", false}));
  EXPECT_EQ(*host_->Run("m1", "echo alive"), "alive\nexit:0\n");
  ASSERT_TRUE(client_->Pause("m1"));
  ASSERT_TRUE(client_->Call(DestroyReq{"m1"}));
  EXPECT_EQ(StateOf("m1"), -1);
}

TEST_F(SuperviseTest, WhoComesDuringAnEndHearsOfWhatIsLeft) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  client_->Send(DestroyReq{"m1", "snap_kept"}, 900);
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(StateOf("m1"), -1);
  auto left = client_->Call(ListSnapshotsReq{});
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_THAT(std::get<SnapshotsResp>(left->body).snapshots, ::testing::ElementsAre("snap_kept"));
}

TEST_F(SuperviseTest, DestroyReportsWhatWasUsed) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(host_->Run("m1", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"));
  auto gone = client_->Call(DestroyReq{"m1"});
  ASSERT_TRUE(gone) << gone.error().message;
  const auto& usage = std::get<UsageResp>(gone->body);
  EXPECT_GT(usage.cpu_ns, 1'000'000U);
  EXPECT_GT(usage.memory_peak_bytes, 100'000U);
}

TEST_F(SuperviseTest, ADeadSpawnerTakesItsMachinesAlongAndTheNextOneStartsClean) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  StartMachine("m1");
  StartMachine("m2");
  ASSERT_TRUE(host_->Run("m1", "sleep 1000 > /dev/null 2>&1 &"));
  int pid = host_->MachinePid(*client_, "m1");
  ASSERT_GT(pid, 1);
  host_->KillSpawner();
  EXPECT_TRUE(Eventually([&] { return ::kill(pid, 0) != 0; }));
  ASSERT_NO_FATAL_FAILURE(Begin());
  EXPECT_EQ(StateOf("m1"), -1);
  StartMachine("m1");
  EXPECT_EQ(*host_->Run("m1", "ls /x"), "ls: /x: No such file or directory\nexit:1\n");
  host_->StopSpawner();
  EXPECT_THAT(host_->Leftovers(), ::testing::IsEmpty());
}

TEST_F(SuperviseTest, TheSecondSpawnerOfADirectoryLeavesTheFirstAlone) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  int first = host_->spawner_pid();
  EXPECT_EQ(host_->StartSpawner(), 0);
  EXPECT_EQ(host_->spawner_pid(), first);
  EXPECT_EQ(StateOf("m1"), 1);
}

TEST_F(SuperviseTest, TwoInstancesShareAHost) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  auto other = TestHost::Create();
  ASSERT_TRUE(other) << other.error().message;
  ASSERT_EQ((*other)->StartSpawner(), 0);
  auto client = (*other)->Connect();
  ASSERT_TRUE(client);
  ASSERT_TRUE((*other)->Start(**client, "m1"));
  auto mine = os::ReadFile("/proc/" + std::to_string(host_->MachinePid(*client_, "m1")) + "/uid_map", 256);
  auto theirs = os::ReadFile("/proc/" + std::to_string((*other)->MachinePid(**client, "m1")) + "/uid_map", 256);
  ASSERT_TRUE(mine && theirs);
  EXPECT_NE(*mine, *theirs);
  (*other)->KillSpawner();
  ASSERT_EQ((*other)->StartSpawner(), 0);
  EXPECT_EQ(*host_->Run("m1", "echo alive"), "alive\nexit:0\n");
}

TEST_F(SuperviseTest, EphemeralEndsWithItsDaemon) {
  Begin({"--ephemeral"});
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  client_->Close();
  EXPECT_TRUE(Eventually([&] { return !host_->SpawnerAlive(); }));
  EXPECT_TRUE(Eventually([&] { return host_->Leftovers().empty(); }));
}

TEST_F(SuperviseTest, ShutdownEndsEverything) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  ASSERT_TRUE(client_->Call(ShutdownReq{}));
  EXPECT_TRUE(Eventually([&] { return !host_->SpawnerAlive(); }));
  EXPECT_FALSE(fs::exists(host_->data() + "/run/spawner.sock"));
}

TEST_F(SuperviseTest, RefusesToStartWithoutRoot) {
  pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(9);
    ::_exit(RunSpawner({"--data", "/nonexistent/d", "--images", "/i", "--guest", "/g"}));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(SuperviseTest, RefusesAnImageThatSomebodyElseCouldHaveWritten) {
  fs::create_directories(host_->data());
  ASSERT_TRUE(os::OpenPath(host_->data() + "/store.img", O_CREAT | O_WRONLY, 0600));
  ASSERT_EQ(::chown((host_->data() + "/store.img").c_str(), 65534, 65534), 0);
  EXPECT_EQ(host_->StartSpawner(), 2);
}

}  // namespace
}  // namespace sandbar::spawner
