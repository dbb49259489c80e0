// Every lie of an agent that we know of costs it the link, and nothing else.
#include <cctype>

#include "support/guest_link/scripted_agent.h"

namespace sandbar::engine {
namespace {

// Each entry: what a lying agent sends. Command "run" runs, "old" is from an earlier connection (10 bytes produced) and
// takes input, stream 1 is a read, stream 2 an upload that has not ended.
struct Lie {
  const char* name;
  std::vector<std::string> sends;
};

std::string F(protocol::GuestFrame frame) {
  return protocol::Encode(frame);
}

std::vector<Lie> Lies() {
  using namespace protocol;
  std::string big(kMaxData, 'x');
  std::vector<std::string> beyond_window, beyond_credit;
  for (uint64_t i = 0; i <= kOutputWindow / kMaxData; ++i) {
    beyond_window.push_back(F(Output{"run", i * kMaxData, 1, big}));
    beyond_credit.push_back(F(Data{1, big}));
  }
  return {{"unknown command", {F(Output{"nobody", 0, 1, "x"})}},
          {"exit of an unknown command", {F(Exit{"nobody", 0, false, 0, 0})}},
          {"gap of an unknown command", {F(Gap{"nobody", 0, 1})}},
          {"start of an unknown command", {F(ExecStarted{"nobody", 1})}},
          {"second start", {F(ExecStarted{"run", 1})}},
          {"failure of a running command", {F(ExecFailed{"run", ExecFailure::kOther, ""})}},
          {"offset ahead", {F(Output{"run", 1, 1, "x"})}},
          {"offset going back", {F(Output{"run", 0, 1, "abc"}), F(Output{"run", 2, 1, "x"})}},
          {"offset from the future", {F(Output{"old", 11, 1, "x"})}},
          {"gap out of order", {F(Gap{"run", 5, 1})}},
          {"gap past the end of numbers", {F(Gap{"old", 10, kMaxOffset})}},
          {"output beyond the window", beyond_window},
          {"exit before the output", {F(Exit{"run", 0, false, 0, 5})}},
          {"exit that forgets output", {F(Exit{"old", 0, false, 0, 9})}},
          {"exit twice", {F(Exit{"run", 0, false, 0, 0}), F(Exit{"run", 0, false, 0, 0})}},
          {"output after the exit", {F(Exit{"run", 0, false, 0, 0}), F(Output{"run", 0, 1, "x"})}},
          {"data on an unknown stream", {F(Data{99, "x"})}},
          {"end of an unknown stream", {F(End{99})}},
          {"error on an unknown stream", {F(FileError{99, FileErrorKind::kOther, ""})}},
          {"credit for an unknown stream", {F(Credit{99, 1})}},
          {"credit for a read", {F(Credit{1, 1})}},
          {"more credit than was used", {F(Credit{2, kStreamWindow + 1})}},
          {"data on an upload", {F(Data{2, "x"})}},
          {"data beyond the credit", beyond_credit},
          {"success before the input ended", {F(End{2})}},
          {"end twice", {F(End{1}), F(End{1})}},
          {"a connection that nobody asked for", {F(Dialed{99})}},
          {"a connection where a read was asked for", {F(Dialed{1})}},
          {"quiesced unasked", {F(Quiesced{true, 0})}},
          {"rekeyed unasked", {F(Rekeyed{})}},
          {"it took input of an unknown command", {F(StdinTaken{"nobody", 1})}},
          {"it took input of a command without any", {F(StdinTaken{"run", 1})}},
          {"it took input that was never sent", {F(StdinTaken{"old", 1})}},
          {"it closed the input of a command without any", {F(StdinClosed{"run"})}},
          {"it closed the input twice", {F(StdinClosed{"old"}), F(StdinClosed{"old"})}},
          {"input after the exit", {F(Exit{"old", 0, false, 0, 10}), F(StdinClosed{"old"})}},
          {"second hello", {std::string(F(HelloAck{1, 1, {}})).substr(kGuestMagic.size())}},
          {"oversized frame", {std::string("\xff\xff\xff\x7f", 4)}},
          {"empty frame", {std::string(4, '\0')}},
          {"unknown type", {std::string("\1\0\0\0\xee", 5)}},
          {"a frame of the other direction", {Encode(HostFrame(Quiesce{1}))}},
          {"cut fields", {std::string("\2\0\0\0\x43\x09", 6)}}};
}

class HostileAgent : public LinkTest, public ::testing::WithParamInterface<size_t> {};

class Flood : public ByteSource {
 public:
  static constexpr size_t kPiece = 300000;
  Task<std::string> Next() override {
    taken += kPiece;
    co_return std::string(kPiece, 'x');
  }
  size_t taken = 0;
};

class Slow : public ByteSource {
 public:
  explicit Slow(const asio::any_io_executor& ex) : event_(ex) {}
  Task<std::string> Next() override {
    auto woken = co_await event_.Wait();
    if (!woken) co_return std::unexpected(std::move(woken).error());
    co_return std::string();
  }

