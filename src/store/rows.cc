#include "store/rows.h"

#include "store/json_text.h"

namespace sandbar::store {

const std::string kSandboxColumns =
    "team, project, name, v1, persistent, status, current_session, created_at, updated_at, status_updated_at, region, "
    "failover_regions, network_id, vcpus, memory_mb, runtime, image, cwd, timeout_ms, network_mode, network_shown, "
    "network_sealed, env, "
    "tags, routes, "
    "snapshot_expiration_ms, keep_last_snapshots, current_snapshot, total_egress, total_ingress, total_cpu_ms, "
    "total_duration_ms, idle_timeout_ms, create_digest, mounts, min_class, wanted_engine, engine, "
    "isolation_class, nesting, collect_after_ms, id, version";
const std::string kSessionColumns =
    "id, team, project, sandbox, machine_id, status, vcpus, memory_mb, region, runtime, image, cwd, timeout_ms, "
    "network_mode, network_shown, network_sealed, requested_at, created_at, updated_at, started_at, requested_stop_at, "
    "stopped_at, aborted_at, "
    "cpu_ms, "
    "ingress, egress, stop_reason, engine, isolation_class, user, home, uid, gid, image_env, carried_ingress, "
    "carried_egress, source_snapshot, image_layers, snapshot_layers, snapshot, snapshot_manual, "
    "snapshot_expiration_ms, "
    "mounts, nesting, snapshot_memory";
const std::string kCommandColumns =
    "id, session, name, cwd, args, started_at, exit_code, duration_ms, timed_out, oom_killed, terminal";

const std::string kSnapshotColumns =
    "id, team, project, sandbox, session, parent, deleted, manual, region, size_bytes, created_at, updated_at, "
    "last_used_at, expiration_ms, runtime, image, cwd, user, home, uid, gid, image_env, image_layers, snapshot_layers, "
    "durable_at, verified_at, damage, engine, format, memory, contexts, unclaimed";

const std::string kDriveColumns =
    "id, team, project, name, region, max_size_bytes, state, deleted, created_at, updated_at";

const std::string kKeyColumns =
    "id, sha256_hex, name, team, project, created_at, role, expires_at, revoked_at, made_by, last_used_at, "
    "ends_with";

std::string Placeholders(const std::string& columns) {
  std::string out = "?";
  for (char c : columns) {
    if (c == ',') out += ", ?";
  }
  return out;
}

std::string Assignments(const std::string& columns) {
  std::string out;
  for (char c : columns) {
    if (c == ',') out += " = ?";
    out += c;
  }
  return out + " = ?";
}

namespace {

void BindPolicy(Query& q, const std::optional<NetworkPolicyRow>& p) {
  q.Bind(p ? std::optional(p->mode) : std::nullopt).Bind(p ? p->shown : "").Bind(p ? p->sealed : "");
}

}  // namespace

void Bind(Query& q, const Sandbox& s) {
  q.Bind(s.team).Bind(s.project).Bind(s.name).Bind(s.v1).Bind(s.persistent).Bind(StatusName(s.status));
  q.Bind(s.current_session).Bind(s.created_at).Bind(s.updated_at).Bind(s.status_updated_at).Bind(s.region);
  q.Bind(ToJson(s.failover_regions)).Bind(s.network_id).Bind(s.vcpus).Bind(s.memory_mb).Bind(s.runtime).Bind(s.image);
  q.Bind(s.cwd).Bind(s.timeout_ms);
  BindPolicy(q, s.network);
  q.Bind(ToJson(s.env)).Bind(ToJson(s.tags)).Bind(ToJson(s.routes));
  q.Bind(s.snapshot_expiration_ms).Bind(ToJson(s.keep_last_snapshots)).Bind(s.current_snapshot);
  q.Bind(s.total_egress).Bind(s.total_ingress).Bind(s.total_cpu_ms).Bind(s.total_duration_ms);
  q.Bind(s.idle_timeout_ms).Bind(s.create_digest).Bind(ToJson(s.mounts));
  q.Bind(s.isolation.min_class).Bind(s.isolation.engine).Bind(s.engine).Bind(s.isolation_class);
  q.Bind(s.isolation.nesting).Bind(s.collect_after_ms).Bind(s.id).Bind(s.version);
}

void Bind(Query& q, const Session& s) {
  q.Bind(s.id).Bind(s.team).Bind(s.project).Bind(s.sandbox).Bind(s.machine_id).Bind(StatusName(s.status));
  q.Bind(s.vcpus).Bind(s.memory_mb).Bind(s.region).Bind(s.runtime).Bind(s.image).Bind(s.cwd).Bind(s.timeout_ms);
  BindPolicy(q, s.network);
  q.Bind(s.requested_at).Bind(s.created_at).Bind(s.updated_at).Bind(s.started_at);
  q.Bind(s.requested_stop_at).Bind(s.stopped_at).Bind(s.aborted_at).Bind(s.cpu_ms).Bind(s.ingress).Bind(s.egress);
  q.Bind(s.stop_reason).Bind(s.engine).Bind(s.isolation_class).Bind(s.user).Bind(s.home).Bind(s.uid).Bind(s.gid);
  q.Bind(ToJson(s.image_env)).Bind(s.carried_ingress).Bind(s.carried_egress);
  q.Bind(s.source_snapshot)
      .Bind(ToJson(s.image_layers))
      .Bind(ToJson(s.snapshot_layers))
      .Bind(s.snapshot)
      .Bind(s.snapshot_manual)
      .Bind(s.snapshot_expiration_ms)
      .Bind(ToJson(s.mounts))
      .Bind(s.nesting)
      .Bind(s.snapshot_memory);
}

void Bind(Query& q, const Snapshot& s) {
  q.Bind(s.id).Bind(s.team).Bind(s.project).Bind(s.sandbox).Bind(s.session).Bind(s.parent).Bind(s.deleted);
  q.Bind(s.manual).Bind(s.region).Bind(s.size_bytes).Bind(s.created_at).Bind(s.updated_at).Bind(s.last_used_at);
  q.Bind(s.expiration_ms).Bind(s.runtime).Bind(s.image).Bind(s.cwd).Bind(s.user).Bind(s.home).Bind(s.uid).Bind(s.gid);
  q.Bind(ToJson(s.image_env)).Bind(ToJson(s.image_layers)).Bind(ToJson(s.snapshot_layers));
  q.Bind(s.durable_at).Bind(s.verified_at).Bind(s.damage).Bind(s.engine).Bind(s.format);
  q.Bind(s.memory).Bind(s.contexts).Bind(s.unclaimed);
}

void Bind(Query& q, const Drive& d) {
  q.Bind(d.id).Bind(d.team).Bind(d.project).Bind(d.name).Bind(d.region).Bind(d.max_size_bytes).Bind(d.state);
  q.Bind(d.deleted).Bind(d.created_at).Bind(d.updated_at);
}

void Bind(Query& q, const Key& k) {
  q.Bind(k.id).Bind(k.sha256_hex).Bind(k.name).Bind(k.team).Bind(k.project).Bind(k.created_at);
  q.Bind(KeyRoleName(k.role)).Bind(k.expires_at).Bind(k.revoked_at).Bind(k.made_by).Bind(k.last_used_at);
  q.Bind(k.ends_with);
}

void Bind(Query& q, const Command& c) {
  q.Bind(c.id).Bind(c.session).Bind(c.name).Bind(c.cwd).Bind(ToJson(c.args)).Bind(c.started_at).Bind(c.exit_code);
  q.Bind(c.duration_ms).Bind(c.timed_out).Bind(c.oom_killed).Bind(c.terminal);
}

namespace {

// Walks the columns in order, so that the readers below mirror the binders above line by line.
class Columns {
 public:
  Columns(const Query& q, int first) : q_(q), next_(first) {}
  void Read(std::string& v) { v = q_.Text(next_++); }
  void Read(bool& v) { v = q_.Int(next_++) != 0; }
  void Read(int& v) { v = static_cast<int>(q_.Int(next_++)); }
  void Read(uint32_t& v) { v = static_cast<uint32_t>(q_.Int(next_++)); }
  void Read(int64_t& v) { v = q_.Int(next_++); }
  void Read(uint64_t& v) { v = static_cast<uint64_t>(q_.Int(next_++)); }
  void Read(std::optional<int64_t>& v) { v = q_.MaybeInt(next_++); }
  void Read(std::optional<std::string>& v) { v = q_.MaybeText(next_++); }
  void Read(std::optional<uint64_t>& v) {
    if (auto n = q_.MaybeInt(next_++)) v = static_cast<uint64_t>(*n);
  }
  void Read(std::optional<int>& v) {
    if (auto n = q_.MaybeInt(next_++)) v = static_cast<int>(*n);
  }
  void Read(std::optional<NetworkPolicyRow>& v) {
    auto mode = q_.MaybeText(next_++);
    NetworkPolicyRow row{mode.value_or(""), q_.Text(next_), q_.Text(next_ + 1)};
    next_ += 2;
    if (mode) v = std::move(row);
  }
  void Read(Status& v) {
    auto status = StatusFromName(q_.Text(next_++));
    if (!status) Note(Fail(Code::kInternal, "database: unknown status"));
    v = status.value_or(Status::kFailed);
  }
  template <class T>
  void Json(T& v) {
    Note(FromJson(q_.Text(next_++), v));
  }
  void Json(std::optional<KeepLastSnapshots>& v) { Note(FromJson(q_.MaybeText(next_++), v)); }
  template <class... T>
  void All(T&... v) {
    (Read(v), ...);
  }
  const Result<>& result() const { return result_; }

