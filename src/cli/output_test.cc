#include "cli/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/env.h"

namespace sandbar::cli {
namespace {

TEST(Output, TableAlignsByCharactersNotBytes) {
  EXPECT_EQ(Table({{"NAME", "X"}, {"caf\xC3\xA9", "1"}, {"a", "2"}}), "NAME  X\ncaf\xC3\xA9  1\na     2\n");
}

TEST(Output, ACellIsOneLineAndDrivesNoTerminal) {
  EXPECT_EQ(Table({{"NAME", "X"}, {"a\n\x1b[2J", "1"}}), "NAME          X\na\\x0a\\x1b[2J  1\n");
}

TEST(Output, ShellQuoteSurvivesQuotes) {
  EXPECT_EQ(ShellQuote("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Output, AgesAndSizes) {
  EXPECT_EQ(Age(119'999), "119 s");
  EXPECT_EQ(Age(7'199'000), "119 min");
  EXPECT_EQ(Age(-5), "0 s");
  EXPECT_EQ(Bytes(999), "999 B");
  EXPECT_EQ(Bytes(1'500'000), "1.5 MB");
}

TEST(Output, AClosedReaderIsAValue) {
  ::signal(SIGPIPE, SIG_IGN);
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  Fd write_end(fds[1]);
  ::close(fds[0]);
  auto r = WriteAll(write_end.get(), "x");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kClosed);
}

TEST(EnvLines, QuotesValuesAndEscapesThePath) {
  std::string lines = EnvLines({"http://h:1", "a.b.c", "team_x", "prj_x"}, "/opt/my dir/register.mjs");
  EXPECT_NE(lines.find("export SANDBAR_URL='http://h:1'\n"), std::string::npos);
  EXPECT_NE(lines.find("export VERCEL_OIDC_TOKEN='a.b.c'\n"), std::string::npos);
  EXPECT_NE(lines.find("--import=file:///opt/my%20dir/register.mjs"), std::string::npos);
}

TEST(EnvLines, SetsWhatTheSdksExamplesRead) {
  const std::string lines = EnvLines({"http://h:1", "a.b.c", "team_x", "prj_x", false, "deny-all"}, "/r.mjs");
  for (const char* line : {"SANDBAR_ALIASES='0'", "SANDBAR_DEFAULT_NET='deny-all'", "VERCEL_TOKEN='a.b.c'",
                           "VERCEL_TEAM_ID='team_x'", "VERCEL_PROJECT_ID='prj_x'"})
    EXPECT_TRUE(lines.contains("export " + std::string(line) + "\n")) << line;
  EXPECT_TRUE(EnvLines({"u", "", "", ""}, "/r.mjs").contains("export SANDBAR_ALIASES='1'\n"));
}

TEST(EnvFile, KeepsOtherLines) {
  auto first = MergeEnvFile("# mine\nA=1\nexport B = 'x'\n\nMULTI=\"y\"", {{"B", "2"}, {"C", "--i=\"z\""}});
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->starts_with("# mine\nA=1\n\nMULTI=\"y\"\n# Set by ")) << *first;
  EXPECT_TRUE(first->ends_with("\nB='2'\nC='--i=\"z\"'\n")) << *first;
  auto again = MergeEnvFile(*first, {{"B", "2"}, {"C", "--i=\"z\""}});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, *first);
  EXPECT_FALSE(MergeEnvFile("", {{"A", "it's"}}).has_value());
  EXPECT_FALSE(MergeEnvFile("", {{"A", "x\ny"}}).has_value());
}

// Each line: what the file says, and what Node.js gets afterwards.
TEST(EnvFile, AddsToTheOptionsOfNode) {
  const wire::Variables ours{{"NODE_OPTIONS", "--import=file:///new/register.mjs"}};
  const std::pair<const char*, const char*> kCases[] = {
      {"", ""},
      {"NODE_OPTIONS=\n", ""},
      {"NODE_OPTIONS=--a --b # mine\n", "--a --b "},
      {"export NODE_OPTIONS = \"--a --require './x'\"", nullptr},
      {"NODE_OPTIONS='--require \"./my hooks.cjs\"'\n", "--require \"./my hooks.cjs\" "},
      {"NODE_OPTIONS=--first\nNODE_OPTIONS=--second\n", "--second "},
      {"NODE_OPTIONS='--import=file:///new/register.mjs --a'\n", "--a "},
      {"NODE_OPTIONS='--import=file:///my/register.mjs'\n", "--import=file:///my/register.mjs "},
      {"NODE_OPTIONS=\"--require \\\"./a b.js\\\" --b\"\n", nullptr},
      {"NODE_OPTIONS=\"--a\n", nullptr},
      {"# Set by `sandbar env --write`; x\nNODE_OPTIONS='--import=file:///old/register.mjs'\n", ""},
  };
  for (const auto& [before, kept] : kCases) {
    auto after = MergeEnvFile(before, ours);
    ASSERT_EQ(after.has_value(), kept != nullptr) << before;
    if (kept == nullptr) continue;
    const std::string line = "\nNODE_OPTIONS='" + std::string(kept) + "--import=file:///new/register.mjs'\n";
    EXPECT_TRUE(after->ends_with(line)) << *after;
    EXPECT_EQ(MergeEnvFile(*after, ours).value_or(""), *after) << "a second time changes nothing";
    // The preload has moved: its old place goes, the rest stays.
    auto moved = MergeEnvFile(*after, {{"NODE_OPTIONS", "--import=file:///moved/register.mjs"}});
    ASSERT_TRUE(moved.has_value());
    EXPECT_TRUE(moved->ends_with("\nNODE_OPTIONS='" + std::string(kept) + "--import=file:///moved/register.mjs'\n"))
        << *moved;
  }
}

}  // namespace
}  // namespace sandbar::cli
