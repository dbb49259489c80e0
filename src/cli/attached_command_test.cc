#include "cli/attached_command.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace sandbar::cli {
namespace {

TEST(CommandBody, KeepsArgumentsApart) {
  auto body = CommandBody({{"sh", "-c", "x y"}, {"A=1=2"}, std::nullopt, true, 500}, {});
  EXPECT_EQ(body.at("command").as_string(), "sh");
  EXPECT_EQ(body.at("args").as_array().size(), 2u);
  EXPECT_EQ(body.at("env").as_object().at("A").as_string(), "1=2");
  EXPECT_TRUE(body.at("sudo").as_bool());
  EXPECT_EQ(body.at("timeout").as_int64(), 500);
  EXPECT_FALSE(body.contains("cwd"));
  EXPECT_FALSE(body.contains("stdin"));
  EXPECT_FALSE(body.contains("terminal"));
}

TEST(CommandBody, WithATerminal) {
  auto body = CommandBody({{"vi"}, {"TERM=mine"}}, {.input = true, .terminal = true});
  EXPECT_TRUE(body.at("stdin").as_bool());
  EXPECT_GT(body.at("terminal").at("cols").as_int64(), 0);
  EXPECT_GT(body.at("terminal").at("rows").as_int64(), 0);
  EXPECT_EQ(body.at("env").at("TERM").as_string(), "mine");
  EXPECT_TRUE(CommandBody({{"vi"}, {}}, {.terminal = true}).at("env").as_object().contains("TERM"));
}

TEST(CommandBody, WithoutACommandItIsAShell) {
  auto piped = CommandBody({}, {.input = true});
  EXPECT_EQ(piped.at("command").as_string(), "sh");
  EXPECT_TRUE(piped.at("args").as_array().empty());
  auto typed = CommandBody({}, {.input = true, .terminal = true});
  EXPECT_NE(std::string(typed.at("args").as_array().at(1).as_string()).find("bash -l"), std::string::npos);
}

TEST(ExitCodeIn, OnlyOfACommandThatHasEnded) {
  EXPECT_FALSE(ExitCodeIn({{"id", "cmd_1"}, {"exitCode", nullptr}}));
  EXPECT_FALSE(ExitCodeIn({}));
  EXPECT_EQ(ExitCodeIn({{"exitCode", 7}}), 7);
}

}  // namespace
}  // namespace sandbar::cli
