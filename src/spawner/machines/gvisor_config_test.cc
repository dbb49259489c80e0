#include "spawner/machines/gvisor_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/guest_frames.h"
#include "spawner/machines/holder.h"

namespace sandbar::spawner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(GvisorConfig, TextsCannotLeaveTheirQuotes) {
  EXPECT_EQ(JsonQuote("plain"), R"("plain")");
  EXPECT_EQ(JsonQuote("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(JsonQuote(std::string("\n\0\x1f", 3)), R"("\u000a\u0000\u001f")");
  EXPECT_EQ(JsonQuote("ü\x7f"), "\"ü\x7f\"");
}

TEST(Holder, SpeaksTheOneWordThatTheAgentKnows) {
  EXPECT_EQ(kGoneMessage, protocol::kGuestGone);
}

TEST(GvisorConfig, SaysWhatTheGuestGetsAndNothingElse) {
  GvisorJail jail;
  jail.args = {"/agent", "--x"};
  jail.hostname = "box";
  jail.binds = {{"/drives/0", "/da\"ta", true}, {"/drives/1", "/other", false}};
  const std::string text = GvisorConfig(jail);
  EXPECT_THAT(text, HasSubstr(R"("args":["/agent","--x"])"));
  EXPECT_THAT(text, HasSubstr(R"("hostname":"box")"));
  EXPECT_THAT(text,
              HasSubstr(R"("source":"/drives/0","destination":"/da\"ta","options":["rbind","nosuid","nodev","rw"])"));
  EXPECT_THAT(text, HasSubstr(R"("destination":"/other","options":["rbind","nosuid","nodev","ro"])"));
  EXPECT_THAT(text, HasSubstr("CAP_SETUID"));
  EXPECT_THAT(text, Not(HasSubstr("CAP_SYS_ADMIN")));
  EXPECT_THAT(text, Not(HasSubstr("inheritable")));
}

}  // namespace
}  // namespace sandbar::spawner
