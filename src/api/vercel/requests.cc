#include "api/vercel/requests.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "api/call.h"
#include "api/vercel/bodies.h"

namespace sandbar::api {
namespace {

constexpr wire::JsonLimits kLimits{.bytes = kMaxJsonBody, .depth = 32};

std::unexpected<Error> Missing(std::string what) {
  return Fail(Code::kUnsupported, std::move(what));
}

// A part of a create or update that is valid but that nothing here would enforce.
Result<> RefuseNetworkId(bool given) {
  if (given) return Missing("`networkId` is not available on this server: it has no private networks");
  return {};
}

std::map<std::string, store::Mount> ToMounts(const MountsBody& body) {
  std::map<std::string, store::Mount> out;
  for (const auto& [path, mount] : body) {
    const MountMode mode = mount.mode.value_or(MountMode::kReadWrite);
    const char* word = mode == MountMode::kReadWrite  ? "read-write"
                       : mode == MountMode::kSnapshot ? "snapshot"
                                                      : "read-only";
    out[path] = {mount.drive, word};
  }
  return out;
}

sandbox::Resources ToResources(const std::optional<ResourcesBody>& body) {
  sandbox::Resources out;
  if (body) {
    out.vcpus = body->vcpus;
    out.memory_mb = body->memory;
  }
  return out;
}

std::optional<egress::NetworkPolicy> ToPolicy(const std::optional<egress::PolicyBody>& body) {
  if (!body) return std::nullopt;
  return body->policy;
}

sandbox::SourceSpec ToSource(SourceBody body) {
  sandbox::SourceSpec out;
  if (body.type == SourceType::kTarball) out.kind = sandbox::SourceSpec::Kind::kTarball;
  out.url = body.url.value_or("");
  out.depth = body.depth;
  out.revision = std::move(body.revision);
  out.username = std::move(body.username);
  out.password = std::move(body.password);
  return out;
}

store::IsolationDemand ToDemand(const std::optional<AnyIsolationBody>& body) {
  store::IsolationDemand out;
  if (!body) return out;
  out.min_class = body->body.min_class.value_or(0);
  out.engine = body->body.engine.value_or("");
  return out;
}

store::KeepLastSnapshots ToKeepLast(const KeepLastBody& body) {
  store::KeepLastSnapshots out;
  out.count = body.count;
  out.expiration_ms = body.expiration;
  out.delete_evicted = body.delete_evicted.value_or(true);
  return out;
}

// What PATCH and fork have in common.
template <class Body>
sandbox::UpdateSpec ToChanges(const Body& body) {
  sandbox::UpdateSpec spec;
  spec.persistent = body.persistent;
  spec.resources = ToResources(body.resources);
  spec.timeout_ms = body.timeout;
  spec.idle_timeout_ms = body.idle_timeout_ms;
  spec.network = ToPolicy(body.network_policy);
  spec.env = body.env;
  spec.tags = body.tags;
  spec.ports = body.ports;
  spec.region = body.region;
  spec.failover_regions = body.failover_regions;
  spec.network_id = body.network_id;
  if (body.mounts) spec.mounts = ToMounts(*body.mounts);
  spec.isolation = ToDemand(body.isolation);
  spec.isolation.nesting = body.nesting.value_or(false);
  spec.snapshot_expiration_ms = body.snapshot_expiration;
  if (body.keep_last_snapshots) {
    spec.keep_last_snapshots.emplace();
    if (*body.keep_last_snapshots) spec.keep_last_snapshots->emplace(ToKeepLast(**body.keep_last_snapshots));
  }
  return spec;
}

Result<int64_t> Number(std::string_view name, std::string_view text) {
  int64_t n = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc{} || end != text.data() + text.size())
    return Fail(Code::kBadRequest, "`" + std::string(name) + "`: expected a whole number");
  return n;
}

}  // namespace

Result<std::optional<int64_t>> ParseSnapshot(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
  SB_TRY(SnapshotBody body, wire::DecodeJson<SnapshotBody>(text, kLimits));
  return body.expiration;
}

Result<DriveRequest> ParseDrive(std::string_view text) {
  DriveRequest out;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return out;
  SB_TRY(DriveBody body, wire::DecodeJson<DriveBody>(text, kLimits));
  out.project = body.project_id.value_or("");
  out.spec.region = std::move(body.region);
  out.spec.max_size_bytes = body.max_size_bytes;
  return out;
}

Result<sandbox::ForkSpec> ParseFork(std::string_view text) {
  sandbox::ForkSpec out;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return out;
  SB_TRY(ForkBody body, wire::DecodeJson<ForkBody>(text, kLimits));
  SB_TRYV(RefuseNetworkId(body.network_id && body.network_id->has_value()));
  if (body.image) return Missing("a fork keeps its source's image: leave `image` out");
  out.name = body.name;
  out.live = body.live;
  out.changes = ToChanges(body);
  return out;
}

Result<CreateRequest> ParseCreate(std::string_view text, int version) {
  SB_TRY(CreateBody body, wire::DecodeJson<CreateBody>(text, kLimits));
  SB_TRYV(RefuseNetworkId(body.network_id.has_value()));
  CreateRequest out;
  out.project = body.project_id.value_or("");
  sandbox::CreateSpec& spec = out.spec;
  spec.v1 = version == 1;
  const bool from_snapshot = body.source && body.source->type == SourceType::kSnapshot;
  if (from_snapshot) spec.source_snapshot = body.source->snapshot_id;
  if (body.source && !from_snapshot) spec.source = ToSource(*std::move(body.source));
  spec.name = body.name;
  spec.runtime = body.runtime;
  spec.image = body.image;
  if (version == 2 && !spec.runtime && !spec.image && !from_snapshot) spec.runtime = "node24";
  spec.timeout_ms = body.timeout;
  spec.idle_timeout_ms = body.idle_timeout_ms;
  spec.resources = ToResources(body.resources);
  spec.persistent = body.persistent;
  spec.network = ToPolicy(body.network_policy);
  spec.env = std::move(body.env);
  spec.tags = std::move(body.tags);
  spec.ports = std::move(body.ports);
  spec.region = body.region;
  spec.failover_regions = std::move(body.failover_regions);
  spec.mounts = ToMounts(body.mounts);
  spec.isolation = ToDemand(body.isolation);
  spec.isolation.nesting = body.nesting.value_or(false);
  spec.snapshot_expiration_ms = body.snapshot_expiration;
  if (body.keep_last_snapshots) spec.keep_last_snapshots = ToKeepLast(*body.keep_last_snapshots);
  return out;
}

