// Policies on their way to the store and back, and what a machine is made to trust.
#include "sandbox/sessions/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <sstream>

#include "base/ids.h"
#include "egress/policy_json.h"
#include "sandbox/seals.h"
#include "support/sandbox/test_world.h"
#include "wire/dns.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kSecret(48, 'k');

egress::NetworkPolicy Custom(const std::string& header_value = "canary-value") {
  return *egress::ParsePolicy(R"({"allow":{"api.example":[{"transform":[{"headers":{"authorization":")" + header_value +
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

// Databases and machines of earlier releases rely on these bytes.
TEST(Vault, DerivedKeysStayTheSame) {
  EXPECT_EQ(Hex(Vault(std::string(32, 'k')).Derive("records at rest")),
            "1ab1bf0de8849c7a1ce713e4445f1f87254393d6fe9ee9c6242d53324c20400d");
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
  EXPECT_EQ(SealPolicy(vault, {.mode = egress::EgressMode::kAllowAll}, "o").sealed, "");
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
  ASSERT_TRUE(world.Run(world.sandboxes->Update(world.scope, view.sandbox.name, update)));
  EXPECT_THAT(AllBytes(world.config.data_dir), Not(HasSubstr("canary")));

  ASSERT_TRUE(world.Restart());
  auto command = world.Exec(view.session.id, World::Command({"env"}));
  EXPECT_THAT(world.Log(view.session.id, command.id).out, HasSubstr("TOKEN=canary-env-2"));
  auto got = world.Run(world.sessions->Get(world.scope, view.session.id));
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
  auto policy = world.Run(world.sessions->Network(world.scope, view.session.id));
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_EQ(policy->policy->mode(), egress::EgressMode::kDenyAll);
  // It can be set again, and then it is what was asked for.
  ASSERT_TRUE(world.Run(world.sessions->SetNetwork(world.scope, view.session.id, Custom())));
  EXPECT_EQ(world.Run(world.sessions->Network(world.scope, view.session.id))->policy->mode(),
            egress::EgressMode::kCustom);
}

TEST_F(DomainTest, DroppedPacketsAreOneMoreDenial) {
  Boot();
  auto view = world.Create({});
  auto denials = [&] { return world.Run(world.sessions->Network(world.scope, view.session.id))->denials; };
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
  spec.network = *egress::ParsePolicy(R"({"allow":["plain.example"]})");
  auto view = world.Create(spec);
  auto& files = world.Machine(view)->agent.files;
  files["/etc/ssl/certs/ca-certificates.crt"] = "the image's own\n";
  EXPECT_FALSE(files.contains("//.upload"));
  ASSERT_TRUE(world.Run(world.sessions->SetNetwork(world.scope, view.session.id, Custom())));
  const std::string upload = files["//.upload"];
  EXPECT_THAT(upload, HasSubstr("usr/local/share/ca-certificates/vercel-proxy-ca.pem"));
  EXPECT_THAT(upload, HasSubstr("etc/pki/ca-trust/source/anchors/vercel-proxy-ca.pem"));
  EXPECT_THAT(upload, HasSubstr("the image's own\n-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(upload, Not(HasSubstr("PRIVATE")));
}

class PolicyChangeTest : public DomainTest {
 protected:
  // What the machine's resolver says about a name.
  wire::DnsRcode Asked(const SandboxView& view, const std::string& name) {
    wire::DnsQuery query;
    query.name = *wire::DnsNameFromText(name);
    query.type = wire::kDnsTypeA;
    Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(world.Machine(view)->dns_port);
    const std::string bytes = wire::EncodeDnsQuery(query);
    EXPECT_EQ(::sendto(fd.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              static_cast<ssize_t>(bytes.size()));
    std::string answer(4096, '\0');
    ssize_t got = -1;
    EXPECT_TRUE(world.Until([&] { return (got = ::recv(fd.get(), answer.data(), answer.size(), 0)) > 0; }));
    answer.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    auto head = wire::ParseDnsReply(answer, query);
    EXPECT_TRUE(head.has_value());
    return head ? head->rcode : wire::DnsRcode::kServFail;
  }

  struct Change {
    bool done = false;
    Result<store::Session> result = Fail(Code::kInternal, "not done");
  };
  std::shared_ptr<Change> Begin(const SandboxView& view, const egress::NetworkPolicy& policy) {
    auto change = std::make_shared<Change>();
    auto done = [change](std::exception_ptr e, Result<store::Session> r) {
      SB_CHECK(!e);
      change->done = true;
      change->result = std::move(r);
    };
    asio::co_spawn(world.ioc.get_executor(), world.sessions->SetNetwork(world.scope, view.session.id, policy), done);
    return change;
  }
};

TEST_F(PolicyChangeTest, MachineThatSpoilsItsTrustStoreIsStillClosed) {
  Boot();
  CreateSpec spec;
  spec.network = egress::NetworkPolicy{.mode = egress::EgressMode::kAllowAll};
  auto view = world.Create(spec);
  world.Machine(view)->agent.files["/etc/ssl/certs/ca-certificates.crt"] = std::string(5 << 20, 'x');
  auto set = world.Run(world.sessions->SetNetwork(world.scope, view.session.id, Custom()));
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::kUnavailable);
  EXPECT_THAT(set.error().message, HasSubstr("what the new network policy denies is denied"));
  EXPECT_EQ(world.Run(world.sessions->Network(world.scope, view.session.id))->policy->mode(),
            egress::EgressMode::kCustom);
  EXPECT_EQ(world.Run(world.sessions->Get(world.scope, view.session.id))->session.network->mode, "custom");
  EXPECT_EQ(Asked(view, "other.example"), wire::DnsRcode::kNxDomain);
  // Whole again, it can be set.
  world.Machine(view)->agent.files.clear();
  ASSERT_TRUE(world.Run(world.sessions->SetNetwork(world.scope, view.session.id, Custom())));
  EXPECT_EQ(Asked(view, "api.example"), wire::DnsRcode::kNoError);
}

TEST_F(PolicyChangeTest, WhatANewPolicyDeniesIsDeniedWhileTheMachineDelaysItsCa) {
  Boot();
  CreateSpec spec;
  spec.network = *egress::ParsePolicy(R"({"allow":["old.example","both.example"]})");
  auto view = world.Create(spec);
  auto& agent = world.Machine(view)->agent;
  agent.files_hang = true;
  EXPECT_EQ(Asked(view, "old.example"), wire::DnsRcode::kNoError);
  auto next = *egress::ParsePolicy(R"({"allow":{"both.example":[],"new.example":[{"transform":[]}]}})");
  auto change = Begin(view, next);
  ASSERT_TRUE(world.Until([&] { return agent.hung > 0; }));
  EXPECT_FALSE(change->done);
  EXPECT_EQ(Asked(view, "old.example"), wire::DnsRcode::kNxDomain);
  EXPECT_EQ(Asked(view, "both.example"), wire::DnsRcode::kNoError);
  EXPECT_EQ(Asked(view, "new.example"), wire::DnsRcode::kNxDomain);  // not before its CA is there
  // It is on record by now: a crash does not bring the old one back.
  EXPECT_EQ(world.Run(world.sessions->Network(world.scope, view.session.id))->policy->policy(), next);
  // Another one does not wait for it, and replaces it.
  ASSERT_TRUE(world.Run(world.sessions->SetNetwork(world.scope, view.session.id, {})));
  ASSERT_TRUE(world.Until([&] { return change->done; }));
  EXPECT_TRUE(change->result);
  EXPECT_EQ(Asked(view, "both.example"), wire::DnsRcode::kNxDomain);
  EXPECT_EQ(world.Run(world.sessions->Get(world.scope, view.session.id))->session.network->mode, "deny-all");
}

TEST_F(DomainTest, StoredPolicyBeyondTheLimitsIsDenyAllWithANotice) {
  Boot();
  CreateSpec spec;
  spec.network = Custom();
  spec.persistent = true;
  auto view = world.Create(spec);
  // As a server without these limits recorded it.
  const std::string large =
      R"({"allow":{"api.example":[{"match":{"path":{"regex":"^/(?:a?){1000}b$"}},"transform":[]}]}})";
  auto replace = [&](store::NetworkPolicyRow& row, const std::string& owner) {
    row.sealed = Vault(world.secret).Seal(large, owner);
  };
  const store::SandboxKey key{world.scope.team, world.scope.project, view.sandbox.name};
  world.Crash();
  {
    auto own = world.OpenStore();
    store::Session row = view.session;
    replace(*row.network, SealOwner(row));
    auto edit = [&](store::Sandbox& s) -> Result<> {
      replace(*s.network, SealOwner(s));
      return {};
    };
    ASSERT_TRUE(own->SaveSession(row, edit));
  }
  ASSERT_TRUE(world.Start());
  auto policy = [&](const std::string& session) {
    return world.Run(world.sessions->Network(world.scope, session))->policy->mode();
  };
  EXPECT_EQ(policy(view.session.id), egress::EgressMode::kDenyAll);
  auto notices = [&] { return world.Run(world.sandboxes->Notices(world.scope, view.sandbox.name)).value(); };
  ASSERT_TRUE(world.Until([&] { return !notices().empty(); }));
  EXPECT_THAT(notices()[0].text, HasSubstr("deny-all"));
  EXPECT_THAT(notices()[0].text, HasSubstr(R"(allow["api.example"][0].match.path)"));
  // A fork needs one of its own; a resume has no network, and says so.
  auto fork = world.Run(world.sandboxes->Fork(world.scope, view.sandbox.name, {}));
  ASSERT_FALSE(fork);
  EXPECT_EQ(fork.error().code, Code::kConflict);
  ForkSpec own;
  own.changes.network = egress::NetworkPolicy{.mode = egress::EgressMode::kDenyAll};
  EXPECT_TRUE(world.Run(world.sandboxes->Fork(world.scope, view.sandbox.name, own)));
  ASSERT_TRUE(world.Run(world.sessions->Stop(world.scope, view.session.id)));
  auto resumed = world.Run(world.sandboxes->Get(world.scope, view.sandbox.name, true));
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->session.network->mode, "deny-all");
  EXPECT_EQ(policy(resumed->session.id), egress::EgressMode::kDenyAll);
  ASSERT_TRUE(world.Run(world.sessions->SetNetwork(world.scope, resumed->session.id, Custom())));
  EXPECT_EQ(policy(resumed->session.id), egress::EgressMode::kCustom);
}

TEST_F(DomainTest, SourceThatFailsLeavesNothing) {
  Boot();
  CreateSpec spec;
  spec.source = SourceSpec{.url = "https://git.example/repo"};
  // The fake machine has no shell.
  auto failed = world.Run(world.sandboxes->Create(world.scope, spec));
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("source"));
  EXPECT_TRUE(world.host.ids().empty());
  EXPECT_TRUE(world.Run(world.sandboxes->List(world.scope, {}))->items.empty());
  spec.source->url = "file:///etc";
  EXPECT_EQ(world.Run(world.sandboxes->Create(world.scope, spec)).error().code, Code::kBadRequest);
  EXPECT_EQ(world.host.boots, 1);
}

TEST_F(DomainTest, WrongPoliciesAreNamed) {
  Boot();
  CreateSpec spec;
  spec.network = egress::NetworkPolicy{.mode = egress::EgressMode::kCustom, .allow_cidrs = {"300.0.0.0/8"}};
  auto refused = world.Run(world.sandboxes->Create(world.scope, spec));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBadRequest);
  EXPECT_THAT(refused.error().message, HasSubstr("subnets.allow"));
  auto view = world.Create();
  EXPECT_EQ(world.Run(world.sessions->SetNetwork(world.scope, view.session.id, *spec.network)).error().code,
            Code::kBadRequest);
}

}  // namespace
}  // namespace sandbar::sandbox
