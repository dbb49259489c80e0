// Real machines: what is inside one, what it inherits, what a failed one leaves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "os/openat.h"
#include "os/process.h"
#include "support/spawner/test_harness.h"

namespace sandbar::spawner {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class BootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto host = TestHost::Create();
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
  }
  void Begin(const std::vector<std::string>& extra = {}) {
    ASSERT_EQ(host_->StartSpawner(extra), 0);
    auto client = host_->Connect();
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
  }
  void StartMachine(const std::string& id = "m1") {
    auto started = host_->Start(*client_, id);
    ASSERT_TRUE(started) << started.error().message;
  }
  std::string Run(const std::string& script, const std::string& id = "m1") {
    auto out = host_->Run(id, script);
    return out ? *out : "error: " + out.error().message;
  }
  std::string Proc(const std::string& what) {
    return "/proc/" + std::to_string(host_->MachinePid(*client_, "m1")) + "/" + what;
  }
  void Destroy(const std::string& id = "m1") {
    auto gone = client_->Call(DestroyReq{id});
    ASSERT_TRUE(gone) << gone.error().message;
  }
  std::unique_ptr<TestHost> host_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(BootTest, RunsAScript) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(Run("id -u; hostname; echo $$; cat /etc/hostname; touch /x && echo wrote"),
            "0\nsandbox\n2\nsandbox\nwrote\nexit:0\n");
  Destroy();
}

TEST_F(BootTest, OwnsNoNamespaceButItsUserNamespace) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  struct stat host_user{};
  ASSERT_EQ(::stat("/proc/self/ns/user", &host_user), 0);
  for (const char* name : {"mnt", "pid", "ipc", "uts", "cgroup", "net"}) {
    auto ns = os::OpenPath(Proc(std::string("ns/") + name), O_RDONLY);
    ASSERT_TRUE(ns) << ns.error().message;
    struct stat mine{}, theirs{}, owner{};
    ASSERT_EQ(::stat((std::string("/proc/self/ns/") + name).c_str(), &mine), 0);
    ASSERT_EQ(::fstat(ns->get(), &theirs), 0);
    EXPECT_NE(mine.st_ino, theirs.st_ino) << name << " is the host's";
    Fd user(::ioctl(ns->get(), NS_GET_USERNS));
    ASSERT_TRUE(user) << name;
    ASSERT_EQ(::fstat(user.get(), &owner), 0);
    EXPECT_EQ(owner.st_ino, host_user.st_ino) << name << " belongs to the machine";
  }
  struct stat user{};
  ASSERT_EQ(::stat(Proc("ns/user").c_str(), &user), 0);
  EXPECT_NE(user.st_ino, host_user.st_ino);
}

TEST_F(BootTest, InheritsNothing) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  std::vector<std::string> fds;
  for (const auto& e : fs::directory_iterator(Proc("fd"))) fds.push_back(e.path().filename());
  std::ranges::sort(fds);
  // Standard streams, the listening socket, the control groups of commands (memory and pids, or one).
  EXPECT_THAT(fds, ::testing::AnyOf(::testing::ElementsAre("0", "1", "2", "3", "4"),
                                    ::testing::ElementsAre("0", "1", "2", "3", "4", "5")));
  for (const char* fd : {"0", "1", "2"}) EXPECT_EQ(fs::read_symlink(Proc(std::string("fd/") + fd)), "/dev/null");
  auto environment = os::ReadFile(Proc("environ"), 4096);
  ASSERT_TRUE(environment);
  EXPECT_EQ(*environment, "");
  auto stat = os::ReadFile(Proc("stat"), 4096);
  ASSERT_TRUE(stat);
  // "pid (name) state ppid pgrp session tty": its own session, no terminal.
  std::string pid = std::to_string(host_->MachinePid(*client_, "m1"));
  std::string fields = stat->substr(stat->rfind(')'));
  EXPECT_THAT(fields, HasSubstr(" " + pid + " " + pid + " 0 ")) << fields;
  auto limits = os::ReadFile(Proc("limits"), 8192);
  ASSERT_TRUE(limits);
  EXPECT_THAT(*limits, ::testing::ContainsRegex("Max core file size +1 +1 +bytes"));
  auto status = os::ReadFile(Proc("status"), 8192);
  ASSERT_TRUE(status);
  EXPECT_THAT(*status, HasSubstr("Groups:\t \n"));
  EXPECT_THAT(*status, HasSubstr("Umask:\t0022"));
  EXPECT_THAT(*status, HasSubstr("SigIgn:\t0000000000000000"));
  EXPECT_THAT(*status, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(*status, HasSubstr("Seccomp:\t2"));
}

