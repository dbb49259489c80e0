#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/guest/test_machine.h"

namespace sandbar::guest {
namespace {

using ::testing::HasSubstr;

class Command : public ::testing::Test {
 protected:
  TestMachine machine_;
  TestClient client_{machine_};
};

TEST_F(Command, RunsAsPidOneWithSeparateStreams) {
  auto r = client_.Shell("echo out; echo err >&2; echo $PPID; exit 7");
  EXPECT_EQ(r.out, "out\n1\n");
  EXPECT_EQ(r.err, "err\n");
  EXPECT_EQ(r.exit.code, 7);
  EXPECT_FALSE(r.exit.timed_out);
  EXPECT_EQ(r.exit.final_offset, r.out.size() + r.err.size());
}

TEST_F(Command, StartedComesBeforeOutput) {
  client_.Send(TestClient::Command("a", {"echo", "hi"}));
  EXPECT_EQ(client_.Expect<protocol::ExecStarted>().id, "a");
  auto out = client_.Expect<protocol::Output>();
  EXPECT_EQ(out.bytes, "hi\n");
  EXPECT_EQ(out.offset, 0u);
}

TEST_F(Command, GetsExactlyTheGivenArgumentsAndEnvironment) {
  auto e = TestClient::Command("a", {"sh", "-c", "printf '<%s>' \"$@\"; env | sort", "x", "a b", "", "$HOME"});
  e.env = {"PATH=/usr/bin:/bin", "K=v w", "EMPTY="};
  auto r = client_.RunExec(e);
  EXPECT_THAT(r.out, HasSubstr("<a b><><$HOME>"));
  EXPECT_THAT(r.out, HasSubstr("EMPTY=\nK=v w\n"));
  EXPECT_EQ(r.out.find("USER"), std::string::npos);
}

TEST_F(Command, RunsInItsDirectoryAsItsUserWithItsGroups) {
  auto e = TestClient::Command("a", {"sh", "-c", "pwd; id -u; id -g; id -G; umask"});
  e.cwd = machine_.dir();
  e.uid = 12345;
  e.gid = 12346;
  e.user = "eve";
  auto r = client_.RunExec(e);
  EXPECT_EQ(r.out, machine_.dir() + "\n12345\n12346\n12346 4242\n0022\n");
}

TEST_F(Command, StdinIsEmptyAndNothingElseIsInherited) {
  auto r = client_.Shell("cat; ls /proc/self/fd | tr '\\n' ' '; cat /proc/self/status | grep -E 'Sig(Blk|Ign|Cgt)'");
  // ls has its directory open as 3.
  EXPECT_THAT(r.out, ::testing::StartsWith("0 1 2 3 "));
  EXPECT_EQ(r.out.find(" 4 "), std::string::npos);
  EXPECT_THAT(r.out, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(r.out, HasSubstr("SigIgn:\t0000000000000000"));
}

protocol::Exec WithChannel(const std::string& script) {
  auto e = TestClient::Command("c", {"bash", "-c", script});
  e.channel = protocol::Channel::kDescriptor3;
  return e;
}

TEST_F(Command, AChannelGoesBothWaysBesideTheOutput) {
  client_.Send(WithChannel("read -r -u 3 line; echo out; echo \"got $line\" >&3; ls /proc/self/fd | tr '\\n' ' '"));
  EXPECT_EQ(client_.Expect<protocol::ExecStarted>().id, "c");
  client_.Send(protocol::Input{"c", "a li"});
  client_.Send(protocol::Input{"c", "ne\nmore"});
  auto r = client_.Finish("c");
  EXPECT_EQ(r.channel, "got a line\n");
  // ls has its directory open as 4: descriptor 3 is the channel, and there is no other.
  EXPECT_EQ(r.out, "out\n0 1 2 3 4 ");
}

TEST_F(Command, TheChannelCanBeItsStandardInput) {
  auto e =
      TestClient::Command("c", {"bash", "-c", "read -r line; echo \"got $line\" >&0; ls /proc/self/fd | tr '\\n' ' '"});
  e.channel = protocol::Channel::kStandardInput;
  client_.Send(e);
  EXPECT_EQ(client_.Expect<protocol::ExecStarted>().id, "c");
  client_.Send(protocol::Input{"c", "a line\n"});
  auto r = client_.Finish("c");
  EXPECT_EQ(r.channel, "got a line\n");
  EXPECT_EQ(r.out, "0 1 2 3 ");
}

TEST_F(Command, WithoutAChannelThereIsNoneAndInputIsDropped) {
  client_.Send(TestClient::Command("c", {"bash", "-c", "echo x >&3 || echo none"}));
  client_.Send(protocol::Input{"c", "to nobody"});
  client_.Send(protocol::Input{"unknown", "to nobody"});
  auto r = client_.Finish("c");
  EXPECT_EQ(r.out, "none\n");
  EXPECT_EQ(r.channel, "");
}

TEST_F(Command, WhatTheChannelSaysNeverOvertakesWhatWasPrintedBefore) {
  client_.Send(WithChannel("for i in {1..500}; do echo out $i; echo err $i >&2; echo mark $i >&3; done"));
  EXPECT_EQ(client_.Expect<protocol::ExecStarted>().id, "c");
  std::string out, err, channel;
  for (bool ended = false; !ended;) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* o = std::get_if<protocol::Output>(&*frame)) {
      (o->stream == 1 ? out : o->stream == 2 ? err : channel) += o->bytes;
      client_.Send(protocol::Ack{"c", o->offset + o->bytes.size()});
      const std::string last = channel.substr(0, channel.rfind('\n'));
      const std::string n = last.substr(last.rfind(' ') + 1);
      if (n.empty()) continue;
      ASSERT_THAT(out, HasSubstr("out " + n + "\n"));
      ASSERT_THAT(err, HasSubstr("err " + n + "\n"));
    }
    ended = std::holds_alternative<protocol::Exit>(*frame);
  }
  EXPECT_THAT(channel, ::testing::EndsWith("mark 500\n"));
}

TEST_F(Command, ADaemonThatWithholdsAcksHoldsTheChannelBackToo) {
  client_.Send(WithChannel("head -c 3000000 /dev/zero; echo done >&3"));
  uint64_t bytes = 0;
  while (auto frame = client_.Receive(500)) {
    if (auto* o = std::get_if<protocol::Output>(&*frame)) {
      EXPECT_EQ(o->stream, 1);
      bytes += o->bytes.size();
    }
  }
  EXPECT_EQ(bytes, protocol::kOutputWindow);
  client_.Send(protocol::Ack{"c", bytes});
  auto r = client_.Finish("c");
  EXPECT_EQ(bytes + r.out.size(), 3000000u);
  EXPECT_EQ(r.channel, "done\n");
}

TEST_F(Command, LargeInputIsDeliveredAndWhatNobodyReadsEndsTheCommand) {
  client_.Send(WithChannel("head -c 3000000 <&3 | cksum | cut -d' ' -f2"));
  for (int i = 0; i < 30; ++i) client_.Send(protocol::Input{"c", std::string(100000, 'x')});
  EXPECT_EQ(client_.Finish("c").out, "3000000\n");
  auto deaf = WithChannel("sleep 1000");
  deaf.id = "deaf";
  client_.Send(deaf);
  for (size_t sent = 0; sent < 2 * protocol::kMaxInput; sent += protocol::kMaxData)
    client_.Send(protocol::Input{"deaf", std::string(protocol::kMaxData, 'x')});
  EXPECT_EQ(client_.Finish("deaf").exit.code, 137);
}

TEST_F(Command, UserCanOpenItsOwnStdout) {
  auto e = TestClient::Command("a", {"sh", "-c", "echo one > /proc/self/fd/1; echo two > /proc/self/fd/2"});
  e.uid = e.gid = 12345;
  auto r = client_.RunExec(e);
  EXPECT_EQ(r.out + r.err, "one\ntwo\n");
}

TEST_F(Command, EachOneIsAGroupOfItsOwnSession) {
  auto r = client_.Shell("ps -o pid=,pgid=,sid= -p $$");
  int pid = 0, pgid = 0, sid = 0;
  ASSERT_EQ(std::sscanf(r.out.c_str(), "%d %d %d", &pid, &pgid, &sid), 3) << r.out << r.err;
  EXPECT_EQ(pid, pgid);
  EXPECT_EQ(pid, sid);
}

TEST_F(Command, JoinsTheCgroupsOncePerProcessStarted) {
  client_.Run({"true"});
  client_.Run({"true"});
  EXPECT_EQ(ReadWhole(machine_.dir() + "/joined"), "00");
}

TEST(CommandWithoutCgroup, DoesNotRun) {
  MachineOptions options;
  options.break_join = true;
  TestMachine machine(options);
  TestClient client(machine);
  EXPECT_EQ(client.Run({"true"}).failure.kind, protocol::ExecFailure::kNoResources);
  // Nor does a file worker.
  client.Send(protocol::ReadFile{1, "/etc/passwd", "/", 0, 0, ""});
  client.Expect<protocol::FileError>();
}

TEST_F(Command, FailuresAreTyped) {
  auto kind = [&](std::vector<std::string> argv, std::string cwd = "/") {
    auto e = TestClient::Command("a", std::move(argv));
    e.cwd = std::move(cwd);
    auto r = client_.RunExec(e);
    EXPECT_TRUE(r.failed);
    return r.failure;
  };
  WriteWhole(machine_.dir() + "/plain", "text");
  WriteWhole(machine_.dir() + "/orphan", "#!/no/such/interpreter\n");
  ::chmod((machine_.dir() + "/orphan").c_str(), 0755);
  auto missing = kind({"no-such-program"});
  EXPECT_EQ(missing.kind, protocol::ExecFailure::kNotFound);
  EXPECT_THAT(missing.message, HasSubstr("no-such-program"));
  EXPECT_EQ(kind({"/no/such/program"}).kind, protocol::ExecFailure::kNotFound);
  EXPECT_EQ(kind({""}).kind, protocol::ExecFailure::kNotFound);
  EXPECT_EQ(kind({machine_.dir() + "/plain"}).kind, protocol::ExecFailure::kNotExecutable);
  EXPECT_EQ(kind({machine_.dir() + "/orphan"}).kind, protocol::ExecFailure::kNotExecutable);
  EXPECT_EQ(kind({machine_.dir()}).kind, protocol::ExecFailure::kNotExecutable);
  EXPECT_EQ(kind({"true"}, "/no/such/dir").kind, protocol::ExecFailure::kBadCwd);
  EXPECT_EQ(kind({"true"}, "/etc/passwd").kind, protocol::ExecFailure::kBadCwd);
  EXPECT_EQ(kind({std::string("tr\0ue", 5)}).kind, protocol::ExecFailure::kOther);
  EXPECT_EQ(kind({"true", std::string(200 << 10, 'x')}).kind,
            protocol::ExecFailure::kOther);  // over the kernel's limit
  EXPECT_EQ(client_.Run({"true"}).exit.code, 0);
}

TEST_F(Command, LooksAlongThePathPastWhatCannotRun) {
  auto d = machine_.dir();
  ::mkdir((d + "/one").c_str(), 0755);
  ::mkdir((d + "/two").c_str(), 0755);
  ::mkdir((d + "/closed").c_str(), 0700);
  WriteWhole(d + "/one/tool", "not executable");
  WriteWhole(d + "/two/tool", "echo \"script $1\"\n");  // no "#!": the shell runs it
  ::chmod((d + "/two/tool").c_str(), 0755);
  auto e = TestClient::Command("a", {"tool", "arg"});
  e.uid = e.gid = 12345;
  e.env = {"PATH=" + d + "/closed:" + d + "/none:" + d + "/one:" + d + "/two"};
  EXPECT_EQ(client_.RunExec(e).out, "script arg\n");
  e.env = {"PATH=" + d + "/one"};
  EXPECT_EQ(client_.RunExec(e).failure.kind, protocol::ExecFailure::kNotExecutable);
  e.env = {"PATH=" + d + "/closed"};
  EXPECT_EQ(client_.RunExec(e).failure.kind, protocol::ExecFailure::kNotFound);
  e.env = {"PATH=:" + d + "/none"};  // an empty part is the current directory
  e.cwd = d + "/two";
  EXPECT_EQ(client_.RunExec(e).out, "script arg\n");
}

TEST_F(Command, ExitCodesAreLikeAShells) {
  EXPECT_EQ(client_.Shell("kill -INT $$").exit.code, 130);
  EXPECT_EQ(client_.Shell("kill -TERM $$").exit.code, 143);
  EXPECT_EQ(client_.Shell("kill -KILL $$").exit.code, 137);
  EXPECT_EQ(client_.Shell("exit 255").exit.code, 255);
}

TEST_F(Command, KillReachesTheWholeGroup) {
  client_.Send(TestClient::Command("a", {"sh", "-c", "sleep 1000 & echo $!; wait"}));
  client_.Expect<protocol::ExecStarted>();
  int child = std::atoi(client_.Expect<protocol::Output>().bytes.c_str());
  client_.Send(protocol::Kill{"a", 15});
  EXPECT_EQ(client_.Finish("a").exit.code, 143);
  auto gone = "! kill -0 " + std::to_string(child) + " 2>/dev/null";
  EXPECT_TRUE(Eventually([&] { return client_.Shell(gone).exit.code == 0; }));
  client_.Send(protocol::Kill{"a", 9});  // ended and forgotten: no effect, no complaint
  EXPECT_EQ(client_.Run({"true"}).exit.code, 0);
}

TEST_F(Command, TimeoutKillsTheGroup) {
  auto e = TestClient::Command("a", {"sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"});
  e.timeout_ms = 100;
  auto r = client_.RunExec(e);
  EXPECT_EQ(r.exit.code, 137);
  EXPECT_TRUE(r.exit.timed_out);
  EXPECT_GE(r.exit.duration_ms, 100u);
  EXPECT_TRUE(Eventually([&] { return client_.Shell("! pgrep -x sleep").exit.code == 0; }));
}

TEST_F(Command, BackgroundChildDelaysNothingAndLivesOn) {
  auto flag = machine_.dir() + "/flag";
  // The child writes far more than a pipe holds after the command's end: it must neither block nor be killed.
  auto r = client_.Shell("(while [ ! -e " + flag + " ]; do sleep 0.02; done; head -c 1000000 /dev/zero; echo end > " +
                         flag + ".done) & echo main");
  EXPECT_EQ(r.out, "main\n");
  EXPECT_EQ(r.exit.code, 0);
  EXPECT_FALSE(std::filesystem::exists(flag + ".done"));
  WriteWhole(flag, "");
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(flag + ".done"); }));
}

