// Terminals of commands: sizes, job control, signals, ends.
#include <gmock/gmock.h>

#include "support/guest/test_machine.h"

namespace sandbar::guest {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// A user in front of a terminal.
class User {
 public:
  explicit User(TestClient& client, std::string id = "t") : client_(client), id_(std::move(id)) {}

  void Start(std::vector<std::string> argv, protocol::TerminalSize size = {}, uint32_t uid = 0) {
    auto e = TestClient::Command(id_, std::move(argv));
    e.env.push_back("TERM=xterm-256color");
    e.env.push_back("PS1=$ ");
    e.terminal = size;
    e.uid = e.gid = uid;
    client_.Send(e);
  }
  void Type(const std::string& keys) {
    client_.Send(protocol::Stdin{id_, typed_, keys});
    typed_ += keys.size();
  }
  void End() { client_.Send(protocol::StdinEnd{id_, typed_}); }
  void Resize(uint32_t cols, uint32_t rows) { client_.Send(protocol::Resize{id_, {cols, rows}}); }
  // Until the screen shows it, after what was waited for before.
  bool See(const std::string& text, int ms = 30000) {
    for (;;) {
      if (const size_t at = screen.find(text, seen_); at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (exit || !Next(ms)) return false;
    }
  }
  int Exit() {
    while (!exit && Next()) {
    }
    return exit ? exit->code : -1;
  }
  bool Next(int ms = 30000) {
    auto frame = client_.Receive(ms);
    if (!frame) return false;
    if (auto* o = std::get_if<protocol::Output>(&*frame); o != nullptr && o->id == id_) {
      EXPECT_EQ(o->stream, 1);
      screen += o->bytes;
      if (acks) client_.Send(protocol::Ack{id_, o->offset + o->bytes.size()});
    }
    if (auto* t = std::get_if<protocol::StdinTaken>(&*frame); t != nullptr && t->id == id_) taken = t->offset;
    if (auto* f = std::get_if<protocol::ExecFailed>(&*frame); f != nullptr && f->id == id_) {
      failure = *f;
      return false;
    }
    if (auto* e = std::get_if<protocol::Exit>(&*frame); e != nullptr && e->id == id_) {
      exit = *e;
      client_.Send(protocol::ExitAck{id_});
    }
    return true;
  }

  std::string screen;
  bool acks = true;
  uint64_t taken = 0;
  std::optional<protocol::Exit> exit;
  std::optional<protocol::ExecFailed> failure;

 private:
  TestClient& client_;
  std::string id_;
  uint64_t typed_ = 0;
  size_t seen_ = 0;
};

class TerminalTest : public ::testing::Test {
 protected:
  TestMachine machine_;
  TestClient client_{machine_};
  User user_{client_};
};

TEST_F(TerminalTest, IsAllDescriptorsAndTheControllingTerminalOfItsUser) {
  user_.Start({"sh", "-c",
               "tty; test -t 0 && test -t 1 && test -t 2 && echo all; stat -c '%u %a' $(tty); echo hi >/dev/tty; "
               "cat </dev/null >$(tty); ps -o tpgid=,pgid= -p $$; ls /proc/self/fd | tr '\\n' ' '; exit 7"},
              {}, 1234);
  EXPECT_EQ(user_.Exit(), 7);
  EXPECT_THAT(user_.screen, ::testing::StartsWith("/dev/pts/"));
  EXPECT_THAT(user_.screen, HasSubstr("\r\nall\r\n1234 "));
  EXPECT_THAT(user_.screen, HasSubstr("\r\nhi\r\n"));
  EXPECT_THAT(user_.screen, EndsWith("0 1 2 3 "));
}

TEST_F(TerminalTest, HasItsSizeBeforeTheProgramStartsAndTellsChanges) {
  user_.Start({"bash", "-c", "stty size; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.02; done"},
              {132, 43});
  EXPECT_TRUE(user_.See("43 132\r\n"));
  EXPECT_TRUE(user_.See("ready"));
  user_.Resize(0, 50);
  EXPECT_TRUE(user_.See("50 80\r\n"));
  EXPECT_EQ(user_.Exit(), 3);
}

TEST_F(TerminalTest, WithoutASizeItIsThatOfAnOldOne) {
  user_.Start({"stty", "size"});
  EXPECT_EQ(user_.Exit(), 0);
  EXPECT_EQ(user_.screen, "24 80\r\n");
}

TEST_F(TerminalTest, TooLargeSizesBreakTheProtocol) {
  user_.Start({"sleep", "1000"});
  user_.Resize(4096, 4096);
  user_.Resize(protocol::kMaxTerminalSide + 1, 1);
  EXPECT_TRUE(client_.Closed());
  TestClient again(machine_);
  again.Send(protocol::Resize{"t", {1, 0xffffffff}});
  EXPECT_TRUE(again.Closed());
  TestClient third(machine_);
  third.Send(protocol::Resize{"nobody", {1, 1}});
  EXPECT_EQ(third.Shell("echo fine").out, "fine\n");
}

TEST_F(TerminalTest, KeysActOnTheJobInTheForeground) {
  user_.Start({"bash", "--norc", "--noprofile", "-i"});
  EXPECT_TRUE(user_.See("$ "));
  user_.Type("bash -c 'echo begun; exec sleep 1000'\r");
  EXPECT_TRUE(user_.See("begun\r\n")) << "the job has the terminal";
  user_.Type("\x1a");
  EXPECT_TRUE(user_.See("Stopped"));
  EXPECT_TRUE(user_.See("$ "));
  user_.Type("fg\r");
  EXPECT_TRUE(user_.See("sleep 1000'\r\n"));
  // The shell says so before the job has the terminal: an early key goes to the shell.
  bool prompt = false;
  for (int i = 0; i < 100 && !prompt; ++i) {
    user_.Type("\x03");
    prompt = user_.See("$ ", 300);
  }
  EXPECT_TRUE(prompt);
  user_.Type("echo status=$?\r");
  EXPECT_TRUE(user_.See("status=130\r\n"));
  user_.Type("exit 5\r");
  EXPECT_EQ(user_.Exit(), 5);
}

TEST_F(TerminalTest, ControlDAndTheEndOfTheInputEndAReaderOfLines) {
  user_.Start({"sh", "-c", "cat; echo first; cat; echo second"});
  user_.Type("abc\n\x04");
  EXPECT_TRUE(user_.See("first"));
  user_.Type("half");
  user_.End();
  EXPECT_TRUE(user_.See("second"));
  EXPECT_EQ(user_.Exit(), 0);
  EXPECT_THAT(user_.screen, HasSubstr("halfhalf"));  // the echo, then cat
}

TEST_F(TerminalTest, TheEndIsTheCharacterThatTheTerminalSays) {
  user_.Start({"sh", "-c", "stty eof ^B -echo; echo ready; cat; echo over"});
  EXPECT_TRUE(user_.See("ready"));
  user_.End();
  EXPECT_TRUE(user_.See("over"));
  EXPECT_EQ(user_.Exit(), 0);
}

TEST_F(TerminalTest, AProgramThatNeverReadsHoldsTheInputBack) {
  user_.Start({"sh", "-c", "stty raw -echo; echo ready; sleep 1000"});
  EXPECT_TRUE(user_.See("ready"));
  for (size_t at = 0; at < protocol::kStdinWindow; at += 4096) user_.Type(std::string(4096, 'x'));
  while (auto frame = client_.Receive(500)) {
    if (auto* t = std::get_if<protocol::StdinTaken>(&*frame)) user_.taken = t->offset;
  }
  EXPECT_GT(user_.taken, 0u);
  EXPECT_LT(user_.taken, protocol::kStdinWindow);
  // Nobody else waits for it.
  EXPECT_EQ(client_.Shell("echo fine").out, "fine\n");
  client_.Send(protocol::Kill{"t", 9});
  EXPECT_EQ(user_.Exit(), 137);
}

TEST_F(TerminalTest, RawBytesArriveWhole) {
  std::string bytes;
  for (int i = 0; i < 256 * 1024; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  user_.Start({"sh", "-c", "stty raw -echo; echo ready; head -c 262144 | cksum; head -c 262144 </dev/zero | cksum"});
  EXPECT_TRUE(user_.See("ready"));
  const std::string expected = [&] {
    WriteWhole(machine_.dir() + "/bytes", bytes);
    return client_.Shell("cksum <" + machine_.dir() + "/bytes; head -c 262144 </dev/zero | cksum").out;
  }();
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(8192, bytes.size() - at);
    while (at + n > user_.taken + protocol::kStdinWindow && user_.Next()) {
    }
    user_.Type(bytes.substr(at, n));
    at += n;
  }
  EXPECT_EQ(user_.Exit(), 0);
  EXPECT_THAT(user_.screen, EndsWith(expected));
}

TEST_F(TerminalTest, OutputKeepsToTheWindowAndLosesNothingAtTheEnd) {
  user_.acks = false;
  user_.Start({"sh", "-c", "stty -opost; head -c 3000000 /dev/zero; echo; echo last"});
  while (auto frame = client_.Receive(user_.screen.size() < protocol::kOutputWindow ? 30000 : 300)) {
    if (auto* o = std::get_if<protocol::Output>(&*frame)) user_.screen += o->bytes;
  }
  EXPECT_EQ(user_.screen.size(), protocol::kOutputWindow);
  client_.Send(protocol::Ack{"t", user_.screen.size()});
  user_.acks = true;
  EXPECT_EQ(user_.Exit(), 0);
  EXPECT_EQ(user_.screen.size(), 3000000u + 6);
  EXPECT_THAT(user_.screen, EndsWith("\nlast\n"));
}

TEST_F(TerminalTest, TheTailIsKeptWhenTheWindowWasFullAtTheEnd) {
  user_.acks = false;
  const size_t total = protocol::kOutputWindow + 6000;  // what the kernel has room for
  user_.Start(
      {"sh", "-c", "stty -opost; head -c " + std::to_string(total) + " /dev/zero; touch " + machine_.dir() + "/over"});
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(machine_.dir() + "/over"); }));
  while (auto frame = client_.Receive(700)) {
    EXPECT_FALSE(std::holds_alternative<protocol::Exit>(*frame));
    if (auto* o = std::get_if<protocol::Output>(&*frame)) user_.screen += o->bytes;
  }
  client_.Send(protocol::Ack{"t", user_.screen.size()});
  user_.acks = true;
  EXPECT_EQ(user_.Exit(), 0);
  EXPECT_EQ(user_.screen.size(), total);
}