TEST_F(BootTest, SeesNothingOfTheHostInItsMounts) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  std::string mounts = Run("cat /proc/self/mountinfo");
  EXPECT_THAT(mounts, HasSubstr(" / / rw,nodev"));
  EXPECT_THAT(mounts, Not(HasSubstr("sandbar")));
  EXPECT_THAT(mounts, Not(HasSubstr("/var")));
  EXPECT_THAT(mounts, Not(HasSubstr("/run")));
  EXPECT_THAT(mounts, Not(HasSubstr("loop")));
  EXPECT_THAT(mounts, Not(HasSubstr(" ext4 ")));
  EXPECT_EQ(Run("ls / /sys/kernel/debug 2>/dev/null | grep -c -e vmlinuz -e boot"), "0\nexit:1\n");
}

TEST_F(BootTest, RootInsideCannotChangeMountsOrKernelSettings) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_THAT(Run("umount /proc/timer_list"), Not(HasSubstr("exit:0")));
  EXPECT_THAT(Run("mount -t tmpfs none /opt"), Not(HasSubstr("exit:0")));
  EXPECT_THAT(Run("mount -o remount,rw /proc/sys"), Not(HasSubstr("exit:0")));
  EXPECT_THAT(Run("echo x > /proc/sys/kernel/core_pattern"), HasSubstr("Read-only"));
  EXPECT_THAT(Run("echo x > /proc/timer_list"), HasSubstr("exit:1"));
  EXPECT_THAT(Run("hostname evil"), Not(HasSubstr("exit:0")));
  EXPECT_THAT(Run("cat /proc/1/exe > /tmp/agent"), HasSubstr("Permission denied"));
  EXPECT_THAT(Run("ls /proc/1/fd"), HasSubstr("Permission denied"));
}

TEST_F(BootTest, HasItsOwnSize) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(Run("grep -c ^processor /proc/cpuinfo; grep MemTotal /proc/meminfo; nproc"),
            "1\nMemTotal:         262144 kB\n1\nexit:0\n");
  auto usage = client_->Call(UsageReq{"m1"});
  ASSERT_TRUE(usage) << usage.error().message;
  EXPECT_GT(std::get<UsageResp>(usage->body).cpu_ns, 0U);
  EXPECT_GT(std::get<UsageResp>(usage->body).memory_bytes, 0U);
}

TEST_F(BootTest, OwnersAreMappedAndWritesStayInTheMachine) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine("m1"));
  ASSERT_NO_FATAL_FAILURE(StartMachine("m2"));
  EXPECT_EQ(Run("stat -c %u:%g /home/user /bin/busybox /etc /"), "1000:1000\n0:0\n0:0\n0:0\nexit:0\n");
  EXPECT_EQ(Run("mv /opt/moved /opt/there && ls /opt; rm -r /home/user; echo secret > /etc/note"), "there\nexit:0\n");
  EXPECT_EQ(Run("ls /opt; ls /home; cat /etc/note", "m2"),
            "moved\nuser\ncat: can't open '/etc/note': No such file or directory\nexit:1\n");
  EXPECT_TRUE(fs::exists(host_->images() + "/layers/tiny/opt/moved"));
}