TEST_F(Command, NoisyBackgroundChildCannotHoldACommandOpen) {
  auto r = client_.Shell("(while :; do echo noise; sleep 0.01; done) & echo main");
  EXPECT_THAT(r.out, HasSubstr("main\n"));
  EXPECT_EQ(r.exit.final_offset, r.out.size());
}

TEST_F(Command, TwoRunAtOnce) {
  client_.Send(TestClient::Command(
      "a", {"sh", "-c", "echo a1; while [ ! -e " + machine_.dir() + "/go ]; do sleep 0.02; done; echo a2"}));
  client_.Send(TestClient::Command("b", {"sh", "-c", "echo b; touch " + machine_.dir() + "/go"}));
  std::string a, b;
  int exits = 0;
  while (exits < 2) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* o = std::get_if<protocol::Output>(&*frame)) (o->id == "a" ? a : b) += o->bytes;
    if (std::holds_alternative<protocol::Exit>(*frame)) ++exits;
  }
  EXPECT_EQ(a, "a1\na2\n");
  EXPECT_EQ(b, "b\n");
}

TEST_F(Command, DuplicateIdIsRefused) {
  client_.Send(TestClient::Command("a", {"sleep", "1000"}));
  client_.Expect<protocol::ExecStarted>();
  client_.Send(TestClient::Command("a", {"true"}));
  EXPECT_EQ(client_.Expect<protocol::ExecFailed>().kind, protocol::ExecFailure::kDuplicate);
}

