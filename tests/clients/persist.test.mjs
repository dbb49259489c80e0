// Sandboxes that go on: stop keeps the files, calls resume by themselves, snapshots, forks, retention.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { until } from "../support/server.mjs";

const { Sandbox, Snapshot, sandbox, credentials, server } = await useSdk();
const unique = () => `p-${Math.random().toString(36).slice(2, 10)}`;
const read = async (box, path) => (await box.readFileToBuffer({ path }))?.toString() ?? null;

test("stop keeps the files, the next call resumes", async () => {
  const box = await sandbox({ name: unique(), env: { COLOUR: "blue" } });
  const first = box.currentSession().sessionId;
  await box.writeFiles([{ path: "note.txt", content: "kept" }]);
  assert.equal((await sh(box, "sudo sh -c 'echo root > /etc/mine; rm /etc/debian_version'; mkdir d; echo $COLOUR > d/x")).exitCode, 0);
  const stopped = await box.stop();
  assert.equal(stopped.status, "stopped");
  assert.equal(stopped.snapshot?.creationMethod ?? "automatic", "automatic");

  const again = await sh(box, "cat note.txt /etc/mine d/x; ls /etc/debian_version; echo $COLOUR");
  assert.equal(again.stdout, "keptroot\nblue\nblue\n");
  assert.notEqual(box.currentSession().sessionId, first, "a new session");
  assert.equal(box.status, "running");
});

test("a stopped sandbox resumes on every kind of call", async () => {
  const box = await sandbox({ name: unique() });
  await box.writeFiles([{ path: "a", content: "1" }]);
  const calls = {
    read: () => read(box, "a"),
    write: () => box.writeFiles([{ path: "b", content: "2" }]),
    mkdir: () => box.mkDir("dir" + Math.random()),
    command: () => box.runCommand("true"),
    extend: () => box.extendTimeout(1000),
    network: () => box.update({ networkPolicy: "deny-all" }),
  };
  for (const [name, call] of Object.entries(calls)) {
    await box.stop();
    await call();
    if (name === "network") continue; // an update never resumes
    assert.equal((await Sandbox.get({ name: box.name, resume: false, ...credentials })).status, "running", name);
  }
});

test("get with resume: one boot for all who ask at once", async () => {
  const box = await sandbox({ name: unique() });
  await box.stop();
  const views = await Promise.all(Array.from({ length: 8 }, () =>
    server.call("GET", `/v2/sandboxes/${box.name}?projectId=prj_test&teamId=team_test&resume=true`)));
  assert.equal(new Set(views.map((v) => v.session.id)).size, 1);
  assert.equal(views.filter((v) => v.resumed).length, 1, "one of them did it");
  const { sessions } = await server.call("GET", `/v2/sandboxes/sessions?project=prj_test&teamId=team_test&name=${box.name}`);
  assert.equal(sessions.length, 2);
});

test("onCreate once, onResume when it was resumed", async () => {
  const name = unique();
  const seen = [];
  const params = {
    name, runtime: "node24", networkPolicy: "deny-all", ...credentials,
    onCreate: async (box) => { seen.push("create"); await box.writeFiles([{ path: "warm", content: "yes" }]); },
    onResume: async () => void seen.push("resume"),
  };
  const box = await Sandbox.getOrCreate(params);
  await Sandbox.getOrCreate(params);
  await box.stop();
  const back = await Sandbox.getOrCreate(params);
  assert.equal(await read(back, "warm"), "yes");
  assert.deepEqual(seen, ["create", "resume"]);
  await back.delete();
});

test("a non-persistent sandbox leaves nothing", async () => {
  const box = await sandbox({ name: unique(), persistent: false });
  await box.stop();
  const { status, code } = await apiError(Sandbox.get({ name: box.name, resume: true, ...credentials }));
  assert.deepEqual([status, code], [400, "snapshot_not_found"]);
});

