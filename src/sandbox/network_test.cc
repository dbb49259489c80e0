// Policies on their way to the store and back, and what a machine is made to trust.
#include "sandbox/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "net/policy_json.h"
#include "sandbox/test_world.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kSecret(48, 'k');

net::NetworkPolicy Custom(const std::string& header_value = "canary-value") {
  return *net::ParsePolicy(R"({"allow":{"api.example":[{"transform":[{"headers":{"authorization":")" + header_value +
                           R"("}}]}]}})");
}

TEST(Vault, OpensOnlyForItsOwnerAndKey) {
  Vault vault(kSecret);
  const std::string text = "secret text";
  const std::string sealed = vault.Seal(text, "a");
  EXPECT_THAT(sealed, Not(HasSubstr("secret")));
  EXPECT_EQ(vault.Open(sealed, "a").value(), text);
  EXPECT_FALSE(vault.Open(sealed, "b"));
  EXPECT_FALSE(Vault(std::string(48, 'x')).Open(sealed, "a"));
  EXPECT_NE(vault.Seal(text, "a"), sealed);  // a nonce of its own every time
  EXPECT_EQ(vault.Open(vault.Seal("", "a"), "a").value(), "");
}

TEST(Vault, DamageIsNoticed) {
  Vault vault(kSecret);
  const std::string sealed = vault.Seal("a longer text that has several blocks in it", "a");
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string bad = sealed;
    bad[i] = bad[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(vault.Open(bad, "a")) << i;
  }
  for (const char* bad : {"", "AAAA", "====", "not base64!", "A"}) EXPECT_FALSE(vault.Open(bad, "a")) << bad;
}

TEST(Vault, DerivedKeysDiffer) {
  Vault vault(kSecret);
  EXPECT_EQ(vault.Derive("a").size(), 32U);
  EXPECT_NE(vault.Derive("a"), vault.Derive("b"));
  EXPECT_NE(vault.Derive("a"), Vault(std::string(48, 'x')).Derive("a"));
}

TEST(Vault, Environment) {
  Vault vault(kSecret);
  const std::map<std::string, std::string> env{{"A", "1"}, {"TOKEN", "canary"}};
  auto kept = vault.SealEnv(env, "o");
  EXPECT_EQ(kept.size(), 1U);
  EXPECT_THAT(kept.begin()->second, Not(HasSubstr("canary")));
  EXPECT_EQ(vault.OpenEnv(kept, "o").value(), env);
  EXPECT_FALSE(vault.OpenEnv(kept, "p"));
  EXPECT_TRUE(vault.SealEnv({}, "o").empty());
  EXPECT_EQ(vault.OpenEnv(env, "o").value(), env);  // of an older server
}

TEST(Policy, SealedAndShown) {
  Vault vault(kSecret);
  auto row = SealPolicy(vault, Custom(), "o");
  EXPECT_EQ(row.mode, "custom");
  EXPECT_THAT(row.shown + row.sealed, Not(HasSubstr("canary")));
  EXPECT_THAT(row.shown, HasSubstr("authorization"));
  EXPECT_EQ(OpenPolicy(vault, row, "o").value()->policy(), Custom());
  EXPECT_FALSE(OpenPolicy(vault, row, "p"));
  EXPECT_EQ(SealPolicy(vault, {.mode = net::EgressMode::kAllowAll}, "o").sealed, "");
}

TEST(Bundle, OursIsReplacedAndOthersStay) {
  const std::string a = "# A\n-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n";
  const std::string b = "-----BEGIN CERTIFICATE-----\nBBB\n-----END CERTIFICATE-----\n";
  const std::string one = "-----BEGIN CERTIFICATE-----\nONE\n-----END CERTIFICATE-----\n";
  const std::string two = "-----BEGIN CERTIFICATE-----\nTWO\n-----END CERTIFICATE-----\n";
  EXPECT_EQ(MergeBundle(a + b, "", one), a + b + one);
  EXPECT_EQ(MergeBundle(a + b + one, one, two), a + b + two);
  EXPECT_EQ(MergeBundle(a + one + b, one, one), a + b + one);
  EXPECT_EQ(MergeBundle("", "", one), one);
  EXPECT_EQ(MergeBundle("no newline", "garbage", one), "no newline\n" + one);
  EXPECT_EQ(MergeBundle("-----BEGIN CERTIFICATE-----\nopen", one, two), "-----BEGIN CERTIFICATE-----\nopen\n" + two);
}

// Everything below the data directory, as a thief would see it.
std::string AllBytes(const std::string& dir) {
  std::stringstream all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir))
    if (entry.is_regular_file()) all << std::ifstream(entry.path()).rdbuf();
  return all.str();
}

