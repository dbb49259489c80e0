// Every command of the official CLI that needs no terminal, unmodified, one after the other on one server. Those with a
// terminal are in cli.test.mjs, login and logout in login.test.mjs.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, repo, startServer } from "../support/server.mjs";

const cli = join(repo, "tests/clients/node_modules/sandbox/bin/sandbox.mjs");
let server, environment, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-test-cli-"));
  const lines = await new Promise((done, fail) =>
    execFile(binary, ["env", "--json", "--data", server.data], (error, stdout) => (error ? fail(error) : done(JSON.parse(stdout)))));
  environment = {
    PATH: process.env.PATH, HOME: scratch, CI: "1", NO_COLOR: "1", VERCEL_TELEMETRY_DISABLED: "1", SANDBOX_SKIP_VERSION_CHECK: "1",
    SANDBAR_URL: lines.SANDBAR_URL, VERCEL_OIDC_TOKEN: lines.VERCEL_OIDC_TOKEN, NODE_OPTIONS: `--import=file://${lines.register}`,
  };
});
after(async () => {
  await server?.stop();
  if (scratch) await rm(scratch, { recursive: true });
});

const attempt = (...words) =>
  new Promise((done) => {
    const child = execFile(process.execPath, [cli, ...words], { env: environment },
      (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr, all: stdout + stderr }));
    child.stdin.end();
  });
const sandbox = async (...words) => {
  const done = await attempt(...words);
  assert.equal(done.code, 0, `sandbox ${words.join(" ")}\n${done.all}`);
  return done;
};
const record = async (name) => (await server.call("GET", `/v2/sandboxes/${name}?project=prj_sandbar`)).sandbox;

test("create, run, exec, copy, list", async () => {
  const made = await sandbox("create", "--name", "box", "--timeout", "10m", "--vcpus", "2", "-p", "3000", "-e", "WHO=me", "-t", "team=a");
  assert.equal(made.stdout.trim(), "box", made.all);
  assert.match(made.stderr, /3000/);
  const exec = await attempt("exec", "-w", "/tmp", "-e", "X=1", "box", "--", "sh", "-c", 'echo "$WHO $X $PWD"; echo oops >&2; exit 3');
  assert.equal(exec.code, 3, exec.all);
  assert.equal(exec.stdout, "me 1 /tmp\n");
  assert.match(exec.stderr, /oops/);
  assert.equal((await sandbox("exec", "--sudo", "box", "--", "id", "-u")).stdout, "0\n");
  assert.match((await attempt("exec", "--timeout", "1s", "box", "--", "sleep", "60")).all, /timeout|timed out|137/i);
  assert.match((await sandbox("run", "--rm", "--timeout", "5m", "--", "echo", "once")).stdout, /once\n$/);
  assert.equal((await attempt("run", "--name", "box", "--", "sh", "-c", "exit 5")).code, 5);

  const file = join(scratch, "in.bin");
  await writeFile(file, Buffer.from([0, 255, 10, 13, 128]));
  await sandbox("copy", file, "box:/tmp/in.bin");
  await sandbox("cp", "box:/tmp/in.bin", join(scratch, "out.bin"));
  assert.deepEqual(await readFile(join(scratch, "out.bin")), await readFile(file));

  assert.match((await sandbox("list")).stdout, /box\s+running/);
  assert.match((await sandbox("ls", "-a", "--name-prefix", "bo", "--tag", "team=a", "--limit", "5")).stdout, /box/);
  assert.doesNotMatch((await sandbox("ls", "--tag", "team=b")).stdout, /\bbox\b/);
});

test("config: what is set is in the record, and what cannot be kept is refused", async () => {
  assert.match((await sandbox("config", "list", "box")).all, /box|vcpu/i);
  await sandbox("config", "vcpus", "box", "1");
  await sandbox("config", "timeout", "box", "20m");
  await sandbox("config", "persistent", "box", "true");
  await sandbox("config", "network-policy", "box", "--network-policy", "deny-all");
  await sandbox("config", "network-policy", "box", "--allowed-domain", "example.com");
  await sandbox("config", "snapshot-expiration", "box", "2d");
  await sandbox("config", "keep-last-snapshots", "box", "3");
  await sandbox("config", "keep-last-snapshots-for", "box", "1d");
  await sandbox("config", "delete-evicted-snapshots", "box", "false");
  await sandbox("config", "tags", "box", "--tag", "team=c");
  assert.match((await sandbox("config", "ports", "box", "-p", "8080")).all, /8080/);
  const now = await record("box");
  assert.equal(now.vcpus, 1);
  assert.equal(now.timeout, 1_200_000);
  assert.deepEqual(now.tags, { team: "c" });
  assert.equal(now.keepLastSnapshots.count, 3);
  for (const words of [["region", "box", "fra1"], ["failover-regions", "box", "fra1"], ["network-id", "box", "net_1"]]) {
    const refused = await attempt("config", ...words);
    if (refused.code === 0) assert.ok(JSON.stringify(await record("box")).includes(words[2]), `${words}: echoed and not kept\n${refused.all}`);
  }
});

test("snapshot, snapshots, sessions, fork, stop, remove", async () => {
  await sandbox("exec", "box", "--", "sh", "-c", "echo kept > kept");
  const taken = await sandbox("snapshot", "box", "--stop");
  const id = /snap_\w+/.exec(taken.all)?.[0];
  assert.ok(id, taken.all);
  assert.match((await sandbox("snapshots", "list")).stdout, new RegExp(id));
  assert.match((await sandbox("snapshots", "get", id)).all, new RegExp(id));
  assert.match((await sandbox("snapshots", "tree", "box")).all, new RegExp(id));
  await sandbox("config", "current-snapshot", "box", id);
  assert.equal((await sandbox("exec", "box", "--", "cat", "kept")).stdout, "kept\n", "a stopped sandbox goes on");
  assert.match((await sandbox("sessions", "list", "box", "-a")).all, /running/);
  const fork = await sandbox("fork", "box", "--name", "twin");
  assert.equal(fork.stdout.trim(), "twin", fork.all);
  assert.equal((await sandbox("exec", "twin", "--", "cat", "kept")).stdout, "kept\n");
  assert.match((await sandbox("stop", "twin")).all, /twin/);
  await sandbox("remove", "twin");
  assert.equal((await attempt("exec", "twin", "--", "true")).code, 1);
  const made = await sandbox("create", "--name", "copy", "--timeout", "5m", "-s", id);
  assert.equal(made.stdout.trim(), "copy");
  assert.equal((await sandbox("exec", "copy", "--", "cat", "kept")).stdout, "kept\n");
  await sandbox("rm", "copy");
});

test("drives, and a sandbox that mounts one", async () => {
  await sandbox("drives", "get-or-create", "data", "--max-size", String(64 << 20));
  assert.match((await sandbox("drives", "list")).stdout, /data/);
  await sandbox("create", "--name", "mounted", "--timeout", "5m", "--mount", "data:/data");
  await sandbox("exec", "mounted", "--", "sh", "-c", "echo on the drive > /data/x");
  assert.equal((await attempt("drives", "delete", "data")).code, 1, "it is attached");
  await sandbox("rm", "mounted");
  await sandbox("drives", "delete", "data");
  await sandbox("rm", "box");
});

test("what does not exist is told with a hint and exit code 1", async () => {
  const got = await attempt("exec", "nobody", "--", "true");
  assert.equal(got.code, 1);
  assert.match(got.all, /nobody|not found/i);
});
