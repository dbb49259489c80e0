#include "base/printable.h"

#include <gtest/gtest.h>

namespace sandbar {
namespace {

TEST(Printable, PlainTextStaysAsItIs) {
  for (const char* text : {"", "plain ASCII ~!@#\\", "Größe, 寸法, 🦀", "a → b · c…"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableLines(text), text);
  }
}

TEST(Printable, WhatATerminalActsOnIsSpelledOut) {
  struct Case {
    std::string_view text, shown;
  };
  for (const Case& c :
       {Case{"\x1b]0;title\x07", "\\x1b]0;title\\x07"}, Case{"a\rb\bc", "a\\x0db\\x08c"},
        Case{std::string_view("\0", 1), "\\x00"}, Case{"\x7f", "\\x7f"},
        // C1 as a byte and as a character: both begin a control sequence on some terminals.
        Case{"\x9b"
             "31m",
             "\\x9b31m"},
        Case{"\xc2\x9b"
             "31m",
             "\\u{9b}31m"},
        Case{"abc\xe2\x80\xae"
             "fed",
             "abc\\u{202e}fed"},
        Case{"\xe2\x81\xa6x\xe2\x81\xa9", "\\u{2066}x\\u{2069}"}, Case{"\xe2\x80\x8b", "\\u{200b}"},
        Case{"\xe2\x80\xa8", "\\u{2028}"}, Case{"\xef\xbb\xbf", "\\u{feff}"}, Case{"\xf3\xa0\x81\x81", "\\u{e0041}"}}) {
    EXPECT_EQ(Printable(c.text), c.shown);
    EXPECT_EQ(PrintableLines(c.text), c.shown);
  }
}

TEST(Printable, BytesThatAreNoTextAreSpelledOut) {
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
  EXPECT_EQ(Printable("\xe2\x80"), "\\xe2\\x80") << "cut";
}

TEST(Printable, OnlyLinesMayHaveLineEnds) {
  EXPECT_EQ(Printable("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_EQ(PrintableLines("a\nb\tc\r"), "a\nb\tc\\x0d");
}

}  // namespace
}  // namespace sandbar
