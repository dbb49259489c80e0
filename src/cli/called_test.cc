#include "cli/called.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace sandbar::cli {
namespace {

class Called : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("SANDBAR_CALLED"); }
  void TearDown() override {
    ::unsetenv("SANDBAR_CALLED");
    SetCalledAs("sandbar");
  }
};

TEST_F(Called, HintsNameTheProgramAsItWasCalled) {
  SetCalledAs("/opt/s/sandbar");
  EXPECT_EQ(AsCalled("fix: sudo ./sandbar up"), "fix: sudo /opt/s/sandbar up");
  EXPECT_EQ(AsCalled("sandbar stop a; sandbar rm a"), "/opt/s/sandbar stop a; /opt/s/sandbar rm a");
  EXPECT_EQ(AsCalled("export T=\"$(sandbar token)\""), "export T=\"$(/opt/s/sandbar token)\"");
  EXPECT_EQ(AsCalled("`sudo sandbar token`"), "`sudo /opt/s/sandbar token`");
  SetCalledAs("sandbar");
  EXPECT_EQ(AsCalled("sudo ./sandbar up"), "sudo sandbar up");
  SetCalledAs("/a b/sandbar");
  EXPECT_EQ(AsCalled("sandbar ps"), "'/a b/sandbar' ps");
}

TEST_F(Called, TheLaunchersWordWins) {
  ::setenv("SANDBAR_CALLED", "./sandbar", 1);
  SetCalledAs("/opt/build/release/bin/sandbar");
  EXPECT_EQ(AsCalled("sandbar up"), "./sandbar up");
}

TEST_F(Called, OtherMeaningsOfTheWordStay) {
  SetCalledAs("./x");
  for (const char* text : {"the user sandbar does not exist", "useradd sandbar", "/opt/sandbar run", "my-sandbar run",
                           "sandbar runs", "sandbar 0.1.0", "sandbar", "a.sandbar ps"})
    EXPECT_EQ(AsCalled(text), text);
}

}  // namespace
}  // namespace sandbar::cli