 private:
  void Note(Result<> r) {
    if (result_ && !r) result_ = std::move(r);
  }
  const Query& q_;
  int next_;
  Result<> result_;
};

}  // namespace

Result<Sandbox> ReadSandbox(const Query& q, int first) {
  Sandbox s;
  Columns c(q, first);
  c.All(s.team, s.project, s.name, s.v1, s.persistent, s.status, s.current_session, s.created_at, s.updated_at,
        s.status_updated_at, s.region);
  c.Json(s.failover_regions);
  c.All(s.network_id, s.vcpus, s.memory_mb, s.runtime, s.image, s.cwd, s.timeout_ms, s.network);
  c.Json(s.env);
  c.Json(s.tags);
  c.Json(s.routes);
  c.Read(s.snapshot_expiration_ms);
  c.Json(s.keep_last_snapshots);
  c.Read(s.current_snapshot);
  c.All(s.total_egress, s.total_ingress, s.total_cpu_ms, s.total_duration_ms, s.idle_timeout_ms, s.create_digest);
  c.Json(s.mounts);
  c.All(s.isolation.min_class, s.isolation.engine, s.engine, s.isolation_class, s.isolation.nesting, s.collect_after_ms,
        s.id, s.version);
  SB_TRYV(c.result());
  return s;
}

Result<Session> ReadSession(const Query& q, int first) {
  Session s;
  Columns c(q, first);
  c.All(s.id, s.team, s.project, s.sandbox, s.machine_id, s.status, s.vcpus, s.memory_mb, s.region, s.runtime, s.image,
        s.cwd, s.timeout_ms, s.network, s.requested_at, s.created_at, s.updated_at, s.started_at, s.requested_stop_at,
        s.stopped_at, s.aborted_at, s.cpu_ms, s.ingress, s.egress, s.stop_reason, s.engine, s.isolation_class, s.user,
        s.home, s.uid, s.gid);
  c.Json(s.image_env);
  c.All(s.carried_ingress, s.carried_egress, s.source_snapshot);
  c.Json(s.image_layers);
  c.Json(s.snapshot_layers);
  c.All(s.snapshot, s.snapshot_manual, s.snapshot_expiration_ms);
  c.Json(s.mounts);
  c.Read(s.nesting);
  c.Read(s.snapshot_memory);
  SB_TRYV(c.result());
  return s;
}

Result<Snapshot> ReadSnapshot(const Query& q, int first) {
  Snapshot s;
  Columns c(q, first);
  c.All(s.id, s.team, s.project, s.sandbox, s.session, s.parent, s.deleted, s.manual, s.region, s.size_bytes,
        s.created_at, s.updated_at, s.last_used_at, s.expiration_ms, s.runtime, s.image, s.cwd, s.user, s.home, s.uid,
        s.gid);
  c.Json(s.image_env);
  c.Json(s.image_layers);
  c.Json(s.snapshot_layers);
  c.All(s.durable_at, s.verified_at, s.damage, s.engine, s.format, s.memory, s.contexts, s.unclaimed);
  SB_TRYV(c.result());
  return s;
}

Result<Drive> ReadDrive(const Query& q, int first) {
  Drive d;
  Columns c(q, first);
  c.All(d.id, d.team, d.project, d.name, d.region, d.max_size_bytes, d.state, d.deleted, d.created_at, d.updated_at);
  SB_TRYV(c.result());
  return d;
}

Result<Key> ReadKey(const Query& q, int first) {
  Key k;
  std::string role;
  Columns c(q, first);
  c.All(k.id, k.sha256_hex, k.name, k.team, k.project, k.created_at, role, k.expires_at, k.revoked_at, k.made_by,
        k.last_used_at, k.ends_with);
  SB_TRYV(c.result());
  // An unknown role is read as the least: a key must not gain rights by a damaged row.
  k.role = KeyRoleFromName(role).value_or(KeyRole::kViewer);
  return k;
}

Result<Command> ReadCommand(const Query& q, int first) {
  Command cmd;
  Columns c(q, first);
  c.All(cmd.id, cmd.session, cmd.name, cmd.cwd);
  c.Json(cmd.args);
  c.All(cmd.started_at, cmd.exit_code, cmd.duration_ms, cmd.timed_out, cmd.oom_killed, cmd.terminal);
  SB_TRYV(c.result());
  return cmd;
}

}  // namespace sandbar::store
