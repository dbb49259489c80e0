#include "sandbox/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/engine_table.h"
#include "protocol/guest_frames.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/engine_selector.h"
#include "sandbox/ports/routes.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

constexpr int kMemoryPerVcpu = 2048;
constexpr int64_t kMinTimeoutMs = 1000;
constexpr int64_t kMinCommandTimeoutMs = 100;
constexpr int64_t kDayMs = 86400000;
constexpr size_t kMaxEnv = 1024;
constexpr size_t kMaxEnvBytes = 256 << 10;
constexpr size_t kMaxArgs = 16384;
constexpr size_t kMaxOneString = 128 << 10;  // the kernel's MAX_ARG_STRLEN
constexpr size_t kMaxPath = 4095;

std::unexpected<Error> Bad(std::string message) {
  return Fail(Code::kBadRequest, std::move(message));
}

bool HasNul(std::string_view s) {
  return s.find('\0') != std::string_view::npos;
}

Result<> CheckEnv(const std::map<std::string, std::string>& env) {
  if (env.size() > kMaxEnv) return Bad(fmt::format("env: at most {} variables, got {}", kMaxEnv, env.size()));
  size_t bytes = 0;
  for (const auto& [name, value] : env) {
    if (name.empty() || name.find('=') != std::string::npos || HasNul(name)) {
      return Bad("env: a variable's name must not be empty nor contain '=' or NUL");
    }
    if (HasNul(value)) return Bad("env." + name + ": must not contain NUL");
    bytes += name.size() + value.size() + 2;
  }
  if (bytes > kMaxEnvBytes) return Bad(fmt::format("env: {} bytes, the limit is {}", bytes, kMaxEnvBytes));
  return {};
}

Result<> CheckTags(const std::map<std::string, std::string>& tags) {
  if (tags.size() > 5) return Bad(fmt::format("tags: at most 5, got {}", tags.size()));
  for (const auto& [key, value] : tags) {
    if (key.empty() || key.size() > 256 || HasNul(key)) return Bad("tags: a key must have 1 to 256 characters");
    if (value.size() > 256 || HasNul(value)) return Bad("tags." + key + ": at most 256 characters");
  }
  return {};
}

Result<> CheckPorts(const std::vector<int>& ports, bool v1, const Config& config) {
  const size_t limit = std::min<size_t>(v1 ? 4 : 15, config.max_ports);
  if (ports.size() > limit) return Bad(fmt::format("ports: at most {} (max_ports), got {}", limit, ports.size()));
  std::set<int> seen;
  for (int port : ports) {
    if (port < 1024 || port > 65535) return Bad(fmt::format("ports: {} is not in 1024–65535", port));
    if (!seen.insert(port).second) return Bad(fmt::format("ports: {} is listed twice", port));
  }
  return {};
}

Result<std::vector<std::string>> CheckFailover(const std::string& region, const std::vector<std::string>& wanted) {
  std::vector<std::string> out;
  for (const auto& r : wanted) {
    SB_TRYV(CheckRegionName(r));
    if (r == region) return Bad("failoverRegions: must not contain the sandbox's own region " + region);
    if (std::find(out.begin(), out.end(), r) == out.end()) out.push_back(r);
  }
  if (out.size() > 16) return Bad("failoverRegions: at most 16");
  return out;
}

Result<> CheckExpiration(int64_t ms) {
  return CheckSnapshotExpiration("snapshotExpiration", ms);
}

Result<> CheckKeepLast(const store::KeepLastSnapshots& keep) {
  if (keep.count < 1 || keep.count > 10) return Bad("keepLastSnapshots.count: 1 to 10");
  if (keep.expiration_ms) return CheckExpiration(*keep.expiration_ms);
  return {};
}

Result<> CheckIdle(int64_t ms) {
  if (ms < kMinTimeoutMs) return Bad(fmt::format("idleTimeoutMs: at least {}, got {}", kMinTimeoutMs, ms));
  return {};
}

// An unknown engine is refused later, when it is looked for.
int ClassByName(std::string_view engine) {
  const EngineTraits* traits = FindEngine(engine);
  return traits == nullptr ? 1 : traits->isolation_class;
}

