// The protocol's request bodies, described once (wire/json_decode.h): keys and types. sandbox/validate.h checks the
// values against the limits of this installation. Private to vercel/requests.cc.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "egress/policy_json.h"
#include "wire/json_decode.h"

namespace sandbar::api {

using StringMap = std::map<std::string, std::string>;

// Ours. Clients of the protocol pass keys that begin with __ on as they are.
inline constexpr wire::JsonAlias kIdleAlias{"__idleTimeoutMs", "idleTimeoutMs"};
inline constexpr wire::JsonAlias kIsolationAlias{"__isolation", "isolation"};
inline constexpr wire::JsonAlias kNestingAlias{"__nesting", "nesting"};

// {"minClass":2,"engine":"gvisor"}, or short: 2, or "gvisor".
struct IsolationBody {
  std::optional<int> min_class;
  std::optional<std::string> engine;
  void Check(wire::JsonIssues& issues) const {
    issues.Range("minClass", min_class, 1, 3);
    issues.Size("engine", engine, 1, 64);
  }
};
BOOST_DESCRIBE_STRUCT(IsolationBody, (), (min_class, engine))
struct AnyIsolationBody {
  IsolationBody body;
  void ReadJson(wire::JsonDecoder& decoder, const boost::json::value& value) {
    if (value.is_object()) return decoder.Read(value, body);
    if (value.is_string()) {
      decoder.Read(value, body.engine.emplace());
      decoder.Size("", body.engine, 1, 64);
    } else {
      decoder.Read(value, body.min_class.emplace());
      decoder.Range("", body.min_class, 1, 3);
    }
  }
};

struct DemandQuery {
  std::optional<AnyIsolationBody> isolation;
};
BOOST_DESCRIBE_STRUCT(DemandQuery, (), (isolation))

struct ResourcesBody {
  std::optional<int> vcpus, memory;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"vcpu", "vcpus"}};
};
BOOST_DESCRIBE_STRUCT(ResourcesBody, (), (vcpus, memory))

struct KeepLastBody {
  int count = 0;
  std::optional<int64_t> expiration;
  std::optional<bool> delete_evicted;
};
BOOST_DESCRIBE_STRUCT(KeepLastBody, (), (count, expiration, delete_evicted))

enum class SourceType { kGit, kTarball, kSnapshot };
BOOST_DESCRIBE_ENUM(SourceType, kGit, kTarball, kSnapshot)

struct SourceBody {
  SourceType type = SourceType::kGit;
  std::optional<std::string> url, revision, username, password, snapshot_id;
  std::optional<int> depth;
  void Check(wire::JsonIssues& issues) const {
    if (type != SourceType::kSnapshot && !url) issues.Add("url", "is required");
    if (type == SourceType::kSnapshot && !snapshot_id) issues.Add("snapshotId", "is required");
  }
};
BOOST_DESCRIBE_STRUCT(SourceBody, (), (type, url, revision, username, password, snapshot_id, depth))

enum class MountMode { kReadWrite, kSnapshot, kReadOnly };
BOOST_DESCRIBE_ENUM(MountMode, kReadWrite, kSnapshot, kReadOnly)

struct MountBody {
  std::string drive;
  std::optional<MountMode> mode;
};
BOOST_DESCRIBE_STRUCT(MountBody, (), (drive, mode))
using MountsBody = std::map<std::string, MountBody>;

struct DriveBody {
  std::optional<std::string> project_id, region;
  std::optional<uint64_t> max_size_bytes;
};
BOOST_DESCRIBE_STRUCT(DriveBody, (), (project_id, region, max_size_bytes))

struct CreateBody {
  std::optional<std::string> project_id, name, runtime, image, region, network_id;
  std::vector<int> ports;
  std::optional<SourceBody> source;
  MountsBody mounts;
  std::optional<int64_t> timeout, idle_timeout_ms, snapshot_expiration;
  std::optional<ResourcesBody> resources;
  std::optional<bool> persistent;
  std::optional<egress::PolicyBody> network_policy;
  StringMap env, tags;
  std::optional<KeepLastBody> keep_last_snapshots;
  std::vector<std::string> failover_regions;
  std::optional<AnyIsolationBody> isolation;
  std::optional<bool> nesting;
  static constexpr wire::JsonAlias kJsonAliases[] = {kIdleAlias, kIsolationAlias, kNestingAlias};
};
BOOST_DESCRIBE_STRUCT(CreateBody, (),
                      (project_id, name, runtime, image, region, network_id, ports, source, mounts, timeout,
                       idle_timeout_ms, snapshot_expiration, resources, persistent, network_policy, env, tags,
                       keep_last_snapshots, failover_regions, isolation, nesting))

