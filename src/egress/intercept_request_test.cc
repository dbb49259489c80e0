#include "egress/intercept_request.h"

#include <gtest/gtest.h>

namespace sandbar::egress {
namespace {

wire::HttpHead Head(const std::string& host, const std::string& target = "/") {
  wire::HttpHead head{.method = "GET", .target = target};
  head.fields = {{"Host", host}};
  return head;
}

TEST(DecideRequest, Hosts) {
  PolicyRef policy =
      *Compile({.mode = EgressMode::kCustom, .domains = {{"good.test", {}}}, .allow_cidrs = {"192.0.2.7/32"}});
  RequestContext context{.policy = policy.get(), .port = 80};
  auto status = [&](const std::string& host) {
    auto decided = DecideRequest(Head(host), context);
    return decided ? 200 : decided.error().status;
  };
  for (const char* host : {"good.test", "GOOD.test.", "good.test:80", "192.0.2.7", "[::ffff:192.0.2.7]:80"})
    EXPECT_EQ(status(host), 200) << host;
  for (const char* host : {"evil.test", "good.test.evil.test", "192.0.2.8", "3221225991", "0xc0000207", "0300.0.2.7",
                           "good.test@evil.test", "good.test/x", "good.test%2eevil.test", "[::1]", "", "good..test"})
    EXPECT_EQ(status(host), 403) << host;
  for (const char* host :
       {"good.test:", "good.test:0", "good.test:99999", "good.test:+80", "[good.test]", "[::1", "[::1]x"})
    EXPECT_EQ(status(host), 400) << host;
  EXPECT_EQ(status("good.test:8080"), 421);
  auto odd = DecideRequest(Head("a\xff\x7f_b"), context);
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().host, R"(a\xff\x7f_b)");
}

TEST(PlanUpstream, LaterHeaderOfOneNameWinsAndNothingElseIsAdded) {
  Rule rule{std::nullopt, TransformAction{{{"X-Key", "first-value"}, {"x-key", "second-value"}}}};
  PolicyRef policy = *Compile({.mode = EgressMode::kCustom, .domains = {{"good.test", {rule}}}});
  RequestContext context{.policy = policy.get(), .tls = true, .sni = "good.test", .port = 443};
  wire::HttpHead head = Head("good.test", "/a?b");
  head.fields.push_back({"X-KEY", "guest"});
  auto decided = DecideRequest(head, context);
  ASSERT_TRUE(decided);
  auto plan = PlanUpstream(head, *decided, context, {});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->head, "GET /a?b HTTP/1.1\r\nhost: good.test\r\nx-key: second-value\r\n\r\n");
}

}  // namespace
}  // namespace sandbar::egress
