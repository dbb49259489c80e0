#include "sandbox/validate.h"

#include <gmock/gmock.h>

#include "sandbox/commands/environment.h"
#include "sandbox/sessions/pool.h"

namespace sandbar::sandbox {
namespace {

using testing::HasSubstr;

class ValidateTest : public testing::Test {
 protected:
  // The message of the refusal, which must be a bad request; empty when it passes.
  template <class T>
  static std::string Refusal(const Result<T>& r) {
    if (r) return "";
    EXPECT_EQ(r.error().code, Code::kBadRequest) << r.error().message;
    return r.error().message;
  }
  std::string Create(const std::function<void(CreateSpec&)>& change) {
    CreateSpec spec;
    change(spec);
    return Refusal(CheckCreate(spec, config_));
  }
  Config config_;
};

TEST_F(ValidateTest, Defaults) {
  auto row = CheckCreate({}, config_);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->vcpus, 2);
  EXPECT_EQ(row->memory_mb, 4096);
  EXPECT_EQ(row->timeout_ms, 300000);
  EXPECT_TRUE(row->persistent);
  EXPECT_EQ(row->region, "iad1");
  EXPECT_FALSE(row->network);
}

TEST_F(ValidateTest, Names) {
  for (const char* good : {"a", "A-b_9", "sbx_123"}) EXPECT_TRUE(CheckName(good)) << good;
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a/b"), std::string("ü"),
                                 std::string(129, 'a'), std::string("a\0b", 3), std::string("sessions")}) {
    EXPECT_THAT(Refusal(CheckName(bad)), HasSubstr("name")) << bad;
  }
  EXPECT_TRUE(CheckName(std::string(128, 'a')));
}

TEST_F(ValidateTest, Resources) {
  config_.max_vcpus = 8;
  config_.max_memory_mb = 8192;
  for (int good : {1, 2, 4}) EXPECT_EQ(CheckResources({.vcpus = good}, config_)->memory_mb, good * 2048);
  for (int bad : {0, -2, 3, 5}) EXPECT_THAT(Refusal(CheckResources({.vcpus = bad}, config_)), HasSubstr("even")) << bad;
  EXPECT_THAT(Refusal(CheckResources({.vcpus = 6}, config_)), HasSubstr("limit of 8192 MB"));
  EXPECT_THAT(Refusal(CheckResources({.vcpus = 10}, config_)), HasSubstr("limit of 8 (limits.max_vcpus)"));
  EXPECT_THAT(Refusal(CheckResources({.vcpus = 2, .memory_mb = 2048}, config_)), HasSubstr("4096"));
  EXPECT_TRUE(CheckResources({.vcpus = 4, .memory_mb = 8192}, config_));
  EXPECT_EQ(CheckResources({.memory_mb = 8192}, config_)->vcpus, 4);
}

TEST_F(ValidateTest, Timeouts) {
  EXPECT_TRUE(CheckTimeout(1000, config_));
  EXPECT_THAT(Refusal(CheckTimeout(999, config_)), HasSubstr("1000"));
  EXPECT_TRUE(CheckTimeout(86400000, config_));
  EXPECT_THAT(Refusal(CheckTimeout(86400001, config_)), HasSubstr("86400000"));
}

TEST_F(ValidateTest, PortsTagsEnv) {
  EXPECT_EQ(Create([](auto& s) { s.ports = {1024, 65535}; }), "");
  EXPECT_THAT(Create([](auto& s) { s.ports = {1023}; }), HasSubstr("1023"));
  EXPECT_THAT(Create([](auto& s) { s.ports = {65536}; }), HasSubstr("65536"));
  EXPECT_THAT(Create([](auto& s) { s.ports = {3000, 3000}; }), HasSubstr("twice"));
  auto ports = [](CreateSpec& s, int n) {
    for (int i = 0; i < n; ++i) s.ports.push_back(2000 + i);
  };
  EXPECT_EQ(Create([&](auto& s) { ports(s, 15); }), "");
  EXPECT_THAT(Create([&](auto& s) { ports(s, 16); }), HasSubstr("15"));
  EXPECT_THAT(Create([&](auto& s) { ports(s, 5), s.v1 = true; }), HasSubstr("at most 4"));
  EXPECT_THAT(Create([](auto& s) {
                for (int i = 0; i < 6; ++i) s.tags["k" + std::to_string(i)] = "v";
              }),
              HasSubstr("at most 5"));
  EXPECT_EQ(Create([](auto& s) { s.tags["k"] = std::string(256, 'v'); }), "");
  EXPECT_THAT(Create([](auto& s) { s.tags["k"] = std::string(257, 'v'); }), HasSubstr("256"));
  EXPECT_THAT(Create([](auto& s) { s.env["A=B"] = "x"; }), HasSubstr("'='"));
  EXPECT_THAT(Create([](auto& s) { s.env[""] = "x"; }), HasSubstr("empty"));
  EXPECT_THAT(Create([](auto& s) { s.env["A"] = std::string("a\0b", 3); }), HasSubstr("NUL"));
  EXPECT_THAT(Create([](auto& s) { s.env["A"] = std::string(300 << 10, 'x'); }), HasSubstr("limit"));
}

