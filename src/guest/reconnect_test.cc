// The daemon dies, comes back, misbehaves: nothing is lost, and the agent stays.
#include <gmock/gmock.h>

#include "support/guest/test_machine.h"

namespace sandbar::guest {
namespace {

using ::testing::HasSubstr;

TEST(Reconnect, OutputAndExitOfTheTimeBetweenAreReplayed) {
  TestMachine machine;
  auto go = machine.dir() + "/go";
  {
    TestClient first(machine);
    EXPECT_TRUE(first.hello().commands.empty());
    first.Send(TestClient::Command(
        "a", {"sh", "-c", "echo one; while [ ! -e " + go + " ]; do sleep 0.02; done; echo two; exit 3"}));
    first.Expect<protocol::ExecStarted>();
    EXPECT_EQ(first.Expect<protocol::Output>().bytes, "one\n");
  }
  WriteWhole(go, "");
  auto done = [&] {
    TestClient probe(machine);
    return probe.hello().commands.size() == 1 && probe.hello().commands[0].exited;
  };
  EXPECT_TRUE(Eventually(done));
  {
    TestClient second(machine);
    ASSERT_EQ(second.hello().commands.size(), 1u);
    EXPECT_EQ(second.hello().commands[0].id, "a");
    EXPECT_EQ(second.hello().commands[0].produced, 8u);
    auto r = second.Finish("a", false);  // never acknowledges the exit
    EXPECT_EQ(r.out, "one\ntwo\n");      // "one" was not acknowledged before
    EXPECT_EQ(r.exit.code, 3);
  }
  {
    TestClient third(machine);
    auto r = third.Finish("a");
    EXPECT_EQ(r.out, "");  // acknowledged by now
    EXPECT_EQ(r.exit.code, 3);
    EXPECT_EQ(r.exit.final_offset, 8u);
    third.Run({"true"});
  }
  TestClient fourth(machine);
  EXPECT_TRUE(fourth.hello().commands.empty());
}

TEST(Reconnect, ReplayBeginsAtTheLastAck) {
  TestMachine machine;
  {
    TestClient first(machine);
    first.Send(TestClient::Command("a", {"sh", "-c", "printf 0123456789; sleep 1000"}));
    first.Expect<protocol::ExecStarted>();
    EXPECT_EQ(first.Expect<protocol::Output>().bytes, "0123456789");
    first.Send(protocol::Ack{"a", 4});
    first.Run({"true"});  // so that the Ack was surely handled
  }
  TestClient second(machine);
  auto o = second.Expect<protocol::Output>();
  EXPECT_EQ(o.offset, 4u);
  EXPECT_EQ(o.bytes, "456789");
}

TEST(Reconnect, CommandNeverBlocksWhileNobodyReads) {
  TestMachine machine;
  auto flag = machine.dir() + "/written";
  {
    TestClient first(machine);
    first.Send(TestClient::Command("a", {"sh", "-c",
                                         "i=0; while [ $i -lt 400 ]; do printf '%08d' $i; head -c 99992 /dev/zero; "
                                         "i=$((i+1)); done; touch " +
                                             flag}));
    first.Expect<protocol::ExecStarted>();
  }
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(flag); }));
  TestClient second(machine);
  auto r = second.Finish("a");
  EXPECT_EQ(r.exit.final_offset, 400u * 100000);
  EXPECT_EQ(r.out.size() + r.gap, 400u * 100000);
  EXPECT_GT(r.gap, 0u);
  EXPECT_EQ(r.out.substr(0, 8), "00000000");
  EXPECT_EQ(r.out.substr(100000, 8), "00000001");
  EXPECT_EQ(r.out.substr(r.out.size() - 100000, 8), "00000399");
  // Both ends of the output are there, about as much as promised.
  EXPECT_GT(r.out.size(), (protocol::kSpoolHead + protocol::kSpoolTail) / 4 * 3);
  EXPECT_LE(r.out.size(), protocol::kSpoolHead + protocol::kSpoolTail);
}

