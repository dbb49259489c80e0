// The link against a scripted peer: what an honest agent may do, and every lie that we know of.
#include "engine/guest_link/guest_link.h"

#include "support/guest_link/scripted_agent.h"

namespace sandbar::engine {
namespace {

class Endless : public ByteSource {
 public:
  Task<std::string> Next() override { co_return std::string(100000, 'x'); }
};

TEST_F(LinkTest, ExecOutputExit) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("a");
    protocol::GuestFrame out = protocol::Output{"a", 0, 1, "hello"};
    co_await t->peer_->Send(std::move(out));
    protocol::GuestFrame err = protocol::Output{"a", 5, 2, "E"};
    co_await t->peer_->Send(std::move(err));
    protocol::GuestFrame exit = protocol::Exit{"a", 3, false, 10, 6};
    co_await t->peer_->Send(std::move(exit));
    co_await t->events_.UntilExit("a");
    EXPECT_EQ(t->events_.commands["a"].out, "hello");
    EXPECT_EQ(t->events_.commands["a"].err, "E");
    EXPECT_EQ(t->events_.commands["a"].exit->code, 3);
    auto ack = co_await t->peer_->Expect<protocol::Ack>();
    EXPECT_EQ(ack.offset, 5u);
    auto ack2 = co_await t->peer_->Expect<protocol::Ack>();
    EXPECT_EQ(ack2.offset, 6u);
    auto exit_ack = co_await t->peer_->Expect<protocol::ExitAck>();
    EXPECT_EQ(exit_ack.id, "a");
    co_await t->Close();
    EXPECT_FALSE(t->events_.closed) << "the owner closed it and needs no telling";
  };
  Run(scenario(this));
}

TEST_F(LinkTest, HelloSkipsTheRestOfAnEarlierConversation) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    std::string junk = "half a frame";
    junk += protocol::Encode(protocol::GuestFrame(protocol::HelloAck{1, 0, {}}));
    junk += protocol::Encode(protocol::GuestFrame(protocol::Data{1, "stale"}));
    co_await t->peer_->SendRaw(std::move(junk));
    std::vector<protocol::CommandState> commands{{"old", 10, false}};
    co_await t->Open(std::move(commands));
    EXPECT_EQ(t->link_->known_commands().size(), 1u);
    EXPECT_EQ(t->link_->known_commands()[0].id, "old");
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, HelloFailsWhenThePeerCloses) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->peer_->Close();
    auto opened = co_await OpenGuestLink(std::move(*t->ours_), &t->events_);
    EXPECT_FALSE(opened);
    EXPECT_FALSE(t->events_.closed);
  };
  Run(scenario(this));
}

