#include "egress/bounded_pattern.h"

#include <gtest/gtest.h>

namespace sandbar::egress {
namespace {

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(BoundedPattern, OrdinaryOnesWork) {
  for (const char* text : {"^/v1/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
                           "^/(repos|users)/[^/]+/[^/]+/(issues|pulls)(/[0-9]+)?$", R"(^[\w.-]{1,128}$)", R"(^/\pL+$)",
                           "(?i)^bearer ", ""})
    EXPECT_TRUE(BoundedPattern::Compile(text, false)) << text;
  auto pattern = BoundedPattern::Compile(R"(ops: (\d+))", false);
  ASSERT_TRUE(pattern);
  EXPECT_EQ(pattern->groups(), 1);
  EXPECT_TRUE(pattern->Finds("ops: 7"));
  EXPECT_FALSE(pattern->Finds("OPS: 7"));
  auto match = pattern->FindFirst("x ops: 12, ops: 13");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->whole, "ops: 12");
  EXPECT_EQ(match->group, "12");
  EXPECT_FALSE(pattern->FindFirst("none"));
  EXPECT_EQ(BoundedPattern::Compile("b+", false)->FindFirst("abbc")->group, "bb");
  EXPECT_TRUE(BoundedPattern::Compile("^x-a$", true)->Finds("X-A"));
}

TEST(BoundedPattern, LargeOnesAreRefusedWithAWayOut) {
  auto why = [](const std::string& text) {
    auto pattern = BoundedPattern::Compile(text, false);
    if (pattern) return std::string("accepted");
    EXPECT_EQ(pattern.error().code, Code::kBadRequest);
    return pattern.error().message;
  };
  EXPECT_TRUE(why("(?:a?){1000}b").contains("instructions"));
  EXPECT_TRUE(why("[^/]{900}").contains("smaller repetitions"));
  // RE2 would write these out before it looked at a limit: seconds, and hundreds of megabytes.
  EXPECT_TRUE(why(Repeat("a{0,1000}", 400)).contains("repetitions"));
  EXPECT_TRUE(why(Repeat(R"(\PL)", 300)).contains("Unicode"));
  EXPECT_TRUE(why(std::string(5000, 'a')).contains("4000"));
  EXPECT_TRUE(why("(").contains("not a regular expression"));
}

TEST(BoundedPattern, EffortIsEstimatedFromTheText) {
  EXPECT_EQ(BoundedPattern::Effort("abc"), 3u);
  EXPECT_EQ(BoundedPattern::Effort("a{3}"), 4u + 3);
  EXPECT_EQ(BoundedPattern::Effort("a{3,70}b{2,}"), 12u + 70 + 2);
  EXPECT_EQ(BoundedPattern::Effort("a{x}{"), 5u);
  EXPECT_EQ(BoundedPattern::Effort("a{99999999999999999999}"), 23u + 1000);
  EXPECT_EQ(BoundedPattern::Effort(R"(\pL)"), 3u + 250);
}

TEST(StepBudget, EndsForGood) {
  StepBudget budget(10);
  EXPECT_TRUE(budget.Take(4));
  EXPECT_TRUE(budget.Take(6));
  EXPECT_FALSE(budget.spent());
  EXPECT_FALSE(budget.Take(1));
  EXPECT_TRUE(budget.spent());
  StepBudget other(10);
  EXPECT_FALSE(other.Take(11));
  EXPECT_FALSE(other.Take(1));  // what follows must not be decided with what is left
}

}  // namespace
}  // namespace sandbar::egress