test("the timeout keeps the files too", async () => {
  const box = await sandbox({ name: unique(), timeout: 2000 });
  await box.writeFiles([{ path: "late", content: "in time" }]);
  await until(async () => (await Sandbox.get({ name: box.name, resume: false, ...credentials })).status === "stopped", "it times out");
  assert.equal(await read(box, "late"), "in time");
});

test("snapshot: stops, can be started from, listed, deleted", async () => {
  const box = await sandbox({ name: unique(), persistent: false });
  await box.writeFiles([{ path: "base", content: "ready" }]);
  const snapshot = await box.snapshot();
  assert.match(snapshot.snapshotId, /^snap_/);
  assert.equal(snapshot.status, "created");
  const made = await Promise.all([1, 2, 3].map(() => sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId: snapshot.snapshotId } })));
  for (const [i, copy] of made.entries()) {
    assert.equal(await read(copy, "base"), "ready");
    await copy.writeFiles([{ path: "base", content: `changed ${i}` }]);
  }
  assert.deepEqual(await Promise.all(made.map((c) => read(c, "base"))), ["changed 0", "changed 1", "changed 2"]);
  const found = await Snapshot.get({ snapshotId: snapshot.snapshotId, ...credentials });
  assert.equal(found.status, "created");
  assert.ok(found.expiresAt > new Date());
  await found.delete();
  assert.equal((await Snapshot.get({ snapshotId: snapshot.snapshotId, ...credentials })).status, "deleted");
  const gone = await apiError(sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId: snapshot.snapshotId } }));
  assert.deepEqual([gone.status, gone.code], [410, "snapshot_not_found"]);
  // Those that stand on it do not notice, and can themselves be kept.
  await made[0].stop();
  assert.equal(await read(made[0], "base"), "changed 0");
});

test("two snapshots in a row on one handle", async () => {
  const box = await sandbox({ name: unique(), persistent: false });
  const one = await box.snapshot();
  const two = await box.snapshot();
  assert.notEqual(one.snapshotId, two.snapshotId);
  const parent = (await server.call("GET", `/v2/sandboxes/snapshots/${two.snapshotId}?teamId=team_test`)).snapshot.parentId;
  assert.equal(parent, one.snapshotId);
});

test("rollback by currentSnapshotId, tree in both directions", async () => {
  const box = await sandbox({ name: unique() });
  const ids = [];
  for (const content of ["one", "two", "three"]) {
    await box.writeFiles([{ path: "v", content }]);
    ids.push((await box.snapshot()).snapshotId);
  }
  const tree = async (id, order) => (await server.call("GET", `/v2/sandboxes/snapshots/tree?project=prj_test&teamId=team_test&snapshotId=${id}&sortOrder=${order}`));
  const up = await tree(ids[2], "desc");
  assert.deepEqual(up.snapshots.map((n) => n.snapshot.id), [ids[1], ids[0]]);
  assert.equal(up.anchor.count, "1");
  assert.deepEqual((await tree(ids[0], "asc")).snapshots.map((n) => n.snapshot.id), [ids[1], ids[2]]);
  await box.update({ currentSnapshotId: ids[0] });
  await box.stop();
  // The stop of a session that never resumed changes nothing.
  const back = await Sandbox.get({ name: box.name, resume: true, ...credentials });
  assert.equal(await read(back, "v"), "one");
  assert.equal((await apiError(box.update({ currentSnapshotId: "snap_nothing" }))).status, 404);
});