TEST(Reconnect, SpoolsOfAllCommandsShareOneBudget) {
  TestMachine machine;
  constexpr int kCommands = 12;
  auto go = machine.dir() + "/go";
  {
    TestClient first(machine);
    for (int i = 0; i < kCommands; ++i) {
      auto id = std::to_string(i);
      first.Send(TestClient::Command(id, {"sh", "-c",
                                          "while [ ! -e " + go +
                                              " ]; do sleep 0.02; done; head -c 20000000 /dev/zero; "
                                              "touch " +
                                              machine.dir() + "/w" + id}));
      first.Expect<protocol::ExecStarted>();
    }
  }
  WriteWhole(go, "");
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < kCommands; ++i) {
      if (!std::filesystem::exists(machine.dir() + "/w" + std::to_string(i))) return false;
    }
    return true;
  }));
  TestClient second(machine);
  ASSERT_EQ(second.hello().commands.size(), static_cast<size_t>(kCommands));
  size_t held = 0;
  int exits = 0;
  while (exits < kCommands) {
    auto frame = second.Receive();
    ASSERT_TRUE(frame);
    if (auto* o = std::get_if<protocol::Output>(&*frame)) {
      held += o->bytes.size();
      second.Send(protocol::Ack{o->id, o->offset + o->bytes.size()});
    }
    if (auto* g = std::get_if<protocol::Gap>(&*frame)) second.Send(protocol::Ack{g->id, g->offset + g->bytes});
    if (auto* e = std::get_if<protocol::Exit>(&*frame)) {
      EXPECT_EQ(e->final_offset, 20000000u);
      ++exits;
    }
  }
  EXPECT_LE(held, kSpoolBudget + kCommands * 64 * 1024);
  EXPECT_GE(held, kSpoolBudget / 4);
}

TEST(Reconnect, NewestConnectionWins) {
  TestMachine machine;
  TestClient old(machine);
  old.Send(TestClient::Command("a", {"sleep", "1000"}));
  old.Expect<protocol::ExecStarted>();
  TestClient fresh(machine);
  EXPECT_EQ(fresh.hello().commands.size(), 1u);
  EXPECT_TRUE(old.Closed());
  EXPECT_EQ(fresh.Run({"echo", "x"}).out, "x\n");
}

TEST(Reconnect, LaunchThatFailsUnseenEndsAsAShellWouldEndIt) {
  TestMachine machine;
  {
    TestClient first(machine);
    first.Send(TestClient::Command("a", {"no-such-program"}));
  }
  // Either the first connection got the answer (and the command is forgotten) or a later one gets an Exit.
  TestClient second(machine);
  if (!second.hello().commands.empty()) {
    EXPECT_EQ(second.Finish("a").exit.code, 127);
  }
  EXPECT_EQ(second.Run({"true"}).exit.code, 0);
}

TEST(Reconnect, GarbageBeforeTheMagicIsSkipped) {
  TestMachine machine;
  TestClient client(machine, false);
  client.SendRaw("half a frame \x7fSAN\x7fSANDBA");
  client.SendRaw(protocol::Encode(protocol::Hello{protocol::kOldestGuestVersion, 5}));
  EXPECT_EQ(client.Expect<protocol::HelloAck>().nonce, 5u);
}

class Violation : public ::testing::TestWithParam<std::function<void(TestClient&)>> {};

TEST_P(Violation, ClosesTheConnectionAndNothingElse) {
  TestMachine machine;
  {
    TestClient client(machine);
    GetParam()(client);
    EXPECT_TRUE(client.Closed());
  }
  TestClient again(machine);
  EXPECT_EQ(again.Run({"echo", "fine"}).out, "fine\n");
}