TEST_F(TerminalTest, ABackgroundChildDoesNotKeepItOpenAndIsHungUp) {
  user_.Start(
      {"sh", "-c",
       "(trap '' HUP; while echo tick; do sleep 0.02; done; touch " + machine_.dir() + "/gone) & sleep 0.1; exit 4"});
  EXPECT_EQ(user_.Exit(), 4);
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(machine_.dir() + "/gone"); }));
}

TEST_F(TerminalTest, AProgramMayCloseItsTerminalAndOpenItAgain) {
  user_.Start({"bash", "-c", "exec </dev/null >/dev/null 2>&1; sleep 0.2; echo back >/dev/tty; exit 6"});
  EXPECT_EQ(user_.Exit(), 6);
  EXPECT_EQ(user_.screen, "back\r\n");
}

TEST_F(TerminalTest, SurvivesTheDaemon) {
  user_.Start({"bash", "--norc", "--noprofile", "-i"});
  EXPECT_TRUE(user_.See("$ "));
  user_.Type("echo on");
  EXPECT_TRUE(user_.See("echo on"));
  TestClient second(machine_);
  ASSERT_EQ(second.hello().stdins.size(), 1u);
  EXPECT_EQ(second.hello().stdins[0].accepted, 7u);
  second.Send(protocol::Stdin{"t", 0, "echo one; exit 9\r"});  // 7 bytes of it are known
  auto r = second.Finish("t");
  EXPECT_EQ(r.exit.code, 9);
  EXPECT_THAT(r.out, HasSubstr("one\r\n"));
}

