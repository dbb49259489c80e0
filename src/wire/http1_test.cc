#include "wire/http1.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace sandbar::wire {
namespace {

using testing::HasSubstr;

struct Parsed {
  Result<void> result;
  HttpHead head;
  std::string body;
  bool done = false;
  size_t used = 0;
};

// Feeds `bytes` in pieces of `step` bytes, keeping what the parser did not use, as a connection does.
Parsed ParseIn(std::string_view bytes, size_t step, HttpKind kind = HttpKind::kRequest, HttpLimits limits = {}) {
  Parsed out;
  HttpParser parser(kind, limits);
  std::string pending;
  while (!parser.done() && !bytes.empty()) {
    pending += bytes.substr(0, step);
    bytes.remove_prefix(std::min(step, bytes.size()));
    while (!parser.done() && !pending.empty()) {
      auto used = parser.Feed(pending, &out.body);
      if (!used) {
        out.result = std::unexpected(used.error());
        return out;
      }
      if (*used == 0) break;
      out.used += *used;
      pending.erase(0, *used);
    }
  }
  out.done = parser.done();
  out.head = parser.head();
  return out;
}

// Whole, byte by byte, and in two odd sizes: the answer must not depend on it.
void ForAllSteps(std::string_view bytes, const std::function<void(size_t)>& check) {
  for (size_t step : {bytes.size(), size_t{1}, size_t{3}, size_t{7}}) {
    SCOPED_TRACE("step " + std::to_string(step));
    check(step);
  }
}

struct Case {
  const char* name;
  std::string bytes;
};

void PrintTo(const Case& c, std::ostream* os) {
  *os << c.name;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

std::string Post(const std::string& fields, const std::string& body, const char* version = "1.1") {
  return std::string("POST /x HTTP/") + version + "\r\nHost: a\r\n" + fields + "\r\n" + body;
}

std::string Chunked(const std::string& body) {
  return Post("Transfer-Encoding: chunked\r\n", body);
}

const std::string kLastChunk = "0\r\n\r\n";
const std::string kThirty(30, 'b');

class MustBeRefused : public testing::TestWithParam<Case> {};

TEST_P(MustBeRefused, InEveryStepSize) {
  ForAllSteps(GetParam().bytes, [](size_t step) {
    auto parsed = ParseIn(GetParam().bytes, step);
    ASSERT_FALSE(parsed.result.has_value());
    EXPECT_EQ(parsed.result.error().code, Code::kBadRequest) << parsed.result.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Smuggling, MustBeRefused,
    testing::Values(Case{"TeXchunkedAndLength", Post("Transfer-Encoding: xchunked\r\nContent-Length: 30\r\n", kThirty)},
                    Case{"TeIdentityAndLength", Post("Transfer-Encoding: identity\r\nContent-Length: 30\r\n", kThirty)},
                    Case{"TeChunkedIdentityAndLength",
                         Post("Transfer-Encoding: chunked, identity\r\nContent-Length: 30\r\n", kThirty)},
                    Case{"TeXchunkedAlone", Post("Transfer-Encoding: xchunked\r\n", kLastChunk)},
                    Case{"TeGzipChunked", Post("Transfer-Encoding: gzip, chunked\r\n", kLastChunk)},
                    Case{"TeTwice", Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", kLastChunk)},
                    Case{"TeEmpty", Post("Transfer-Encoding:\r\n", kLastChunk)},
                    Case{"TeThenLength", Post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", kLastChunk)},
                    Case{"LengthThenTe", Post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", kLastChunk)},
                    Case{"TeInHttp10", Post("Transfer-Encoding: chunked\r\n", kLastChunk, "1.0")},
                    Case{"LengthList", Post("Content-Length: 30, 30\r\n", kThirty)},
                    Case{"LengthTwice", Post("Content-Length: 30\r\nContent-Length: 30\r\n", kThirty)},
                    Case{"LengthTwiceDifferent", Post("Content-Length: 30\r\nContent-Length: 3\r\n", kThirty)},
                    Case{"LengthPlus", Post("Content-Length: +30\r\n", kThirty)},
                    Case{"LengthMinus", Post("Content-Length: -1\r\n", kThirty)},
                    Case{"LengthHex", Post("Content-Length: 0x1e\r\n", kThirty)},
                    Case{"LengthEmpty", Post("Content-Length:\r\n", kThirty)},
                    Case{"LengthOverflow", Post("Content-Length: 18446744073709551646\r\n", kThirty)},
                    Case{"SpaceBeforeColon", Post("Content-Length : 30\r\n", kThirty)},
                    Case{"SpaceBeforeFirstName", "GET /x HTTP/1.1\r\n Host: a\r\n\r\n"},
                    Case{"EmptyName", Post(": x\r\n", "")}, Case{"NoColon", Post("Nonsense\r\n", "")},
                    Case{"BareLfEverywhere", "GET /x HTTP/1.1\nHost: a\n\n"},
                    Case{"BareLfInOneField", "GET /x HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"},
                    Case{"BareLfAtEnd", "GET /x HTTP/1.1\r\nHost: a\r\n\n"}, Case{"LoneCr", Post("X: a\rb\r\n", "")},
                    Case{"CrCrLf", Post("X: a\r\r\n", "")}, Case{"Nul", Post(std::string("X: a\0b\r\n", 8), "")},
                    Case{"NulInTarget", std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 28)},
                    Case{"ControlInValue", Post("X: a\x01\r\n", "")}, Case{"DelInValue", Post("X: a\x7f\r\n", "")},
                    Case{"EmptyValueEndedByCr", Post("X:\rContent-Length: 5\r\n", "")},
                    Case{"CrlfCrX", "GET /x HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n"},
                    Case{"NoHost", "GET /x HTTP/1.1\r\n\r\n"},
                    Case{"TwoHosts", "GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
                    Case{"TwoHostsInHttp10", "GET /x HTTP/1.0\r\nHost: a\r\nhOST: b\r\n\r\n"}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(
    Chunks, MustBeRefused,
    testing::Values(Case{"QuotedNewlineInExtension", Chunked("5;a=\"\n\"\r\nhello\r\n0\r\n\r\n")},
                    Case{"Extension", Chunked("5;a=b\r\nhello\r\n0\r\n\r\n")},
                    Case{"ExtensionOfLast", Chunked("0;a=b\r\n\r\n")},
                    Case{"SpaceAfterSize", Chunked("5 \r\nhello\r\n0\r\n\r\n")},
                    Case{"SizeOverflow", Chunked("10000000000000005\r\nhello\r\n0\r\n\r\n")},
                    Case{"SizeZerosForEver", Chunked("0000000000000000005\r\nhello\r\n0\r\n\r\n")},
                    Case{"SizeMissing", Chunked("\r\nhello\r\n0\r\n\r\n")}, Case{"SizeNegative", Chunked("-1\r\n")},
                    Case{"SizeWithPrefix", Chunked("0x5\r\nhello\r\n0\r\n\r\n")},
                    Case{"SizeEndsWithLf", Chunked("5\nhello\r\n0\r\n\r\n")},
                    Case{"SizeEndsWithCrX", Chunked("5\rXhello\r\n0\r\n\r\n")},
                    Case{"ChunkTooLong", Chunked("5\r\nhello!\r\n0\r\n\r\n")},
                    Case{"ChunkEndsWithLf", Chunked("5\r\nhello\n0\r\n\r\n")},
                    Case{"LengthInTrailer", Chunked("0\r\nContent-Length: 5\r\n\r\n")},
                    Case{"TeInTrailer", Chunked("0\r\ntransfer-encoding: chunked\r\n\r\n")},
                    Case{"HostInTrailer", Chunked("0\r\nHost: b\r\n\r\n")},
                    Case{"TrailerWithoutColon", Chunked("0\r\nnonsense\r\n\r\n")},
                    Case{"TrailerSpaceBeforeColon", Chunked("0\r\nA : b\r\n\r\n")},
                    Case{"TrailerBareLf", Chunked("0\r\nA: b\n\r\n")},
                    Case{"TrailerTooLarge", Chunked("0\r\nA: " + std::string(9000, 'b') + "\r\n\r\n")}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(Lines, MustBeRefused,
                         testing::Values(Case{"AbsoluteForm", "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"AuthorityForm", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"AsteriskForm", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"Fragment", "GET /x#y HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"NonAsciiTarget", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"TwoSpaces", "GET  /x HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"SpaceInTarget", "GET /x y HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"NoTarget", "GET HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"NoVersion", "GET /x\r\nHost: a\r\n\r\n"},
                                         Case{"Http09", "GET /x\r\n\r\n"},
                                         Case{"Http12", "GET /x HTTP/1.2\r\nHost: a\r\n\r\n"},
                                         Case{"Http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
                                         Case{"EmptyLineFirst", "\r\nGET /x HTTP/1.1\r\n"},
                                         Case{"BadMethod", "GE(T /x HTTP/1.1\r\nHost: a\r\n\r\n"},
                                         Case{"TlsHello", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9)},
                                         Case{"AResponse", "HTTP/1.1 200 OK\r\nHost: a\r\n\r\n"}),
                         CaseName);

TEST(HttpParser, GetWithoutBody) {
  const std::string bytes = "GET /a?b=c HTTP/1.1\r\nHost: a:1\r\nX-Y:  z \r\n\r\n";
  ForAllSteps(bytes, [&](size_t step) {
    auto p = ParseIn(bytes + "NEXT", step);
    ASSERT_TRUE(p.result) << p.result.error().message;
    EXPECT_TRUE(p.done);
    EXPECT_EQ(p.used, bytes.size());  // what follows belongs to the next message
    EXPECT_EQ(p.head.method, "GET");
    EXPECT_EQ(p.head.target, "/a?b=c");
    EXPECT_EQ(p.head.version, 11);
    EXPECT_TRUE(p.head.keep_alive);
    EXPECT_EQ(p.head.Get("x-y"), "z");
    EXPECT_EQ(p.head.Get("host"), "a:1");
  });
}

TEST(HttpParser, LengthBody) {
  const std::string bytes = Post("Content-Length: 5\r\nExpect: 100-continue\r\n", "hello");
  ForAllSteps(bytes, [&](size_t step) {
    auto p = ParseIn(bytes + "GET /", step);
    ASSERT_TRUE(p.result);
    EXPECT_TRUE(p.done);
    EXPECT_EQ(p.body, "hello");
    EXPECT_EQ(p.used, bytes.size());
    EXPECT_TRUE(p.head.expect_continue);
  });
}

TEST(HttpParser, ChunkedBodyWithTrailersDropped) {
  const std::string bytes = Chunked("5\r\nhello\r\nA\r\n, world!!!\r\n000\r\nX-Sum: 1\r\nY:\r\n\r\n");
  ForAllSteps(bytes, [&](size_t step) {
    auto p = ParseIn(bytes + "GET /", step);
    ASSERT_TRUE(p.result) << p.result.error().message;
    EXPECT_TRUE(p.done);
    EXPECT_EQ(p.body, "hello, world!!!");
    EXPECT_EQ(p.used, bytes.size());
    EXPECT_FALSE(HasField(p.head.fields, "x-sum"));
  });
}

TEST(HttpParser, ObsoleteFoldingBecomesASpace) {
  auto p = ParseIn("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n  c\r\n\r\n", 1);
  ASSERT_TRUE(p.result) << p.result.error().message;
  EXPECT_EQ(p.head.Get("x"), "b c");
}

TEST(HttpParser, ConnectionCloseAndHttp10EndTheConnection) {
  EXPECT_FALSE(ParseIn(Post("Connection: foo, Close\r\nContent-Length: 0\r\n", ""), 99).head.keep_alive);
  EXPECT_FALSE(ParseIn("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 99).head.keep_alive);
}

TEST(HttpParser, HeadLimitsHold) {
  const std::string big = "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(5000, 'y') + "\r\n\r\n";
  for (size_t step : {big.size(), size_t{1}}) {
    auto p = ParseIn(big, step, HttpKind::kRequest, HttpLimits{.head_bytes = 4096});
    ASSERT_FALSE(p.result);
    EXPECT_EQ(p.result.error().code, Code::kTooLarge);
    EXPECT_TRUE(ParseIn(big, step).result);
  }
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 127; ++i) many += "X: y\r\n";
  EXPECT_TRUE(ParseIn(many + "\r\n", 99).done);
  EXPECT_THAT(ParseIn(many + "X: y\r\n\r\n", 99).result.error().message, HasSubstr("too many"));
}

TEST(HttpParser, HeadsUpToTheLimitAreParsed) {
  const std::string bytes = "GET /" + std::string(8000, 'y') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_TRUE(ParseIn(bytes, 99, HttpKind::kRequest, HttpLimits{.head_bytes = bytes.size()}).done);
  EXPECT_FALSE(ParseIn(bytes, 99, HttpKind::kRequest, HttpLimits{.head_bytes = bytes.size() - 1}).done);
}

TEST(HttpParser, StaysFailedAndResets) {
  HttpParser p(HttpKind::kRequest);
  EXPECT_FALSE(p.Feed("\n", nullptr));
  EXPECT_FALSE(p.Feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n", nullptr));
  p.Reset();
  EXPECT_TRUE(p.Feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n", nullptr));
  EXPECT_TRUE(p.done());
}

TEST(HttpParser, RawBodyMayBypassTheParser) {
  HttpParser p(HttpKind::kRequest);
  ASSERT_TRUE(p.Feed(Post("Content-Length: 5\r\n", ""), nullptr));
  EXPECT_EQ(p.raw_body(), 5U);
  p.TakeRaw(4);
  EXPECT_FALSE(p.done());
  p.TakeRaw(1);
  EXPECT_TRUE(p.done());
  EXPECT_EQ(p.raw_body(), 0U);
}

TEST(HttpParser, Responses) {
  auto p = ParseIn("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP", 1, HttpKind::kResponse);
  ASSERT_TRUE(p.result) << p.result.error().message;
  EXPECT_EQ(p.head.status, 200);
  EXPECT_EQ(p.body, "ok");
  EXPECT_TRUE(ParseIn("HTTP/1.1 204 No Content\r\n\r\n", 1, HttpKind::kResponse).done);
  EXPECT_TRUE(ParseIn("HTTP/1.1 100 Continue\r\n\r\n", 1, HttpKind::kResponse).done);
  EXPECT_EQ(
      ParseIn("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1, HttpKind::kResponse).body,
      "ok");
  auto both =
      ParseIn("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 1, HttpKind::kResponse);
  EXPECT_EQ(both.result.error().code, Code::kProtocol);
}

TEST(HttpParser, ResponseUntilClose) {
  HttpParser p(HttpKind::kResponse);
  std::string body;
  const std::string head = "HTTP/1.0 200 OK\r\n\r\n";
  ASSERT_EQ(p.Feed(head + "abc", &body).value(), head.size());
  EXPECT_TRUE(p.until_close());
  ASSERT_EQ(p.Feed("abc", &body).value(), 3U);
  EXPECT_FALSE(p.done());
  EXPECT_TRUE(p.Eof());
  EXPECT_TRUE(p.done());
  EXPECT_EQ(body, "abc");
}

TEST(HttpParser, HeadResponseHasNoBody) {
  HttpParser p(HttpKind::kResponse);
  p.ExpectNoBody();
  ASSERT_TRUE(p.Feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", nullptr));
  EXPECT_TRUE(p.done());
}

TEST(HttpParser, EofInsideAMessageIsAnError) {
  HttpParser p(HttpKind::kRequest);
  ASSERT_TRUE(p.Feed(Post("Content-Length: 5\r\n", ""), nullptr));
  EXPECT_EQ(p.Eof().error().code, Code::kClosed);
}

TEST(HttpSerializer, ValuesCannotStartNewFields) {
  std::string head;
  AppendField(head, "x", "a\r\nSet-Cookie: b\0c");
  EXPECT_EQ(head, "x: a  Set-Cookie: b\r\n");
  EXPECT_EQ(SerializeRequestHead("GET", "/a b\r\nX: y", {{"Host", "h"}}), "GET /abX:y HTTP/1.1\r\nHost: h\r\n\r\n");
}

TEST(HttpSerializer, Lines) {
  std::string line;
  AppendStatusLine(line, 421);
  EXPECT_EQ(line, "HTTP/1.1 421 Misdirected Request\r\n");
  EXPECT_EQ(ChunkHeader(255), "ff\r\n");
}

}  // namespace
}  // namespace sandbar::wire