// A demand can be raised, never lowered: what is asked for is what the caller gets at least.
Result<> Demand(const store::IsolationDemand& asked, const std::map<std::string, std::string>& tags,
                store::IsolationDemand& demand) {
  if (asked.min_class < 0 || asked.min_class > 3)
    return Bad(fmt::format("isolation.minClass: 1, 2 or 3, got {}", asked.min_class));
  SB_TRY(const int tagged, TaggedClass(tags));
  demand.min_class = std::max({demand.min_class, asked.min_class, tagged});
  demand.nesting |= asked.nesting;
  if (asked.engine.empty()) return {};
  if (!demand.engine.empty() && ClassByName(asked.engine) < ClassByName(demand.engine))
    return Bad(fmt::format("isolation.engine: {} is demanded already, and {} is less", demand.engine, asked.engine));
  demand.engine = asked.engine;
  return {};
}

Result<> CheckNetworkId(const std::string& id) {
  if (id.size() > 255 || HasNul(id)) return Bad("networkId: at most 255 characters");
  return {};
}

}  // namespace

Result<Size> CheckResources(const Resources& wanted, const Config& config) {
  const int vcpus = wanted.vcpus.value_or(wanted.memory_mb ? *wanted.memory_mb / kMemoryPerVcpu : 2);
  if (vcpus < 1 || (vcpus != 1 && vcpus % 2 != 0)) {
    return Bad(fmt::format("resources.vcpus: must be 1 or an even number, got {}", vcpus));
  }
  if (vcpus > config.max_vcpus) {
    return Bad(fmt::format("resources.vcpus: {} is more than this server's limit of {} (limits.max_vcpus)", vcpus,
                           config.max_vcpus));
  }
  if (vcpus > config.max_memory_mb / kMemoryPerVcpu) {
    return Bad(
        fmt::format("resources.vcpus: {} come with {} MB of memory, more than this server's limit of {} MB "
                    "(limits.max_memory_mb)",
                    vcpus, vcpus * kMemoryPerVcpu, config.max_memory_mb));
  }
  const int memory = vcpus * kMemoryPerVcpu;
  if (wanted.memory_mb && *wanted.memory_mb != memory) {
    return Bad(
        fmt::format("resources.memory: must be vcpus × {} = {} MB, got {}", kMemoryPerVcpu, memory, *wanted.memory_mb));
  }
  return Size{vcpus, memory};
}

Result<int64_t> CheckTimeout(int64_t timeout_ms, const Config& config) {
  if (timeout_ms < kMinTimeoutMs) return Bad(fmt::format("timeout: at least {} ms, got {}", kMinTimeoutMs, timeout_ms));
  if (timeout_ms > config.max_timeout_ms) {
    return Bad(
        fmt::format("timeout: {} ms is more than this server's limit of {} ms", timeout_ms, config.max_timeout_ms));
  }
  return timeout_ms;
}

Result<> CheckSnapshotExpiration(std::string_view field, int64_t ms) {
  if (ms != 0 && ms < kDayMs) {
    return Bad(fmt::format("{}: 0 (never) or at least {} ms (a day), got {}", field, kDayMs, ms));
  }
  return {};
}

Result<> CheckName(const std::string& name) {
  const bool ok = !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (!ok) return Bad("name: 1 to 128 letters, digits, '-' or '_'");
  // First path segments with a meaning of their own.
  if (name == "sessions" || name == "snapshots" || name == "drives") return Bad("name: \"" + name + "\" is reserved");
  return {};
}

Result<> CheckRegionName(const std::string& region) {
  const bool ok = !region.empty() && region.size() <= 64 && std::all_of(region.begin(), region.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!ok) return Bad("region: 1 to 64 letters, digits or '-'");
  return {};
}