TEST_F(Command, OrphansAreReaped) {
  client_.Shell("for i in $(seq 300); do (sleep 0 &) ; done");
  EXPECT_TRUE(Eventually([&] { return client_.Shell("ps -e -o stat= | grep -c Z").out == "0\n"; }));
}

TEST_F(Command, SignalsFromGuestRootDoNotTouchTheAgent) {
  for (int s : {1, 2, 3, 9, 10, 13, 15, 17, 19, 20, 31})
    EXPECT_EQ(client_.Shell("kill -" + std::to_string(s) + " 1").exit.code, 0);
  EXPECT_EQ(client_.Run({"echo", "still"}).out, "still\n");
}

TEST_F(Command, AgentIsClosedToTheGuest) {
  // The pipes, the socket and the memory image of PID 1 belong to the agent.
  auto e = TestClient::Command("a", {"sh", "-c", "ls /proc/1/fd; cat /proc/1/mem; cat /proc/1/environ"});
  e.uid = e.gid = 12345;
  auto r = client_.RunExec(e);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.exit.code, 0);
}

TEST_F(Command, WithheldAckStopsTheCommandAndLosesNothing) {
  constexpr uint64_t kTotal = 100 << 20;
  client_.Send(
      TestClient::Command("a", {"sh", "-c", "head -c 104857600 /dev/zero; touch " + machine_.dir() + "/written"}));
  client_.Expect<protocol::ExecStarted>();
  uint64_t received = 0;
  // Without Acks the window fills, then nothing more comes, however long one waits.
  while (received < protocol::kOutputWindow) {
    auto o = client_.Expect<protocol::Output>();
    ASSERT_EQ(o.offset, received);
    received += o.bytes.size();
  }
  EXPECT_EQ(received, protocol::kOutputWindow);
  EXPECT_FALSE(client_.Receive(300));
  EXPECT_FALSE(std::filesystem::exists(machine_.dir() + "/written"));
  client_.Send(protocol::Ack{"a", received});
  for (;;) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* e = std::get_if<protocol::Exit>(&*frame)) {
      EXPECT_EQ(e->final_offset, kTotal);
      break;
    }
    auto& o = std::get<protocol::Output>(*frame);
    ASSERT_EQ(o.offset, received);
    received += o.bytes.size();
    if (received % 7 != 0 || received == kTotal) client_.Send(protocol::Ack{"a", received});
    if (received % 7 == 0) client_.Send(protocol::Ack{"a", received - 1});
  }
  EXPECT_EQ(received, kTotal);
}