TEST_F(LinkTest, HelloOfAnotherVersionIsRefused) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    auto greet = [](LinkTest* test) -> Task<> {
      auto hello = co_await test->peer_->Expect<protocol::Hello>();
      EXPECT_EQ(hello.versions(), protocol::GuestVersions());
      protocol::GuestFrame ack = protocol::HelloAck{90, hello.nonce, {}, "", 91};
      co_await test->peer_->Send(std::move(ack));
      co_return Result<>{};
    };
    t->group_.Spawn(greet(t));
    auto opened = co_await OpenGuestLink(std::move(*t->ours_), &t->events_);
    EXPECT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Code::kProtocol);
    EXPECT_NE(opened.error().message.find("versions 90 to 91"), std::string::npos) << opened.error().message;
    EXPECT_NE(opened.error().message.find(Describe(protocol::GuestVersions())), std::string::npos);
    co_await t->group_.Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, AnOldAgentIsUsedAndWhatItLacksIsAConflict) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    auto greet = [](LinkTest* test) -> Task<> {
      auto hello = co_await test->peer_->Expect<protocol::Hello>();
      protocol::GuestFrame ack = protocol::HelloAck{1, hello.nonce, {}};
      co_await test->peer_->Send(std::move(ack));
      co_return Result<>{};
    };
    t->group_.Spawn(greet(t));
    auto opened = co_await OpenGuestLink(std::move(*t->ours_), &t->events_);
    EXPECT_TRUE(opened);
    if (!opened) co_return;
    const protocol::Feature first{1, "walk"}, later{2, "fly"};
    EXPECT_TRUE((*opened)->Require(first));
    auto refused = (*opened)->Require(later);
    EXPECT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kConflict);
    EXPECT_NE(refused.error().message.find("cannot fly; stop and resume the sandbox"), std::string::npos);
    co_await (*opened)->Close();
    co_await t->group_.Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, ReplayOfAnEarlierConnection) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    t->events_.commands["old"].end = 7;  // stored before, the Ack was lost
    std::vector<protocol::CommandState> commands{{"old", 10, true}};
    co_await t->Open(std::move(commands));
    protocol::GuestFrame out = protocol::Output{"old", 4, 1, "456789"};
    co_await t->peer_->Send(std::move(out));
    protocol::GuestFrame exit = protocol::Exit{"old", 0, false, 1, 10};
    co_await t->peer_->Send(std::move(exit));
    co_await t->events_.UntilExit("old");
    EXPECT_EQ(t->events_.commands["old"].out, "789");
    auto ack = co_await t->peer_->Expect<protocol::Ack>();
    EXPECT_EQ(ack.offset, 10u);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, ExecErrorsAreMapped) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::vector<std::pair<protocol::ExecFailure, Code>> table{
        {protocol::ExecFailure::kNotFound, Code::kExecutableNotFound},
        {protocol::ExecFailure::kBadCwd, Code::kBadRequest},
        {protocol::ExecFailure::kDuplicate, Code::kConflict},
        {protocol::ExecFailure::kQuiescing, Code::kStopping},
        {protocol::ExecFailure::kNoResources, Code::kUnavailable},
        {protocol::ExecFailure::kOther, Code::kBadRequest}};
    for (auto& [kind, code] : table) {
      std::optional<Result<>> result;
      auto request = MakeExec("a", {"x"});
      auto call = t->link_->Exec(std::move(request));
      t->group_.Spawn(t->Into(std::move(call), &result));
      co_await t->peer_->Expect<protocol::Exec>();
      protocol::GuestFrame failed = protocol::ExecFailed{"a", kind, "why"};
      co_await t->peer_->Send(std::move(failed));
      while (!result) co_await asio::post(t->io_, kToken);
      EXPECT_FALSE(*result);
      EXPECT_EQ(result->error().code, code);
      EXPECT_EQ(result->error().message, "why");
    }
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, BadRequestsNeverReachTheAgent) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::vector<protocol::Exec> bad{MakeExec("", {"x"}), MakeExec("a", {}), MakeExec("a", {std::string("x\0y", 3)}),
                                    MakeExec(std::string(200, 'i'), {"x"}), MakeExec("a", {std::string(2 << 20, 'x')})};
    bad.push_back(MakeExec("a", {"x"}));
    bad.back().cwd = std::string(5000, 'x');
    for (auto& request : bad) {
      auto r = co_await t->link_->Exec(std::move(request));
      EXPECT_FALSE(r);
    }
    std::string path(5000, 'p');
    GuestUser user;
    auto read = co_await t->link_->ReadFile(std::move(path), "/", std::move(user));
    EXPECT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::kBadRequest);
    co_await t->Start("a");  // the first frame that the peer sees
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, PendingCallsFailWhenTheAgentGoesAway) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::optional<Result<>> exec, write, mkdir;
    std::optional<Result<std::unique_ptr<FileStream>>> read;
    std::optional<Result<protocol::Quiesced>> quiesce;
    auto source = std::make_unique<Endless>();
    auto request = MakeExec("a", {"x"});
    auto call = t->link_->Exec(std::move(request));
    t->group_.Spawn(t->Into(std::move(call), &exec));
    auto read_call = t->link_->ReadFile("f", "/", {});
    t->group_.Spawn(t->Into(std::move(read_call), &read));
    auto write_call = t->link_->WriteTar("/", {}, source.get());
    t->group_.Spawn(t->Into(std::move(write_call), &write));
    auto mkdir_call = t->link_->MakeDir("d", "/", {}, false);
    t->group_.Spawn(t->Into(std::move(mkdir_call), &mkdir));
    auto quiesce_call = t->link_->Quiesce(std::chrono::milliseconds(1));
    t->group_.Spawn(t->Into(std::move(quiesce_call), &quiesce));
    co_await t->peer_->Expect<protocol::Exec>();
    t->peer_->Close();
    co_await t->events_.UntilClosed();
    while (!exec || !read || !write || !mkdir || !quiesce) co_await asio::post(t->io_, kToken);
    EXPECT_EQ(exec->error().code, Code::kUnavailable);
    EXPECT_EQ(read->error().code, Code::kUnavailable);
    EXPECT_EQ(write->error().code, Code::kUnavailable);
    EXPECT_EQ(mkdir->error().code, Code::kUnavailable);
    EXPECT_EQ(quiesce->error().code, Code::kUnavailable);
    auto late = MakeExec("b", {"x"});
    auto after = co_await t->link_->Exec(std::move(late));
    EXPECT_EQ(after.error().code, Code::kUnavailable);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, ReadFileStreamsWithCredit) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::optional<Result<std::unique_ptr<FileStream>>> opened;
    auto call = t->link_->ReadFile("f", "/w", {1000, 1000, "u"});
    t->group_.Spawn(t->Into(std::move(call), &opened));
    auto request = co_await t->peer_->Expect<protocol::ReadFile>();
    EXPECT_EQ(request.path, "f");
    EXPECT_EQ(request.cwd, "/w");
    EXPECT_EQ(request.uid, 1000u);
    std::string chunk(protocol::kMaxData, 'x');
    for (int i = 0; i < 8; ++i) {
      protocol::GuestFrame data = protocol::Data{request.stream, chunk};
      co_await t->peer_->Send(std::move(data));
    }
    while (!opened) co_await asio::post(t->io_, kToken);
    auto stream = **std::move(opened);
    uint64_t got = 0;
    for (int i = 0; i < 4; ++i) {
      auto bytes = co_await stream->Next();
      got += bytes->size();
    }
    EXPECT_EQ(got, 4 * protocol::kMaxData);
    auto credit = co_await t->peer_->Expect<protocol::Credit>();
    EXPECT_EQ(credit.bytes, 2 * protocol::kMaxData);
    protocol::GuestFrame end = protocol::End{request.stream};
    co_await t->peer_->Send(std::move(end));
    for (int i = 0; i < 4; ++i) {
      auto bytes = co_await stream->Next();
      got += bytes->size();
    }
    auto last = co_await stream->Next();
    EXPECT_EQ(*last, "");
    EXPECT_EQ(got, 8 * protocol::kMaxData);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, FileStreamDroppedEarlyAborts) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::optional<Result<std::unique_ptr<FileStream>>> opened;
    auto call = t->link_->ReadFile("f", "/", {});
    t->group_.Spawn(t->Into(std::move(call), &opened));
    auto request = co_await t->peer_->Expect<protocol::ReadFile>();
    protocol::GuestFrame data = protocol::Data{request.stream, "x"};
    co_await t->peer_->Send(data);
    while (!opened) co_await asio::post(t->io_, kToken);
    opened.reset();
    auto abort = co_await t->peer_->Expect<protocol::Abort>();
    EXPECT_EQ(abort.stream, request.stream);
    // What crossed on the way is no violation; after the end it would be.
    co_await t->peer_->Send(data);
    protocol::GuestFrame end = protocol::FileError{request.stream, protocol::FileErrorKind::kOther, "aborted"};
    co_await t->peer_->Send(std::move(end));
    co_await t->Start("a");
    EXPECT_FALSE(t->events_.closed);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, FileStreamMayOutliveTheLink) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::optional<Result<std::unique_ptr<FileStream>>> opened;
    auto call = t->link_->ReadFile("f", "/", {});
    t->group_.Spawn(t->Into(std::move(call), &opened));
    auto request = co_await t->peer_->Expect<protocol::ReadFile>();
    protocol::GuestFrame data = protocol::Data{request.stream, "x"};
    co_await t->peer_->Send(std::move(data));
    while (!opened) co_await asio::post(t->io_, kToken);
    auto stream = **std::move(opened);
    co_await t->Close();
    t->link_.reset();
    auto first = co_await stream->Next();
    EXPECT_EQ(*first, "x");
    auto second = co_await stream->Next();
    EXPECT_EQ(second.error().code, Code::kUnavailable);
  };
  Run(scenario(this));
}