Result<store::Sandbox> CheckCreate(const CreateSpec& spec, const Config& config) {
  store::Sandbox row;
  row.v1 = spec.v1;
  if (spec.name) {
    SB_TRYV(CheckName(*spec.name));
    row.name = *spec.name;
  }
  SB_TRY(Size size, CheckResources(spec.resources, config));
  row.vcpus = size.vcpus;
  row.memory_mb = size.memory_mb;
  SB_TRY(row.timeout_ms, CheckTimeout(spec.timeout_ms.value_or(config.default_timeout_ms), config));
  if (spec.idle_timeout_ms) SB_TRYV(CheckIdle(*spec.idle_timeout_ms));
  row.idle_timeout_ms = spec.idle_timeout_ms;
  row.create_digest = spec.digest;
  row.persistent = spec.persistent.value_or(!spec.v1);
  SB_TRYV(CheckEnv(spec.env));
  row.env = spec.env;
  SB_TRYV(CheckTags(spec.tags));
  row.tags = spec.tags;
  SB_TRYV(Demand(spec.isolation, spec.tags, row.isolation));
  SB_TRYV(CheckPorts(spec.ports, spec.v1, config));
  row.routes = MakeRoutes(spec.ports, {});
  if (spec.region) {
    SB_TRYV(CheckRegionName(*spec.region));
    row.region = *spec.region;
  }
  SB_TRY(row.failover_regions, CheckFailover(row.region, spec.failover_regions));
  if (spec.network_id) {
    SB_TRYV(CheckNetworkId(*spec.network_id));
    row.network_id = *spec.network_id;
  }
  if (spec.image && spec.runtime && !spec.source_snapshot) return Bad("image and runtime cannot be given together");
  if (spec.image && spec.image->size() > 255) return Bad("image: at most 255 characters");
  if (spec.snapshot_expiration_ms) SB_TRYV(CheckExpiration(*spec.snapshot_expiration_ms));
  row.snapshot_expiration_ms = spec.snapshot_expiration_ms;
  if (spec.keep_last_snapshots) SB_TRYV(CheckKeepLast(*spec.keep_last_snapshots));
  row.keep_last_snapshots = spec.keep_last_snapshots;
  const bool asked = spec.persistent.value_or(false);
  row.collect_after_ms = CollectAfter(row, spec.name.has_value(), asked, config.collect_unnamed_ms);
  SB_TRYV(CheckMounts(spec.mounts));
  row.mounts = spec.mounts;
  return row;
}

Result<> ApplyUpdate(const UpdateSpec& spec, const Config& config, store::Sandbox& row) {
  if (spec.persistent) row.persistent = *spec.persistent;
  if (spec.resources.vcpus || spec.resources.memory_mb) {
    SB_TRY(Size size, CheckResources(spec.resources, config));
    row.vcpus = size.vcpus;
    row.memory_mb = size.memory_mb;
  }
  if (spec.timeout_ms) {
    SB_TRY(row.timeout_ms, CheckTimeout(*spec.timeout_ms, config));
  }
  if (spec.idle_timeout_ms) {
    if (*spec.idle_timeout_ms) SB_TRYV(CheckIdle(**spec.idle_timeout_ms));
    row.idle_timeout_ms = *spec.idle_timeout_ms;
  }
  if (spec.env) {
    SB_TRYV(CheckEnv(*spec.env));
    row.env = *spec.env;
  }
  if (spec.tags) {
    SB_TRYV(CheckTags(*spec.tags));
    row.tags = *spec.tags;
  }
  SB_TRYV(Demand(spec.isolation, row.tags, row.isolation));
  if (spec.ports) {
    SB_TRYV(CheckPorts(*spec.ports, row.v1, config));
    row.routes = MakeRoutes(*spec.ports, row.routes);
  }
  if (spec.region) {
    SB_TRYV(CheckRegionName(*spec.region));
    row.region = *spec.region;
  }
  const auto failover = spec.failover_regions.value_or(row.failover_regions);
  SB_TRY(row.failover_regions, CheckFailover(row.region, failover));
  if (spec.network_id) {
    if (*spec.network_id) SB_TRYV(CheckNetworkId(**spec.network_id));
    row.network_id = spec.network_id->value_or("");
  }
  if (spec.snapshot_expiration_ms) {
    SB_TRYV(CheckExpiration(*spec.snapshot_expiration_ms));
    row.snapshot_expiration_ms = *spec.snapshot_expiration_ms;
  }
  if (spec.keep_last_snapshots) {
    if (*spec.keep_last_snapshots) SB_TRYV(CheckKeepLast(**spec.keep_last_snapshots));
    row.keep_last_snapshots = *spec.keep_last_snapshots;
  }
  if (spec.mounts) {
    SB_TRYV(CheckMounts(*spec.mounts));
    row.mounts = *spec.mounts;
  }
  return {};
}

