#include "wire/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(Url, PercentDecodeIsStrict) {
  EXPECT_EQ(PercentDecode("a%2Fb%20c+d").value(), "a/b c+d");
  EXPECT_EQ(PercentDecode("caf%C3%a9").value(), "caf\xc3\xa9");
  for (const char* bad : {"%", "%2", "%2g", "%g2", "a%", "%%41", "%00", "%ff", "%C3"}) {
    auto r = PercentDecode(bad);
    ASSERT_FALSE(r) << bad;
    EXPECT_EQ(r.error().code, Code::kBadRequest);
  }
}

TEST(Url, SplitPathDecodesAfterSplitting) {
  EXPECT_THAT(SplitPath("/v2/sandboxes/a%2Fb").value(), ElementsAre("v2", "sandboxes", "a/b"));
  EXPECT_THAT(SplitPath("/").value(), ElementsAre());
  EXPECT_THAT(SplitPath("/a//b/").value(), ElementsAre("a", "", "b", ""));
  EXPECT_FALSE(SplitPath("/a/%zz"));
}

TEST(Url, QueryKeepsOrderAndRepeats) {
  auto q = ParseQuery("a=1&b=x+y%26z&&a=2&flag&e=").value();
  EXPECT_THAT(q.pairs,
              ElementsAre(Pair("a", "1"), Pair("b", "x y&z"), Pair("a", "2"), Pair("flag", ""), Pair("e", "")));
  EXPECT_EQ(q.Get("a"), "1");
  EXPECT_THAT(q.GetAll("a"), ElementsAre("1", "2"));
  EXPECT_EQ(q.Get("flag"), "");
  EXPECT_EQ(q.Get("none"), std::nullopt);
  EXPECT_FALSE(ParseQuery("a=%"));
  EXPECT_TRUE(ParseQuery("").value().pairs.empty());
}

TEST(Url, QueryIsBounded) {
  std::string many;
  for (int i = 0; i < 257; ++i) many += "a&";
  EXPECT_FALSE(ParseQuery(many));
}

TEST(Url, EncodeRoundTrips) {
  std::string all;
  for (int c = 1; c < 128; ++c) all.push_back(static_cast<char>(c));
  EXPECT_EQ(PercentDecode(EncodeComponent(all)).value(), all);
  EXPECT_EQ(EncodeComponent("a/b c\xc3\xa9~"), "a%2Fb%20c%C3%A9~");
  EXPECT_EQ(EncodeQuery({{"a", "b c"}, {"d", "&"}}), "a=b%20c&d=%26");
}

TEST(Url, Parse) {
  auto u = ParseUrl("HTTP://127.0.0.1:8787/api/v2?x=y#frag").value();
  EXPECT_EQ(u.scheme, "http");
  EXPECT_EQ(u.host, "127.0.0.1");
  EXPECT_EQ(u.port, 8787);
  EXPECT_EQ(u.target, "/api/v2?x=y");
  EXPECT_EQ(u.HostHeader(), "127.0.0.1:8787");
  EXPECT_EQ(ParseUrl("https://a").value().port, 443);
  EXPECT_EQ(ParseUrl("https://a?b").value().target, "/?b");
  EXPECT_EQ(ParseUrl("https://a").value().HostHeader(), "a");
  EXPECT_EQ(ParseUrl("http://[::1]:80/").value().host, "::1");
  EXPECT_EQ(ParseUrl("http://[::1]:81/").value().HostHeader(), "[::1]:81");
  for (const char* bad :
       {"", "a/b", "ftp://a/", "http://", "http://:80/", "http://a:0/", "http://a:65536/", "http://a:b/", "http://u@a/",
        "http://a/ b", "http://[::1", "http://[::1]x/", "http://a/\r\nX: y"})
    EXPECT_FALSE(ParseUrl(bad)) << bad;
}

}  // namespace
}  // namespace sandbar::wire
