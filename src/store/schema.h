// The schema, as steps: step n brings a database from user_version n to n+1. Never edit a step that was released.
#pragma once

#include <array>

namespace sandbar::store {

inline constexpr std::array kMigrations = {
    R"sql(
CREATE TABLE sandboxes (
  row INTEGER PRIMARY KEY,
  team TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,
  v1 INTEGER NOT NULL, persistent INTEGER NOT NULL, status TEXT NOT NULL, current_session TEXT NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, status_updated_at INTEGER NOT NULL,
  region TEXT NOT NULL, failover_regions TEXT NOT NULL, network_id TEXT NOT NULL,
  vcpus INTEGER NOT NULL, memory_mb INTEGER NOT NULL, runtime TEXT NOT NULL, image TEXT NOT NULL, cwd TEXT NOT NULL,
  timeout_ms INTEGER NOT NULL, network_mode TEXT, env TEXT NOT NULL, tags TEXT NOT NULL, ports TEXT NOT NULL,
  snapshot_expiration_ms INTEGER, keep_last_snapshots TEXT,
  total_egress INTEGER NOT NULL, total_ingress INTEGER NOT NULL, total_cpu_ms INTEGER NOT NULL,
  total_duration_ms INTEGER NOT NULL,
  UNIQUE (team, project, name)
) STRICT;
CREATE INDEX sandboxes_by_created ON sandboxes (team, project, created_at, row);
CREATE INDEX sandboxes_by_status ON sandboxes (team, project, status_updated_at, row);

CREATE TABLE sessions (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  team TEXT NOT NULL, project TEXT NOT NULL, sandbox TEXT NOT NULL,
  machine_id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, vcpus INTEGER NOT NULL, memory_mb INTEGER NOT NULL,
  region TEXT NOT NULL, runtime TEXT NOT NULL, image TEXT NOT NULL, cwd TEXT NOT NULL, timeout_ms INTEGER NOT NULL,
  network_mode TEXT, requested_at INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  started_at INTEGER, requested_stop_at INTEGER, stopped_at INTEGER, aborted_at INTEGER,
  cpu_ms INTEGER, ingress INTEGER, egress INTEGER, stop_reason TEXT NOT NULL,
  engine TEXT NOT NULL, isolation_class INTEGER NOT NULL,
  user TEXT NOT NULL, home TEXT NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, image_env TEXT NOT NULL,
  carried_ingress INTEGER NOT NULL, carried_egress INTEGER NOT NULL,
  FOREIGN KEY (team, project, sandbox) REFERENCES sandboxes (team, project, name) ON DELETE CASCADE
) STRICT;
CREATE INDEX sessions_by_created ON sessions (team, project, created_at, row);
CREATE INDEX sessions_of_sandbox ON sessions (team, project, sandbox, created_at, row);
CREATE INDEX sessions_unfinished ON sessions (status) WHERE status NOT IN ('stopped', 'failed', 'aborted');

CREATE TABLE commands (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  name TEXT NOT NULL, cwd TEXT NOT NULL, args TEXT NOT NULL, started_at INTEGER NOT NULL,
  exit_code INTEGER, duration_ms INTEGER, timed_out INTEGER NOT NULL, oom_killed INTEGER NOT NULL
) STRICT;
CREATE INDEX commands_of_session ON commands (session, started_at, row);

CREATE TABLE pool (
  machine_id TEXT PRIMARY KEY, image TEXT NOT NULL, vcpus INTEGER NOT NULL, created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
  id TEXT PRIMARY KEY, sha256_hex TEXT NOT NULL UNIQUE, name TEXT NOT NULL, team TEXT NOT NULL, project TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
)sql",
    R"sql(
ALTER TABLE sandboxes DROP COLUMN ports;
ALTER TABLE sandboxes ADD COLUMN routes TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sandboxes ADD COLUMN network_shown TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN network_sealed TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN network_shown TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN network_sealed TEXT NOT NULL DEFAULT '';
-- Whose a subdomain is; follows sandboxes.routes.
CREATE TABLE subdomains (
  subdomain TEXT PRIMARY KEY,
  sandbox INTEGER NOT NULL REFERENCES sandboxes (row) ON DELETE CASCADE
) STRICT;
CREATE INDEX subdomains_of_sandbox ON subdomains (sandbox);
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN current_snapshot TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN source_snapshot TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN image_layers TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sessions ADD COLUMN snapshot_layers TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sessions ADD COLUMN snapshot TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN snapshot_manual INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN snapshot_expiration_ms INTEGER;
CREATE TABLE snapshots (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  team TEXT NOT NULL, project TEXT NOT NULL, sandbox TEXT NOT NULL, session TEXT NOT NULL, parent TEXT NOT NULL,
  deleted INTEGER NOT NULL, manual INTEGER NOT NULL, region TEXT NOT NULL, size_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, last_used_at INTEGER NOT NULL,
  expiration_ms INTEGER NOT NULL, runtime TEXT NOT NULL, image TEXT NOT NULL, cwd TEXT NOT NULL, user TEXT NOT NULL,
  home TEXT NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, image_env TEXT NOT NULL,
  image_layers TEXT NOT NULL, snapshot_layers TEXT NOT NULL
) STRICT;
CREATE INDEX snapshots_by_created ON snapshots (team, project, created_at, row);
CREATE INDEX snapshots_of_sandbox ON snapshots (team, project, sandbox, created_at, row);
CREATE INDEX snapshots_by_parent ON snapshots (parent) WHERE parent <> '';
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN idle_timeout_ms INTEGER;
ALTER TABLE sandboxes ADD COLUMN create_digest TEXT NOT NULL DEFAULT '';
-- Sums per project. Kept by triggers: whoever ends a session, and however, it is counted once.
CREATE TABLE usage (
  team TEXT NOT NULL, project TEXT NOT NULL, creations INTEGER NOT NULL DEFAULT 0, cpu_ms INTEGER NOT NULL DEFAULT 0,
  memory_mb_ms INTEGER NOT NULL DEFAULT 0, ingress INTEGER NOT NULL DEFAULT 0, egress INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (team, project)
) STRICT;
CREATE TRIGGER usage_inserted AFTER INSERT ON sessions WHEN NEW.started_at IS NOT NULL BEGIN
  INSERT INTO usage (team, project, creations) VALUES (NEW.team, NEW.project, 1)
    ON CONFLICT DO UPDATE SET creations = creations + 1;
END;
CREATE TRIGGER usage_started AFTER UPDATE ON sessions
WHEN OLD.started_at IS NULL AND NEW.started_at IS NOT NULL BEGIN
  INSERT INTO usage (team, project, creations) VALUES (NEW.team, NEW.project, 1)
    ON CONFLICT DO UPDATE SET creations = creations + 1;
END;
CREATE TRIGGER usage_stopped AFTER UPDATE ON sessions
WHEN OLD.stopped_at IS NULL AND NEW.stopped_at IS NOT NULL AND NEW.started_at IS NOT NULL BEGIN
  INSERT INTO usage (team, project, cpu_ms, memory_mb_ms, ingress, egress)
    VALUES (NEW.team, NEW.project, coalesce(NEW.cpu_ms, 0),
            NEW.memory_mb * max(NEW.stopped_at - NEW.started_at, 0),
            coalesce(NEW.ingress, 0), coalesce(NEW.egress, 0))
    ON CONFLICT DO UPDATE SET cpu_ms = cpu_ms + excluded.cpu_ms, memory_mb_ms = memory_mb_ms + excluded.memory_mb_ms,
      ingress = ingress + excluded.ingress, egress = egress + excluded.egress;
END;
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN mounts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN mounts TEXT NOT NULL DEFAULT '[]';
CREATE TABLE drives (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  team TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, region TEXT NOT NULL,
  max_size_bytes INTEGER NOT NULL, state INTEGER NOT NULL, deleted INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX drives_by_name ON drives (team, project, name) WHERE deleted = 0;
)sql",
    R"sql(
ALTER TABLE snapshots ADD COLUMN durable_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN verified_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN damage TEXT NOT NULL DEFAULT '';
CREATE TABLE layers (
  name TEXT PRIMARY KEY, digest TEXT NOT NULL, bytes INTEGER NOT NULL, files INTEGER NOT NULL,
  durable_at INTEGER NOT NULL, verified_at INTEGER NOT NULL, damage TEXT NOT NULL
) STRICT;
CREATE TABLE notices (
  row INTEGER PRIMARY KEY, at INTEGER NOT NULL,
  team TEXT NOT NULL, project TEXT NOT NULL, sandbox TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE INDEX notices_of_sandbox ON notices (team, project, sandbox);
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN min_class INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN wanted_engine TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN engine TEXT NOT NULL DEFAULT 'namespaces';
ALTER TABLE sandboxes ADD COLUMN isolation_class INTEGER NOT NULL DEFAULT 1;
ALTER TABLE snapshots ADD COLUMN engine TEXT NOT NULL DEFAULT 'namespaces';
ALTER TABLE snapshots ADD COLUMN format TEXT NOT NULL DEFAULT 'dir';
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN nesting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN nesting INTEGER NOT NULL DEFAULT 0;
)sql",
    R"sql(
ALTER TABLE sessions ADD COLUMN snapshot_memory TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN memory TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN contexts TEXT NOT NULL DEFAULT '';
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN collect_after_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN unclaimed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sandboxes_to_collect ON sandboxes (status_updated_at) WHERE collect_after_ms > 0;
)sql",
    R"sql(
ALTER TABLE sandboxes ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
UPDATE sandboxes SET id = 'sbid_' || lower(hex(randomblob(16)));
CREATE UNIQUE INDEX sandboxes_by_id ON sandboxes (id);
)sql",
    R"sql(
ALTER TABLE commands ADD COLUMN terminal INTEGER NOT NULL DEFAULT 0;
)sql",
    // Keys have a role, an end and a maker. Tokens of earlier releases could do everything: they become admins.
    R"sql(
ALTER TABLE tokens ADD COLUMN role TEXT NOT NULL DEFAULT 'admin';
ALTER TABLE tokens ADD COLUMN expires_at INTEGER;
ALTER TABLE tokens ADD COLUMN revoked_at INTEGER;
ALTER TABLE tokens ADD COLUMN made_by TEXT NOT NULL DEFAULT 'server';
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER;
ALTER TABLE tokens ADD COLUMN ends_with TEXT NOT NULL DEFAULT '';
)sql",
};

}  // namespace sandbar::store
