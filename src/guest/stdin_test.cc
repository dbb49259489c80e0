// Standard input of commands: bytes, end of file, back-pressure, and a daemon that goes away in between.
#include <gmock/gmock.h>

#include <fstream>

#include "support/guest/test_machine.h"
#include "support/wire/noise.h"

namespace sandbar::guest {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPiece = 32 << 10;

protocol::Exec WithStdin(const std::string& script) {
  auto e = TestClient::Command("c", {"bash", "-c", script});
  e.standard_input = true;
  return e;
}

// Feeds `input` from `sent` on within the window, collects the output, until the exit.
struct Fed {
  std::string out;
  protocol::Exit exit;
  bool closed = false;
};
Fed Feed(TestClient& client, const std::string& input, uint64_t sent = 0, uint64_t taken = 0) {
  Fed r;
  bool ended = false;
  for (;;) {
    while (!r.closed && sent < input.size() && sent < taken + protocol::kStdinWindow) {
      const size_t n = std::min({kPiece, input.size() - sent, taken + protocol::kStdinWindow - sent});
      client.Send(protocol::Stdin{"c", sent, input.substr(sent, n)});
      sent += n;
    }
    if (sent == input.size() && !std::exchange(ended, true)) client.Send(protocol::StdinEnd{"c", sent});
    auto frame = client.Receive();
    if (!frame) {
      ADD_FAILURE() << "the connection ended";
      return r;
    }
    if (auto* t = std::get_if<protocol::StdinTaken>(&*frame)) {
      EXPECT_GT(t->offset, taken);
      EXPECT_LE(t->offset, sent);
      taken = t->offset;
    }
    if (std::holds_alternative<protocol::StdinClosed>(*frame)) r.closed = true;
    if (auto* o = std::get_if<protocol::Output>(&*frame)) {
      r.out += o->bytes;
      client.Send(protocol::Ack{"c", o->offset + o->bytes.size()});
    }
    if (auto* e = std::get_if<protocol::Exit>(&*frame)) {
      r.exit = *e;
      client.Send(protocol::ExitAck{"c"});
      return r;
    }
  }
}

class Stdin : public ::testing::Test {
 protected:
  // Sends as much as the window allows to a command that reads nothing, and waits until the pipe is full.
  uint64_t Fill() {
    for (size_t at = 0; at < protocol::kStdinWindow; at += kPiece)
      client_.Send(protocol::Stdin{"c", at, std::string(kPiece, 'x')});
    uint64_t taken = 0;
    while (auto frame = client_.Receive(taken > 0 ? 300 : 60000)) {
      if (auto* t = std::get_if<protocol::StdinTaken>(&*frame)) taken = t->offset;
    }
    return taken;
  }
  TestMachine machine_;
  TestClient client_{machine_};
};

TEST_F(Stdin, BytesAndTheirEndReachTheCommand) {
  const std::string input = Noise(64 << 20);
  client_.Send(WithStdin("cat"));
  auto r = Feed(client_, input);
  EXPECT_TRUE(r.out == input) << r.out.size();
  EXPECT_EQ(r.exit.code, 0);
  EXPECT_FALSE(r.closed) << "it read to the end";
}

TEST_F(Stdin, EmptyInputEndsAtOnceAndDevStdinCanBeOpened) {
  auto e = WithStdin("cat; echo \"[$?]\"; cat /dev/stdin; stat -Lc %u /dev/stdin");
  e.uid = 1234;
  client_.Send(e);
  EXPECT_EQ(Feed(client_, "").out, "[0]\n1234\n");
}

TEST_F(Stdin, NothingIsInheritedBesidesIt) {
  client_.Send(WithStdin("cat >/dev/null; ls /proc/self/fd | tr '\\n' ' '"));
  EXPECT_EQ(Feed(client_, "x").out, "0 1 2 3 ");
}

TEST_F(Stdin, ACommandThatNeverReadsHoldsTheDaemonBack) {
  client_.Send(WithStdin("sleep 1000"));
  const uint64_t taken = Fill();
  // A pipe's worth; the rest stays in the agent.
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, protocol::kStdinWindow);
  // Not more than the window: the agent's memory is bounded.
  client_.Send(protocol::Stdin{"c", protocol::kStdinWindow, std::string(protocol::kMaxData, 'x')});
  EXPECT_TRUE(client_.Closed()) << "input beyond the window breaks the protocol";
  TestClient again(machine_);
  ASSERT_EQ(again.hello().stdins.size(), 1u);
  EXPECT_EQ(again.hello().stdins[0], (protocol::StdinState{"c", protocol::kStdinWindow, taken, false, false}));
  again.Send(protocol::Kill{"c", 9});
  EXPECT_EQ(again.Finish("c").exit.code, 137);
}

TEST_F(Stdin, AGapAndAWrongEndBreakTheProtocol) {
  client_.Send(WithStdin("cat"));
  client_.Send(protocol::Stdin{"c", 1, "x"});
  EXPECT_TRUE(client_.Closed());
  TestClient second(machine_);
  second.Send(protocol::StdinEnd{"c", 5});
  EXPECT_TRUE(second.Closed());
  TestClient third(machine_);
  third.Send(protocol::Stdin{"c", 0, "abc"});
  third.Send(protocol::StdinEnd{"c", 2});
  EXPECT_TRUE(third.Closed());
  TestClient fourth(machine_);
  fourth.Send(protocol::StdinEnd{"c", 3});
  fourth.Send(protocol::StdinEnd{"c", 3});
  fourth.Send(protocol::Stdin{"c", 1, "bc"});  // known already
  EXPECT_EQ(fourth.Finish("c").out, "abc");
  fourth.Send(protocol::Stdin{"c", 3, "to nobody"});
  EXPECT_EQ(fourth.Shell("echo still here").out, "still here\n");
}

