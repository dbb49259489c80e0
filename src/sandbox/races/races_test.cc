// Scores of races: a caller's pattern and a guest's output, neither of which may cost the server more than a bounded
// time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;

class RaceTest : public DomainTest {
 protected:
  Result<RaceOutcome> Race(const std::string& score, const std::string& output) {
    RaceSpec spec;
    spec.source = source_.sandbox.name;
    spec.command = "echo";
    spec.args = {output};
    spec.count = 1;
    spec.keep = "none";
    spec.score = score;
    return world.Run(world.races->Run(world.scope, spec));
  }
  void BootSource() {
    Boot();
    source_ = world.Create();
  }
  std::optional<double> Score(const std::string& score, const std::string& output) {
    auto race = Race(score, output);
    EXPECT_TRUE(race) << (race ? "" : race.error().message);
    if (!race) return std::nullopt;
    EXPECT_EQ(race->racers.at(0).error, "");
    return race->racers.at(0).score;
  }
  SandboxView source_;
};

TEST_F(RaceTest, TheLastNumberCounts) {
  BootSource();
  EXPECT_EQ(Score(R"(ops: (\d+))", "ops: 1\nops: 2, ops: 3\nthe end"), 3);
  EXPECT_EQ(Score(R"([-\d.e]+)", "a 1.5 b -2.5e3 c"), -2500);
  EXPECT_EQ(Score(R"(^total +(.*)$)", "total  12 \n"), 12);  // lines are searched by themselves
  EXPECT_EQ(Score(R"(is (\w+))", "it is 7\nit is inf\nit is nan\nit is not"), 7);
  EXPECT_EQ(Score("none", "ops: 1"), std::nullopt);
  // However many there are before it.
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "ops: 1\n";
  EXPECT_EQ(Score(R"(ops: (\d+))", many + "ops: 2"), 2);
}

TEST_F(RaceTest, LargePatternsAreRefused) {
  BootSource();
  for (const char* score : {"(?:a?){1000}b", "(", "(a)(b)"}) {
    auto race = Race(score, "x");
    ASSERT_FALSE(race) << score;
    EXPECT_EQ(race.error().code, Code::kBadRequest);
    EXPECT_THAT(race.error().message, HasSubstr("`score`"));
  }
}

TEST_F(RaceTest, ASearchThatCostsTooMuchIsGivenUp) {
  BootSource();
  // Within the limits of a pattern, but for each of 16 lines it takes millions of steps.
  std::string output;
  for (int i = 0; i < 16; ++i) output += std::string(4000, 'a') + "\n";
  auto race = Race("(?:a?){900}b", output);
  ASSERT_TRUE(race) << race.error().message;
  EXPECT_FALSE(race->racers.at(0).score);
  EXPECT_FALSE(race->winner);
  EXPECT_THAT(race->racers.at(0).error, HasSubstr("smaller pattern"));
}

}  // namespace
}  // namespace sandbar::sandbox
