#include "api/vercel/requests.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sandbar::api {
namespace {

Error CreateError(std::string_view body) {
  auto got = ParseCreate(body, 3);
  EXPECT_FALSE(got.has_value()) << body;
  return got ? Error{} : got.error();
}

TEST(ParseCreate, WhatTheSdkSends) {
  auto got = ParseCreate(
      R"({"projectId":"prj_x","ports":[],"timeout":600000,"resources":{"vcpus":4},"name":"demo","persistent":false,
          "networkPolicy":{"mode":"deny-all"},"env":{"A":"1"},"tags":{"team":"infra"},"region":"fra1",
          "keepLastSnapshots":{"count":3},"snapshotExpiration":0,"__interactive":true,"mounts":{}})",
      3);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->project, "prj_x");
  const sandbox::CreateSpec& spec = got->spec;
  EXPECT_EQ(spec.name, "demo");
  EXPECT_EQ(spec.timeout_ms, 600000);
  EXPECT_EQ(spec.resources.vcpus, 4);
  EXPECT_EQ(spec.network->mode, egress::EgressMode::kDenyAll);
  EXPECT_EQ(spec.env.at("A"), "1");
  EXPECT_EQ(spec.tags.at("team"), "infra");
  EXPECT_EQ(spec.region, "fra1");
  EXPECT_EQ(spec.keep_last_snapshots->count, 3);
  EXPECT_TRUE(spec.keep_last_snapshots->delete_evicted);
  EXPECT_EQ(spec.snapshot_expiration_ms, 0);
  EXPECT_FALSE(spec.v1);
}

TEST(ParseCreate, DefaultsByVersion) {
  EXPECT_EQ(ParseCreate("", 2)->spec.runtime, "node24");
  EXPECT_EQ(ParseCreate("{}", 3)->spec.runtime, std::nullopt);
  EXPECT_EQ(ParseCreate(R"({"image":"x"})", 2)->spec.runtime, std::nullopt);
  EXPECT_TRUE(ParseCreate("{}", 1)->spec.v1);
  EXPECT_EQ(ParseCreate(R"({"persistent":false})", 3)->spec.persistent, false);
  EXPECT_EQ(ParseCreate(R"({"source":{"type":"snapshot","snapshotId":"snap_1"}})", 2)->spec.source_snapshot, "snap_1");
  EXPECT_EQ(ParseCreate(R"({"source":{"type":"snapshot","snapshotId":"snap_1"}})", 2)->spec.runtime, std::nullopt);
}

TEST(ParseCreate, NamesUnknownKeys) {
  Error error = CreateError(R"({"timeuot":5})");
  EXPECT_EQ(error.code, Code::kBadRequest);
  EXPECT_TRUE(error.message.contains("timeuot") && error.message.contains("`timeout`")) << error.message;
  EXPECT_TRUE(CreateError(R"({"resources":{"cores":5}})").message.contains("resources.cores"));
  EXPECT_EQ(ParseCreate(R"({"resources":{"vcpu":2}})", 3)->spec.resources.vcpus, 2);
}

TEST(ParseCreate, Isolation) {
  auto demand = [](std::string_view body) { return ParseCreate(body, 3)->spec.isolation; };
  EXPECT_EQ(demand("{}"), store::IsolationDemand{});
  EXPECT_EQ(demand(R"({"isolation":{"minClass":3}})"), (store::IsolationDemand{3, ""}));
  EXPECT_EQ(demand(R"({"__isolation":{"minClass":2,"engine":"gvisor"}})"), (store::IsolationDemand{2, "gvisor"}));
  EXPECT_EQ(demand(R"({"__isolation":2})"), (store::IsolationDemand{2, ""}));
  EXPECT_EQ(demand(R"({"__isolation":"gvisor"})"), (store::IsolationDemand{0, "gvisor"}));
  EXPECT_EQ(ParseFork(R"({"__isolation":3})")->changes.isolation.min_class, 3);
  EXPECT_EQ(ParseUpdate(R"({"isolation":{"minClass":3}})")->spec.isolation.min_class, 3);
  for (const char* wrong : {R"({"minClass":0})", R"({"minClass":4})", R"({"minClass":"3"})", R"({"engine":""})",
                            R"({"engine":5})", R"({"class":3})", "0", "4", "2.5", "true", "null", "[]", R"("")"}) {
    for (const char* key : {"isolation", "__isolation"}) {
      Error error = CreateError(fmt::format(R"({{"{}":{}}})", key, wrong));
      EXPECT_EQ(error.code, Code::kBadRequest) << wrong;
      EXPECT_TRUE(error.message.contains("isolation")) << error.message;
    }
  }
}

