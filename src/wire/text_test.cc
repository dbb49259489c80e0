#include "wire/text.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

TEST(Text, IgnoresAsciiCaseOnly) {
  EXPECT_TRUE(EqualsIgnoreCase("Content-LENGTH", "content-length"));
  EXPECT_FALSE(EqualsIgnoreCase("a", "ab"));
  EXPECT_FALSE(EqualsIgnoreCase("[", "{"));
}

TEST(Text, Lists) {
  EXPECT_TRUE(ListHasToken("keep-alive, Close", "close"));
  EXPECT_TRUE(ListHasToken(" close\t", "close"));
  EXPECT_FALSE(ListHasToken("closed,not-close", "close"));
  EXPECT_FALSE(ListHasToken("", "close"));
}

TEST(Text, EditDistance) {
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("mroe", "more"), 1U);
  EXPECT_EQ(EditDistance("same", "same"), 0U);
}

TEST(Text, Nearest) {
  const std::vector<std::string> keys = {"vcpus", "memory", "timeout"};
  EXPECT_EQ(Nearest("vcpu5", keys), "vcpus");
  EXPECT_EQ(Nearest("Memroy", keys), "memory");
  EXPECT_EQ(Nearest("time_out", keys), "timeout");
  EXPECT_EQ(Nearest("network", keys), "");
  EXPECT_EQ(Nearest(std::string(1000, 'v'), keys), "");
}

TEST(Text, Utf8) {
  EXPECT_TRUE(IsUtf8("caf\xc3\xa9 \xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsUtf8("\xc0\x80"));          // overlong
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(IsUtf8("a\xe2\x82"));         // cut short
  EXPECT_EQ(DecodeUtf8("\xf0\x9f\x98\x80").code_point, U'\U0001F600');
  EXPECT_EQ(DecodeUtf8("\xe2\x82").length, 0);
}

}  // namespace
}  // namespace sandbar::wire
