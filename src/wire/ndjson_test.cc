#include "wire/ndjson.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "wire/text.h"

namespace sandbar::wire {
namespace {

namespace json = boost::json;

std::string Ascii(std::string_view s) {
  std::string out;
  AppendJsonAscii(out, s);
  return out;
}

TEST(Ndjson, StringsAreAscii) {
  EXPECT_EQ(Ascii(""), "\"\"");
  EXPECT_EQ(Ascii("plain ~"), "\"plain ~\"");
  EXPECT_EQ(Ascii("a\"b\\c\n\r\t\x01"), R"("a\"b\\c\n\r\t\u0001")");
  EXPECT_EQ(Ascii(std::string_view("\0", 1)), R"("\u0000")");
  EXPECT_EQ(Ascii("a\x7f"), R"("a\u007f")");
  EXPECT_EQ(Ascii("caf\xc3\xa9"), R"("caf\u00e9")");
  EXPECT_EQ(Ascii("\xf0\x9f\x98\x80"), R"("\ud83d\ude00")");
  EXPECT_EQ(Ascii("\xf4\x8f\xbf\xbf"), R"("\udbff\udfff")");
  EXPECT_EQ(Ascii("\xe2\x80\xa8"), R"("\u2028")");
}

TEST(Ndjson, InvalidBytesBecomeReplacements) {
  EXPECT_EQ(Ascii("a\xff"
                  "b"),
            R"("a\ufffdb")");
  EXPECT_EQ(Ascii("a\xe2\x82"), R"("a\ufffd")");
}

TEST(Ndjson, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c < 0x110000; c += (c < 0x3000 ? 1 : 97)) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string utf8;
    if (c < 0x80) {
      utf8 = {static_cast<char>(c)};
    } else if (c < 0x800) {
      utf8 = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      utf8 = {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      utf8 = {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    const std::string text = Ascii(utf8);
    for (char ch : text) ASSERT_TRUE(ch >= 0x20) << static_cast<unsigned>(c);
    const json::value back = json::parse(text);
    ASSERT_EQ(std::string_view(back.as_string()), utf8) << static_cast<unsigned>(c);
  }
}

TEST(Ndjson, Values) {
  const json::value v = {{"a", nullptr},         {"b", true},           {"c", -5},           {"d", 1.5},
                         {"e", {1, "\xc3\xa9"}}, {"f", json::object()}, {"g", json::array()}};
  EXPECT_EQ(ToAsciiJson(v), R"({"a":null,"b":true,"c":-5,"d":1.5,"e":[1,"\u00e9"],"f":{},"g":[]})");
  EXPECT_EQ(ToAsciiJson(v.as_object()), ToAsciiJson(v));
  EXPECT_EQ(ToAsciiJson(json::value(UINT64_MAX)), "18446744073709551615");
  EXPECT_EQ(ToAsciiJson(json::value(1e300)), "1e+300");
  EXPECT_EQ(ToAsciiJson(json::value(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(json::parse(ToAsciiJson(v)), v);
}

TEST(Ndjson, Lines) {
  std::string line;
  AppendOutputLine(line, "stdout", "h\xc3\xa9\n");
  EXPECT_EQ(line, "{\"stream\":\"stdout\",\"data\":\"h\\u00e9\\n\"}\n");
  EXPECT_EQ(ErrorLine("c", "m\""), "{\"stream\":\"error\",\"data\":{\"code\":\"c\",\"message\":\"m\\\"\"}}\n");
  EXPECT_EQ(NdjsonLine(json::value{{"a", 1}}), "{\"a\":1}\n");
}

TEST(Utf8Stream, NeverSplitsACharacter) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
  for (size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream s;
    std::string all;
    for (size_t i = 0; i < text.size(); i += step) {
      const std::string piece = s.Feed(std::string_view(text).substr(i, step));
      EXPECT_TRUE(IsUtf8(piece));
      all += piece;
    }
    EXPECT_EQ(all, text);
    EXPECT_EQ(s.Flush(), "");
  }
}

TEST(Utf8Stream, ReplacesEachInvalidSequenceOnce) {
  const std::string r = "\xef\xbf\xbd";
  struct {
    std::string in, out;
  } cases[] = {
      {"\xff", r},
      {"a\x80\x80z", "a" + r + r + "z"},
      {"\xe2\x82z", r + "z"},  // one truncated character, one replacement
      {"\xf0\x9f\xe2\x82\xac", r + "\xe2\x82\xac"},
      {"\xc0\xaf", r + r},          // overlong: neither byte can start or continue anything
      {"\xed\xa0\x80", r + r + r},  // surrogate
  };
  for (const auto& c : cases) {
    for (size_t step : {size_t{1}, c.in.size()}) {
      Utf8Stream s;
      std::string all;
      for (size_t i = 0; i < c.in.size(); i += step) all += s.Feed(std::string_view(c.in).substr(i, step));
      all += s.Flush();
      EXPECT_EQ(all, c.out);
    }
  }
}

TEST(Utf8Stream, FlushReportsAnUnfinishedCharacter) {
  Utf8Stream s;
  EXPECT_EQ(s.Feed("a\xf0\x9f"), "a");
  EXPECT_EQ(s.Flush(), "\xef\xbf\xbd");
  EXPECT_EQ(s.Flush(), "");
}

}  // namespace
}  // namespace sandbar::wire