TEST(ParseCreate, RefusesWhatItCannotHonour) {
  EXPECT_EQ(CreateError(R"({"networkId":"net_1"})").code, Code::kUnsupported);
}

TEST(ParseCreate, Mounts) {
  auto create = ParseCreate(R"({"mounts":{"/a":{"drive":"d"},"/b":{"drive":"e","mode":"snapshot"},
                                "/c":{"drive":"f","mode":"read-only"}}})",
                            3);
  ASSERT_TRUE(create);
  std::map<std::string, store::Mount> want = {
      {"/a", {"d", "read-write"}}, {"/b", {"e", "snapshot"}}, {"/c", {"f", "read-only"}}};
  EXPECT_EQ(create->spec.mounts, want);
  EXPECT_EQ(CreateError(R"({"mounts":{"/a":{"drive":"d","mode":"rw"}}})").code, Code::kBadRequest);
  EXPECT_EQ(CreateError(R"({"mounts":{"/a":{"mode":"snapshot"}}})").code, Code::kBadRequest);
  auto clear = ParseUpdate(R"({"mounts":{}})");
  ASSERT_TRUE(clear && clear->spec.mounts);
  EXPECT_TRUE(clear->spec.mounts->empty());
  EXPECT_FALSE(ParseUpdate("{}")->spec.mounts);
}

TEST(ParseCreate, Sources) {
  auto git = ParseCreate(R"({"source":{"type":"git","url":"https://git.example/r","depth":1,"revision":"main",
                             "username":"u","password":"p"}})",
                         3);
  ASSERT_TRUE(git);
  EXPECT_EQ(git->spec.source->url, "https://git.example/r");
  EXPECT_EQ(git->spec.source->depth, 1);
  EXPECT_EQ(git->spec.source->password, "p");
  auto tarball = ParseCreate(R"({"source":{"type":"tarball","url":"https://x.example/a.tgz"}})", 1);
  EXPECT_EQ(tarball->spec.source->kind, sandbox::SourceSpec::Kind::kTarball);
  EXPECT_TRUE(CreateError(R"({"source":{"type":"git"}})").message.contains("source.url"));
  EXPECT_EQ(CreateError(R"({"source":{"type":"ftp","url":"x"}})").code, Code::kBadRequest);
}

TEST(ParseCreate, NetworkPolicies) {
  auto created = ParseCreate(R"({"networkPolicy":{"allow":{"x.example":[]},"subnets":{"deny":["10.0.0.0/8"]}}})", 3);
  ASSERT_TRUE(created);
  EXPECT_EQ(created->spec.network->domains[0].pattern, "x.example");
  EXPECT_EQ(ParseUpdate(R"({"networkPolicy":{"mode":"allow-all"}})")->spec.network->mode,
            egress::EgressMode::kAllowAll);
  EXPECT_FALSE(ParseCreate("{}", 3)->spec.network);
  Error error = CreateError(R"({"networkPolicy":{"allowed":["x.example"]}})");
  EXPECT_EQ(error.code, Code::kBadRequest);
  EXPECT_TRUE(error.message.contains("networkPolicy.allowed")) << error.message;
}

TEST(ParseUpdate, ClearsWithNull) {
  auto got = ParseUpdate(
      R"({"keepLastSnapshots":null,"networkId":null,"tags":{},"ports":[],"resources":{"vcpus":4,"memory":8192}})");
  ASSERT_TRUE(got.has_value()) << got.error().message;
  ASSERT_TRUE(got->spec.keep_last_snapshots.has_value());
  EXPECT_FALSE(got->spec.keep_last_snapshots->has_value());
  ASSERT_TRUE(got->spec.network_id.has_value());
  EXPECT_FALSE(got->spec.network_id->has_value());
  EXPECT_TRUE(got->spec.tags.has_value() && got->spec.tags->empty());
  EXPECT_EQ(got->spec.ports, std::vector<int>());
  EXPECT_EQ(got->spec.resources.memory_mb, 8192);
  EXPECT_FALSE(got->spec.timeout_ms.has_value());
  EXPECT_FALSE(ParseUpdate("{}")->spec.ports);
}