 private:
  Event event_;
};

// An agent that takes everything and answers nothing: every call comes back.
TEST_F(LinkTest, SilentAgentHangsNobody) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.call = t->limits_.stall = std::chrono::milliseconds(50);
    co_await t->Open();
    auto request = MakeExec("a", {"x"});
    auto exec = co_await t->link_->Exec(std::move(request));
    EXPECT_EQ(exec.error().code, Code::kTimeout);
    GuestUser user;
    auto read = co_await t->link_->ReadFile("f", "/", user);
    EXPECT_EQ(read.error().code, Code::kTimeout);
    auto made = co_await t->link_->MakeDir("d", "/", user, true);
    EXPECT_EQ(made.error().code, Code::kTimeout);
    auto quiesced = co_await t->link_->Quiesce(std::chrono::milliseconds(10));
    EXPECT_EQ(quiesced.error().code, Code::kTimeout);
    Flood source;
    auto written = co_await t->link_->WriteTar("/", user, &source);
    EXPECT_EQ(written.error().code, Code::kTimeout);
    EXPECT_LE(source.taken, protocol::kStreamWindow + source.kPiece);
    co_await t->Close();
  };
  Run(scenario(this));
}

// The call's own limits would end it after hours.
TEST_F(LinkTest, ASilentAgentIsNotWaitedForToQuiesce) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.call = std::chrono::hours(1);
    t->limits_.silence = std::chrono::milliseconds(300);
    co_await t->Open();
    auto quiesced = co_await t->link_->Quiesce(std::chrono::hours(1));
    EXPECT_FALSE(quiesced);
    EXPECT_EQ(quiesced.error().code, Code::kTimeout);
    co_await t->peer_->Expect<protocol::Quiesce>();
    co_await t->peer_->Expect<protocol::MakeDir>();
    auto written = co_await t->link_->WriteOut();
    EXPECT_FALSE(written);
    EXPECT_EQ(written.error().code, Code::kTimeout);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, TheCallerMayHaveLessPatienceWithASilentAgent) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.call = t->limits_.silence = std::chrono::hours(1);
    co_await t->Open();
    auto quiesced = co_await t->link_->Quiesce(std::chrono::hours(1), std::chrono::milliseconds(50));
    EXPECT_FALSE(quiesced);
    EXPECT_EQ(quiesced.error().code, Code::kTimeout);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, AnAgentThatAnswersIsWaitedForHoweverLongItTakes) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.silence = std::chrono::milliseconds(500);
    co_await t->Open();
    std::optional<Result<protocol::Quiesced>> result;
    auto call = t->link_->Quiesce(std::chrono::hours(1));
    t->group_.Spawn(t->Into(std::move(call), &result));
    co_await t->peer_->Expect<protocol::Quiesce>();
    // Each of these comes when the time of silence would have been over.
    for (int i = 0; i < 3; ++i) {
      auto probe = co_await t->peer_->Expect<protocol::MakeDir>();
      EXPECT_EQ(probe.path, "/");
      EXPECT_FALSE(result);
      protocol::GuestFrame refused =
          protocol::FileError{probe.stream, protocol::FileErrorKind::kOther, "the machine is stopping"};
      co_await t->peer_->Send(std::move(refused));
    }
    protocol::GuestFrame done = protocol::Quiesced{true, 0};
    co_await t->peer_->Send(std::move(done));
    while (!result) co_await asio::post(t->io_, kToken);
    EXPECT_TRUE(*result);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, ReadThatStallsHalfWayComesBack) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.stall = std::chrono::milliseconds(50);
    co_await t->Open();
    std::optional<Result<std::unique_ptr<FileStream>>> opened;
    auto call = t->link_->ReadFile("f", "/", {});
    t->group_.Spawn(t->Into(std::move(call), &opened));
    auto request = co_await t->peer_->Expect<protocol::ReadFile>();
    protocol::GuestFrame data = protocol::Data{request.stream, "x"};
    co_await t->peer_->Send(std::move(data));
    while (!opened) co_await asio::post(t->io_, kToken);
    auto first = co_await (**opened)->Next();
    EXPECT_EQ(*first, "x");
    auto second = co_await (**opened)->Next();
    EXPECT_EQ(second.error().code, Code::kTimeout);
    opened.reset();
    auto abort = co_await t->peer_->Expect<protocol::Abort>();
    EXPECT_EQ(abort.stream, request.stream);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, SilenceInsteadOfAHelloComesBack) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    LinkDeadlines limits;
    limits.hello = std::chrono::milliseconds(50);
    auto opened = co_await OpenGuestLink(std::move(*t->ours_), &t->events_, limits);
    EXPECT_EQ(opened.error().code, Code::kTimeout);
  };
  Run(scenario(this));
}

