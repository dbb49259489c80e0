#include "cli/detach_keys.h"

#include <gtest/gtest.h>

namespace sandbar::cli {
namespace {

TEST(DetachKeys, FoundHoweverTheyArrive) {
  DetachKeys together;
  EXPECT_EQ(together.Feed("ls\x10\x11more"), "ls");
  EXPECT_TRUE(together.found());
  DetachKeys apart;
  EXPECT_EQ(apart.Feed("a\x10"), "a");
  EXPECT_TRUE(apart.holding());
  EXPECT_FALSE(apart.found());
  EXPECT_EQ(apart.Feed("\x11"), "");
  EXPECT_TRUE(apart.found());
}

TEST(DetachKeys, OtherKeysPass) {
  DetachKeys keys;
  EXPECT_EQ(keys.Feed("\x11 \x10x"), "\x11 \x10x");
  EXPECT_EQ(keys.Feed("\x10\x10"), "\x10");
  EXPECT_TRUE(keys.holding());
  EXPECT_EQ(keys.Release(), "\x10");
  EXPECT_EQ(keys.Release(), "");
  EXPECT_EQ(keys.Feed("\x11"), "\x11") << "released before: these are two keys";
  EXPECT_FALSE(keys.found());
}

}  // namespace
}  // namespace sandbar::cli
