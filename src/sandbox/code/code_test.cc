// The parts of run_code that hold what a hostile machine says: bounds, framing, what becomes an event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include "sandbox/code/code_context.h"
#include "sandbox/code/code_drivers.h"
#include "sandbox/code/code_output.h"

namespace sandbar::sandbox {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

TEST(CappedOutput, PassesTheHeadKeepsTheTailCountsTheRest) {
  CappedOutput out;
  EXPECT_EQ(out.Feed("hello").text, "hello");
  std::string passed = out.Feed(std::string(CappedOutput::kHead, 'h')).text;
  EXPECT_EQ(passed.size(), CappedOutput::kHead - 5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(out.Feed(std::string(CappedOutput::kTail / 8, 'm')).text, "");
  EXPECT_EQ(out.Feed("end").text, "");
  auto rest = out.Flush();
  EXPECT_EQ(rest.piece.text.size(), CappedOutput::kTail);
  EXPECT_TRUE(rest.piece.text.ends_with("mend"));
  const uint64_t all = 5 + CappedOutput::kHead + 100 * (CappedOutput::kTail / 8) + 3;
  EXPECT_EQ(rest.dropped, all - CappedOutput::kHead - CappedOutput::kTail);
  EXPECT_EQ(out.dropped(), rest.dropped);
  // What comes after a flush is held back again, and said once more.
  EXPECT_EQ(out.Feed("later").text, "");
  rest = out.Flush();
  EXPECT_EQ(rest.piece.text, "later");
  EXPECT_EQ(rest.dropped, 0u);
}

TEST(CappedOutput, CharactersAreWholeOnBothSidesOfTheGap) {
  CappedOutput out;
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "€";
  std::string head = out.Feed(text).text;
  auto rest = out.Flush();
  for (const std::string* part : {&head, &rest.piece.text}) EXPECT_EQ(part->substr(part->size() - 3), "€");
  EXPECT_TRUE(rest.piece.text.starts_with("€") || rest.piece.text.starts_with("\uFFFD€"))
      << rest.piece.text.substr(0, 8);
  EXPECT_GT(rest.dropped, 0u);
  CappedOutput joined;
  std::string split = joined.Feed(std::string(CappedOutput::kHead - 1, 'x') + "€y").text;
  EXPECT_EQ(split.size(), CappedOutput::kHead - 1);
  EXPECT_EQ(joined.Flush().piece.text, "€y");
  CappedOutput cut;
  EXPECT_EQ(cut.Feed("a\xe2\x82").text, "a");
  EXPECT_EQ(cut.Flush().piece.text, "\uFFFD");
}

TEST(CappedOutput, SaysWhenBytesWereReplaced) {
  CappedOutput out;
  EXPECT_FALSE(out.Feed("caf\xc3").replaced);
  EXPECT_FALSE(out.Feed("\xa9").replaced) << "a character in two pieces is whole";
  EXPECT_TRUE(out.Feed("a\xff\xe2\x82").replaced);
  const auto euro = out.Feed("\xac");
  EXPECT_EQ(euro.text, "€");
  EXPECT_FALSE(euro.replaced) << "only the piece before had such bytes";
  EXPECT_FALSE(out.Flush().piece.replaced);
  CappedOutput long_one;
  EXPECT_FALSE(long_one.Feed(std::string(CappedOutput::kHead + 5, 'x')).replaced);
  EXPECT_FALSE(long_one.Feed("\xfe").replaced) << "held back, and so not said yet";
  EXPECT_TRUE(long_one.Flush().piece.replaced);
  CappedOutput cut;
  EXPECT_FALSE(cut.Feed("a\xe2\x82").replaced);
  EXPECT_TRUE(cut.Flush().piece.replaced);
}

class CodeCellTest : public testing::Test {
 protected:
  std::vector<json::object> Events() {
    std::string text;
    asio::co_spawn(io_, cell_->Next(), [&](std::exception_ptr, Result<std::string> r) { text = r.value_or(""); });
    io_.restart();
    io_.poll();
    std::vector<json::object> out;
    for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      out.push_back(json::parse(text.substr(at, end - at)).as_object());
    return out;
  }
  std::shared_ptr<CodeCell> Make() {
    return std::make_shared<CodeCell>(io_.get_executor(), "ctx", 7, true, std::chrono::seconds(1));
  }

  asio::io_context io_{1};
  std::shared_ptr<CodeCell> cell_ = Make();
};

TEST_F(CodeCellTest, EventsInOrderAndAnEndThatSumsUp) {
  cell_->Output(1, "out");
  cell_->DriverLine(R"({"type":"begun"})");
  EXPECT_TRUE(cell_->begun);
  cell_->Output(2, "err");
  cell_->DriverLine(R"({"type":"result","data":{"text/plain":"42","image/png":"AA==","no mime":"x"},"extra":1})");
  cell_->DriverLine(R"({"type":"artifact","path":"/w/a.PNG","size":3,"sha256":")" + std::string(64, 'a') + "\"}");
  cell_->DriverLine(R"({"type":"artifact","path":"/w/noend","size":-1,"sha256":"zz"})");
  cell_->DriverLine(R"({"type":"end","status":"ok","cpuMs":12,"maxRssBytes":4096,"exitCode":0})");
  EXPECT_TRUE(cell_->ended());
  auto events = Events();
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0], json::parse(R"({"type":"started","context":"ctx","executionCount":7,"fresh":true})"));
  EXPECT_EQ(events[1], json::parse(R"({"type":"stdout","text":"out"})"));
  EXPECT_EQ(events[2], json::parse(R"({"type":"stderr","text":"err"})"));
  EXPECT_EQ(events[3], json::parse(R"({"type":"result","data":{"text/plain":"42","image/png":"AA=="}})"));
  EXPECT_EQ(events[4].at("mime"), "image/png");
  EXPECT_TRUE(events[5].at("sha256").is_null());
  EXPECT_EQ(events[5].at("size"), 0);
  const auto& end = events[6];
  EXPECT_EQ(end.at("status"), "ok");
  EXPECT_EQ(end.at("cpuMs"), 12);
  EXPECT_EQ(end.at("maxRssBytes"), 4096);
  EXPECT_EQ(end.at("exitCode"), 0);
  EXPECT_EQ(end.at("artifacts").as_array().size(), 2u);
  EXPECT_EQ(end.at("truncated"), json::object{});
  EXPECT_TRUE(Events().empty()) << "nothing after the end";
  cell_->Output(1, "late");
  cell_->DriverLine(R"({"type":"result","data":{}})");
  EXPECT_TRUE(Events().empty());
}