Result<UpdateRequest> ParseUpdate(std::string_view text) {
  SB_TRY(UpdateBody body, wire::DecodeJson<UpdateBody>(text, kLimits));
  SB_TRYV(RefuseNetworkId(body.network_id && body.network_id->has_value()));
  if (body.runtime || body.image)
    return Missing("the image of an existing sandbox cannot be changed on this server: create another one");
  UpdateRequest out;
  out.spec = ToChanges(body);
  out.spec.current_snapshot = body.current_snapshot_id;
  return out;
}

Result<CommandRequest> ParseCommand(std::string_view text, bool v1) {
  SB_TRY(CommandBody body, wire::DecodeJson<CommandBody>(text, kLimits));
  CommandRequest out;
  out.wait = body.wait;
  // v1 clients take any line but the two command lines for an error.
  out.logs = body.logs && body.wait && !v1;
  out.spec.command = std::move(body.command);
  out.spec.args = std::move(body.args);
  out.spec.cwd = std::move(body.cwd);
  out.spec.env = std::move(body.env);
  out.spec.sudo = body.sudo;
  out.spec.timeout_ms = body.timeout;
  out.spec.follow_from_start = out.logs;
  return out;
}

Result<int> ParseKill(std::string_view text) {
  SB_TRY(KillBody body, wire::DecodeJson<KillBody>(text, kLimits));
  return body.signal.value_or(15);
}

Result<PathRequest> ParseRead(std::string_view text) {
  SB_TRY(ReadBody body, wire::DecodeJson<ReadBody>(text, kLimits));
  return PathRequest{std::move(body.path), std::move(body.cwd), false};
}

Result<PathRequest> ParseMakeDir(std::string_view text) {
  SB_TRY(MakeDirBody body, wire::DecodeJson<MakeDirBody>(text, kLimits));
  return PathRequest{std::move(body.path), std::move(body.cwd), body.recursive};
}

Result<int64_t> ParseExtend(std::string_view text) {
  SB_TRY(ExtendBody body, wire::DecodeJson<ExtendBody>(text, kLimits));
  return body.duration;
}

Result<std::string> ParseProjectName(std::string_view text) {
  // The caller's other keys (framework and the like) mean nothing here.
  SB_TRY(boost::json::value value, wire::ParseJson(text, kLimits));
  const auto* object = value.if_object();
  const auto* name = object == nullptr ? nullptr : object->if_contains("name");
  if (name == nullptr || !name->is_string()) return Fail(Code::kBadRequest, "`name`: is required");
  return std::string(name->as_string());
}

Result<std::optional<store::IsolationDemand>> ParseDemand(const wire::Query& query, std::string_view key) {
  auto text = query.Get(key);
  if (!text) return std::nullopt;
  if (*text == "[object Object]") {
    return Fail(Code::kBadRequest,
                "`__isolation`: an object does not survive in a query; write __isolation: 3, or __isolation: "
                "\"gvisor\", for get and getOrCreate");
  }
  const bool is_class = text->find_first_not_of("0123456789") == std::string_view::npos;
  boost::json::value value(*text);
  if (is_class) {
    SB_TRY(value, Number(key, *text));
  }
  boost::json::object wrapped{{"isolation", std::move(value)}};
  SB_TRY(DemandQuery body, wire::DecodeValue<DemandQuery>(wrapped));
  return ToDemand(body.isolation);
}

Result<sandbox::ListQuery> ParseListQuery(const wire::Query& query, bool v1) {
  sandbox::ListQuery out;
  if (auto limit = query.Get("limit")) {
    SB_TRY(int64_t n, Number("limit", *limit));
    out.limit = static_cast<int>(std::clamp<int64_t>(n, -1, INT32_MAX));  // sandbox/ says what is too many
  }
  out.cursor = query.Get("cursor").value_or("");
  out.sort_by = query.Get("sortBy").value_or(out.sort_by);
  std::string_view order = query.Get("sortOrder").value_or("desc");
  if (order != "asc" && order != "desc") return Fail(Code::kBadRequest, "`sortOrder`: must be asc or desc");
  out.ascending = order == "asc";
  out.name_prefix = query.Get("namePrefix").value_or("");
  if (query.GetAll("tags").size() > 1) return Fail(Code::kBadRequest, "`tags`: takes one key:value");
  if (auto tag = query.Get("tags")) {
    size_t colon = tag->find(':');
    if (colon == 0 || colon == std::string_view::npos) return Fail(Code::kBadRequest, "`tags`: must be key:value");
    out.tag.emplace(tag->substr(0, colon), tag->substr(colon + 1));
  }
  out.sandbox = query.Get("name").value_or("");
  if (!v1) return out;
  if (auto since = query.Get("since")) {
    SB_TRY(out.since, Number("since", *since));
  }
  if (auto until = query.Get("until")) {
    SB_TRY(out.until, Number("until", *until));
  }
  return out;
}

}  // namespace sandbar::api
