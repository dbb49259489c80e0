#include "guest/elevations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "guest/elevate_client.h"
#include "guest/elevated.h"
#include "support/guest/test_machine.h"

namespace sandbar::guest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kUser = 12345;

TEST(ElevateRequest, HasExactlyItsStrings) {
  std::vector<std::string> argv, env;
  EXPECT_TRUE(SplitStrings(std::string_view("a\0\0c\0", 5), 2, 1, argv, env));
  EXPECT_THAT(argv, ElementsAre("a", ""));
  EXPECT_THAT(env, ElementsAre("c"));
  for (auto [argc, envc] : {std::pair{2U, 0U}, {2U, 2U}, {4U, 0U}, {0U, 0U}, {UINT32_MAX, UINT32_MAX}}) {
    argv.clear();
    env.clear();
    EXPECT_FALSE(SplitStrings(std::string_view("a\0\0c\0", 5), argc, envc, argv, env)) << argc << " " << envc;
  }
  argv.clear();
  env.clear();
  EXPECT_FALSE(SplitStrings("unfinished", 1, 0, argv, env));
}

TEST(ElevateCaller, IsOneUserWithTheGroupsThatTheKernelSays) {
  const std::string rest = "\nGroups:\t 27 4242 \nCapInh:\t0\nSeccomp:\t2\nSeccomp_filters:\t5\n";
  auto status = ParseStatus("Name:\tUid: 0 0 0 0\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8" + rest);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->uid, 7U);
  EXPECT_EQ(status->gid, 8U);
  EXPECT_THAT(status->groups, ElementsAre(27U, 4242U));
  EXPECT_EQ(status->seccomp, 2U);
  EXPECT_FALSE(ParseStatus("Uid:\t7\t0\t7\t7\nGid:\t8\t8\t8\t8" + rest)) << "two users";
  EXPECT_FALSE(ParseStatus("Uid:\t7\t7\t7\t7\nGid:\t8\t8\t9\t8" + rest)) << "two groups";
  EXPECT_FALSE(ParseStatus("Uid:\t7\t7\t7\nGid:\t8\t8\t8\t8" + rest));
  EXPECT_FALSE(ParseStatus("Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nSeccomp:\t0\n")) << "no groups told";
  EXPECT_FALSE(ParseStatus("Uid:\t7\t7\t7\tx\nGid:\t8\t8\t8\t8" + rest));
  EXPECT_FALSE(ParseStatus(""));
}

MachineOptions WithUp() {
  MachineOptions options;
  options.elevated = "up";
  return options;
}

// A machine whose `up` is a shell with a setuid bit that the kernel does not heed.
class Elevation : public testing::Test {
 protected:
  Elevation() : machine_(WithUp()), client_(machine_) {
    std::filesystem::copy_file("/bin/bash", up_);
    std::filesystem::copy_file(TestMachine::BinaryPath(), dir_ + "/agent");
    Require(::chmod(up_.c_str(), 04755) == 0 && ::chmod((dir_ + "/agent").c_str(), 0755) == 0, "chmod");
  }
  void SetUp() override {
    struct stat here{}, root{};
    if (::stat(up_.c_str(), &here) == 0 && ::stat("/", &root) == 0 && here.st_dev != root.st_dev)
      GTEST_SKIP() << "/tmp is not on the root file system, where setuid files count";
  }

  // `up` through the door; the script is quoted by '.
  std::string Up(const std::string& script) const { return "./ask -p -c '" + script + "'"; }
  protocol::Exec Script(const std::string& script, uint32_t uid = kUser) {
    WriteWhole(dir_ + "/ask", "#!/bin/bash\nexec -a " + std::string(kElevateWord) + " " + dir_ + "/agent " + dir_ +
                                  "/door up \"$@\"\n");
    Require(::chmod((dir_ + "/ask").c_str(), 0755) == 0, "chmod");
    auto e = TestClient::Command("script-" + std::to_string(++scripts_), {"bash", "-c", script});
    e.uid = e.gid = uid;
    e.user = "eve";
    e.cwd = dir_;
    return e;
  }
  Finished Run(const std::string& script, uint32_t uid = kUser) { return client_.RunExec(Script(script, uid)); }

  Fd Connect() const {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    (dir_ + "/door").copy(at.sun_path, sizeof at.sun_path - 1);
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Require(::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "connect");
    return fd;
  }

  TestMachine machine_;
  std::string dir_ = machine_.dir(), up_ = dir_ + "/up";
  TestClient client_;
  int scripts_ = 0;
};

