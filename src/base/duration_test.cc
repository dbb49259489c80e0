#include "base/duration.h"

#include <gtest/gtest.h>

namespace sandbar {
namespace {

TEST(Duration, Units) {
  EXPECT_EQ(ParseDuration("90"), 90'000);
  EXPECT_EQ(ParseDuration("90s"), 90'000);
  EXPECT_EQ(ParseDuration("1500ms"), 1500);
  EXPECT_EQ(ParseDuration("5m"), 300'000);
  EXPECT_EQ(ParseDuration("2h"), 7'200'000);
  EXPECT_EQ(ParseDuration("30d"), 2'592'000'000);
}

TEST(Duration, RefusesOtherTexts) {
  for (const char* text : {"", "-1", "0", "0s", " 5s", "5 s", "5 minutes", "5M", "1.5h", "s", "5ss"})
    EXPECT_FALSE(ParseDuration(text)) << text;
}

TEST(Duration, TheNumberIsBounded) {
  EXPECT_EQ(ParseDuration("100000000h"), 360'000'000'000'000);
  EXPECT_EQ(ParseDuration("100000000d"), 8'640'000'000'000'000);
  EXPECT_FALSE(ParseDuration("100000001ms"));
  EXPECT_FALSE(ParseDuration("99999999999999999999"));
  EXPECT_EQ(ParseDuration("10m", 10), 600'000);
  EXPECT_FALSE(ParseDuration("11ms", 10));
}

}  // namespace
}  // namespace sandbar