test("fork: a copy of the newest snapshot and of the settings", async () => {
  const box = await sandbox({ name: unique(), env: { WHO: "source" }, tags: { kind: "base" }, resources: { vcpus: 1 } });
  await box.writeFiles([{ path: "f", content: "from source" }]);
  const { snapshotId } = await box.snapshot();
  const forks = await Promise.all(Array.from({ length: 5 }, (_, i) =>
    Sandbox.fork({ sourceSandbox: box.name, name: `${box.name}-f${i}`, ...(i === 4 ? { env: { WHO: "fork" } } : {}), ...credentials })));
  assert.equal((await sh(forks[0], "cat f; echo $WHO; nproc")).stdout, "from sourcesource\n1\n");
  assert.equal((await sh(forks[4], "echo $WHO")).stdout, "fork\n");
  assert.equal(forks[0].currentSession().sourceSnapshotId ?? snapshotId, snapshotId);
  await forks[0].writeFiles([{ path: "f", content: "mine" }]);
  assert.equal(await read(forks[1], "f"), "from source");
  assert.equal((await apiError(Sandbox.fork({ sourceSandbox: "nobody", ...credentials }))).status, 404);
  await Promise.all(forks.map((f) => f.delete()));
});

test("policy and variables go on with the sandbox and into its forks", async () => {
  const policy = { allow: { "api.example": [{ transform: [{ headers: { authorization: "secret-canary" } }] }], "other.example": [] } };
  const box = await sandbox({ name: unique(), networkPolicy: policy, env: { KEPT: "yes" } });
  await box.stop();
  const probe = "curl -sS -m 20 https://nothing.example/ 2>&1 | tail -1; echo $KEPT";
  const resumed = await sh(box, probe);
  assert.match(resumed.stdout, /yes\n$/);
  const shown = (await server.call("GET", `/v2/sandboxes/${box.name}?projectId=prj_test&teamId=team_test`)).session.networkPolicy;
  assert.deepEqual([shown.mode, shown.allowedDomains, shown.injectionRules],
    ["custom", ["api.example", "other.example"], [{ domain: "api.example", headerNames: ["authorization"] }]]);
  const denied = await server.call("GET", `/x/v1/sessions/${box.currentSession().sessionId}/network/log`);
  assert.ok(JSON.stringify(denied).includes("nothing.example"), "the policy is in force after the resume");
  await box.stop();
  const fork = await Sandbox.fork({ sourceSandbox: box.name, name: unique(), ...credentials });
  const view = await server.call("GET", `/v2/sandboxes/${fork.name}?projectId=prj_test&teamId=team_test`);
  assert.deepEqual(view.session.networkPolicy, shown);
  assert.equal((await sh(fork, "echo $KEPT")).stdout, "yes\n");
  await fork.delete();
});

test("keepLastSnapshots evicts the oldest", async () => {
  const box = await sandbox({ name: unique(), keepLastSnapshots: { count: 2 } });
  const ids = [];
  for (let i = 0; i < 4; i++) ids.push((await box.snapshot()).snapshotId);
  const { snapshots } = await server.call("GET", `/v2/sandboxes/snapshots?project=prj_test&teamId=team_test&name=${box.name}`);
  assert.deepEqual(snapshots.map((s) => [s.id, s.status]),
    [[ids[3], "created"], [ids[2], "created"], [ids[1], "deleted"], [ids[0], "deleted"]]);
  assert.equal((await sh(box, "echo on")).stdout, "on\n", "layers of evicted ones still carry the newest");
});

test("delete keeps snapshots unless told otherwise", async () => {
  const box = await sandbox({ name: unique() });
  const { snapshotId } = await box.snapshot();
  await box.delete();
  assert.equal((await Snapshot.get({ snapshotId, ...credentials })).status, "created");
  const other = await sandbox({ name: unique() });
  const orphan = (await other.snapshot()).snapshotId;
  await other.delete({ deleteOrphanSnapshots: true });
  await until(async () => (await Snapshot.get({ snapshotId: orphan, ...credentials })).status === "deleted", "the orphan goes");
});

test("files survive a crash of the daemon and its restart", async () => {
  const box = await sandbox({ name: unique() });
  await box.writeFiles([{ path: "x", content: "before" }]);
  await box.stop();
  await server.crash();
  await server.start();
  assert.equal(await read(box, "x"), "before");
});