INSTANTIATE_TEST_SUITE_P(
    All, Violation,
    ::testing::Values([](TestClient& c) { c.Send(protocol::Hello{}); },  // its magic is no frame
                      [](TestClient& c) { c.SendRaw(std::string("\xff\xff\xff\xff", 4)); },
                      [](TestClient& c) { c.SendRaw(std::string("\0\0\0\0", 4)); },
                      [](TestClient& c) { c.SendRaw(std::string("\1\0\0\0\x63", 5)); },
                      [](TestClient& c) { c.Send(protocol::Data{9, "x"}); },
                      [](TestClient& c) { c.Send(protocol::End{9}); },
                      [](TestClient& c) { c.Send(protocol::Abort{9}); },
                      [](TestClient& c) { c.Send(protocol::Credit{9, 1}); },
                      [](TestClient& c) {
                        c.Send(TestClient::Command("a", {"sleep", "1000"}));
                        c.Send(protocol::Ack{"a", 1});
                      },
                      [](TestClient& c) {
                        c.Send(TestClient::Command("a", {"sleep", "1000"}));
                        c.Send(protocol::ExitAck{"a"});
                      },
                      [](TestClient& c) {
                        c.Send(protocol::ReadFile{5, "/proc/uptime", "/", 0, 0, ""});
                        c.Send(protocol::ReadFile{5, "/proc/uptime", "/", 0, 0, ""});
                      },
                      [](TestClient& c) {
                        c.Send(protocol::WriteTar{5, "/", 0, 0, "", false});
                        c.Send(protocol::Credit{5, 1});  // an upload takes none
                      },
                      [](TestClient& c) {
                        // A worker that reads nothing: more than the window is more than was allowed.
                        c.Shell("while ! pkill -STOP sandbar-file; do sleep 0.01; done & sleep 0.1");
                        c.Send(protocol::WriteTar{5, "/", 0, 0, "", false});
                        c.Shell("until ps -e -o comm=,stat= | grep -q 'sandbar-file *T'; do sleep 0.01; done");
                        for (int i = 0; i < 11; ++i) c.Send(protocol::Data{5, std::string(protocol::kMaxData, 'x')});
                      }));

TEST(Protocol, OtherVersionIsToldOursThenClosed) {
  TestMachine machine;
  TestClient client(machine, false);
  client.Send(protocol::Hello{99, 1});
  EXPECT_EQ(client.Expect<protocol::HelloAck>().oldest, protocol::kOldestGuestVersion);
  EXPECT_TRUE(client.Closed());
}

TEST(Protocol, ALaterDaemonThatSpeaksOurVersionTooIsServed) {
  TestMachine machine;
  TestClient client(machine, false);
  client.Send(protocol::Hello{protocol::kOldestGuestVersion, 1, 99});
  EXPECT_EQ(client.Expect<protocol::HelloAck>().versions(), protocol::GuestVersions());
  client.Send(protocol::MakeDir{{1, "later", "/tmp", 0, 0, ""}, true, {}});
  client.Expect<protocol::End>();
}

TEST(Protocol, NothingBeforeHello) {
  TestMachine machine;
  TestClient client(machine, false);
  client.SendRaw(protocol::kGuestMagic);
  client.Send(TestClient::Command("a", {"true"}));
  EXPECT_TRUE(client.Closed());
}

TEST(Quiesce, EndsEverythingOnSigtermAndReportsClean) {
  TestMachine machine;
  TestClient client(machine);
  client.Send(TestClient::Command("a", {"sh", "-c",
                                        "trap 'echo bye; exit 5' TERM; sleep 1000 & "
                                        "until grep -q sleep /proc/$!/comm; do :; done; echo up; wait"}));
  client.Expect<protocol::ExecStarted>();
  EXPECT_EQ(client.Expect<protocol::Output>().bytes, "up\n");
  client.Send(protocol::Quiesce{60000});
  client.Send(TestClient::Command("b", {"true"}));
  // The last words of the one and the refusal of the other come in any order.
  auto r = client.Finish("a");
  auto refused = r.refused ? *r.refused : client.Expect<protocol::ExecFailed>();
  EXPECT_EQ(refused.kind, protocol::ExecFailure::kQuiescing);
  EXPECT_EQ(r.out, "bye\n");
  EXPECT_EQ(r.exit.code, 5);
  auto q = client.Expect<protocol::Quiesced>();
  EXPECT_TRUE(q.clean);
  EXPECT_EQ(q.killed, 0u);
  client.Send(protocol::ReadFile{1, "/etc/passwd", "/", 0, 0, ""});
  EXPECT_THAT(client.Expect<protocol::FileError>().message, HasSubstr("stopping"));
  client.Send(protocol::Quiesce{60000});  // again: nothing left to do
  EXPECT_TRUE(client.Expect<protocol::Quiesced>().clean);
}