TEST_F(Stdin, ADaemonThatDiesIsNoEndOfFile) {
  const std::string input = Noise(4 << 20);
  client_.Send(WithStdin("cat"));
  client_.Expect<protocol::ExecStarted>();
  size_t sent = 0;
  for (; sent < 50000; sent += 10000) client_.Send(protocol::Stdin{"c", sent, input.substr(sent, 10000)});
  while (auto frame = client_.Receive()) {
    auto* t = std::get_if<protocol::StdinTaken>(&*frame);
    if (t != nullptr && t->offset == sent) break;
  }
  TestClient second(machine_);
  ASSERT_EQ(second.hello().stdins.size(), 1u);
  const auto& state = second.hello().stdins[0];
  EXPECT_EQ(state, (protocol::StdinState{"c", sent, sent, false, false}));
  // Bytes that were sent before are skipped.
  second.Send(protocol::Stdin{"c", 20000, input.substr(20000, 40000)});
  auto r = Feed(second, input, 60000, 50000);
  EXPECT_TRUE(r.out == input) << r.out.size();
}

TEST_F(Stdin, TheEndIsRememberedToo) {
  client_.Send(WithStdin("sleep 0.5; cat"));
  client_.Send(protocol::Stdin{"c", 0, "all"});
  client_.Send(protocol::StdinEnd{"c", 3});
  client_.Expect<protocol::ExecStarted>();
  EXPECT_EQ(client_.Expect<protocol::StdinTaken>().offset, 3u);
  TestClient second(machine_);
  ASSERT_EQ(second.hello().stdins.size(), 1u);
  EXPECT_TRUE(second.hello().stdins[0].ended);
  EXPECT_EQ(second.Finish("c").out, "all");
}

TEST_F(Stdin, AReaderThatLeavesIsReportedAndTheRestIsDiscarded) {
  client_.Send(WithStdin("head -c 1; exec <&-; sleep 0.3; echo done"));
  auto r = Feed(client_, Noise(8 << 20));
  EXPECT_TRUE(r.closed);
  EXPECT_THAT(r.out, ::testing::EndsWith("done\n"));
  EXPECT_EQ(r.exit.code, 0);
}

TEST_F(Stdin, DiscardedInputIsCreditedUntilTheExit) {
  client_.Send(WithStdin("exec <&-; sleep 1000"));
  client_.Expect<protocol::ExecStarted>();
  EXPECT_EQ(client_.Expect<protocol::StdinClosed>().id, "c");
  for (uint64_t at = 0; at < 4 * protocol::kStdinWindow; at += protocol::kMaxData) {
    client_.Send(protocol::Stdin{"c", at, std::string(protocol::kMaxData, 'x')});
    EXPECT_EQ(client_.Expect<protocol::StdinTaken>().offset, at + protocol::kMaxData);
  }
  client_.Send(protocol::Kill{"c", 9});
  EXPECT_EQ(client_.Finish("c").exit.code, 137);
}

TEST_F(Stdin, ACommandThatEndsWithInputLeftSaysSoBeforeItsExit) {
  client_.Send(WithStdin("read -r -N 1; exit 3"));
  auto r = Feed(client_, Noise(1 << 20));
  EXPECT_TRUE(r.closed);
  EXPECT_EQ(r.exit.code, 3);
}

TEST_F(Stdin, ABackgroundChildOfAnEndedCommandSeesTheEnd) {
  client_.Send(WithStdin("exec 4<&0; (cat <&4 >" + machine_.dir() + "/got; echo end >>" + machine_.dir() +
                         "/got) >/dev/null 2>&1 & exit 0"));
  client_.Send(protocol::Stdin{"c", 0, "some\n"});
  EXPECT_EQ(client_.Finish("c").exit.code, 0);
  EXPECT_TRUE(Eventually([&] { return ReadWhole(machine_.dir() + "/got") == "some\nend\n"; }));
}

TEST_F(Stdin, WithoutItInputIsDropped) {
  client_.Send(TestClient::Command("c", {"cat"}));
  client_.Send(protocol::Stdin{"c", 0, "to nobody"});
  client_.Send(protocol::Stdin{"unknown", 7, "to nobody"});
  client_.Send(protocol::StdinEnd{"c", 9});
  EXPECT_EQ(client_.Finish("c").out, "");
}

TEST_F(Stdin, TwoUsesOfStandardInputAreRefused) {
  auto e = WithStdin("true");
  e.channel = protocol::Channel::kStandardInput;
  auto r = client_.RunExec(e);
  EXPECT_TRUE(r.failed);
  EXPECT_THAT(r.failure.message, HasSubstr("two uses"));
}

TEST_F(Stdin, ADaemonOfVersion2HearsNothingOfIt) {
  client_.Send(WithStdin("head -c 1 >/dev/null; exec <&-; echo ready; sleep 0.3; echo done"));
  client_.Send(protocol::Stdin{"c", 0, "abc"});
  client_.Expect<protocol::ExecStarted>();
  client_.Expect<protocol::StdinTaken>();
  TestClient old(machine_, true, 77, 2);
  EXPECT_TRUE(old.hello().stdins.empty());
  ASSERT_EQ(old.hello().commands.size(), 1u);
  std::string out;
  for (bool ended = false; !ended;) {
    auto frame = old.Receive();
    ASSERT_TRUE(frame);
    EXPECT_LT(frame->index(), protocol::GuestFrame(protocol::StdinTaken{}).index());
    if (auto* o = std::get_if<protocol::Output>(&*frame)) out += o->bytes;
    ended = std::holds_alternative<protocol::Exit>(*frame);
  }
  EXPECT_EQ(out, "ready\ndone\n");
}

}  // namespace
}  // namespace sandbar::guest
