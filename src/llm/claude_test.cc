#include <gtest/gtest.h>

#include "llm/claude_api.h"
#include "llm/claude_tools.h"

namespace sandbar::llm {
namespace {

TEST(ClaudeApi, TheTokenOfAnItem) {
  // {"sessions_token":"abc?>"} with and without padding, in either alphabet.
  EXPECT_EQ(TokenOfSecret("eyJzZXNzaW9uc190b2tlbiI6ImFiYz8-In0"), "abc?>");
  EXPECT_EQ(TokenOfSecret("eyJzZXNzaW9uc190b2tlbiI6ImFiYz8+In0="), "abc?>");
  EXPECT_EQ(TokenOfSecret(""), "");
  EXPECT_EQ(TokenOfSecret("not base64!"), "");
  EXPECT_EQ(TokenOfSecret("W10"), "");                          // []
  EXPECT_EQ(TokenOfSecret("eyJzZXNzaW9uc190b2tlbiI6MX0"), "");  // a number
  EXPECT_EQ(TokenOfSecret("eyJvdGhlciI6ImFiYyJ9"), "");         // another key
}

TEST(ClaudeTools, Lines) {
  EXPECT_EQ(LinesOf("a\nb\nc\n", 2, 3), "b\nc\n");
  EXPECT_EQ(LinesOf("a\nb\nc", 2, -1), "b\nc");
  EXPECT_EQ(LinesOf("a\nb", 3, 9), "");
  EXPECT_EQ(LinesOf("\n\nx", 1, 2), "\n\n");
  EXPECT_EQ(LinesOf("", 1, -1), "");
}

TEST(ClaudeTools, Replacing) {
  std::string text = "aXbXc";
  EXPECT_EQ(ReplaceText(&text, "X", "XX"), 2U);
  EXPECT_EQ(text, "aXXbXXc");
  EXPECT_EQ(ReplaceText(&text, "XX", ""), 2U);
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(ReplaceText(&text, "none", "x"), 0U);
}

TEST(ClaudeTools, OnlyTheSix) {
  for (const char* name : {"bash", "read", "write", "edit", "glob", "grep"}) EXPECT_TRUE(ClaudeTools::Has(name));
  EXPECT_FALSE(ClaudeTools::Has("web_search"));
  EXPECT_FALSE(ClaudeTools::Has(""));
}

}  // namespace
}  // namespace sandbar::llm
