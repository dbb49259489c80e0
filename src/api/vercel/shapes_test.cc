#include "api/vercel/shapes.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace sandbar::api {
namespace {

const PreviewUrls kUrls{"http://", ".localhost:8787"};

namespace json = boost::json;

bool HasNull(const json::value& v) {
  if (v.is_null()) return true;
  if (const auto* o = v.if_object()) {
    for (const auto& e : *o)
      if (HasNull(e.value())) return true;
  }
  return false;
}

TEST(Shapes, RequiredKeysAreAlwaysThereAndNothingIsNull) {
  json::object sandbox = SandboxJson({}, nullptr);
  for (const char* key :
       {"name", "persistent", "createdAt", "updatedAt", "currentSessionId", "status", "statusUpdatedAt"})
    EXPECT_TRUE(sandbox.contains(key)) << key;
  EXPECT_FALSE(HasNull(sandbox));
  for (const char* key : {"networkPolicy", "expiresAt", "tags", "keepLastSnapshots", "snapshotExpiration", "image",
                          "currentSnapshotId", "networkId"})
    EXPECT_FALSE(sandbox.contains(key)) << key;

  json::object session = SessionJson({});
  for (const char* key : {"id", "memory", "vcpus", "region", "timeout", "status", "requestedAt", "createdAt",
                          "updatedAt", "cwd", "runtime"})
    EXPECT_TRUE(session.contains(key)) << key;
  EXPECT_FALSE(session.contains("interactivePort")) << "nothing listens there";
  EXPECT_FALSE(HasNull(session));
  for (const char* key : {"startedAt", "stoppedAt", "duration", "networkTransfer", "networkPolicy"})
    EXPECT_FALSE(session.contains(key)) << key;
}

TEST(Shapes, ExpiryOnlyWhileRunning) {
  store::Session session;
  session.status = store::Status::kRunning;
  session.started_at = 1000;
  session.timeout_ms = 500;
  EXPECT_EQ(SandboxJson({}, &session).at("expiresAt"), 1500);
  session.status = store::Status::kStopped;
  EXPECT_FALSE(SandboxJson({}, &session).contains("expiresAt"));
}

TEST(Shapes, UsageOnceStopped) {
  store::Session session;
  session.started_at = 1000;
  session.stopped_at = 4000;
  session.cpu_ms = 7;
  session.ingress = 1;
  session.egress = 2;
  session.network = store::NetworkPolicyRow{"deny-all", R"({"mode":"deny-all"})", ""};
  json::object out = SessionJson(session);
  EXPECT_EQ(out.at("duration"), 3000);
  EXPECT_EQ(out.at("activeCpuDurationMs"), 7);
  EXPECT_EQ(out.at("networkTransfer"), (json::object{{"ingress", 1}, {"egress", 2}}));
  EXPECT_EQ(out.at("networkPolicy"), (json::object{{"mode", "deny-all"}}));
}

TEST(Shapes, CommandOfBothVersions) {
  store::Command command;
  command.session = "sbx_1";
  json::object running = CommandJson(command, false);
  EXPECT_TRUE(running.at("exitCode").is_null());
  EXPECT_EQ(running.at("sessionId"), "sbx_1");
  EXPECT_TRUE(running.at("args").is_array());
  EXPECT_FALSE(running.contains("durationMs"));
  command.exit_code = 3;
  command.duration_ms = 9;
  json::object ended = CommandJson(command, true);
  EXPECT_EQ(ended.at("exitCode"), 3);
  EXPECT_EQ(ended.at("durationMs"), 9);
  EXPECT_EQ(ended.at("sandboxId"), "sbx_1");
  EXPECT_FALSE(ended.contains("sessionId"));
}

TEST(Shapes, V1WrapsTheSessionAsSandbox) {
  sandbox::SandboxView view;
  view.session.id = "sbx_1";
  json::object v1 = ViewJson(view, kUrls, true, false);
  EXPECT_EQ(v1.at("sandbox").at("id"), "sbx_1");
  EXPECT_FALSE(v1.contains("session"));
  json::object v2 = ViewJson(view, kUrls, false, true);
  EXPECT_EQ(v2.at("session").at("id"), "sbx_1");
  EXPECT_TRUE(v2.at("sandbox").as_object().contains("name"));
  EXPECT_EQ(v2.at("resumed"), false);
  EXPECT_TRUE(v2.at("routes").as_array().empty());
}

TEST(Shapes, Pagination) {
  EXPECT_TRUE(PaginationJson(0, "").at("next").is_null());
  EXPECT_EQ(PaginationJson(1, "c").at("next"), "c");
  EXPECT_EQ(NumericPaginationJson(1, 5, std::nullopt), (json::object{{"count", 1}, {"next", 5}, {"prev", nullptr}}));
}

}  // namespace
}  // namespace sandbar::api