Task<> SayKey(Peer* peer, std::string key) {
  std::vector<protocol::CommandState> none;
  co_await peer->Hello(std::move(none), std::move(key));
  co_return Result<>{};
}

TEST_F(LinkTest, AnAgentWithoutTheMachinesKeyIsRefused) {
  for (const char* said : {"", "another one"}) {
    auto scenario = [](LinkTest* t, std::string key) -> asio::awaitable<void> {
      auto [ours, theirs] = SocketPair(t->io_);
      Peer peer(std::move(theirs));
      t->group_.Spawn(SayKey(&peer, std::move(key)));
      LinkDeadlines limits;
      auto opened = co_await OpenGuestLink(std::move(ours), &t->events_, limits, "the right one");
      EXPECT_EQ(opened.error().code, Code::kProtocol);
      EXPECT_NE(opened.error().message.find("not the one that was configured"), std::string::npos);
      co_await t->group_.Close();
    };
    LinkTest::Run(scenario(this, said));
    io_.restart();
  }
}

TEST_F(LinkTest, AnAgentWithTheMachinesKeyIsTaken) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->group_.Spawn(SayKey(t->peer_.get(), "the right one"));
    LinkDeadlines limits;
    auto opened = co_await OpenGuestLink(std::move(*t->ours_), &t->events_, limits, "the right one");
    EXPECT_TRUE(opened) << opened.error().message;
    t->link_ = *std::move(opened);
    co_await t->Close();
  };
  Run(scenario(this));
}

// An agent behind a stream that everybody in its machine can write to.
Task<> GreetOnAStream(Peer* peer) {
  auto hello = co_await peer->Expect<protocol::Hello>();
  protocol::GuestFrame ack = protocol::HelloAck{protocol::kOldestGuestVersion, hello.nonce, {}, {}};
  std::string bytes = protocol::EncodeForStream(ack);
  co_await peer->SendRaw(std::move(bytes));
  co_return Result<>{};
}

TEST_F(LinkTest, RubbishInAStreamEndsTheLink) {
  for (const char* rubbish : {"\x7fgarbage", "\x7fSANDBAS", "\x7fSANDBAR"}) {
    auto scenario = [](LinkTest* t, std::string bytes) -> asio::awaitable<void> {
      auto [ours, theirs] = SocketPair(t->io_);
      Peer peer(std::move(theirs));
      Recorder events(t->io_.get_executor());
      t->group_.Spawn(GreetOnAStream(&peer));
      LinkDeadlines limits;
      auto opened = co_await OpenGuestLink(std::move(ours), &events, limits);
      EXPECT_TRUE(opened);
      // Somebody waits for the agent: it is told at once, not at its timeout.
      std::optional<Result<protocol::Quiesced>> quiesced;
      auto call = (*opened)->Quiesce(std::chrono::hours(1));
      t->group_.Spawn(t->Into(std::move(call), &quiesced));
      co_await peer.SendRaw(std::move(bytes));
      co_await events.UntilClosed();
      EXPECT_EQ(events.closed->code, Code::kProtocol);
      while (!quiesced) co_await asio::post(t->io_, kToken);
      EXPECT_EQ(quiesced->error().code, Code::kUnavailable);
      co_await (*opened)->Close();
      co_await t->group_.Close();
    };
    LinkTest::Run(scenario(this, rubbish));
    io_.restart();
  }
}