TEST(ParseUpdate, Refuses) {
  EXPECT_EQ(ParseUpdate(R"({"persistent":true})")->spec.persistent, true);
  EXPECT_EQ(ParseUpdate(R"({"ports":[3000]})")->spec.ports, std::vector<int>{3000});
  EXPECT_EQ(ParseUpdate(R"({"runtime":"node22"})").error().code, Code::kUnsupported);
  EXPECT_EQ(ParseUpdate(R"({"currentSnapshotId":"snap_1"})")->spec.current_snapshot, "snap_1");
  EXPECT_EQ(ParseUpdate(R"({"timeout":null})").error().code, Code::kBadRequest);
}

TEST(ParseCommand, LogsOnlyWithWaitAndNeverInV1) {
  auto full = ParseCommand(
      R"({"command":"sh","args":["-c","x"],"cwd":"/tmp","env":{"A":"b"},"sudo":true,"wait":true,"logs":true,"timeout":500})",
      false);
  ASSERT_TRUE(full.has_value()) << full.error().message;
  EXPECT_TRUE(full->wait && full->logs && full->spec.follow_from_start && full->spec.sudo);
  EXPECT_EQ(full->spec.args, (std::vector<std::string>{"-c", "x"}));
  EXPECT_EQ(full->spec.timeout_ms, 500);
  EXPECT_FALSE(ParseCommand(R"({"command":"x","wait":true,"logs":true})", true)->logs);
  auto detached = ParseCommand(R"({"command":"x","logs":true})", false);
  EXPECT_FALSE(detached->wait || detached->logs || detached->spec.follow_from_start);
  EXPECT_EQ(ParseCommand("{}", false).error().code, Code::kBadRequest);
  EXPECT_EQ(ParseCommand(R"({"command":"a\u0000b"})", false).error().code, Code::kBadRequest);
}

TEST(ParseSmallBodies, LimitsAndDefaults) {
  EXPECT_EQ(ParseKill("").value(), 15);
  EXPECT_EQ(ParseKill(R"({"signal":9})").value(), 9);
  EXPECT_FALSE(ParseKill(R"({"signal":0})").has_value());
  EXPECT_FALSE(ParseKill(R"({"signal":65})").has_value());
  EXPECT_EQ(ParseExtend(R"({"duration":5000})").value(), 5000);
  EXPECT_FALSE(ParseExtend("{}").has_value());
  EXPECT_EQ(ParseRead(R"({"path":"a","cwd":"/b"})")->cwd, "/b");
  EXPECT_TRUE(ParseMakeDir(R"({"path":"a","recursive":true})")->recursive);
  EXPECT_FALSE(ParseRead(R"({"path":5})").has_value());
}

TEST(ParseListQuery, AllOfIt) {
  auto query =
      wire::ParseQuery("limit=50&cursor=abc&sortBy=name&sortOrder=asc&namePrefix=a&tags=k%3Av%3Aw&name=demo").value();
  auto got = ParseListQuery(query, false);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->limit, 50);
  EXPECT_EQ(got->cursor, "abc");
  EXPECT_EQ(got->sort_by, "name");
  EXPECT_TRUE(got->ascending);
  EXPECT_EQ(got->name_prefix, "a");
  EXPECT_EQ(got->tag, std::make_pair(std::string("k"), std::string("v:w")));
  EXPECT_EQ(got->sandbox, "demo");
  for (const char* bad :
       {"limit=x", "limit=", "limit=5x", "sortOrder=up", "tags=novalue", "tags=:v", "tags=a:1&tags=b:2"})
    EXPECT_FALSE(ParseListQuery(wire::ParseQuery(bad).value(), false).has_value()) << bad;
  auto bounds = ParseListQuery(wire::ParseQuery("since=5&until=9").value(), true).value();
  EXPECT_EQ(bounds.since, 5);
  EXPECT_EQ(bounds.until, 9);
}

}  // namespace
}  // namespace sandbar::api
