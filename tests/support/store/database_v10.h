// A database as the server wrote it before sandboxes had an id and a version (schema 10): three sandboxes of team_a and
// prj_a that have stopped. "alpha" and "beta" have a variable TOKEN ("alpha-variable", "beta-variable") and a policy
// that injects a header ("alpha-injected", "beta-injected"), sealed with the secret of 48 times 's' and bound to their
// names. Made by that server, then dumped as text; only the expirations are zero. Only *_test.cc files include this.
#pragma once

namespace sandbar::store::testing {

inline constexpr const char* kDatabaseV10 = R"sql(
CREATE TABLE commands (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  name TEXT NOT NULL, cwd TEXT NOT NULL, args TEXT NOT NULL, started_at INTEGER NOT NULL,
  exit_code INTEGER, duration_ms INTEGER, timed_out INTEGER NOT NULL, oom_killed INTEGER NOT NULL
) STRICT;
CREATE TABLE drives (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  team TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, region TEXT NOT NULL,
  max_size_bytes INTEGER NOT NULL, state INTEGER NOT NULL, deleted INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
) STRICT;
CREATE TABLE layers (
  name TEXT PRIMARY KEY, digest TEXT NOT NULL, bytes INTEGER NOT NULL, files INTEGER NOT NULL,
  durable_at INTEGER NOT NULL, verified_at INTEGER NOT NULL, damage TEXT NOT NULL
) STRICT;
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE notices (
  row INTEGER PRIMARY KEY, at INTEGER NOT NULL,
  team TEXT NOT NULL, project TEXT NOT NULL, sandbox TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE pool (
  machine_id TEXT PRIMARY KEY, image TEXT NOT NULL, vcpus INTEGER NOT NULL, created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE sandboxes (
  row INTEGER PRIMARY KEY,
  team TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,
  v1 INTEGER NOT NULL, persistent INTEGER NOT NULL, status TEXT NOT NULL, current_session TEXT NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, status_updated_at INTEGER NOT NULL,
  region TEXT NOT NULL, failover_regions TEXT NOT NULL, network_id TEXT NOT NULL,
  vcpus INTEGER NOT NULL, memory_mb INTEGER NOT NULL, runtime TEXT NOT NULL, image TEXT NOT NULL, cwd TEXT NOT NULL,
  timeout_ms INTEGER NOT NULL, network_mode TEXT, env TEXT NOT NULL, tags TEXT NOT NULL,
  snapshot_expiration_ms INTEGER, keep_last_snapshots TEXT,
  total_egress INTEGER NOT NULL, total_ingress INTEGER NOT NULL, total_cpu_ms INTEGER NOT NULL,
  total_duration_ms INTEGER NOT NULL, routes TEXT NOT NULL DEFAULT '[]', network_shown TEXT NOT NULL DEFAULT '',
  network_sealed TEXT NOT NULL DEFAULT '', current_snapshot TEXT NOT NULL DEFAULT '', idle_timeout_ms INTEGER,
  create_digest TEXT NOT NULL DEFAULT '', mounts TEXT NOT NULL DEFAULT '{}', min_class INTEGER NOT NULL DEFAULT 0,
  wanted_engine TEXT NOT NULL DEFAULT '', engine TEXT NOT NULL DEFAULT 'namespaces',
  isolation_class INTEGER NOT NULL DEFAULT 1, nesting INTEGER NOT NULL DEFAULT 0,
  collect_after_ms INTEGER NOT NULL DEFAULT 0,
  UNIQUE (team, project, name)
) STRICT;
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
  carried_ingress INTEGER NOT NULL, carried_egress INTEGER NOT NULL, network_shown TEXT NOT NULL DEFAULT '',
  network_sealed TEXT NOT NULL DEFAULT '', source_snapshot TEXT NOT NULL DEFAULT '',
  image_layers TEXT NOT NULL DEFAULT '[]', snapshot_layers TEXT NOT NULL DEFAULT '[]',
  snapshot TEXT NOT NULL DEFAULT '', snapshot_manual INTEGER NOT NULL DEFAULT 0, snapshot_expiration_ms INTEGER,
  mounts TEXT NOT NULL DEFAULT '[]', nesting INTEGER NOT NULL DEFAULT 0, snapshot_memory TEXT NOT NULL DEFAULT '',
  FOREIGN KEY (team, project, sandbox) REFERENCES sandboxes (team, project, name) ON DELETE CASCADE
) STRICT;
CREATE TABLE snapshots (
  row INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  team TEXT NOT NULL, project TEXT NOT NULL, sandbox TEXT NOT NULL, session TEXT NOT NULL, parent TEXT NOT NULL,
  deleted INTEGER NOT NULL, manual INTEGER NOT NULL, region TEXT NOT NULL, size_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, last_used_at INTEGER NOT NULL,
  expiration_ms INTEGER NOT NULL, runtime TEXT NOT NULL, image TEXT NOT NULL, cwd TEXT NOT NULL, user TEXT NOT NULL,
  home TEXT NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, image_env TEXT NOT NULL,
  image_layers TEXT NOT NULL, snapshot_layers TEXT NOT NULL
, durable_at INTEGER NOT NULL DEFAULT 0, verified_at INTEGER NOT NULL DEFAULT 0, damage TEXT NOT NULL DEFAULT '',
  engine TEXT NOT NULL DEFAULT 'namespaces', format TEXT NOT NULL DEFAULT 'dir', memory TEXT NOT NULL DEFAULT '',
  contexts TEXT NOT NULL DEFAULT '', unclaimed INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE subdomains (
  subdomain TEXT PRIMARY KEY,
  sandbox INTEGER NOT NULL REFERENCES sandboxes (row) ON DELETE CASCADE
) STRICT;
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, sha256_hex TEXT NOT NULL UNIQUE, name TEXT NOT NULL, team TEXT NOT NULL, project TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE usage (
  team TEXT NOT NULL, project TEXT NOT NULL, creations INTEGER NOT NULL DEFAULT 0, cpu_ms INTEGER NOT NULL DEFAULT 0,
  memory_mb_ms INTEGER NOT NULL DEFAULT 0, ingress INTEGER NOT NULL DEFAULT 0, egress INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (team, project)
) STRICT;
CREATE INDEX sandboxes_by_created ON sandboxes (team, project, created_at, row);
CREATE INDEX sandboxes_by_status ON sandboxes (team, project, status_updated_at, row);
CREATE INDEX sessions_by_created ON sessions (team, project, created_at, row);
CREATE INDEX sessions_of_sandbox ON sessions (team, project, sandbox, created_at, row);
CREATE INDEX sessions_unfinished ON sessions (status) WHERE status NOT IN ('stopped', 'failed', 'aborted');
CREATE INDEX commands_of_session ON commands (session, started_at, row);
CREATE INDEX subdomains_of_sandbox ON subdomains (sandbox);
CREATE INDEX snapshots_by_created ON snapshots (team, project, created_at, row);
CREATE INDEX snapshots_of_sandbox ON snapshots (team, project, sandbox, created_at, row);
CREATE INDEX snapshots_by_parent ON snapshots (parent) WHERE parent <> '';
CREATE UNIQUE INDEX drives_by_name ON drives (team, project, name) WHERE deleted = 0;
CREATE INDEX notices_of_sandbox ON notices (team, project, sandbox);
CREATE INDEX sandboxes_to_collect ON sandboxes (status_updated_at) WHERE collect_after_ms > 0;
INSERT INTO sandboxes VALUES (1, 'team_a', 'prj_a', 'alpha', 0, 1, 'stopped', 'sbx_8iI9JTBShxCqgOxanTSINB1X',
  1794858194619, 1794858194641, 1794858194641, 'iad1', '[]', '', 2, 4096, '',
  'vercel/sandbox/universal@sha256:universal', '/vercel', 300000, 'custom',
  '{"":"A5YuMtn0IkE3GHRsLcT+7FpBmv3iGZVMtpJkmbkeohNMK+ABJUwqlv/uRNBkfLVlBnciDyI6"}', '{"k":"v"}', NULL, NULL, 0, 0,
  0, 16, '[{"port":3000,"subdomain":"sb-wgavv8suy58o"}]',
  '{"mode":"custom","allowedDomains":["api.example"],"injectionRules":[{"domain":"api.example","headerN' ||
  'ames":["authorization"]}]}',
  'e+9Ud8fcct2G3E/zwcnjVVgHNpNaEZyziI80T+a6EmROiS32fc8gzJXLWpHP4G438JaRl4tGChdwLKeqivmhD5UUgZvWhsyY0p6N' ||
  'ARq2q6u1p2jOlyEi2HNAf4rS74tG3h08op9wcQYbjq4/dBWhT/ea+eN2Rw==', 'snap_Hu7LDlaNO1AXhCxKXFWRfeUg', NULL, '', '{}',
  0, '', 'fake', 0, 0, 0);
INSERT INTO sandboxes VALUES (2, 'team_a', 'prj_a', 'beta', 0, 1, 'stopped', 'sbx_WZyo5V6bAyslqi7ldkRGJqeZ',
  1794858194646, 1794858194662, 1794858194662, 'iad1', '[]', '', 2, 4096, '',
  'vercel/sandbox/universal@sha256:universal', '/vercel', 300000, 'custom',
  '{"":"4XJoqWs8KHh5iIcvymnaLNklOE2Q/vpRl0qaB21tXUInrlb47/4twYfZjoI0XMJIO6su3uM="}', '{}', NULL, NULL, 0, 0, 0, 12,
  '[]', '{"mode":"custom","allowedDomains":["api.example"],"injectionRules":[{"domain":"api.example","headerN' ||
  'ames":["authorization"]}]}',
  'VLUJTzeF9ZylkYdLkpPQIrcb5K4lgVm1ynbaQpnaL/2c4MzmAiTPg3W6sU0WcVti1GJdd4lS8vFpvnnDWnkUv8+EZQH26mXqq743' ||
  'sSPgPncMdnfLhUvB4Jyadx65PEOBD1AbTWYcaoL6PW2QJBhMCsapUlfS', 'snap_5Ba7XEg17TOdHuxnCwI9Fwr5', NULL, '', '{}', 0,
  '', 'fake', 0, 0, 0);
INSERT INTO sandboxes VALUES (3, 'team_a', 'prj_a', 'gamma', 0, 1, 'stopped', 'sbx_ToeSVIim1wsUWoEz3SRjN6f3',
  1794858194675, 1794858194688, 1794858194688, 'iad1', '[]', '', 2, 4096, '',
  'vercel/sandbox/universal@sha256:universal', '/vercel', 300000, NULL, '{}', '{}', NULL, NULL, 0, 0, 0, 4, '[]',
  '', '', 'snap_o2IhiBgI5I4Ynv2NDwewIlJC', NULL, '', '{}', 0, '', 'fake', 0, 0, 0);
INSERT INTO sessions VALUES (1, 'sbx_8iI9JTBShxCqgOxanTSINB1X', 'team_a', 'prj_a', 'alpha', 'm-a9rirzeut0nvv2o8',
  'stopped', 2, 4096, 'iad1', '', 'vercel/sandbox/universal@sha256:universal', '/vercel', 300000, 'custom',
  1794858194619, 1794858194619, 1794858194641, 1794858194625, 1794858194638, 1794858194641, NULL, 0, 0, 0,
  'requested', 'fake', 0, 'ubuntu', '/vercel', 1000, 1000,
  '{"FROM_IMAGE":"yes","PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin"}', 0, 0,
  '{"mode":"custom","allowedDomains":["api.example"],"injectionRules":[{"domain":"api.example","headerN' ||
  'ames":["authorization"]}]}',
  'ZuxffYtWwKllyu+J8ldfdeQzeDEhTco1j1+T1sv0ztOfP22oNNCT/XnQDb+dujZdePQmu7LcpGkQHDeUwFJz79RBup/JJot7Qarq' ||
  'MyWbVaWpNNGkju4b97tFFgzCRh/uqZl7Ldi8zvSzwfdqtAQdhkPgea2jZA==', '', '["l1","l0"]', '[]',
  'snap_Hu7LDlaNO1AXhCxKXFWRfeUg', 0, NULL, '[]', 0, '');
INSERT INTO sessions VALUES (2, 'sbx_WZyo5V6bAyslqi7ldkRGJqeZ', 'team_a', 'prj_a', 'beta', 'm-ukm05e0ghjzcqx78',
  'stopped', 2, 4096, 'iad1', '', 'vercel/sandbox/universal@sha256:universal', '/vercel', 300000, 'custom',
  1794858194646, 1794858194646, 1794858194662, 1794858194650, 1794858194660, 1794858194662, NULL, 0, 0, 0,
  'requested', 'fake', 0, 'ubuntu', '/vercel', 1000, 1000,
  '{"FROM_IMAGE":"yes","PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin"}', 0, 0,
  '{"mode":"custom","allowedDomains":["api.example"],"injectionRules":[{"domain":"api.example","headerN' ||
  'ames":["authorization"]}]}',
  'BPWigHShXpvO2aD0GH5oNL2x3Gm+4ymlBDY8tyhm1PUeueAPoTwTZ9yawVxCMqWD7KnQDef7bYkGZXc1giMI59CFLF8rCoTpEe97' ||
  '/6tSV8NJytGddLFw5yF3RfqulXLtYi1ImbsD3PPvZynJp/PN4RLi6ujo', '', '["l1","l0"]', '[]',
  'snap_5Ba7XEg17TOdHuxnCwI9Fwr5', 0, NULL, '[]', 0, '');
INSERT INTO sessions VALUES (3, 'sbx_ToeSVIim1wsUWoEz3SRjN6f3', 'team_a', 'prj_a', 'gamma', 'm-um5mbbdrgu2mjkzv',
  'stopped', 2, 4096, 'iad1', '', 'vercel/sandbox/universal@sha256:universal', '/vercel', 300000, NULL,
  1794858194675, 1794858194675, 1794858194688, 1794858194684, 1794858194686, 1794858194688, NULL, 0, 0, 0,
  'requested', 'fake', 0, 'ubuntu', '/vercel', 1000, 1000,
  '{"FROM_IMAGE":"yes","PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin"}', 0, 0, '', '', '', '["l1","l0"]', '[]',
  'snap_o2IhiBgI5I4Ynv2NDwewIlJC', 0, NULL, '[]', 0, '');
INSERT INTO commands VALUES (1, 'cmd_LMRGQI40s0XnB2UjgOxJasUK', 'sbx_8iI9JTBShxCqgOxanTSINB1X', 'true', '/vercel',
  '[]', 1794858194636, 0, 1, 0, 0);
INSERT INTO subdomains VALUES ('sb-wgavv8suy58o', 1);
INSERT INTO snapshots VALUES (1, 'snap_Hu7LDlaNO1AXhCxKXFWRfeUg', 'team_a', 'prj_a', 'alpha',
  'sbx_8iI9JTBShxCqgOxanTSINB1X', '', 0, 0, 'iad1', 4096, 1794858194641, 1794858194641, 1794858194641, 0, '',
  'vercel/sandbox/universal@sha256:universal', '/vercel', 'ubuntu', '/vercel', 1000, 1000,
  '{"FROM_IMAGE":"yes","PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin"}', '["l1","l0"]',
  '["snap_Hu7LDlaNO1AXhCxKXFWRfeUg"]', 1794858194646, 1794858194646, '', 'fake', 'dir', '', '', 0);
INSERT INTO snapshots VALUES (2, 'snap_5Ba7XEg17TOdHuxnCwI9Fwr5', 'team_a', 'prj_a', 'beta',
  'sbx_WZyo5V6bAyslqi7ldkRGJqeZ', '', 0, 0, 'iad1', 4096, 1794858194662, 1794858194662, 1794858194662, 0, '',
  'vercel/sandbox/universal@sha256:universal', '/vercel', 'ubuntu', '/vercel', 1000, 1000,
  '{"FROM_IMAGE":"yes","PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin"}', '["l1","l0"]',
  '["snap_5Ba7XEg17TOdHuxnCwI9Fwr5"]', 1794858194675, 1794858194675, '', 'fake', 'dir', '', '', 0);
INSERT INTO snapshots VALUES (3, 'snap_o2IhiBgI5I4Ynv2NDwewIlJC', 'team_a', 'prj_a', 'gamma',
  'sbx_ToeSVIim1wsUWoEz3SRjN6f3', '', 0, 0, 'iad1', 4096, 1794858194688, 1794858194688, 1794858194688, 0, '',
  'vercel/sandbox/universal@sha256:universal', '/vercel', 'ubuntu', '/vercel', 1000, 1000,
  '{"FROM_IMAGE":"yes","PATH":"/vercel/bin:/usr/local/bin:/usr/bin:/bin"}', '["l1","l0"]',
  '["snap_o2IhiBgI5I4Ynv2NDwewIlJC"]', 1794858194698, 1794858194698, '', 'fake', 'dir', '', '', 0);
INSERT INTO drives VALUES (1, 'drv_2Ij6jXrJaGx9GOId0G3I4Ocf', 'team_a', 'prj_a', 'data', 'iad1', 1099511627776, 0,
  0, 1794858194694, 1794858194694);
INSERT INTO layers VALUES ('snap_Hu7LDlaNO1AXhCxKXFWRfeUg', 'digest of snap_Hu7LDlaNO1AXhCxKXFWRfeUg', 4096, 1,
  1794858194646, 1794858194646, '');
INSERT INTO layers VALUES ('snap_5Ba7XEg17TOdHuxnCwI9Fwr5', 'digest of snap_5Ba7XEg17TOdHuxnCwI9Fwr5', 4096, 1,
  1794858194675, 1794858194675, '');
INSERT INTO layers VALUES ('snap_o2IhiBgI5I4Ynv2NDwewIlJC', 'digest of snap_o2IhiBgI5I4Ynv2NDwewIlJC', 4096, 1,
  1794858194698, 1794858194698, '');
INSERT INTO notes VALUES ('boot', 'f28af336-0c6b-4780-b265-b55d0bd8da47');
INSERT INTO tokens VALUES ('tok_fT5MjGLKsCUdCdJIx9CzhCdu',
  '1b31e0b41586b826714b638d1c6288dc7c5f254a9553844033ae5bbedffdd135', 'bootstrap', '*', '*', 1794858194591);
INSERT INTO usage VALUES ('team_a', 'prj_a', 3, 0, 131072, 0, 0);
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
PRAGMA user_version = 10;
)sql";

}  // namespace sandbar::store::testing
