#include "cli/browser_guard.h"

#include <gtest/gtest.h>

namespace sandbar::cli {
namespace {

const std::string kThere = "forward-a.localhost:3000";

std::string Request(const std::string& host, bool browser, const std::string& target = "/x?y=1") {
  return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nCookie: a=1\r\n" +
         (browser ? "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n" : "") + "\r\n";
}

TEST(BrowserGuard, BrowsersAreSentToANameOfTheirOwn) {
  for (const char* host :
       {"127.0.0.1:3000", "localhost:3000", "LOCALHOST", "localhost.:3000", "[::1]:3000", "127.1.2.3:1"}) {
    auto answer = AnswerToBrowser(Request(host, true), kThere);
    ASSERT_TRUE(answer.has_value()) << host;
    EXPECT_TRUE(answer->starts_with("HTTP/1.1 307 ")) << host;
    EXPECT_TRUE(answer->contains("\r\nLocation: http://forward-a.localhost:3000/x?y=1\r\n")) << *answer;
  }
}

TEST(BrowserGuard, APagesWebSocketIsABrowsersToo) {
  const std::string head = "GET /ws HTTP/1.1\r\nHost: localhost:3000\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
  auto answer = AnswerToBrowser(head + "Origin: http://localhost:5173\r\n\r\n", kThere);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->starts_with("HTTP/1.1 307 "));
  EXPECT_EQ(AnswerToBrowser(head + "\r\n", kThere), "");
}

TEST(BrowserGuard, EverythingElsePasses) {
  EXPECT_EQ(AnswerToBrowser(Request("127.0.0.1:3000", false), kThere), "");
  EXPECT_EQ(AnswerToBrowser(Request(kThere, true), kThere), "");
  EXPECT_EQ(AnswerToBrowser("SSH-2.0-x\r\n", kThere), "");
  EXPECT_EQ(AnswerToBrowser(std::string("\x16\x03\x01\x02\x00", 5), kThere), "");
  EXPECT_EQ(AnswerToBrowser("GET / HTTP/1.1\r\nbad head\r\n\r\n", kThere), "");
  EXPECT_EQ(AnswerToBrowser("GET " + std::string(70000, 'a'), kThere), "");
  EXPECT_EQ(AnswerToBrowser("ABCDEFGHIJKLMNOPQRSTUVWXYZ", kThere), "");
}

TEST(BrowserGuard, WaitsForTheWholeHead) {
  const std::string whole = Request("127.0.0.1:3000", true);
  for (size_t n = 1; n < whole.size(); ++n) EXPECT_FALSE(AnswerToBrowser(whole.substr(0, n), kThere).has_value()) << n;
}

TEST(BrowserGuard, NamesTellPortsAndSandboxesApart) {
  EXPECT_EQ(ForwardName("box", 3000), ForwardName("box", 3000));
  EXPECT_NE(ForwardName("box", 3000), ForwardName("box", 3001));
  EXPECT_NE(ForwardName("box", 3000), ForwardName("other", 3000));
  EXPECT_TRUE(ForwardName("ui", 3000).starts_with("forward-"));
}

}  // namespace
}  // namespace sandbar::cli