TEST_F(DomainTest, SecretsAreSealedAtRestAndBackAfterARestart) {
  Boot();
  CreateSpec spec;
  spec.network = Custom("canary-injected");
  spec.env = {{"TOKEN", "canary-env"}};
  auto view = world.Create(spec);
  EXPECT_EQ(view.session.network->mode, "custom");
  UpdateSpec update;
  update.network = Custom("canary-patched");
  update.env = std::map<std::string, std::string>{{"TOKEN", "canary-env-2"}};
  ASSERT_TRUE(world.Run(world.service->Update(world.scope, view.sandbox.name, update)));
  EXPECT_THAT(AllBytes(world.config.data_dir), Not(HasSubstr("canary")));

  ASSERT_TRUE(world.Restart());
  auto command = world.Exec(view.session.id, World::Command({"env"}));
  EXPECT_THAT(world.Log(view.session.id, command.id).out, HasSubstr("TOKEN=canary-env-2"));
  auto got = world.Run(world.service->GetSession(world.scope, view.session.id));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->session.network->mode, "custom");
}

TEST_F(DomainTest, PolicyThatCannotBeOpenedIsDenyAll) {
  Boot();
  CreateSpec spec;
  spec.network = Custom();
  spec.env = {{"A", "1"}};
  auto view = world.Create(spec);
  world.secret = std::string(48, 'z');
  ASSERT_TRUE(world.Restart());
  auto policy = world.Run(world.service->Network(world.scope, view.session.id));
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_EQ(policy->policy->mode(), net::EgressMode::kDenyAll);
  // It can be set again, and then it is what was asked for.
  ASSERT_TRUE(world.Run(world.service->SetNetwork(world.scope, view.session.id, Custom())));
  EXPECT_EQ(world.Run(world.service->Network(world.scope, view.session.id))->policy->mode(), net::EgressMode::kCustom);
}

TEST_F(DomainTest, DroppedPacketsAreOneMoreDenial) {
  Boot();
  auto view = world.Create({});
  auto denials = [&] { return world.Run(world.service->Network(world.scope, view.session.id))->denials; };
  EXPECT_TRUE(denials().empty());
  world.Machine(view)->dropped_packets = 3;
  const auto first = denials();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].kind, "packets");
  EXPECT_EQ(first[0].count, 3u);
  EXPECT_THAT(first[0].reason, HasSubstr("QUIC"));
  // It is as old as its newest packet.
  EXPECT_EQ(denials()[0].at_ms, first[0].at_ms);
}

TEST_F(DomainTest, CaIsInTheMachineWhenThePolicyNeedsIt) {
  Boot();
  CreateSpec spec;
  spec.network = *net::ParsePolicy(R"({"allow":["plain.example"]})");
  auto view = world.Create(spec);
  auto& files = world.Machine(view)->agent.files;
  files["/etc/ssl/certs/ca-certificates.crt"] = "the image's own\n";
  EXPECT_FALSE(files.contains("//.upload"));
  ASSERT_TRUE(world.Run(world.service->SetNetwork(world.scope, view.session.id, Custom())));
  const std::string upload = files["//.upload"];
  EXPECT_THAT(upload, HasSubstr("usr/local/share/ca-certificates/vercel-proxy-ca.pem"));
  EXPECT_THAT(upload, HasSubstr("etc/pki/ca-trust/source/anchors/vercel-proxy-ca.pem"));
  EXPECT_THAT(upload, HasSubstr("the image's own\n-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(upload, Not(HasSubstr("PRIVATE")));
}

TEST_F(DomainTest, MachineThatSpoilsItsTrustStoreIsStillClosed) {
  Boot();
  CreateSpec spec;
  spec.network = net::NetworkPolicy{.mode = net::EgressMode::kAllowAll};
  auto view = world.Create(spec);
  world.Machine(view)->agent.files["/etc/ssl/certs/ca-certificates.crt"] = std::string(5 << 20, 'x');
  ASSERT_TRUE(world.Run(world.service->SetNetwork(world.scope, view.session.id, Custom())));
  EXPECT_EQ(world.Run(world.service->Network(world.scope, view.session.id))->policy->mode(), net::EgressMode::kCustom);
}

TEST_F(DomainTest, SourceThatFailsLeavesNothing) {
  Boot();
  CreateSpec spec;
  spec.source = SourceSpec{.url = "https://git.example/repo"};
  // The fake machine has no shell.
  auto failed = world.Run(world.service->Create(world.scope, spec));
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("source"));
  EXPECT_TRUE(world.host.ids().empty());
  EXPECT_TRUE(world.Run(world.service->List(world.scope, {}))->items.empty());
  spec.source->url = "file:///etc";
  EXPECT_EQ(world.Run(world.service->Create(world.scope, spec)).error().code, Code::kBadRequest);
  EXPECT_EQ(world.host.boots, 1);
}

TEST_F(DomainTest, WrongPoliciesAreNamed) {
  Boot();
  CreateSpec spec;
  spec.network = net::NetworkPolicy{.mode = net::EgressMode::kCustom, .allow_cidrs = {"300.0.0.0/8"}};
  auto refused = world.Run(world.service->Create(world.scope, spec));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBadRequest);
  EXPECT_THAT(refused.error().message, HasSubstr("subnets.allow"));
  auto view = world.Create();
  EXPECT_EQ(world.Run(world.service->SetNetwork(world.scope, view.session.id, *spec.network)).error().code,
            Code::kBadRequest);
}

}  // namespace
}  // namespace sandbar::sandbox
