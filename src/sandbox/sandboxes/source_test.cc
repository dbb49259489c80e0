#include "sandbox/sandboxes/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbar::sandbox {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

SourceSpec Git(std::string url) {
  SourceSpec spec;
  spec.url = std::move(url);
  return spec;
}

std::string Why(const SourceSpec& spec) {
  auto plan = PlanSource(spec);
  if (plan) return "accepted";
  EXPECT_EQ(plan.error().code, Code::kBadRequest);
  return plan.error().message;
}

TEST(Source, OnlyItsHostIsReachable) {
  auto plan = PlanSource(Git("https://Git.Example/team/repo.git"));
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->policy->FindName("git.example"), nullptr);
  EXPECT_EQ(plan->policy->FindName("other.example"), nullptr);
  EXPECT_FALSE(plan->policy->HasRules());
  EXPECT_THAT(plan->argv, Contains("repo"));
  auto address = PlanSource(Git("http://203.0.113.5:8080/r"));
  ASSERT_TRUE(address);
  EXPECT_EQ(address->policy->DecideAddress(*egress::ParseAddress("203.0.113.5")), egress::AddressDecision::kAllowed);
  EXPECT_EQ(address->policy->DecideAddress(*egress::ParseAddress("203.0.113.6")), egress::AddressDecision::kNoRule);
}

TEST(Source, CredentialsAreNotForTheMachine) {
  SourceSpec spec = Git("https://git.example/repo");
  spec.username = "u";
  spec.password = "canary";
  auto plan = PlanSource(spec);
  ASSERT_TRUE(plan);
  for (const std::string& arg : plan->argv) EXPECT_THAT(arg, Not(HasSubstr("canary")));
  const auto* entry = plan->policy->FindName("git.example");
  ASSERT_EQ(entry->rules.size(), 1U);
  EXPECT_EQ(std::get<egress::TransformAction>(entry->rules[0].action).headers[0].second, "Basic dTpjYW5hcnk=");
  spec.url = "http://git.example/repo";
  EXPECT_THAT(Why(spec), HasSubstr("https"));
  spec.url = "https://203.0.113.5/repo";
  EXPECT_THAT(Why(spec), HasSubstr("host name"));
  spec.username.reset();
  EXPECT_THAT(Why(spec), HasSubstr("user name"));
}

TEST(Source, OptionsCannotBeInjected) {
  for (const char* url :
       {"--upload-pack=x", "-c", "file:///etc", "ssh://git.example/r", "ext::sh -c x", "git.example/r",
        "https://u:p@git.example/r", "https://git.example/", "https://git.example/-r", "https://git.example/..",
        "https://git.example/a b", "https://git.example/r\nx", ""})
    EXPECT_NE(Why(Git(url)), "accepted") << url;
  for (const char* revision : {"", "-b", "--all", "a b", "a..b", "a:b", "HEAD~1", "a^", "x@{1}", "a\nb"}) {
    SourceSpec spec = Git("https://git.example/r");
    spec.revision = revision;
    EXPECT_THAT(Why(spec), HasSubstr("source.revision")) << revision;
  }
  SourceSpec deep = Git("https://git.example/r");
  deep.depth = 0;
  EXPECT_THAT(Why(deep), HasSubstr("source.depth"));
}

TEST(Source, Tarball) {
  SourceSpec spec = Git("https://files.example/a.tgz?sig=1");
  spec.kind = SourceSpec::Kind::kTarball;
  auto plan = PlanSource(spec);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->argv.back(), spec.url);
  spec.revision = "main";
  EXPECT_THAT(Why(spec), HasSubstr("neither"));
}

TEST(Source, MessageIsCleanAndShort) {
  std::string said = SourceMessage(Git("https://x.example/r"), 128, "fatal: \x1b[31mnot found\r\n\n");
  EXPECT_EQ(said, "source: git failed with exit code 128: fatal:  [31mnot found");
  EXPECT_LT(SourceMessage(Git("x"), 1, std::string(100'000, 'x')).size(), 3000U);
}

}  // namespace
}  // namespace sandbar::sandbox