TEST_F(ValidateTest, RegionsSnapshotsImages) {
  EXPECT_THAT(Create([](auto& s) { s.failover_regions = {"iad1"}; }), HasSubstr("own region"));
  CreateSpec spec;
  spec.region = "fra1";
  spec.failover_regions = {"iad1", "sfo1", "iad1"};
  EXPECT_EQ(CheckCreate(spec, config_)->failover_regions, (std::vector<std::string>{"iad1", "sfo1"}));
  EXPECT_THAT(Create([](auto& s) { s.snapshot_expiration_ms = 1000; }), HasSubstr("86400000"));
  EXPECT_EQ(Create([](auto& s) { s.snapshot_expiration_ms = 0; }), "");
  EXPECT_THAT(Create([](auto& s) { s.keep_last_snapshots = store::KeepLastSnapshots{11, {}, true}; }),
              HasSubstr("1 to 10"));
  EXPECT_THAT(Create([](auto& s) { s.image = "a", s.runtime = "b"; }), HasSubstr("together"));
  EXPECT_THAT(Create([](auto& s) { s.network_id = std::string(256, 'n'); }), HasSubstr("255"));
}

TEST_F(ValidateTest, UpdateChecksTheResultingPair) {
  store::Sandbox row;
  row.failover_regions = {"fra1"};
  UpdateSpec update;
  update.region = "fra1";
  EXPECT_THAT(Refusal(ApplyUpdate(update, config_, row)), HasSubstr("own region"));
  row.region = "iad1";
  update.failover_regions = std::vector<std::string>{};
  EXPECT_TRUE(ApplyUpdate(update, config_, row));
  row.keep_last_snapshots = store::KeepLastSnapshots{3, {}, true};
  row.network_id = "net";
  UpdateSpec clear;
  clear.keep_last_snapshots.emplace(std::nullopt);
  clear.network_id.emplace(std::nullopt);
  ASSERT_TRUE(ApplyUpdate(clear, config_, row));
  EXPECT_FALSE(row.keep_last_snapshots);
  EXPECT_EQ(row.network_id, "");
}

TEST_F(ValidateTest, PathsAndNames) {
  EXPECT_EQ(Resolve("/vercel", "a/b"), "/vercel/a/b");
  EXPECT_EQ(Resolve("/", "a"), "/a");
  EXPECT_EQ(Resolve("/vercel", "/x"), "/x");
  EXPECT_THAT(Refusal(CheckPath("path", std::string(5000, 'a'))), HasSubstr("4095"));
  images::Image image;
  image.digest = "sha256:d";
  image.name = "vercel/sandbox/node:24";
  EXPECT_EQ(PinnedName(image), "vercel/sandbox/node@sha256:d");
  image.name = "host:5000/repo";
  EXPECT_EQ(PinnedName(image), "host:5000/repo@sha256:d");
}

TEST_F(ValidateTest, SudoKeepsTheCallersVariablesButNotTheIdentity) {
  store::Session session;
  session.user = "ubuntu";
  session.home = "/vercel";
  auto env = MakeEnvironment(session, {{"HOME", "/mine"}}, {{"X", "1"}}, false);
  EXPECT_THAT(env, testing::Contains("HOME=/mine"));
  env = MakeEnvironment(session, {{"HOME", "/mine"}}, {{"X", "1"}}, true);
  EXPECT_THAT(env, testing::Contains("HOME=/root"));
  EXPECT_THAT(env, testing::Contains("X=1"));
}

}  // namespace
}  // namespace sandbar::sandbox