TEST_F(Command, OutputOfAnEndedCommandIsCompleteUnderBackPressure) {
  // Window plus what a pipe holds: the tail sits in the pipe when the main process ends.
  client_.Send(TestClient::Command("a", {"head", "-c", std::to_string(protocol::kOutputWindow + 60000), "/dev/zero"}));
  client_.Expect<protocol::ExecStarted>();
  uint64_t received = 0;
  while (received < protocol::kOutputWindow) received += client_.Expect<protocol::Output>().bytes.size();
  EXPECT_FALSE(client_.Receive(300));
  client_.Send(protocol::Ack{"a", received});
  auto r = client_.Finish("a");
  EXPECT_EQ(r.out.size(), 60000u);
  EXPECT_EQ(r.exit.final_offset, protocol::kOutputWindow + 60000);
}

TEST(Elevated, OneProgramRunsAsItsOwnerAndOnlyWhenItIsWhatItShouldBe) {
  MachineOptions options;
  options.elevated = "up";
  TestMachine machine(options);
  TestClient client(machine);
  const std::string up = machine.dir() + "/up";
  std::filesystem::copy_file("/usr/bin/id", up);
  int n = 0;
  auto run = [&](std::string file, const std::string& path) {
    auto e = TestClient::Command("run-" + std::to_string(++n), {std::move(file), "-u"});
    e.uid = e.gid = 12345;
    e.env = {"PATH=" + path};
    return client.RunExec(e).out;
  };
  const std::string plain = "12345\n", path = machine.dir() + ":/usr/bin:/bin";
  ASSERT_EQ(::chmod(up.c_str(), 0755), 0);
  EXPECT_EQ(run("up", path), plain) << "no setuid bit";
  ASSERT_EQ(::chmod(up.c_str(), 04777), 0);
  EXPECT_EQ(run("up", path), plain) << "anybody could have written it";
  ASSERT_EQ(::chown(up.c_str(), 12345, 0), 0);
  ASSERT_EQ(::chmod(up.c_str(), 04755), 0);
  EXPECT_EQ(run("up", path), plain) << "not root's";
  ASSERT_EQ(::chown(up.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(up.c_str(), 04755), 0);
  struct stat here{}, root{};
  ASSERT_TRUE(::stat(up.c_str(), &here) == 0 && ::stat("/", &root) == 0);
  // Only on the root file system: elsewhere it could be a drive's.
  const std::string raised = here.st_dev == root.st_dev ? "0\n" : plain;
  EXPECT_EQ(run("up", path), raised);
  EXPECT_EQ(run(up, "/usr/bin:/bin"), raised);
  // Another one of that name comes first.
  ASSERT_EQ(::mkdir((machine.dir() + "/first").c_str(), 0755), 0);
  std::filesystem::copy_file("/usr/bin/id", machine.dir() + "/first/up");
  ASSERT_EQ(::chmod((machine.dir() + "/first/up").c_str(), 04755), 0);
  EXPECT_EQ(run("up", machine.dir() + "/first:" + path), plain);
}

}  // namespace
}  // namespace sandbar::guest