// A length, and less than was promised: what the agent says afterwards would be taken for the rest.
const std::string kHalfFrame("\x40\0\0\0\x44", 5);

TEST_F(LinkTest, AFrameThatDoesNotEndEndsTheLink) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.frame = std::chrono::milliseconds(20);
    co_await t->Open();
    std::string half = kHalfFrame;
    co_await t->peer_->SendRaw(std::move(half));
    co_await t->events_.UntilClosed();
    EXPECT_EQ(t->events_.closed->code, Code::kProtocol);
    EXPECT_NE(t->events_.closed->message.find("does not end"), std::string::npos) << t->events_.closed->message;
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, AFrameMayWaitWhileTheMachineStandsStill) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->limits_.frame = std::chrono::milliseconds(20);
    co_await t->Open();
    co_await t->Start("run");
    t->link_->SetPaused(true);
    std::string whole = F(protocol::Output{"run", 0, 1, "hello"});
    std::string begin = whole.substr(0, 7), rest = whole.substr(7);
    co_await t->peer_->SendRaw(std::move(begin));
    co_await Sleep(5 * t->limits_.frame);
    co_await t->peer_->SendRaw(std::move(rest));
    co_await t->events_.UntilEnd("run", 5);
    EXPECT_FALSE(t->events_.closed);
    EXPECT_EQ(t->events_.commands["run"].out, "hello");
    co_await t->Close();
  };
  Run(scenario(this));
}

Task<> Babble(Socket socket) {
  const std::string noise(1 << 20, 'x');
  boost::system::error_code ec;
  while (!ec) {
    auto buffer = asio::buffer(noise);
    auto [failed, n] = co_await asio::async_write(socket, buffer, kToken);
    ec = failed;
  }
  co_return Result<>{};
}

TEST_F(LinkTest, AFloodInsteadOfAHelloHasAnEnd) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    auto [ours, theirs] = SocketPair(t->io_);
    t->group_.Spawn(Babble(std::move(theirs)));
    LinkDeadlines limits;
    limits.hello = std::chrono::minutes(10);
    auto opened = co_await OpenGuestLink(std::move(ours), &t->events_, limits);
    EXPECT_EQ(opened.error().code, Code::kProtocol);
    co_await t->group_.Close();
  };
  Run(scenario(this));
}

TEST_P(HostileAgent, LosesTheLink) {
  auto scenario = [](HostileAgent* t, Lie lie) -> asio::awaitable<void> {
    t->events_.auto_ack = false;
    std::vector<protocol::CommandState> commands{{"old", 10, false}};
    t->peer_->stdins = {{"old", 0, 0, false, false}};
    co_await t->Open(std::move(commands));
    co_await t->Start("run");
    std::optional<Result<std::unique_ptr<FileStream>>> read;
    std::optional<Result<>> write;
    auto read_call = t->link_->ReadFile("f", "/", {});
    t->group_.Spawn(t->Into(std::move(read_call), &read));
    auto source = std::make_unique<Slow>(t->io_.get_executor());
    auto write_call = t->link_->WriteTar("/", {}, source.get());
    t->group_.Spawn(t->Into(std::move(write_call), &write));
    co_await t->peer_->Expect<protocol::ReadFile>();
    co_await t->peer_->Expect<protocol::WriteTar>();
    for (auto& bytes : lie.sends) co_await t->peer_->SendRaw(std::move(bytes));
    co_await t->events_.UntilClosed();
    EXPECT_EQ(t->events_.closed->code, Code::kProtocol) << t->events_.closed->message;
    co_await t->Close();
    read.reset();
  };
  Run(scenario(this, Lies().at(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Lies, HostileAgent, ::testing::Range(size_t{0}, Lies().size()),
                         [](const ::testing::TestParamInfo<size_t>& lie) {
                           std::string name = Lies().at(lie.param).name;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace sandbar::engine
