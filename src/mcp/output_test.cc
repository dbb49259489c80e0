#include "mcp/output.h"

#include <gtest/gtest.h>

#include <regex>

#include "wire/text.h"

namespace sandbar::mcp {
namespace {

sandbox::LogChunk Chunk(uint8_t stream, std::string bytes, uint64_t gap = 0) {
  return {stream, std::move(bytes), gap};
}

// The number of bytes that a rendered text says it lacks; 0 when it says nothing.
uint64_t LeftOut(const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("\\[… (\\d+) bytes left out")) ? std::stoull(found[1]) : 0;
}

size_t Shown(const std::string& text) {
  return std::regex_replace(text, std::regex("\n\\[… [^\n]*\\]\n"), "").size();
}

TEST(McpOutput, ShortTextIsWhole) {
  HeadTail text;
  text.Add("one\n");
  text.Add("two\n");
  EXPECT_EQ(text.Render(100), "one\ntwo\n");
  EXPECT_EQ(text.total(), 8U);
}

TEST(McpOutput, WhatIsShownAndWhatIsNotMakeTheWhole) {
  for (size_t size : {size_t{101}, size_t{150}, kTextCap - 1, kTextCap, kTextCap + 1, 2 * kTextCap, 5 * kTextCap + 7}) {
    for (size_t step : {size_t{1}, size_t{997}, size}) {
      if (step == 1 && size > 1000) continue;
      std::string all;
      for (size_t i = 0; i < size; ++i) all += static_cast<char>('a' + i % 26);
      HeadTail text;
      for (size_t i = 0; i < size; i += step) text.Add(std::string_view(all).substr(i, step));
      std::string shown = text.Render(100);
      EXPECT_EQ(LeftOut(shown) + Shown(shown), size) << size << " in " << step;
      EXPECT_TRUE(shown.starts_with(all.substr(0, 40)));
      EXPECT_TRUE(shown.ends_with(all.substr(size - 60)));
    }
  }
}

TEST(McpOutput, MissingBytesCount) {
  HeadTail text;
  text.Add("begin");
  text.Skip(1'000'000);
  text.Add("end");
  std::string shown = text.Render(100);
  EXPECT_EQ(LeftOut(shown), 1'000'000U);
  EXPECT_TRUE(shown.starts_with("begin"));
  EXPECT_TRUE(shown.ends_with("end"));
}

TEST(McpOutput, CutsDoNotBreakCharactersAndBadBytesAreReplaced) {
  std::string snow;
  for (int i = 0; i < 1000; ++i) snow += "☃";
  for (size_t cap = 90; cap < 100; ++cap) {
    std::string shown = CutText(snow, cap);
    EXPECT_TRUE(wire::IsUtf8(shown));
    EXPECT_EQ(shown.find("\xef\xbf\xbd"), std::string::npos) << shown;
    EXPECT_EQ(LeftOut(shown) + Shown(shown), snow.size());
  }
  EXPECT_EQ(CutText("a\xff"
                    "b",
                    100),
            "a\xef\xbf\xbd"
            "b");
}

TEST(McpOutput, StreamsAreLabelledAndShareTheRoom) {
  Output output(0);
  EXPECT_TRUE(output.empty());
  output.Add(Chunk(1, "out\n"));
  output.Add(Chunk(2, "err\n"));
  output.Add(Chunk(1, "more\n"));
  EXPECT_EQ(output.Render(1000), "stdout:\nout\nmore\nstderr:\nerr");
  EXPECT_EQ(output.position(), 13U);

  Output both(0);
  both.Add(Chunk(1, std::string(5000, 'o')));
  both.Add(Chunk(2, std::string(5000, 'e')));
  EXPECT_LT(both.Render(1000).size(), 1300U);
  Output one(0);
  one.Add(Chunk(1, std::string(900, 'o')));
  one.Add(Chunk(2, "e"));
  EXPECT_EQ(LeftOut(one.Render(1000)), 0U) << "room that stderr does not need is stdout's";
}

TEST(McpOutput, AfterLeavesOutWhatWasSeen) {
  Output output(5);
  output.Add(Chunk(1, "abc"));
  output.Add(Chunk(2, "def"));
  output.Add(Chunk(1, "ghi"));
  EXPECT_EQ(output.Render(100), "stdout:\nghi\nstderr:\nf");
  Output gap(150);
  gap.Add(Chunk(1, "", 100));
  gap.Add(Chunk(1, std::string(60, 'x')));
  EXPECT_EQ(gap.Render(100), "stdout:\n" + std::string(10, 'x'));
  Output all(99);
  all.Add(Chunk(1, "abc"));
  EXPECT_TRUE(all.empty());
}

TEST(McpOutput, Times) {
  EXPECT_EQ(Elapsed(0), "0 ms");
  EXPECT_EQ(Elapsed(999), "999 ms");
  EXPECT_EQ(Elapsed(1240), "1.2 s");
  EXPECT_EQ(Elapsed(125'000), "2 min 5 s");
}

}  // namespace
}  // namespace sandbar::mcp
