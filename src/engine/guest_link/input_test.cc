// Standard input over the link, against a scripted peer.
#include "support/guest_link/scripted_agent.h"

namespace sandbar::engine {
namespace {

TEST_F(LinkTest, InputKeepsToTheWindowAndGoesOnWithCredit) {
  Run([](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("c", true);
    std::optional<Result<>> written;
    std::string bytes(protocol::kStdinWindow + 1000, 'x');
    auto call = t->link_->WriteStdin("c", 0, std::move(bytes));
    t->group_.Spawn(t->Into(std::move(call), &written));
    uint64_t got = 0;
    while (got < protocol::kStdinWindow) {
      auto frame = co_await t->peer_->Expect<protocol::Stdin>();
      EXPECT_EQ(frame.offset, got);
      EXPECT_FALSE(frame.bytes.empty());
      if (frame.bytes.empty()) co_return;
      got += frame.bytes.size();
    }
    EXPECT_EQ(got, protocol::kStdinWindow);
    EXPECT_FALSE(written) << "it waits for credit";
    auto second = co_await t->link_->WriteStdin("c", got, "y");
    EXPECT_EQ(second.error().code, Code::kConflict) << "one writer at a time";
    auto end = co_await t->link_->EndStdin("c", got);
    EXPECT_EQ(end.error().code, Code::kConflict);
    protocol::GuestFrame taken = protocol::StdinTaken{"c", 600};
    co_await t->peer_->Send(std::move(taken));
    auto more = co_await t->peer_->Expect<protocol::Stdin>();
    EXPECT_EQ(more.bytes.size(), 600u);
    protocol::GuestFrame rest = protocol::StdinTaken{"c", got};
    co_await t->peer_->Send(std::move(rest));
    auto last = co_await t->peer_->Expect<protocol::Stdin>();
    EXPECT_EQ(last.offset, got + 600);
    EXPECT_EQ(last.bytes.size(), 400u);
    co_await t->events_.UntilTaken("c", got);
    EXPECT_TRUE(written && *written);
    EXPECT_EQ(t->link_->Stdin("c"), (protocol::StdinState{"c", got + 1000, got, false, false}));
    co_await t->Close();
  }(this));
}

TEST_F(LinkTest, BytesThatTheAgentHasAreSkippedAndAGapIsRefused) {
  Run([](LinkTest* t) -> asio::awaitable<void> {
    t->peer_->stdins = {{"old", 10, 4, false, false}, {"over", 3, 3, true, false}};
    std::vector<protocol::CommandState> commands{{"old", 0, false}, {"over", 0, false}, {"none", 0, false}};
    co_await t->Open(std::move(commands));
    EXPECT_EQ(t->link_->known_stdins(), t->peer_->stdins);
    auto gap = co_await t->link_->WriteStdin("old", 11, "x");
    EXPECT_EQ(gap.error().code, Code::kBadRequest);
    auto again = co_await t->link_->WriteStdin("old", 8, "89ab");
    EXPECT_TRUE(again);
    auto frame = co_await t->peer_->Expect<protocol::Stdin>();
    EXPECT_EQ(frame.offset, 10u);
    EXPECT_EQ(frame.bytes, "ab");
    auto early = co_await t->link_->EndStdin("old", 11);
    EXPECT_EQ(early.error().code, Code::kBadRequest);
    for (int i = 0; i < 2; ++i) {
      auto ended = co_await t->link_->EndStdin("old", 12);
      EXPECT_TRUE(ended);
    }
    auto end = co_await t->peer_->Expect<protocol::StdinEnd>();
    EXPECT_EQ(end.offset, 12u);
    auto late = co_await t->link_->WriteStdin("over", 3, "x");
    EXPECT_EQ(late.error().code, Code::kConflict);
    auto known = co_await t->link_->WriteStdin("over", 0, "abc");
    EXPECT_TRUE(known);
    auto none = co_await t->link_->WriteStdin("none", 0, "x");
    EXPECT_EQ(none.error().code, Code::kNotFound);
    auto nobody = co_await t->link_->EndStdin("nobody", 0);
    EXPECT_EQ(nobody.error().code, Code::kNotFound);
    EXPECT_FALSE(t->link_->Stdin("none"));
    co_await t->Close();
  }(this));
}

TEST_F(LinkTest, AReaderThatLeavesFreesTheWriter) {
  Run([](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("c", true);
    std::optional<Result<>> written;
    std::string bytes(10 * protocol::kStdinWindow, 'x');
    auto call = t->link_->WriteStdin("c", 0, std::move(bytes));
    t->group_.Spawn(t->Into(std::move(call), &written));
    co_await t->peer_->Expect<protocol::Stdin>();
    protocol::GuestFrame closed = protocol::StdinClosed{"c"};
    co_await t->peer_->Send(std::move(closed));
    co_await t->events_.UntilStdinClosed("c");
    while (!written) co_await asio::post(t->io_, kToken);
    EXPECT_TRUE(*written);
    auto more = co_await t->link_->WriteStdin("c", 99999999, "anything");
    EXPECT_TRUE(more);
    auto end = co_await t->link_->EndStdin("c", 99999999);
    EXPECT_TRUE(end);
    EXPECT_TRUE(t->link_->Stdin("c")->closed);
    co_await t->Close();
  }(this));
}

TEST_F(LinkTest, AWaitingWriterEndsWithItsCommandItsCallerAndItsLink) {
  Run([](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("gone", true);
    co_await t->Start("left", true);
    co_await t->Start("cut", true);
    std::string bytes(2 * protocol::kStdinWindow, 'x');
    std::optional<Result<>> gone, cut;
    auto first = t->link_->WriteStdin("gone", 0, bytes);
    t->group_.Spawn(t->Into(std::move(first), &gone));
    auto second = t->link_->WriteStdin("left", 0, bytes);
    auto left = co_await WithTimeout(std::move(second), std::chrono::milliseconds(50));
    EXPECT_EQ(left.error().code, Code::kTimeout);
    // Its caller gave up: the next one goes on where it was.
    EXPECT_EQ(t->link_->Stdin("left")->accepted, protocol::kStdinWindow);
    auto next = co_await t->link_->WriteStdin("left", 5, "x");
    EXPECT_TRUE(next);
    protocol::GuestFrame exit = protocol::Exit{"gone", 0, false, 1, 0};
    co_await t->peer_->Send(std::move(exit));
    co_await t->events_.UntilExit("gone");
    auto third = t->link_->WriteStdin("cut", 0, bytes);
    t->group_.Spawn(t->Into(std::move(third), &cut));
    co_await asio::post(t->io_, kToken);
    co_await t->link_->Close();
    while (!cut || !gone) co_await asio::post(t->io_, kToken);
    EXPECT_EQ(cut->error().code, Code::kUnavailable);
    EXPECT_TRUE(*gone) << "nobody reads it any more";
    t->peer_->Close();
    co_await t->group_.Close();
  }(this));
}

TEST_F(LinkTest, AnAgentOfVersion2GetsNothingNew) {
  Run([](LinkTest* t) -> asio::awaitable<void> {
    t->peer_->newest = 2;
    std::vector<protocol::CommandState> commands{{"old", 0, false}};
    co_await t->Open(std::move(commands));
    auto request = MakeExec("a", {"x"});
    request.standard_input = true;
    auto input = co_await t->link_->Exec(std::move(request));
    EXPECT_EQ(input.error().code, Code::kConflict);
    EXPECT_NE(input.error().message.find("cannot give standard input to a command"), std::string::npos);
    auto other = MakeExec("a", {"x"});
    other.terminal = protocol::TerminalSize{};
    auto terminal = co_await t->link_->Exec(std::move(other));
    EXPECT_EQ(terminal.error().code, Code::kConflict);
    protocol::TerminalSize size;
    auto resize = co_await t->link_->Resize("old", size);
    EXPECT_EQ(resize.error().code, Code::kConflict);
    auto write = co_await t->link_->WriteStdin("old", 0, "x");
    EXPECT_EQ(write.error().code, Code::kNotFound);
    // The next frame that the agent gets is one that it knows.
    t->link_->Kill("old", 9);
    auto kill = co_await t->peer_->Expect<protocol::Kill>();
    EXPECT_EQ(kill.id, "old");
    co_await t->Close();
  }(this));
}

TEST_F(LinkTest, SizesOfTerminalsAreBounded) {
  Run([](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("c");
    protocol::TerminalSize size{protocol::kMaxTerminalSide + 1, 1};
    auto bad = co_await t->link_->Resize("c", size);
    EXPECT_EQ(bad.error().code, Code::kBadRequest);
    auto request = MakeExec("d", {"x"});
    request.terminal = size;
    auto exec = co_await t->link_->Exec(std::move(request));
    EXPECT_EQ(exec.error().code, Code::kBadRequest);
    size.cols = 132;
    auto nobody = co_await t->link_->Resize("nobody", size);
    EXPECT_EQ(nobody.error().code, Code::kNotFound);
    auto good = co_await t->link_->Resize("c", size);
    EXPECT_TRUE(good);
    auto frame = co_await t->peer_->Expect<protocol::Resize>();
    EXPECT_EQ(frame.size, size);
    co_await t->Close();
  }(this));
}

TEST_F(LinkTest, AnAgentThatLiesAboutInputInItsHelloIsRefused) {
  std::vector<std::vector<protocol::StdinState>> lies{
      {{"nobody", 0, 0, false, false}},
      {{"old", 0, 0, false, false}, {"old", 0, 0, false, false}},
      {{"old", protocol::kStdinWindow + 1, 0, false, false}},
  };
  for (const auto& lie : lies) {
    auto [ours, theirs] = SocketPair(io_);
    ours_.emplace(std::move(ours));
    peer_ = std::make_unique<Peer>(std::move(theirs));
    peer_->stdins = lie;
    io_.restart();
    Run([](LinkTest* t) -> asio::awaitable<void> {
      std::vector<protocol::CommandState> commands{{"old", 0, false}};
      t->group_.Spawn(t->Greet(std::move(commands)));
      auto opened = co_await OpenGuestLink(std::move(*t->ours_), &t->events_);
      EXPECT_FALSE(opened);
      EXPECT_TRUE(opened || opened.error().code == Code::kProtocol);
    }(this));
  }
}

}  // namespace
}  // namespace sandbar::engine
