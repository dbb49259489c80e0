#include "wire/sse.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

std::vector<SseEvent> Parse(std::string_view text, size_t step) {
  SseParser parser;
  std::vector<SseEvent> all;
  for (size_t at = 0; at < text.size(); at += step) {
    auto events = parser.Feed(text.substr(at, step));
    EXPECT_TRUE(events.has_value());
    all.insert(all.end(), events->begin(), events->end());
  }
  return all;
}

TEST(Sse, SameEventsHoweverTheBytesAreCut) {
  const std::string text =
      "\xEF\xBB\xBF"
      "event: a\r\ndata: {\"x\":1}\r\n\r\n: comment\n\ndata:one\ndata: two\nid: 7\n\rdata\r\rdata: caf\xC3\xA9\n\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    auto events = Parse(text, step);
    ASSERT_EQ(events.size(), 4U) << step;
    EXPECT_EQ(events[0].name, "a");
    EXPECT_EQ(events[0].data, "{\"x\":1}");
    EXPECT_EQ(events[1].name, "message");
    EXPECT_EQ(events[1].data, "one\ntwo");
    EXPECT_EQ(events[2].data, "");
    EXPECT_EQ(events[3].data, "caf\xC3\xA9");
  }
}

TEST(Sse, WhatIsCutIsNoEvent) {
  EXPECT_TRUE(Parse("event: a\ndata: 1\n", 4).empty());
  EXPECT_TRUE(Parse("data: 1", 4).empty());
  EXPECT_TRUE(Parse("event: a\n\n", 4).empty());
}

TEST(Sse, AnEventHasALimit) {
  SseParser parser(100);
  EXPECT_TRUE(parser.Feed("data: " + std::string(80, 'x') + "\n\n").has_value());
  EXPECT_TRUE(parser.Feed("data: " + std::string(60, 'x') + "\n").has_value());
  auto more = parser.Feed("data: " + std::string(60, 'x') + "\n");
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace sandbar::wire
