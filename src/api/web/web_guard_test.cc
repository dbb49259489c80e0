#include "api/web/web_guard.h"

#include <gtest/gtest.h>

namespace sandbar::api {
namespace {

WebGuardConfig Config() {
  WebGuardConfig config;
  config.host_names = {"localhost", "127.0.0.1", "[::1]"};
  config.port = 8787;
  config.public_url = "https://sandbar.example.com/";
  config.preview_domain = "localhost";
  return config;
}

Result<> Check(const std::string& host, std::vector<http::Header> more = {}, bool loopback = false) {
  http::HttpRequest request;
  request.headers = std::move(more);
  request.headers.push_back({"Host", host});
  return WebGuard(Config()).Check(request, loopback);
}

TEST(WebGuard, HostIsMatchedExactly) {
  for (const char* host : {"localhost:8787", "LOCALHOST:8787", "127.0.0.1:8787", "[::1]:8787", "sandbar.example.com",
                           "sandbar.example.com:443"})
    EXPECT_TRUE(Check(host).has_value()) << host;
  for (const char* host :
       {"", "localhost", "localhost:8788", "localhost:08787", "localhost.:8787", "evil.example", "evil.example:8787",
        "127.0.0.1.evil.example:8787", "127.0.0.2:8787", "sandbar.example.com:8787", "sandbar.example.com.evil",
        "localhost:8787@evil", " localhost:8787"}) {
    auto got = Check(host);
    ASSERT_FALSE(got.has_value()) << host;
    EXPECT_EQ(got.error().code, Code::kMisdirected) << host;
  }
}

TEST(WebGuard, AForwardedPortIsOneOfLoopbackOnly) {
  for (const char* host : {"localhost:9000", "LOCALHOST:1", "127.0.0.1:65535", "[::1]:9000", "localhost"}) {
    EXPECT_TRUE(Check(host, {}, true).has_value()) << host;
    EXPECT_FALSE(Check(host).has_value()) << host << " from elsewhere";
  }
  for (const char* host :
       {"", "evil.example:8787", "localhost.evil.example:9000", "localhost.:9000", "localhost:", "localhost:0",
        "localhost:09000", "localhost:65536", "localhost:9000x", "localhost:9000:1", "127.0.0.1.evil.example:9000",
        "127.0.0.2:9000", "2130706433:9000", "[::1:9000", "x@localhost:9000", "sandbar.example.com:9000"}) {
    auto got = Check(host, {}, true);
    ASSERT_FALSE(got.has_value()) << host;
    EXPECT_EQ(got.error().code, Code::kMisdirected) << host;
  }
  EXPECT_EQ(WebGuard(Config()).Classify("sb-abc.localhost:9000", true), WebGuard::Place::kPreview);
}

TEST(WebGuard, APageBehindTheForwardedPortIsOursAndNoOther) {
  EXPECT_TRUE(Check("localhost:9000", {{"Origin", "http://localhost:9000"}}, true).has_value());
  for (const char* origin : {"http://localhost:3000", "https://localhost:9000", "http://127.0.0.1:9000",
                             "http://sb-abc.localhost:9000", "http://evil.example", "null"}) {
    auto got = Check("localhost:9000", {{"Origin", origin}}, true);
    ASSERT_FALSE(got.has_value()) << origin;
    EXPECT_EQ(got.error().code, Code::kForbidden) << origin;
  }
  // A name that was configured has the scheme that was configured, whoever passes it on.
  EXPECT_FALSE(Check("sandbar.example.com", {{"Origin", "http://sandbar.example.com"}}, true).has_value());
}

TEST(WebGuard, LoopbackPeers) {
  for (const char* peer : {"127.0.0.1:4711", "127.8.0.1:1", "[::1]:4711", "[::ffff:127.0.0.1]:1"})
    EXPECT_TRUE(CameOverLoopback(peer)) << peer;
  for (const char* peer : {"", "10.0.0.1:127", "192.0.2.1:80", "[::2]:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"})
    EXPECT_FALSE(CameOverLoopback(peer)) << peer;
}

TEST(WebGuard, DefaultPortMayBeLeftOut) {
  WebGuardConfig config = Config();
  config.port = 80;
  EXPECT_EQ(WebGuard(config).Classify("localhost"), WebGuard::Place::kApi);
  EXPECT_EQ(WebGuard(config).Classify("localhost:80"), WebGuard::Place::kApi);
  config.tls = true;
  EXPECT_EQ(WebGuard(config).Classify("localhost"), WebGuard::Place::kForeign);
}

TEST(WebGuard, PreviewsAreNeverTheApi) {
  WebGuard guard(Config());
  EXPECT_EQ(guard.Classify("sb-abc.localhost:8787"), WebGuard::Place::kPreview);
  EXPECT_EQ(guard.Classify("SB-abc.localhost:8787"), WebGuard::Place::kPreview);
  EXPECT_EQ(guard.Classify("x-abc.localhost:8787"), WebGuard::Place::kForeign);
  EXPECT_EQ(guard.Classify("sb-abc.evil.example:8787"), WebGuard::Place::kForeign);
}

TEST(WebGuard, PreviewLabels) {
  WebGuardConfig config = Config();
  config.preview_domain = "Preview.Example";
  WebGuard guard(config);
  EXPECT_EQ(guard.PreviewLabel("sb-abc.localhost:8787"), "sb-abc");
  EXPECT_EQ(guard.PreviewLabel("SB-ABC.preview.example"), "sb-abc");
  EXPECT_EQ(guard.PreviewLabel("sb-abc.preview.example:443"), "sb-abc");
  for (const char* host : {"", "sb-abc", "localhost:8787", "sb-abc.evil.example", "sb-abc.localhost.",
                           "x.sb-abc.localhost", "sb-abc.localhost.evil.example", "sb-abc.preview.example.evil"})
    EXPECT_EQ(guard.PreviewLabel(host), "") << host;
}

TEST(WebGuard, ForeignPagesAreRefused) {
  const std::string host = "localhost:8787";
  EXPECT_TRUE(Check(host, {{"Sec-Fetch-Mode", "cors"}}).has_value());  // node's fetch
  EXPECT_TRUE(Check(host, {{"Sec-Fetch-Site", "same-origin"}}).has_value());
  EXPECT_TRUE(Check(host, {{"Sec-Fetch-Site", "none"}}).has_value());
  EXPECT_TRUE(Check(host, {{"Origin", "http://localhost:8787"}}).has_value());
  EXPECT_TRUE(Check("sandbar.example.com", {{"Origin", "https://sandbar.example.com"}}).has_value());
  for (const http::Header& header : std::vector<http::Header>{{"Origin", "null"},
                                                              {"Origin", ""},
                                                              {"Origin", "http://evil.example"},
                                                              {"Origin", "https://localhost:8787"},
                                                              {"Origin", "http://localhost:3000"},
                                                              {"Origin", "http://sb-abc.localhost:8787"},
                                                              {"Origin", "http://sandbar.example.com"},
                                                              {"Sec-Fetch-Site", "cross-site"},
                                                              {"Sec-Fetch-Site", "same-site"},
                                                              {"Sec-Fetch-Site", ""}}) {
    auto got = Check(host, {header});
    ASSERT_FALSE(got.has_value()) << header.name << " " << header.value;
    EXPECT_EQ(got.error().code, Code::kForbidden);
  }
}

}  // namespace
}  // namespace sandbar::api