TEST_F(Elevation, RunsAsRootForTheCallerWithItsGroupsDirectoryDescriptorsAndEnvironment) {
  auto r =
      Run("mkdir sub; cd sub; umask 027; ulimit -Sn 99; ulimit -Hn 100; export X=1 LD_LIBRARY_PATH=/x; echo in | ." +
          Up("read line; echo $UID $EUID $(id -G) $PWD $X [$LD_LIBRARY_PATH] $line $(umask) $(ulimit -Sn) $(ulimit "
             "-Hn) $# $0; echo e >&2; exit 7") +
          "; echo $?");
  EXPECT_EQ(r.out, "12345 0 12345 4242 " + dir_ + "/sub 1 [] in 0027 99 100 0 up\n7\n");
  EXPECT_EQ(r.err, "e\n");
}

TEST_F(Elevation, ACommandOfItsOwnIsTheSame) {
  auto e = TestClient::Command("own", {up_, "-p", "-c", "echo $UID $EUID $(id -G) $# $0", "name"});
  e.uid = e.gid = kUser;
  e.user = "eve";
  EXPECT_EQ(client_.RunExec(e).out, "12345 0 12345 4242 0 name\n");
}

TEST_F(Elevation, EndsTheCallerAsItEnded) {
  EXPECT_EQ(Run(Up("kill -9 $$")).exit.code, 137);
  EXPECT_EQ(Run("exec " + Up("kill -USR1 $$")).exit.code, 128 + SIGUSR1);
  // Signals of the caller reach it, and everything that it started.
  auto r = Run(Up("trap \"echo got; exit 3\" TERM; echo up; sleep 1000 & wait") +
               " > said & until grep -q up said; do sleep 0.02; done; kill $!; wait $!; echo $?; cat said");
  EXPECT_EQ(r.out, "3\nup\ngot\n");
}

TEST_F(Elevation, IgnoresWhatTheCallerIgnores) {
  auto r = Run("trap \"\" HUP; " + Up("echo up; sleep 0.2; echo on") +
               " > said & until grep -q up said; do sleep 0.02; done; kill -HUP $!; wait $!; echo $?; cat said");
  EXPECT_EQ(r.out, "0\nup\non\n");
}

TEST_F(Elevation, GoesWithItsCaller) {
  auto e = Script(Up("echo $$ > pid; sleep 1000; true"));
  client_.Send(e);
  ASSERT_TRUE(Eventually([&] { return ReadWhole(dir_ + "/pid").ends_with("\n"); }));
  client_.Send(protocol::Kill{e.id, SIGKILL});
  EXPECT_EQ(client_.Finish(e.id).exit.code, 137);
  TestClient other(machine_);
  EXPECT_TRUE(Eventually([&] { return other.Shell("! grep -qx sleep /proc/[0-9]*/comm").exit.code == 0; }));
  EXPECT_EQ(other.Shell("test -d /proc/$(cat " + dir_ + "/pid)").exit.code, 1);
}

TEST_F(Elevation, IsForNobodyElse) {
  EXPECT_THAT(Run(Up("id"), 0).err, HasSubstr("neither for root")) << "root needs no door";
  ASSERT_EQ(::chmod(up_.c_str(), 0755), 0);
  EXPECT_THAT(Run(Up("id")).err, HasSubstr("must be a file of root"));
  ASSERT_EQ(::chmod(up_.c_str(), 04755), 0);
  // The argument is the agent's.
  EXPECT_EQ(Run("./ask --sandbar-caller=0 -p -c id").exit.code, 2);
  EXPECT_EQ(Run("./up --sandbar-caller=0 -p -c id").exit.code, 2);
}

TEST_F(Elevation, WhoSaysNothingOrNonsenseHoldsNobodyUp) {
  std::vector<Fd> silent;
  char ready = 1;
  // Again where a busy machine took so long that the first of them were turned out.
  EXPECT_TRUE(Eventually([&] {
    silent.clear();
    while (silent.size() < kMaxElevations) silent.push_back(Connect());
    return ::recv(silent.back().get(), &ready, 1, 0) == 1 && Run(Up("id")).err.contains("too many");
  }));
  EXPECT_EQ(Run("echo on").out, "on\n");
  silent.clear();
  EXPECT_TRUE(Eventually([&] { return Run(Up("echo $EUID")).out == "0\n"; }));
  // Without descriptors, and with lengths of its own.
  for (const ElevateHeader& h : {ElevateHeader{1, 0, 2}, ElevateHeader{UINT32_MAX, UINT32_MAX, UINT32_MAX}}) {
    Fd fd = Connect();
    EXPECT_EQ(::recv(fd.get(), &ready, 1, 0), 1);
    ASSERT_EQ(::send(fd.get(), &h, sizeof h, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof h));
    EXPECT_EQ(::recv(fd.get(), &ready, 1, 0), 0) << "closed";
  }
}

}  // namespace
}  // namespace sandbar::guest