TEST_F(CodeCellTest, WhatIsNotUnderstoodIsCountedAndNeverShown) {
  std::string deep(100, '[');
  for (std::string line : {std::string("?"), std::string("[]"), std::string(R"({"type":"started","context":"other"})"),
                           std::string(R"({"type":"stdout","text":"forged"})"), std::string(R"({"type":5})"),
                           std::string(R"({"type":"result"})"), std::string(R"({"type":"result","data":"x"})"),
                           std::string("{\"type\":\"result\",\"data\":{\"text/plain\":\"\xff\"}}"), deep})
    cell_->DriverLine(line);
  cell_->DriverLine(R"({"type":"end","status":"fine","cpuMs":1e300,"maxRssBytes":"x","exitCode":-5})");
  auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].at("status"), "error");
  EXPECT_EQ(events[1].at("truncated").at("unreadable"), 9);
  EXPECT_EQ(events[1].at("cpuMs"), 1LL << 40);
  EXPECT_EQ(events[1].at("maxRssBytes"), 0);
}

TEST_F(CodeCellTest, RichResultsArtifactsAndErrorsAreBounded) {
  const std::string large = R"({"type":"display","data":{"text/plain":")" + std::string(5 << 20, 'x') + "\"}}";
  for (int i = 0; i < 5; ++i) cell_->DriverLine(large);
  for (int i = 0; i < 300; ++i) cell_->DriverLine(R"({"type":"artifact","path":"/a","size":1})");
  cell_->DriverLine(R"({"type":"error","name":")" + std::string(1000, 'n') + R"(","value":")" +
                    std::string(100000, 'v') + R"(","traceback":")" + std::string(100000, 't') + "\"}");
  cell_->DriverLine(R"({"type":"end","status":"ok"})");
  auto events = Events();
  const auto& end = events.back();
  EXPECT_EQ(end.at("status"), "error") << "an error makes the cell one";
  EXPECT_EQ(end.at("truncated").at("display").at("dropped"), 2);
  EXPECT_EQ(end.at("truncated").at("artifacts"), true);
  EXPECT_EQ(end.at("artifacts").as_array().size(), CodeCell::kMaxArtifacts);
  const auto& error = events[events.size() - 2];
  EXPECT_EQ(error.at("type"), "error");
  EXPECT_LT(error.at("value").as_string().size(), 20000u);
  EXPECT_LT(error.at("traceback").as_string().size(), 70000u);
}

TEST_F(CodeCellTest, HeldBackOutputComesBeforeTheErrorWithItsGap) {
  for (int i = 0; i < 20; ++i) cell_->Output(1, std::string(100000, static_cast<char>('a' + i)));
  cell_->DriverLine(R"({"type":"error","name":"E","value":"v","traceback":"t"})");
  cell_->DriverLine(R"({"type":"end","status":"error"})");
  auto events = Events();
  ASSERT_EQ(events[events.size() - 2].at("type"), "error");
  EXPECT_TRUE(events[events.size() - 3].at("text").as_string().ends_with("ttt"));
  const auto& gap = events[events.size() - 4];
  const uint64_t dropped = 20 * 100000 - CappedOutput::kHead - CappedOutput::kTail;
  EXPECT_EQ(gap.at("gap"), dropped);
  EXPECT_THAT(std::string(gap.at("text").as_string()), HasSubstr(std::to_string(dropped) + " bytes"));
  EXPECT_EQ(events.back().at("truncated").at("stdout").at("dropped"), dropped);
}