TEST_F(TerminalTest, AShellEndsWhenTheMachineStops) {
  user_.Start({"bash", "--norc", "--noprofile", "-i"});
  EXPECT_TRUE(user_.See("$ "));
  client_.Send(protocol::Quiesce{60000, false});
  EXPECT_EQ(user_.Exit(), 128 + SIGHUP);
  EXPECT_TRUE(client_.Expect<protocol::Quiesced>().clean);
}

TEST_F(TerminalTest, ManyAtOnceAndOneThatFloods) {
  constexpr int kMany = 200;
  User flood(client_, "flood");
  flood.Start({"yes"});
  for (int i = 0; i < kMany; ++i) {
    User one(client_, "many" + std::to_string(i));
    one.Start({"cat"});
  }
  // The flood is not acknowledged: it waits. Everybody else echoes.
  for (int i = 0; i < kMany; ++i)
    client_.Send(protocol::Stdin{"many" + std::to_string(i), 0, "hello " + std::to_string(i) + "\n"});
  std::map<std::string, std::string> screens;
  auto done = [&] {
    for (int i = 0; i < kMany; ++i) {
      const std::string line = "hello " + std::to_string(i) + "\r\n";
      if (screens["many" + std::to_string(i)] != line + line) return false;
    }
    return true;
  };
  while (!done()) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    if (auto* f = std::get_if<protocol::ExecFailed>(&*frame)) FAIL() << f->id << " " << f->message;
    auto* o = std::get_if<protocol::Output>(&*frame);
    if (o == nullptr || o->id == "flood") continue;
    screens[o->id] += o->bytes;
    client_.Send(protocol::Ack{o->id, o->offset + o->bytes.size()});
  }
  for (int i = 0; i < kMany; ++i)
    client_.Send(protocol::StdinEnd{"many" + std::to_string(i), std::to_string(i).size() + 7});
  int ended = 0;
  while (ended < kMany) {
    auto frame = client_.Receive();
    ASSERT_TRUE(frame);
    auto* e = std::get_if<protocol::Exit>(&*frame);
    if (e == nullptr) continue;
    EXPECT_EQ(e->code, 0);
    ++ended;
  }
}

}  // namespace
}  // namespace sandbar::guest
