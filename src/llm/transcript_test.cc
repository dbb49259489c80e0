#include "llm/transcript.h"

#include <gtest/gtest.h>

#include "llm/box.h"

namespace sandbar::llm {
namespace {

TEST(Html, NothingFromOutsideIsMarkup) {
  const std::string evil = "</pre><script>alert(1)</script><img src=x onerror='a' \"b\"> &amp;";
  std::vector<json::object> events{
      {{"type", "start"}, {"prompt", evil}, {"model", evil}, {"sandbox", evil}},
      {{"type", "reply"}, {"step", 1}, {"text", evil}},
      {{"type", "call"}, {"name", evil}, {"input", json::object{{evil, evil}, {"n", json::array{evil}}}}},
      {{"type", "tool"},
       {"content",
        json::array{json::object{{"type", "text"}, {"text", evil}},
                    json::object{{"type", "image"}, {"mimeType", "image/png"}, {"data", "\"onerror=" + evil}},
                    json::object{{"type", "image"}, {"mimeType", "image/png\" onerror=\"x"}, {"data", "AAAA"}},
                    json::object{{"type", "image"}, {"mimeType", "image/png"}, {"data", "AAAA"}}}}},
      {{"type", "retry"}, {"reason", evil}},
      {{"type", "note"}, {"text", evil}},
      {{"type", "end"}, {"status", evil}, {"reason", evil}, {"answer", evil}}};
  const std::string page = TranscriptHtml(events);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<img src=x"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
  EXPECT_NE(page.find("&amp;amp;"), std::string::npos);
  size_t images = 0;
  for (size_t at = page.find("<img"); at != std::string::npos; at = page.find("<img", at + 1)) ++images;
  EXPECT_EQ(images, 1U);
  EXPECT_NE(page.find("src=\"data:image/png;base64,AAAA\""), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(View, LinesHaveNoControlCharacters) {
  EXPECT_EQ(OneLine("a\n\x1b[31mb\xC2\x9B"
                    "c\xff",
                    80),
            "a  [31mb c");
  EXPECT_EQ(OneLine("caf\xC3\xA9s", 4), "caf\xC3\xA9…");
  EXPECT_EQ(OneLine("abc\xE2\x80\xAE"
                    "fed",
                    80),
            "abc fed");
  json::object call{{"type", "call"}, {"name", "run_command"}, {"input", json::object{{"command", "ls\n\x1b[2J"}}}};
  EXPECT_EQ(ViewLine(call, 1234), "[   1.2s]     run_command ls  [2J");
  EXPECT_EQ(ViewLine({{"type", "request"}}, 0), "");
}

TEST(Download, PatternsMatchAsInAShell) {
  for (const auto& [glob, path] : {std::pair{"*.csv", "a.csv"},
                                   {"./*.csv", "a.csv"},
                                   {"out/*.csv", "out/a.csv"},
                                   {"**/*.csv", "a.csv"},
                                   {"**/*.csv", "x/y/a.csv"},
                                   {"out/**", "out/x/y"},
                                   {"a?c", "abc"},
                                   {"[a-c]x", "bx"},
                                   {"[!a-c]x", "dx"},
                                   {".env", ".env"},
                                   {"*a*b*", "xxaxxbxx"}})
    EXPECT_TRUE(GlobMatches(glob, path)) << glob << " " << path;
  for (const auto& [glob, path] : {std::pair{"*.csv", "out/a.csv"},
                                   {"*", ".env"},
                                   {"**", ".git/config"},
                                   {"**/config", ".git/config"},
                                   {"[a-c]x", "dx"},
                                   {"a?c", "ac"},
                                   {"out/*", "out/x/y"},
                                   {"", "a"}})
    EXPECT_FALSE(GlobMatches(glob, path)) << glob << " " << path;
}

TEST(Download, NamesFromTheGuestStayBelowTheTarget) {
  for (const char* good : {"a", "a/b", "caf\xC3\xA9", ".env", "..a"}) EXPECT_TRUE(IsSafeRelative(good)) << good;
  for (const char* bad : {"", "/a", "../a", "a/../b", "a//b", "./a", "a\nb", "a\x1b", "\xff"})
    EXPECT_FALSE(IsSafeRelative(bad)) << bad;
}

TEST(Box, NetworkWords) {
  EXPECT_EQ(ParseNet("deny")->at("mode").as_string(), "deny-all");
  EXPECT_EQ(ParseNet("allow")->at("mode").as_string(), "allow-all");
  EXPECT_EQ(ParseNet("allow:a.example,b.example")->at("allow").as_array().size(), 2U);
  for (const char* bad : {"", "allow:", "allow:a,,b", "some", "allow:a,"})
    EXPECT_FALSE(ParseNet(bad).has_value()) << bad;
}

}  // namespace
}  // namespace sandbar::llm