Result<store::ListFilter> CheckList(const Scope& scope, const ListQuery& query, bool sessions) {
  store::ListFilter f;
  f.team = scope.team;
  f.project = scope.project;
  if (f.team.empty() && !scope.any_team) return Bad("teamId: is required");
  if (f.project.empty() && !scope.any_project) return Bad("project: is required");
  if (query.limit < 1 || query.limit > 50) return Bad(fmt::format("limit: 1 to 50, got {}", query.limit));
  f.limit = query.limit;
  f.cursor = query.cursor;
  f.ascending = query.ascending;
  f.since = query.since;
  f.until = query.until;
  f.sandbox = query.sandbox;
  if (sessions) return f;
  if (query.sort_by == "name") {
    f.sort_by = store::SortBy::kName;
  } else if (query.sort_by == "statusUpdatedAt") {
    f.sort_by = store::SortBy::kStatusUpdatedAt;
  } else if (query.sort_by != "createdAt") {
    return Bad("sortBy: one of createdAt, name, statusUpdatedAt");
  }
  if (!query.name_prefix.empty() && f.sort_by != store::SortBy::kName) return Bad("namePrefix: needs sortBy=name");
  f.name_prefix = query.name_prefix;
  f.tag = query.tag;
  return f;
}

Result<> CheckCommand(const CommandSpec& spec) {
  if (spec.command.empty()) return Bad("command: must not be empty");
  if (spec.args.size() > kMaxArgs) return Bad(fmt::format("args: at most {}, got {}", kMaxArgs, spec.args.size()));
  if (HasNul(spec.command)) return Bad("command: must not contain NUL");
  for (size_t i = 0; i < spec.args.size(); ++i) {
    if (HasNul(spec.args[i])) return Bad(fmt::format("args[{}]: must not contain NUL", i));
  }
  SB_TRYV(CheckEnv(spec.env));
  if (spec.cwd) SB_TRYV(CheckPath("cwd", *spec.cwd));
  if (spec.timeout_ms && *spec.timeout_ms < kMinCommandTimeoutMs) {
    return Bad(fmt::format("timeout: at least {} ms, got {}", kMinCommandTimeoutMs, *spec.timeout_ms));
  }
  return {};
}

Result<> CheckExecSize(const std::vector<std::string>& argv, const std::vector<std::string>& env) {
  size_t bytes = 0;
  for (size_t i = 0; i < argv.size(); ++i) {
    if (argv[i].size() >= kMaxOneString) {
      return Bad(
          fmt::format("args[{}]: {} bytes, the kernel's limit for one argument is {}; write it to a file instead",
                      static_cast<int>(i) - 1, argv[i].size(), kMaxOneString - 1));
    }
    bytes += argv[i].size() + 4;
  }
  for (const auto& e : env) {
    if (e.size() >= kMaxOneString) return Bad("env: one variable is longer than 128 KiB, the kernel's limit");
    bytes += e.size() + 4;
  }
  const size_t limit = protocol::kMaxFrame - (16 << 10);
  if (bytes > limit) {
    return Bad(fmt::format("command, arguments and environment: {} bytes together, the limit is {}", bytes, limit));
  }
  return {};
}

Result<> CheckPath(const std::string& what, const std::string& path) {
  if (path.empty()) return Bad(what + ": must not be empty");
  if (path.size() > kMaxPath) return Bad(fmt::format("{}: {} bytes, the limit is {}", what, path.size(), kMaxPath));
  if (HasNul(path)) return Bad(what + ": must not contain NUL");
  return {};
}

std::string Resolve(const std::string& base, const std::string& path) {
  if (path.starts_with('/')) return path;
  return base.ends_with('/') ? base + path : base + "/" + path;
}

}  // namespace sandbar::sandbox