struct UpdateBody {
  std::optional<bool> persistent;
  std::optional<ResourcesBody> resources;
  std::optional<int64_t> timeout, snapshot_expiration;
  std::optional<std::optional<int64_t>> idle_timeout_ms;
  std::optional<egress::PolicyBody> network_policy;
  std::optional<std::optional<std::string>> network_id;
  std::optional<StringMap> env, tags;
  std::optional<std::vector<int>> ports;
  std::optional<std::optional<KeepLastBody>> keep_last_snapshots;
  std::optional<std::string> current_snapshot_id, region, runtime, image;
  std::optional<std::vector<std::string>> failover_regions;
  std::optional<MountsBody> mounts;
  std::optional<AnyIsolationBody> isolation;
  std::optional<bool> nesting;
  static constexpr wire::JsonAlias kJsonAliases[] = {kIdleAlias, kIsolationAlias, kNestingAlias};
};
BOOST_DESCRIBE_STRUCT(UpdateBody, (),
                      (persistent, resources, timeout, idle_timeout_ms, snapshot_expiration, network_policy, network_id,
                       env, tags, ports, keep_last_snapshots, current_snapshot_id, region, runtime, image,
                       failover_regions, mounts, isolation, nesting))

struct ForkBody {
  std::optional<std::string> name, region, image;
  std::optional<bool> persistent;
  std::optional<ResourcesBody> resources;
  std::optional<int64_t> timeout, snapshot_expiration;
  std::optional<std::optional<int64_t>> idle_timeout_ms;
  std::optional<egress::PolicyBody> network_policy;
  std::optional<std::optional<std::string>> network_id;
  std::optional<StringMap> env, tags;
  std::optional<std::vector<int>> ports;
  std::optional<std::optional<KeepLastBody>> keep_last_snapshots;
  std::optional<std::vector<std::string>> failover_regions;
  std::optional<MountsBody> mounts;
  std::optional<AnyIsolationBody> isolation;
  std::optional<bool> nesting;
  bool live = false;
  static constexpr wire::JsonAlias kJsonAliases[] = {kIdleAlias, kIsolationAlias, kNestingAlias};
};
BOOST_DESCRIBE_STRUCT(ForkBody, (),
                      (name, region, image, persistent, resources, timeout, idle_timeout_ms, snapshot_expiration,
                       network_policy, network_id, env, tags, ports, keep_last_snapshots, failover_regions, mounts,
                       isolation, nesting, live))

struct SnapshotBody {
  std::optional<int64_t> expiration;
};
BOOST_DESCRIBE_STRUCT(SnapshotBody, (), (expiration))

struct CommandBody {
  std::string command;
  std::vector<std::string> args;
  std::optional<std::string> cwd;
  StringMap env;
  bool sudo = false, wait = false, logs = false;
  std::optional<int64_t> timeout;
};
BOOST_DESCRIBE_STRUCT(CommandBody, (), (command, args, cwd, env, sudo, wait, logs, timeout))

struct KillBody {
  std::optional<int> signal;
  void Check(wire::JsonIssues& issues) const { issues.Range("signal", signal, 1, 64); }
};
BOOST_DESCRIBE_STRUCT(KillBody, (), (signal))

struct ReadBody {
  std::string path;
  std::optional<std::string> cwd;
};
BOOST_DESCRIBE_STRUCT(ReadBody, (), (path, cwd))

struct MakeDirBody {
  std::string path;
  std::optional<std::string> cwd;
  bool recursive = false;
};
BOOST_DESCRIBE_STRUCT(MakeDirBody, (), (path, cwd, recursive))

struct ExtendBody {
  int64_t duration = 0;
};
BOOST_DESCRIBE_STRUCT(ExtendBody, (), (duration))

}  // namespace sandbar::api
