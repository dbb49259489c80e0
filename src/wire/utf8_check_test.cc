#include "wire/utf8_check.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/text.h"

namespace sandbar::wire {
namespace {

bool InPieces(std::string_view text, size_t step) {
  Utf8Check check;
  for (; !text.empty(); text.remove_prefix(std::min(step, text.size())))
    if (!check.Feed(text.substr(0, step))) return false;
  return check.complete();
}

TEST(Utf8Check, SaysTheSameHoweverTheTextIsCut) {
  for (std::string text : {"", "plain ascii, longer than eight bytes", "caf\xc3\xa9 \xf0\x9f\x98\x80 and on",
                           "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xe2\x82", "\xf0\x9f\x98", "\xff",
                           "12345678\xe2\x82\xac"
                           "12345678\x80",
                           "\xe2\x28\xa1"}) {
    for (size_t step = 1; step < 12; ++step) EXPECT_EQ(InPieces(text, step), IsUtf8(text)) << text << " by " << step;
  }
}

TEST(Utf8Check, RefusesAsSoonAsNothingCanFollow) {
  Utf8Check check;
  EXPECT_TRUE(check.Feed("\xf4"));
  EXPECT_FALSE(check.complete());
  EXPECT_FALSE(check.Feed("\x90"));
}

}  // namespace
}  // namespace sandbar::wire
