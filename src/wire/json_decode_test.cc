#include "wire/json_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbar::wire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Policy { kAllowAll, kDenyAll };
BOOST_DESCRIBE_ENUM(Policy, kAllowAll, kDenyAll)

struct Resources {
  std::optional<int> vcpus;
  std::optional<int64_t> memory;
  static constexpr JsonAlias kJsonAliases[] = {{"vcpu", "vcpus"}};
  void Check(JsonIssues& issues) const { issues.Range("vcpus", vcpus, 1, 32); }
};
BOOST_DESCRIBE_STRUCT(Resources, (), (vcpus, memory))

// A type of its own: "a" or ["a", …].
struct OneOrMany {
  std::vector<std::string> items;
  void ReadJson(JsonDecoder& d, const boost::json::value& v) {
    if (v.is_string()) {
      d.Read(v, items.emplace_back());
    } else {
      d.Read(v, items);
    }
  }
};

struct Body {
  std::string project_id;
  std::optional<Resources> resources;
  std::vector<uint16_t> ports;
  std::map<std::string, std::string> env;
  bool sudo = false;
  std::optional<Policy> network_policy;
  std::optional<std::optional<std::string>> network_id;
  std::optional<double> ratio;
  std::optional<boost::json::value> extra;
  std::optional<OneOrMany> names;
  std::optional<std::string> default_;
  void Check(JsonIssues& issues) const {
    issues.Size("projectId", project_id, 1, 8);
    issues.Size("ports", ports, 0, 3);
  }
};
BOOST_DESCRIBE_STRUCT(Body, (),
                      (project_id, resources, ports, env, sudo, network_policy, network_id, ratio, extra, names,
                       default_))

std::string Why(std::string_view text) {
  auto r = DecodeJson<Body>(text);
  if (r) return "accepted";
  EXPECT_EQ(r.error().code, Code::kBadRequest);
  return r.error().message;
}

TEST(JsonDecode, Everything) {
  auto r = DecodeJson<Body>(R"({"projectId":"p","resources":{"vcpus":2,"memory":4096.0},"ports":[80,65535],
      "env":{"A":"b","":"c"},"sudo":true,"networkPolicy":"deny-all","networkId":"n","ratio":2,"extra":[null],
      "names":"x","default":"d","__private":{"any":1}})");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->project_id, "p");
  EXPECT_EQ(r->resources->vcpus, 2);
  EXPECT_EQ(r->resources->memory, 4096);
  EXPECT_THAT(r->ports, ElementsAre(80, 65535));
  EXPECT_EQ(r->env.at("A"), "b");
  EXPECT_TRUE(r->sudo);
  EXPECT_EQ(r->network_policy, Policy::kDenyAll);
  EXPECT_EQ(**r->network_id, "n");
  EXPECT_EQ(r->ratio, 2.0);
  EXPECT_TRUE(r->extra->is_array());
  EXPECT_THAT(r->names->items, ElementsAre("x"));
  EXPECT_EQ(r->default_, "d");
}

TEST(JsonDecode, AbsentAndNull) {
  auto absent = DecodeJson<Body>(R"({"projectId":"p"})");
  ASSERT_TRUE(absent);
  EXPECT_FALSE(absent->network_id.has_value());
  EXPECT_FALSE(absent->resources.has_value());
  auto cleared = DecodeJson<Body>(R"({"projectId":"p","networkId":null})");
  ASSERT_TRUE(cleared) << cleared.error().message;
  ASSERT_TRUE(cleared->network_id.has_value());
  EXPECT_FALSE(cleared->network_id->has_value());
  EXPECT_EQ(Why(R"({"projectId":null})"), "Invalid request: `projectId`: expected string, got null");
  EXPECT_THAT(Why(R"({"projectId":"p","resources":null})"), HasSubstr("`resources`: expected object, got null"));
}

TEST(JsonDecode, UnknownKeysNameTheNearest) {
  EXPECT_EQ(Why(R"({"projectId":"p","resources":{"vcpu5":1}})"),
            "Invalid request: `resources.vcpu5`: unknown key, did you mean `vcpus`?");
  EXPECT_EQ(Why(R"({"projectId":"p","zzz":1})"), "Invalid request: `zzz`: unknown key");
  EXPECT_THAT(Why(R"({"project_id":"p"})"), HasSubstr("did you mean `projectId`"));
}