TEST_F(LinkTest, FileErrorsAreMapped) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    for (auto [kind, code] :
         std::vector<std::pair<protocol::FileErrorKind, Code>>{{protocol::FileErrorKind::kNotFound, Code::kNotFound},
                                                               {protocol::FileErrorKind::kDenied, Code::kFileError}}) {
      std::optional<Result<std::unique_ptr<FileStream>>> opened;
      auto call = t->link_->ReadFile("f", "/", {});
      t->group_.Spawn(t->Into(std::move(call), &opened));
      auto request = co_await t->peer_->Expect<protocol::ReadFile>();
      protocol::GuestFrame error = protocol::FileError{request.stream, kind, "why"};
      co_await t->peer_->Send(std::move(error));
      while (!opened) co_await asio::post(t->io_, kToken);
      EXPECT_EQ(opened->error().code, code);
    }
    std::optional<Result<>> made;
    auto call = t->link_->MakeDir("d/e", "/", {}, false);
    t->group_.Spawn(t->Into(std::move(call), &made));
    auto request = co_await t->peer_->Expect<protocol::MakeDir>();
    protocol::GuestFrame error = protocol::FileError{request.stream, protocol::FileErrorKind::kNotFound, "why"};
    co_await t->peer_->Send(std::move(error));
    while (!made) co_await asio::post(t->io_, kToken);
    EXPECT_EQ(made->error().code, Code::kFileError);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, UploadKeepsToTheCreditAndStopsAtAnError) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    Endless source;
    std::optional<Result<>> written;
    auto call = t->link_->WriteTar("/", {}, &source);
    t->group_.Spawn(t->Into(std::move(call), &written));
    auto request = co_await t->peer_->Expect<protocol::WriteTar>();
    uint64_t got = 0;
    while (got + protocol::kMaxData / 2 <= protocol::kStreamWindow - 100000) {
      auto data = co_await t->peer_->Expect<protocol::Data>();
      got += data.bytes.size();
    }
    EXPECT_FALSE(written);
    EXPECT_LE(got, protocol::kStreamWindow);
    protocol::GuestFrame credit = protocol::Credit{request.stream, static_cast<uint32_t>(got)};
    co_await t->peer_->Send(std::move(credit));
    auto more = co_await t->peer_->Expect<protocol::Data>();
    EXPECT_GT(more.bytes.size(), 0u);
    protocol::GuestFrame error = protocol::FileError{request.stream, protocol::FileErrorKind::kNoSpace, "full"};
    co_await t->peer_->Send(std::move(error));
    while (!written) co_await asio::post(t->io_, kToken);
    EXPECT_EQ(written->error().code, Code::kFileError);
    EXPECT_EQ(written->error().message, "full");
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, FileOperationsBeyondTheLimitWaitForTheirTurn) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    constexpr size_t kCalls = 80;
    std::vector<std::optional<Result<>>> made(kCalls);
    for (auto& slot : made) {
      auto call = t->link_->MakeDir("d", "/", {}, false);
      t->group_.Spawn(t->Into(std::move(call), &slot));
    }
    std::vector<uint32_t> open;
    size_t most = 0, answered = 0;
    while (answered < kCalls) {
      if (answered + open.size() < kCalls && open.size() < 32) {
        auto request = co_await t->peer_->Expect<protocol::MakeDir>();
        open.push_back(request.stream);
        most = std::max(most, open.size());
        continue;
      }
      protocol::GuestFrame end = protocol::End{open.back()};
      open.pop_back();
      ++answered;
      co_await t->peer_->Send(std::move(end));
    }
    for (auto& slot : made) {
      while (!slot) co_await asio::post(t->io_, kToken);
      EXPECT_TRUE(*slot);
    }
    EXPECT_EQ(most, 32u);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, ExecThatNobodyWaitsForIsKilledAndCleanedUp) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    t->events_.auto_ack = false;
    auto request = MakeExec("a", {"x"});
    auto call = t->link_->Exec(std::move(request));
    auto r = co_await WithTimeout(std::move(call), std::chrono::milliseconds(20));
    EXPECT_EQ(r.error().code, Code::kTimeout);
    co_await t->peer_->Expect<protocol::Exec>();
    auto kill = co_await t->peer_->Expect<protocol::Kill>();
    EXPECT_EQ(kill.signal, 9);
    protocol::GuestFrame started = protocol::ExecStarted{"a", 5};
    co_await t->peer_->Send(std::move(started));
    protocol::GuestFrame out = protocol::Output{"a", 0, 1, "late"};
    co_await t->peer_->Send(std::move(out));
    protocol::GuestFrame exit = protocol::Exit{"a", 137, false, 1, 4};
    co_await t->peer_->Send(std::move(exit));
    auto ack = co_await t->peer_->Expect<protocol::Ack>();
    EXPECT_EQ(ack.offset, 4u);
    co_await t->peer_->Expect<protocol::ExitAck>();
    EXPECT_TRUE(t->events_.commands.empty());
    co_await t->Start("a");  // the id is free again
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, AgentThatReadsNothingLosesTheLink) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::string id(protocol::kMaxCommandId, 'a');
    co_await t->Start(id);
    for (int i = 0; i < 200000 && !t->events_.closed; ++i) {
      t->link_->Kill(id, 1);
      if (i % 10000 == 0) co_await asio::post(t->io_, kToken);
    }
    co_await t->events_.UntilClosed();
    EXPECT_EQ(t->events_.closed->code, Code::kProtocol);
    co_await t->Close();
  };
  Run(scenario(this));
}

TEST_F(LinkTest, QuiesceIsAnswered) {
  auto scenario = [](LinkTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    std::optional<Result<protocol::Quiesced>> result;
    auto call = t->link_->Quiesce(std::chrono::milliseconds(1500));
    t->group_.Spawn(t->Into(std::move(call), &result));
    auto request = co_await t->peer_->Expect<protocol::Quiesce>();
    EXPECT_EQ(request.grace_ms, 1500u);
    protocol::GuestFrame answer = protocol::Quiesced{true, 4};
    co_await t->peer_->Send(std::move(answer));
    while (!result) co_await asio::post(t->io_, kToken);
    EXPECT_EQ((*result)->killed, 4u);
    co_await t->Close();
  };
  Run(scenario(this));
}

}  // namespace
}  // namespace sandbar::engine
