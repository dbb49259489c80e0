#include "wire/percent.h"

#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

TEST(Percent, EscapesBecomeBytesAndTheRestStays) {
  EXPECT_EQ(DecodeEscapes("/a%20b%25%ff"), "/a b%\xff");
  EXPECT_EQ(DecodeEscapes("100% %4 %4x %x4 %"), "100% %4 %4x %x4 %");
  EXPECT_EQ(DecodeEscapes("%41"), "A") << "also at the very end";
  EXPECT_EQ(DecodeEscapes("%00").size(), 1U);
  EXPECT_EQ(DecodeEscapes(""), "");
}

}  // namespace
}  // namespace sandbar::wire