TEST(JsonDecode, Aliases) {
  EXPECT_EQ(DecodeJson<Body>(R"({"projectId":"p","resources":{"vcpu":4}})")->resources->vcpus, 4);
  EXPECT_THAT(Why(R"({"projectId":"p","resources":{"vcpu":4,"vcpus":2}})"), HasSubstr("another name of `vcpus`"));
}

TEST(JsonDecode, CollectsEveryIssueWithItsPath) {
  const std::string why =
      Why(R"({"resources":{"vcpus":"2","memory":1.5},"ports":[80,"x",65536,-1],"env":{"A":1},"sudo":"yes",)"
          R"("networkPolicy":"some"})");
  EXPECT_THAT(why, HasSubstr("`projectId`: is required"));
  EXPECT_THAT(why, HasSubstr("`resources.vcpus`: expected integer, got string"));
  EXPECT_THAT(why, HasSubstr("`resources.memory`: expected integer"));
  EXPECT_THAT(why, HasSubstr("`ports[1]`: expected integer, got string"));
  EXPECT_THAT(why, HasSubstr("`ports[2]`: must be between 0 and 65535"));
  EXPECT_THAT(why, HasSubstr("`ports[3]`: must be between 0 and 65535"));
  EXPECT_THAT(why, HasSubstr("`env.A`: expected string, got number"));
  EXPECT_THAT(why, HasSubstr("`sudo`: expected boolean, got string"));
  EXPECT_THAT(why, HasSubstr("`networkPolicy`: expected one of `allow-all`, `deny-all`, got `some`"));
}

TEST(JsonDecode, ChecksRun) {
  EXPECT_EQ(Why(R"({"projectId":"p","resources":{"vcpus":64}})"),
            "Invalid request: `resources.vcpus`: must be between 1 and 32");
  EXPECT_THAT(Why(R"({"projectId":""})"), HasSubstr("`projectId`: must have 1 to 8 characters"));
  EXPECT_THAT(Why(R"({"projectId":"p","ports":[1,2,3,4]})"), HasSubstr("`ports`: must have at most 3 items"));
}

TEST(JsonDecode, Numbers) {
  for (const char* n : {"9223372036854775808", "-9223372036854775809", "1e19", "-1e300"})
    EXPECT_THAT(Why(R"({"projectId":"p","resources":{"memory":)" + std::string(n) + "}}"), HasSubstr("memory")) << n;
  EXPECT_EQ(DecodeJson<Body>(R"({"projectId":"p","resources":{"memory":9223372036854775807}})")->resources->memory,
            INT64_MAX);
}

TEST(JsonDecode, StringsWithNulAreRefused) {
  EXPECT_THAT(Why(R"({"projectId":"a\u0000b"})"), HasSubstr("must not contain NUL"));
}

TEST(JsonDecode, NotJson) {
  for (const char* bad : {"{", "{\"a\":1}x", "nul", "{'a':1}", "[1,]", "\xff", "\"\\ud800\"", "{\"a\":\"\xff\"}"})
    EXPECT_THAT(Why(bad), HasSubstr("the body is not JSON")) << bad;
  EXPECT_EQ(Why("[]"), "Invalid request: expected object, got array");
  EXPECT_THAT(Why(""), HasSubstr("`projectId`: is required"));
  EXPECT_THAT(Why(" \r\n"), HasSubstr("`projectId`: is required"));
}

TEST(JsonDecode, Limits) {
  const std::string deep(100000, '[');
  EXPECT_THAT(Why(deep), HasSubstr("nested deeper than 32"));
  EXPECT_TRUE(ParseJson(std::string(32, '[') + std::string(32, ']')));
  EXPECT_FALSE(ParseJson(std::string(33, '[') + std::string(33, ']')));
  auto large = ParseJson(std::string(100, ' '), JsonLimits{.bytes = 99});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kTooLarge);
}

TEST(JsonDecode, MessagesAreBounded) {
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += "\"" + std::string(500, 'k') + std::to_string(i) + "\":1,";
  many += "\"projectId\":\"p\"}";
  const std::string why = Why(many);
  EXPECT_LT(why.size(), 3000U);
  EXPECT_THAT(why, HasSubstr("and 990 more"));
}

TEST(JsonDecode, Names) {
  EXPECT_EQ(JsonKey("keep_last_snapshots"), "keepLastSnapshots");
  EXPECT_EQ(JsonKey("default_"), "default");
  EXPECT_EQ(JsonEnumName("kAllowAll"), "allow-all");
  EXPECT_EQ(JsonEnumName("kept"), "kept");
}

}  // namespace
}  // namespace sandbar::wire