TEST(Quiesce, WritingOutEndsNothing) {
  TestMachine machine;
  TestClient client(machine);
  client.Send(TestClient::Command("a", {"sh", "-c", "echo up; sleep 1000"}));
  client.Expect<protocol::ExecStarted>();
  EXPECT_EQ(client.Expect<protocol::Output>().bytes, "up\n");
  client.Send(protocol::Quiesce{0, true});
  EXPECT_TRUE(client.Expect<protocol::Quiesced>().clean);
  client.Send(TestClient::Command("b", {"true"}));
  EXPECT_EQ(client.Finish("b").exit.code, 0);
  client.Send(protocol::Kill{"a", 9});
  EXPECT_EQ(client.Finish("a").exit.code, 137);
}

TEST(Quiesce, KillsWhatIgnoresSigterm) {
  TestMachine machine;
  TestClient client(machine);
  client.Send(TestClient::Command("a", {"sh", "-c", "trap '' TERM; setsid sleep 1000 & echo up; sleep 1000"}));
  client.Expect<protocol::ExecStarted>();
  EXPECT_EQ(client.Expect<protocol::Output>().bytes, "up\n");
  client.Send(protocol::Quiesce{50});
  auto r = client.Finish("a");
  EXPECT_EQ(r.exit.code, 137);
  auto q = client.Expect<protocol::Quiesced>();
  EXPECT_FALSE(q.clean);
  EXPECT_GE(q.killed, 2u);  // the shell may not have started its last child yet
}

TEST(Quiesce, StoppedProcessesEndToo) {
  TestMachine machine;
  TestClient client(machine);
  client.Send(TestClient::Command("a", {"sh", "-c", "echo up; kill -STOP $$"}));
  client.Expect<protocol::ExecStarted>();
  EXPECT_EQ(client.Expect<protocol::Output>().bytes, "up\n");
  client.Send(protocol::Quiesce{60000});
  EXPECT_EQ(client.Finish("a").exit.code, 143);
  EXPECT_TRUE(client.Expect<protocol::Quiesced>().clean);
}

TEST(Quiesce, WithoutADaemonThatTakesTheOutputItStillReports) {
  TestMachine machine;
  TestClient client(machine);
  client.Send(TestClient::Command("a", {"head", "-c", "3000000", "/dev/zero"}));
  client.Expect<protocol::ExecStarted>();
  for (uint64_t got = 0; got < protocol::kOutputWindow;) got += client.Expect<protocol::Output>().bytes.size();
  EXPECT_FALSE(client.Receive(300));  // by now the pipe holds more
  client.Send(protocol::Quiesce{10});
  // No Ack at all: the exit cannot be sent, the report comes all the same.
  for (;;) {
    auto frame = client.Receive();
    ASSERT_TRUE(frame);
    ASSERT_FALSE(std::holds_alternative<protocol::Exit>(*frame));
    if (std::holds_alternative<protocol::Quiesced>(*frame)) break;
  }
}

TEST(RealBinary, RunsAndStaysSmall) {
  if (!std::filesystem::exists(TestMachine::BinaryPath())) GTEST_SKIP() << "sandbar-guest is not built";
  MachineOptions options;
  options.real_binary = true;
  TestMachine machine(options);
  TestClient client(machine);
  EXPECT_EQ(client.Shell("echo hi").out, "hi\n");
  EXPECT_EQ(ReadWhole(machine.dir() + "/joined"), "0");
  client.Shell("head -c 30000000 /dev/zero");
  auto resident_kib = [&] {
    std::string status = ReadWhole("/proc/" + std::to_string(machine.pid()) + "/status");
    auto at = status.find("VmRSS:");
    return at == std::string::npos ? 0L : std::atol(status.c_str() + at + 6);
  };
  client.Run({"true"});
  EXPECT_GT(resident_kib(), 0);
  EXPECT_LE(resident_kib(), 3 * 1024);
}

}  // namespace
}  // namespace sandbar::guest