TEST_F(BootTest, DiskLimitHoldsInsideOnly) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(StartMachine("m1"));
  ASSERT_NO_FATAL_FAILURE(StartMachine("m2"));
  EXPECT_THAT(Run("dd if=/dev/zero of=/big bs=1048576 count=200"), Not(HasSubstr("exit:0")));
  EXPECT_EQ(Run("dd if=/dev/zero of=/big bs=1048576 count=32 2>/dev/null; echo $?", "m2"), "0\nexit:0\n");
  Limits more{1, 256 << 20, 128, 512 << 20};
  ASSERT_TRUE(client_->Call(SetLimitsReq{"m1", more}));
  EXPECT_EQ(Run("rm /big; dd if=/dev/zero of=/big bs=1048576 count=200 2>/dev/null; echo $?"), "0\nexit:0\n");
}

TEST_F(BootTest, NetworkComesWithTheMachine) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  auto started = host_->Start(*client_, "m1");
  ASSERT_TRUE(started) << started.error().message;
  ASSERT_EQ(started->fds.size(), 2U);
  EXPECT_EQ(host_->Fetch("m1", started->fds[0].get()), "from outside\nexit:0\n");
}

TEST_F(BootTest, FailedStartsSayWhyAndLeaveNothing) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ConfigureReq bad = TestHost::Image("m1");
  bad.layers = {"missing"};
  ASSERT_TRUE(client_->Call(TestHost::SmallMachine("m1")));
  auto missing = client_->Call(bad);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("missing"));
  bad.layers = {"../tiny"};
  EXPECT_EQ(client_->Call(bad).error().code, Code::kBadRequest);
  bad.layers = {"tiny"};
  bad.hostname = "no/good";
  EXPECT_EQ(client_->Call(bad).error().code, Code::kBadRequest);
  // The same machine still starts with a good request.
  ASSERT_TRUE(client_->Call(TestHost::Image("m1")));
  EXPECT_EQ(client_->Call(TestHost::Image("m1")).error().code, Code::kConflict);
  EXPECT_EQ(client_->Call(TestHost::SmallMachine("m1")).error().code, Code::kConflict);
  EXPECT_EQ(client_->Call(TestHost::SmallMachine("../x")).error().code, Code::kBadRequest);
  EXPECT_EQ(client_->Call(AttachReq{"nobody"}).error().code, Code::kNotFound);
  EXPECT_TRUE(client_->Call(DestroyReq{"nobody"}));
  Destroy();
  host_->StopSpawner();
  EXPECT_THAT(host_->Leftovers(), ::testing::IsEmpty());
}

// What a guest can leave in its tree must not lead a privileged process anywhere, nor hang it.
TEST_F(BootTest, StrangeMountPointsFailTheStart) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  struct Case {
    const char* name;
    void (*make)(const std::string& path);
  };
  // The layers that we make have proc/, dev/ and sys/ on top of the image's; the guest's own layer is above them.
  std::vector<Case> cases = {
      {"link", [](const std::string& p) { fs::create_symlink("/etc", p); }},
      {"file", [](const std::string& p) { std::ofstream(p) << "x"; }},
      {"fifo", [](const std::string& p) { ::mkfifo(p.c_str(), 0644); }},
      {"whiteout", [](const std::string& p) { ::mknod(p.c_str(), S_IFCHR | 0600, 0); }},
  };
  for (const Case& c : cases) {
    for (const char* target : {"proc", "dev", "sys"}) {
      std::string id = std::string(c.name) + "-" + target;
      ASSERT_TRUE(client_->Call(TestHost::SmallMachine(id)));
      std::string upper = host_->UpperOf(id);
      ASSERT_FALSE(upper.empty());
      c.make(upper + "/" + target);
      auto refused = client_->Call(TestHost::Image(id));
      ASSERT_FALSE(refused) << id;
      EXPECT_THAT(refused.error().message, HasSubstr("find /proc, /dev and /sys")) << id;
      Destroy(id);
    }
  }
}

TEST_F(BootTest, TeardownLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_TRUE(client_->Call(ListReq{}));
  for (int i = 0; i < 20; ++i) {
    std::string id = "m" + std::to_string(i);
    StartMachine(id);
    EXPECT_EQ(Run("sleep 1000 > /dev/null 2>&1 & touch /f; true", id), "exit:0\n");
  }
  size_t fds = std::distance(fs::directory_iterator("/proc/" + std::to_string(host_->spawner_pid()) + "/fd"), {});
  for (int i = 0; i < 20; ++i) Destroy("m" + std::to_string(i));
  size_t after = std::distance(fs::directory_iterator("/proc/" + std::to_string(host_->spawner_pid()) + "/fd"), {});
  EXPECT_LT(after, fds - 20 * 4);
  EXPECT_TRUE(fs::is_empty(host_->data() + "/run/agents"));
  host_->StopSpawner();
  EXPECT_THAT(host_->Leftovers(), ::testing::IsEmpty());
}