TEST_F(CodeCellTest, AContextCutsLinesSkipsReplaysAndSurvivesHoles) {
  CodeContext context;
  context.command = "krn_1";
  EXPECT_FALSE(context.Take(0, 1, "before"));
  context.Begin(cell_);
  const std::string first = R"({"type":"result","data":{"text/pl)", second = R"(ain":"1"}})";
  uint64_t at = 6;
  auto take = [&](uint8_t stream, const std::string& bytes) {
    const bool left = context.Take(at, stream, bytes);
    at += bytes.size();
    return left;
  };
  take(3, first);
  take(1, "between the halves");
  take(3, second + "\n{\"type\":");
  EXPECT_FALSE(context.Take(0, 1, "before")) << "a replay";
  EXPECT_FALSE(context.Take(at - 3, 1, "\":x")) << "a replay of the last bytes";
  context.Gap(at, 100);
  at += 100;
  take(3, "\"lost\"}\n");
  take(3, std::string((8 << 20) + 1, 'x'));
  take(3, "\n");
  EXPECT_EQ(context.received(), at);
  EXPECT_EQ(context.Info().state, "running");
  EXPECT_TRUE(take(3, "{\"type\":\"end\",\"status\":\"ok\",\"leaving\":true}\n"));
  EXPECT_EQ(context.cell, nullptr);
  EXPECT_EQ(context.Info().state, "idle");
  auto events = Events();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1].at("text"), "before");
  EXPECT_EQ(events[2].at("text"), "between the halves");
  EXPECT_EQ(events[3].at("data").at("text/plain"), "1");
  EXPECT_EQ(events[4].at("gap"), 100);
  EXPECT_EQ(events[5].at("truncated").at("unreadable"), 2);
}

TEST_F(CodeCellTest, ATimeoutOutweighsWhatTheDriverSays) {
  cell_->timed_out = true;
  cell_->DriverLine(R"({"type":"end","status":"ok"})");
  EXPECT_EQ(Events().back().at("status"), "timeout");
  cell_ = Make();
  cell_->End("killed", "why");
  auto events = Events();
  EXPECT_EQ(events[1].at("value"), "why");
  EXPECT_EQ(events[2].at("status"), "killed");
}

TEST(CodeDrivers, RequestsAreFramedOrQuoted) {
  CodeSpec spec;
  spec.code = "é\n'";
  spec.cwd = "/x";
  spec.env = {{"A", "b\"c"}};
  EXPECT_EQ(DriverRequest(3, CodeLanguage::kPython, spec), "run 3 python 4 2 12\né\n'/x{\"A\":\"b\\\"c\"}");
  spec.code = "echo 'a\\n'\nb";
  spec.env = {{"A", "it's\n"}};
  EXPECT_EQ(DriverRequest(3, CodeLanguage::kBash, spec),
            "__sandbar_code=$'echo \\'a\\\\n\\'\\nb'; __sandbar_begin $'/x' && A=$'it\\'s\\n' eval \"$__sandbar_code\" "
            "</dev/null 250>&-\n");
  for (CodeLanguage l :
       {CodeLanguage::kPython, CodeLanguage::kJavascript, CodeLanguage::kTypescript, CodeLanguage::kBash}) {
    protocol::Exec request;
    request.env = {"PS1=mine", "A=b"};
    AddDriver(l, request);
    const bool shell = l == CodeLanguage::kBash;
    EXPECT_EQ(std::ranges::count(request.env, "PS1=mine"), shell ? 0 : 1);
    EXPECT_EQ(std::ranges::count(request.env, "A=b"), 1);
    const std::string& driver = shell ? request.env.back() : request.argv.back();
    // One string may have 128 KiB.
    EXPECT_GT(driver.size(), 1000u);
    EXPECT_LT(driver.size(), 100000u);
  }
}

TEST(CodeDrivers, TypesByName) {
  EXPECT_EQ(MimeOf("/a/b.csv"), "text/csv");
  EXPECT_EQ(MimeOf("B.JPG"), "image/jpeg");
  EXPECT_EQ(MimeOf("/a.png/noending"), "application/octet-stream");
  EXPECT_EQ(MimeOf("x.unheard"), "application/octet-stream");
  EXPECT_EQ(MimeOf(""), "application/octet-stream");
}

}  // namespace
}  // namespace sandbar::sandbox
