// Standard input and terminals over the link, against the real agent.
#include "support/guest_link/agent_fixture.h"
#include "support/wire/noise.h"

namespace sandbar::engine {
namespace {

class AgentInputTest : public AgentTest {
 public:
  asio::awaitable<void> Start(std::string id, std::string script, bool terminal = false) {
    auto request = MakeExec(std::move(id), {"bash", "-c", std::move(script)});
    request.standard_input = !terminal;
    if (terminal) request.terminal = protocol::TerminalSize{100, 30};
    auto r = co_await link_->Exec(std::move(request));
    EXPECT_TRUE(r) << r.error().message;
  }
  asio::awaitable<void> Write(std::string id, uint64_t offset, std::string bytes) {
    auto r = co_await link_->WriteStdin(std::move(id), offset, std::move(bytes));
    EXPECT_TRUE(r) << r.error().message;
  }
  asio::awaitable<void> End(std::string id, uint64_t offset) {
    auto r = co_await link_->EndStdin(std::move(id), offset);
    EXPECT_TRUE(r) << r.error().message;
  }
};

TEST_F(AgentInputTest, SixtyFourMegabytesThroughCat) {
  Run([](AgentInputTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    const std::string bytes = Noise(64 << 20);
    co_await t->Start("c", "cat");
    co_await t->Write("c", 0, bytes);
    co_await t->End("c", bytes.size());
    co_await t->events_.UntilExit("c");
    EXPECT_TRUE(t->events_.commands["c"].out == bytes) << t->events_.commands["c"].out.size();
    EXPECT_EQ(t->events_.commands["c"].taken, bytes.size());
    EXPECT_FALSE(t->events_.commands["c"].stdin_closed);
    co_await t->Close();
  }(this));
}

TEST_F(AgentInputTest, AWriterContinuesOnAnotherLink) {
  Run([](AgentInputTest* t) -> asio::awaitable<void> {
    const std::string bytes = Noise(5 << 20);
    co_await t->Open();
    co_await t->Start("c", "cat");
    uint64_t at = 0;
    for (int i = 0; i < 5; ++i) {
      // Left in the middle of a write.
      auto call = t->link_->WriteStdin("c", at, bytes.substr(at, 1 << 20));
      auto cut = co_await WithTimeout(std::move(call), std::chrono::milliseconds(1 + i));
      co_await t->Close();
      co_await t->Open();
      EXPECT_EQ(t->link_->known_stdins().size(), 1u);
      at = t->link_->known_stdins()[0].accepted;
      EXPECT_EQ(t->link_->Stdin("c")->accepted, at);
      // Bytes before that offset are skipped.
      at -= std::min<uint64_t>(at, 1000);
    }
    std::string rest = bytes.substr(at);
    co_await t->Write("c", at, std::move(rest));
    co_await t->End("c", bytes.size());
    co_await t->events_.UntilExit("c");
    EXPECT_TRUE(t->events_.commands["c"].out == bytes) << t->events_.commands["c"].out.size();
    co_await t->Close();
  }(this));
}

TEST_F(AgentInputTest, AReaderOfOneByteEndsAnUpload) {
  Run([](AgentInputTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("c", "exec head -c 1");
    co_await t->Write("c", 0, std::string(32 << 20, 'x'));
    co_await t->events_.UntilExit("c");
    EXPECT_EQ(t->events_.commands["c"].out, "x");
    EXPECT_TRUE(t->events_.commands["c"].stdin_closed);
    auto late = co_await t->link_->WriteStdin("c", 0, "x");
    EXPECT_EQ(late.error().code, Code::kNotFound);
    co_await t->Close();
  }(this));
}

TEST_F(AgentInputTest, ATerminalOverOneLinkAndTheNext) {
  Run([](AgentInputTest* t) -> asio::awaitable<void> {
    co_await t->Open();
    co_await t->Start("t", "stty size; read line; stty size; echo \"got $line\"; sleep 1000", true);
    co_await t->events_.UntilText("t", "30 100");
    protocol::TerminalSize size{120, 40};
    auto resized = co_await t->link_->Resize("t", size);
    EXPECT_TRUE(resized);
    co_await t->Write("t", 0, "half ");
    co_await t->events_.UntilTaken("t", 5);
    co_await t->Close();
    co_await t->Open();
    co_await t->Write("t", 5, "whole\r");
    co_await t->events_.UntilText("t", "got half whole");
    EXPECT_TRUE(t->events_.commands["t"].out.contains("40 120"));
    co_await t->Write("t", 11, "\x03");
    co_await t->events_.UntilExit("t");
    EXPECT_EQ(t->events_.commands["t"].exit->code, 130);
    co_await t->Close();
  }(this));
}

}  // namespace
}  // namespace sandbar::engine
