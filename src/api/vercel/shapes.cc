#include "api/vercel/shapes.h"

#include <boost/json.hpp>

namespace sandbar::api {
namespace {

namespace json = boost::json;

void AddIf(json::object& out, std::string_view key, const std::optional<int64_t>& value) {
  if (value) out[key] = *value;
}

void AddIf(json::object& out, std::string_view key, const std::string& value) {
  if (!value.empty()) out[key] = value;
}

json::array Strings(const std::vector<std::string>& list) {
  json::array out;
  for (const std::string& s : list) out.emplace_back(s);
  return out;
}

void AddPolicy(json::object& out, const std::optional<store::NetworkPolicyRow>& policy) {
  if (policy) out["networkPolicy"] = json::parse(policy->shown);
}

json::object KeepLastJson(const store::KeepLastSnapshots& keep) {
  json::object out{{"count", keep.count}, {"deleteEvicted", keep.delete_evicted}};
  AddIf(out, "expiration", keep.expiration_ms);
  return out;
}

void AddUsage(json::object& out, const store::Session& s) {
  if (s.started_at && s.stopped_at) out["duration"] = *s.stopped_at - *s.started_at;
  if (s.cpu_ms) out["activeCpuDurationMs"] = *s.cpu_ms;
  if (s.ingress && s.egress) out["networkTransfer"] = json::object{{"ingress", *s.ingress}, {"egress", *s.egress}};
}

}  // namespace

json::object SandboxJson(const store::Sandbox& s, const store::Session* current) {
  json::object out{{"name", s.name},
                   {"persistent", s.persistent},
                   {"status", store::StatusName(s.status)},
                   {"statusUpdatedAt", s.status_updated_at},
                   {"currentSessionId", s.current_session},
                   {"region", s.region},
                   {"failoverRegions", Strings(s.failover_regions)},
                   {"vcpus", s.vcpus},
                   {"memory", s.memory_mb},
                   {"timeout", s.timeout_ms},
                   {"createdAt", s.created_at},
                   {"updatedAt", s.updated_at},
                   {"totalEgressBytes", s.total_egress},
                   {"totalIngressBytes", s.total_ingress},
                   {"totalActiveCpuDurationMs", s.total_cpu_ms},
                   {"totalDurationMs", s.total_duration_ms}};
  AddIf(out, "idleTimeoutMs", s.idle_timeout_ms);  // ours
  AddIf(out, "networkId", s.network_id);
  AddIf(out, "runtime", s.runtime);
  AddIf(out, "image", s.image);
  AddIf(out, "cwd", s.cwd);
  AddPolicy(out, s.network);
  if (!s.tags.empty()) {
    json::object tags;
    for (const auto& [key, value] : s.tags) tags[key] = value;
    out["tags"] = std::move(tags);
  }
  if (!s.mounts.empty()) {
    json::object mounts;
    for (const auto& [path, m] : s.mounts) mounts[path] = json::object{{"drive", m.drive}, {"mode", m.mode}};
    out["mounts"] = std::move(mounts);
  }
  // Ours: of its current session, and what it demands of every one.
  json::object isolation{{"engine", s.engine}, {"class", s.isolation_class}};
  json::object demand;
  if (s.isolation.min_class != 0) demand["minClass"] = s.isolation.min_class;
  AddIf(demand, "engine", s.isolation.engine);
  if (!demand.empty()) isolation["demand"] = std::move(demand);
  out["isolation"] = std::move(isolation);
  if (s.isolation.nesting) out["nesting"] = true;
  AddIf(out, "currentSnapshotId", s.current_snapshot);
  AddIf(out, "snapshotExpiration", s.snapshot_expiration_ms);
  if (s.keep_last_snapshots) out["keepLastSnapshots"] = KeepLastJson(*s.keep_last_snapshots);
  bool running = current != nullptr && current->status == store::Status::kRunning && current->started_at.has_value();
  if (running) out["expiresAt"] = *current->started_at + current->timeout_ms;
  return out;
}

json::object SessionJson(const store::Session& s) {
  json::object out{{"id", s.id},
                   {"status", store::StatusName(s.status)},
                   {"runtime", s.runtime},
                   {"vcpus", s.vcpus},
                   {"memory", s.memory_mb},
                   {"region", s.region},
                   {"timeout", s.timeout_ms},
                   {"cwd", s.cwd},
                   {"requestedAt", s.requested_at},
                   {"createdAt", s.created_at},
                   {"updatedAt", s.updated_at},
                   {"projectId", s.project},
                   {"sourceSandboxName", s.sandbox},
                   // Ours: what the machine is made of and how well it is isolated.
                   {"isolation", json::object{{"engine", s.engine}, {"class", s.isolation_class}}}};
  if (s.nesting) out["nesting"] = true;
  AddIf(out, "image", s.image);
  AddIf(out, "startedAt", s.started_at);
  AddIf(out, "requestedStopAt", s.requested_stop_at);
  AddIf(out, "stoppedAt", s.stopped_at);
  AddIf(out, "abortedAt", s.aborted_at);
  AddIf(out, "sourceSnapshotId", s.source_snapshot);
  AddIf(out, "stopReason", s.stop_reason);  // ours
  if (!s.snapshot.empty() && s.stopped_at) out["snapshottedAt"] = *s.stopped_at;
  AddPolicy(out, s.network);
  AddUsage(out, s);
  return out;
}

json::object SnapshotJson(const store::Snapshot& s, bool v1) {
  json::object out{{"id", s.id},
                   {v1 ? "sourceSandboxId" : "sourceSessionId", s.session},
                   {"region", s.region},
                   {"regions", json::array{s.region}},
                   {"status", s.deleted ? "deleted" : "created"},
                   {"sizeBytes", s.size_bytes},
                   {"createdAt", s.created_at},
                   {"updatedAt", s.updated_at},
                   {"lastUsedAt", s.last_used_at},
                   {"creationMethod", s.manual ? "manual" : "automatic"},
                   // Not the protocol's: sizeBytes is an estimate until it is durable.
                   {"engine", s.engine},
                   {"format", s.format},
                   {"memory", !s.memory.empty()},
                   {"durable", s.durable_at != 0},
                   {"verified", s.verified_at != 0 && s.damage.empty()}};
  AddIf(out, "sourceSandboxName", s.sandbox);
  if (s.verified_at != 0) out["verifiedAt"] = s.verified_at;
  AddIf(out, "damage", s.damage);
  AddIf(out, "parentId", s.parent);
  AddIf(out, "expiresAt", s.expires_at());
  return out;
}

json::object DriveJson(const sandbox::DriveView& view) {
  const store::Drive& d = view.drive;
  json::object out{{"id", d.id},
                   {"name", d.name},
                   {"projectId", d.project},
                   {"region", d.region},
                   {"maxSizeBytes", d.max_size_bytes},
                   {"createdAt", d.created_at},
                   {"updatedAt", d.updated_at}};
  AddIf(out, "currentSessionId", view.session);
  AddIf(out, "currentSandboxName", view.sandbox);
  return out;
}

json::object CommandJson(const store::Command& c, bool v1) {
  json::object out{{"id", c.id},
                   {"name", c.name},
                   {"args", Strings(c.args)},
                   {"cwd", c.cwd},
                   {v1 ? "sandboxId" : "sessionId", c.session},
                   {"startedAt", c.started_at},
                   {"exitCode", nullptr}};
  if (c.exit_code) out["exitCode"] = *c.exit_code;
  AddIf(out, "durationMs", c.duration_ms);
  // Ours: why it ended when it did not end by itself.
  if (c.timed_out) out["timedOut"] = true;
  if (c.oom_killed) out["oomKilled"] = true;
  if (c.terminal) out["terminal"] = true;
  return out;
}

std::string_view WrapperKey(bool v1) {
  return v1 ? "sandbox" : "session";
}

json::array RoutesJson(const std::vector<store::PortRoute>& routes, const PreviewUrls& urls) {
  json::array out;
  for (const store::PortRoute& r : routes) {
    json::object row{{"url", urls.before + r.subdomain + urls.after}, {"subdomain", r.subdomain}, {"port", r.port}};
    // Ours: whoever opens it has to show the route's token.
    if (!r.token.empty()) row["protected"] = true;
    out.emplace_back(std::move(row));
  }
  return out;
}

json::object ViewJson(const sandbox::SandboxView& view, const PreviewUrls& urls, bool v1, bool with_resumed) {
  json::object out{{WrapperKey(v1), SessionJson(view.session)}, {"routes", RoutesJson(view.sandbox.routes, urls)}};
  if (!v1) out["sandbox"] = SandboxJson(view.sandbox, &view.session);
  if (with_resumed) out["resumed"] = view.resumed;
  return out;
}

json::object PaginationJson(size_t count, const std::string& next) {
  json::object out{{"count", count}, {"next", nullptr}};
  if (!next.empty()) out["next"] = next;
  return out;
}

json::object NumericPaginationJson(size_t count, std::optional<int64_t> next, std::optional<int64_t> prev) {
  json::object out{{"count", count}, {"next", nullptr}, {"prev", nullptr}};
  AddIf(out, "next", next);
  AddIf(out, "prev", prev);
  return out;
}

}  // namespace sandbar::api
