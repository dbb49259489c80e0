#include "mcp/cells.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

namespace sandbar::mcp {
namespace {

// Says what it is given; waits in between.
class Script : public sandbox::CodeStream {
 public:
  struct State {
    explicit State(const asio::any_io_executor& ex) : changed(ex) {}
    std::string lines;
    bool end = false;
    std::optional<Error> failure;
    bool gone = false;
    Event changed;
  };
  explicit Script(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  ~Script() override { state_->gone = true; }
  Task<std::string> Next() override {
    while (state_->lines.empty() && !state_->end) {
      SB_CO_TRYV(co_await state_->changed.Wait());
    }
    if (state_->failure) co_return std::unexpected(*state_->failure);
    co_return std::exchange(state_->lines, {});
  }

 private:
  std::shared_ptr<State> state_;
};

class McpCells : public ::testing::Test {
 protected:
  McpCells() : cells_(io_.get_executor()), state_(std::make_shared<Script::State>(io_.get_executor())) {}
  ~McpCells() override {
    asio::co_spawn(io_, cells_.Close(), [](const std::exception_ptr&) {});
    io_.restart();
    io_.run();
  }
  std::shared_ptr<Cell> Add(int64_t keep_ms = 1000) {
    auto cell = cells_.Add("me", std::make_unique<Script>(state_), keep_ms);
    EXPECT_TRUE(cell);
    Turn();
    return *cell;
  }
  void Turn() {
    io_.restart();
    io_.poll();
  }
  void Say(const std::string& lines, bool end = false) {
    state_->lines = lines;
    state_->end = end;
    state_->changed.Notify();
    Turn();
  }

  asio::io_context io_;
  Cells cells_;
  std::shared_ptr<Script::State> state_;
};

TEST_F(McpCells, CollectsWhatComes) {
  auto cell = Add();
  Say(R"({"type":"started","context":"python","executionCount":3,"fresh":true})"
      "\n"
      R"({"type":"stdout","text":"a\n"})"
      "\n");
  EXPECT_FALSE(cell->ended);
  EXPECT_EQ(cell->output.context, "python");
  EXPECT_EQ(cell->output.out.Render(100), "a\n");
  Say(R"({"type":"stderr","text":"w"})"
      "\n"
      R"({"type":"result","data":{"text/html":"<b>","text/plain":"42"}})"
      "\n"
      R"({"type":"display","data":{"text/plain":"<Figure>","image/png":"aGk="}})"
      "\n"
      R"({"type":"error","name":"E","value":"v","traceback":"T"})"
      "\n"
      R"({"type":"artifact","path":"/x/y.csv","size":5,"mime":"text/csv"})"
      "\nnot json\n[]\n"
      R"({"type":"end","status":"error","executionCount":3,"durationMs":12})"
      "\n",
      true);
  ASSERT_TRUE(cell->ended);
  EXPECT_EQ(cell->output.shown.Render(100), "42\n");
  ASSERT_EQ(cell->output.images.size(), 1U);
  EXPECT_EQ(cell->output.images[0].at("data"), "aGk=");
  EXPECT_EQ(cell->output.error, "T");
  EXPECT_EQ(cell->output.exit_code, 1);
  EXPECT_EQ(cell->output.duration_ms, 12);
  ASSERT_EQ(cell->output.artifacts.size(), 1U);
  EXPECT_TRUE(state_->gone);
}

TEST_F(McpCells, ImagesAreBounded) {
  CellOutput output;
  auto show = [&](const std::string& data) {
    output.TakeLine(json::serialize(json::object{{"type", "display"}, {"data", json::object{{"image/png", data}}}}));
  };
  show("not base64!");
  show(std::string(6 << 20, 'A'));
  EXPECT_EQ(output.images.size(), 0U);
  for (int i = 0; i < 20; ++i) show("AAAA");
  EXPECT_EQ(output.images.size(), 8U);
  EXPECT_EQ(output.images_left_out, 14U);
}

TEST_F(McpCells, ExitCodesOfTheOtherEnds) {
  for (auto [line, code] :
       {std::pair(R"({"type":"end","status":"ok"})", 0), std::pair(R"({"type":"end","status":"timeout"})", 124),
        std::pair(R"({"type":"end","status":"oom"})", 137),
        std::pair(R"({"type":"end","status":"error","exitCode":7})", 7)}) {
    CellOutput output;
    output.TakeLine(line);
    EXPECT_EQ(output.exit_code, code) << line;
  }
}

TEST_F(McpCells, HandlesAreTheOwners) {
  auto cell = Add();
  EXPECT_EQ(cells_.Find("me", cell->handle), cell);
  EXPECT_EQ(cells_.Find("you", cell->handle), nullptr);
  EXPECT_EQ(cells_.Find("me", "cell_x"), nullptr);
}

TEST_F(McpCells, DroppingEndsTheReading) {
  auto cell = Add();
  cells_.Drop(cell->handle);
  Turn();
  EXPECT_TRUE(state_->gone);
  EXPECT_TRUE(cell->ended);
  EXPECT_EQ(cells_.Find("me", cell->handle), nullptr);
}

TEST_F(McpCells, ABrokenStreamIsAFailure) {
  auto cell = Add();
  state_->failure = Error{Code::kUnavailable, "gone"};
  Say("", true);
  ASSERT_TRUE(cell->ended);
  ASSERT_TRUE(cell->failure);
  EXPECT_EQ(cell->failure->message, "gone");
}

TEST_F(McpCells, AsManyAsThereMayBe) {
  std::vector<std::shared_ptr<Script::State>> states;
  auto add = [&](int64_t keep_ms, const std::string& owner = "me") {
    states.push_back(std::make_shared<Script::State>(io_.get_executor()));
    return cells_.Add(owner, std::make_unique<Script>(states.back()), keep_ms);
  };
  for (size_t i = 0; i < Cells::kMaxOwn; ++i) ASSERT_TRUE(add(1'000'000));
  auto refused = add(1'000'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTooMany);
  EXPECT_TRUE(add(1'000'000, "other")) << "one caller's many are not another's";
  Turn();
  states[0]->end = true;
  states[0]->changed.Notify();
  Turn();
  EXPECT_FALSE(add(1'000'000)) << "it may still be asked for";
  EXPECT_TRUE(add(-1)) << "it was kept long enough";
}

}  // namespace
}  // namespace sandbar::mcp