class FallbackTest : public BootTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FallbackTest, OlderKernelsGiveTheSameMachine) {
  ASSERT_TRUE(host_->UseErofsImage());
  ASSERT_NO_FATAL_FAILURE(Begin({"--force-fallback", GetParam()}));
  auto hello = client_->Call(HelloReq{});
  ASSERT_TRUE(hello);
  if (std::string(GetParam()).find("quota") != std::string::npos) {
    EXPECT_EQ(std::get<HelloResp>(hello->body).disk_limit, "btrfs (quota groups)");
  }
  ASSERT_NO_FATAL_FAILURE(StartMachine("m1"));
  ASSERT_NO_FATAL_FAILURE(StartMachine("m2"));
  EXPECT_EQ(Run("stat -c %u:%g /home/user /etc; mv /opt/moved /opt/there && ls /opt; echo hi > /x; cat /x"),
            "1000:1000\n0:0\nthere\nhi\nexit:0\n");
  std::string mounts = Run("cat /proc/self/mountinfo");
  EXPECT_THAT(mounts, HasSubstr(" / / rw,nodev"));
  EXPECT_THAT(mounts, Not(HasSubstr("/run")));
  EXPECT_THAT(Run("dd if=/dev/zero of=/big bs=1048576 count=200"), Not(HasSubstr("exit:0")));
  EXPECT_EQ(Run("ls /opt", "m2"), "moved\nexit:0\n");
}

INSTANTIATE_TEST_SUITE_P(Kernels, FallbackTest, ::testing::Values("overlay", "erofs", "quota", "overlay,erofs,quota"));

TEST_F(BootTest, WithoutDiskLimitsNoneIsPromised) {
  ASSERT_NO_FATAL_FAILURE(Begin({"--disk-limit", "none"}));
  auto refused = client_->Call(TestHost::SmallMachine("m1"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  BootReq boot = TestHost::SmallMachine("m1");
  boot.limits.disk_bytes = 0;
  ASSERT_TRUE(client_->Call(boot));
  ASSERT_TRUE(client_->Call(TestHost::Image("m1")));
  EXPECT_EQ(Run("echo hi > /x; cat /x; mkdir -p /a/b/c; chmod 4755 /bin/busybox"), "hi\nexit:0\n");
  // The tree is moved to the trash, and removed there, in the background.
  auto kept = [this] {
    std::error_code ec;  // a directory that is being removed ends the walk, and the next walk decides
    for (fs::recursive_directory_iterator at(host_->data() + "/store", ec), end; at != end; at.increment(ec))
      if (at->path().filename() == "x") return true;
    return static_cast<bool>(ec);
  };
  EXPECT_TRUE(kept());
  Destroy();
  for (int i = 0; i < 1000 && kept(); ++i) ::usleep(10'000);
  EXPECT_FALSE(kept());
}

TEST_F(BootTest, ImageBundleAndExtraCertificatesAreMerged) {
  fs::create_directories(host_->images() + "/layers/tiny/etc/ssl/certs");
  std::ofstream(host_->images() + "/layers/tiny/etc/ssl/certs/ca-certificates.crt") << "from image";
  std::ofstream(host_->dir() + "/extra.pem") << "from host\n";
  ASSERT_NO_FATAL_FAILURE(Begin({"--extra-ca", host_->dir() + "/extra.pem"}));
  ASSERT_NO_FATAL_FAILURE(StartMachine());
  EXPECT_EQ(Run("cat /etc/ssl/certs/ca-certificates.crt; grep nameserver /etc/resolv.conf"),
            "from image\nfrom host\nnameserver 192.0.2.53\nexit:0\n");
}

}  // namespace
}  // namespace sandbar::spawner
