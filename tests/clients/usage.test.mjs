// Idle timeouts, repeated creates, updates of a record, limits, and what sandboxes have used.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { makeWorld } from "../support/world.mjs";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { hasMemory, sleep, until } from "../support/server.mjs";

const world = await makeWorld();
const prices = "[prices]\ncurrency = \"EUR\"\ncpu_hour = 100\nmemory_gb_hour = 10\ncreation = 0.5\ntransfer_gb = 1000\nfree_creations = 1\n";
const { Sandbox, sandbox, credentials, server } = await useSdk({
  config: `${world.config()}\n${prices}\n[limits]\nmax_running = 12\nmax_sandboxes = 14\nmax_ports = 3\nmax_timeout = "2h"\nmax_vcpus = 4\n`,
});
const unique = () => `u-${Math.random().toString(36).slice(2, 10)}`;
const query = "projectId=prj_test&teamId=team_test";
const record = async (name) => (await server.call("GET", `/v2/sandboxes/${name}?${query}`)).sandbox;
const session = async (name) => (await server.call("GET", `/v2/sandboxes/${name}?${query}`)).session;
const patch = (name, body) => server.call("PATCH", `/v2/sandboxes/${name}?${query}`, { body });

test("idle timeout: nobody used it, so it stops and keeps its files", async () => {
  const box = await sandbox({ name: unique(), __idleTimeoutMs: 1500 });
  assert.equal((await record(box.name)).idleTimeoutMs, 1500);
  await box.writeFiles([{ path: "kept", content: "yes" }]);
  await until(async () => (await record(box.name)).status === "stopped", "it falls idle");
  assert.equal((await session(box.name)).stopReason, "idle timeout");
  assert.equal((await box.readFileToBuffer({ path: "kept" })).toString(), "yes");
});

test("idle timeout: a command, a log reader and calls keep it awake; it is changed and cleared", async () => {
  const box = await sandbox({ name: unique(), __idleTimeoutMs: 1200 });
  const id = box.currentSession().sessionId;
  await sh(box, "sleep 3");
  for (let i = 0; i < 6; i++) {
    await sleep(500);
    await server.call("GET", `/v2/sandboxes/sessions/${id}`);
  }
  assert.equal((await session(box.name)).id, id);
  assert.equal((await session(box.name)).status, "running");
  await patch(box.name, { idleTimeoutMs: null });
  await sleep(2500);
  assert.equal((await session(box.name)).status, "running", "never, once it is cleared");
  assert.equal((await record(box.name)).idleTimeoutMs, undefined);
  await patch(box.name, { idleTimeoutMs: 1000 });
  await until(async () => (await record(box.name)).status === "stopped", "it falls idle after the change");
  const wrong = await server.request("PATCH", `/v2/sandboxes/${box.name}?${query}`, { body: { idleTimeoutMs: 5 } });
  assert.equal(wrong.status, 400);
});

test("idle timeout: code that runs is no idleness", async () => {
  const box = await sandbox({ name: unique(), __idleTimeoutMs: 1500 });
  const code = "await new Promise((done) => setTimeout(done, 4000)); 6 * 7";
  const answer = await server.request("POST", `/x/v1/sandboxes/${box.name}/code?projectId=prj_test&teamId=team_test`, { body: { language: "javascript", code } });
  const lines = (await answer.text()).trim().split("\n").map((line) => JSON.parse(line));
  assert.equal(lines.at(-1).status, "ok", JSON.stringify(lines));
});

test("idle timeout: survives a restart of the server", async () => {
  const box = await sandbox({ name: unique(), __idleTimeoutMs: 3000 });
  await server.crash();
  await server.start();
  assert.equal((await record(box.name)).idleTimeoutMs, 3000);
  await until(async () => (await record(box.name)).status === "stopped", "it falls idle");
});

// Sends a create and goes away without reading the answer; `hold` ms later.
const abandon = (body, hold) => new Promise((done) => {
  const text = JSON.stringify(body);
  const socket = connect(server.port, "127.0.0.1", () => {
    socket.write(`POST /v2/sandboxes?${query} HTTP/1.1\r\nhost: 127.0.0.1:${server.port}\r\nauthorization: Bearer ${server.token}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
    setTimeout(() => { socket.destroy(); done(); }, hold);
  });
});

test("a create whose answer got lost can be repeated, any other duplicate is refused", async () => {
  const name = unique();
  const body = { name, projectId: "prj_test", ports: [], runtime: "node24", networkPolicy: { mode: "deny-all" } };
  await abandon(body, 5);
  const again = await server.request("POST", `/v2/sandboxes?${query}`, { body });
  assert.equal(again.status, 200, await again.clone().text());
  const view = await again.json();
  assert.equal(view.sandbox.name, name);
  assert.equal(view.session.status, "running");
  const third = await server.request("POST", `/v2/sandboxes?${query}`, { body });
  assert.equal(third.status, 400, "it was answered in full");
  const other = await server.request("POST", `/v2/sandboxes?${query}`, { body: { ...body, timeout: 60_000 } });
  assert.equal(other.status, 400, "not the same request");
  await server.call("DELETE", `/v2/sandboxes/${name}?${query}`);
});

test("a create without a name whose client is gone is undone", async () => {
  const names = async () => (await server.call("GET", `/v2/sandboxes?${query}&project=prj_test&limit=50`)).sandboxes.map((s) => s.name).sort();
  const before = await names();
  await abandon({ projectId: "prj_test", ports: [], runtime: "node24", networkPolicy: { mode: "deny-all" } }, 5);
  await until(() => /its client is gone, deleted/.test(server.output), "the server notices");
  await until(async () => JSON.stringify(await names()) === JSON.stringify(before), "it is deleted");
});

test("update: every field, nulls that clear, resources at the next session", async () => {
  const box = await sandbox({ name: unique(), timeout: 60_000, ports: [3000], tags: { a: "1" }, keepLastSnapshots: { count: 2 } });
  const before = await session(box.name);
  await box.update({
    persistent: true, resources: { vcpus: 4 }, timeout: 90_000, tags: { b: "2" }, ports: [3000, 4000],
    snapshotExpiration: 172_800_000, keepLastSnapshots: { count: 3, deleteEvicted: false }, region: "fra1",
    failoverRegions: ["iad1", "iad1"], networkPolicy: "allow-all",
  });
  const now = await record(box.name);
  assert.deepEqual(
    [now.persistent, now.vcpus, now.memory, now.timeout, now.tags, now.snapshotExpiration, now.keepLastSnapshots, now.region, now.failoverRegions, now.networkPolicy],
    [true, 4, 8192, 90_000, { b: "2" }, 172_800_000, { count: 3, deleteEvicted: false }, "fra1", ["iad1"], { mode: "allow-all" }]);
  const running = await session(box.name);
  assert.equal(running.vcpus, 2, "the running session keeps its size");
  assert.equal(running.timeout, 90_000, "a longer timeout extends it");
  assert.equal(now.expiresAt, before.startedAt + 90_000);
  assert.deepEqual(box.routes.map((r) => r.port).sort(), [3000, 4000]);
  const patched = await patch(box.name, { keepLastSnapshots: null, networkId: null, failoverRegions: [], tags: {} });
  assert.equal(patched.sandbox.expiresAt, now.expiresAt, "answers of PATCH say when it ends");
  assert.ok(!("keepLastSnapshots" in patched.sandbox) && !("networkId" in patched.sandbox) && !("tags" in patched.sandbox));
  assert.deepEqual(patched.sandbox.failoverRegions, []);
  await box.stop();
  const { stdout } = await sh(box, "awk '/MemTotal/ {print $2 / 1024}' /proc/meminfo");
  assert.ok(hasMemory(Number(stdout), 8192), `the next session has the new size: ${stdout}`);
  const resumed = await session(box.name);
  assert.deepEqual([resumed.vcpus, resumed.memory, resumed.region, resumed.timeout], [4, 8192, "fra1", 90_000]);
  const { sandboxes } = await server.call("GET", `/v2/sandboxes?${query}&project=prj_test&limit=50`);
  assert.equal(sandboxes.find((s) => s.name === box.name).expiresAt, resumed.startedAt + 90_000, "lists too");
  for (const [params, what] of [[{ failoverRegions: ["fra1"] }, "own region"], [{ resources: { vcpus: 3 } }, "odd"], [{ timeout: 10 }, "short"]])
    assert.equal((await apiError(box.update(params))).status, 400, what);
});

test("limits are refused by name", async () => {
  const refused = async (params, pattern, status = 400) => {
    const error = await apiError(sandbox(params));
    assert.equal(error.status, status);
    assert.match(error.message, pattern);
  };
  await refused({ timeout: 3 * 3_600_000 }, /limit of 7200000 ms/);
  await refused({ resources: { vcpus: 8 } }, /limit of 4/);
  await refused({ ports: [3000, 3001, 3002, 3003] }, /at most 3 \(max_ports\)/);
  const made = [];
  let full;
  for (let i = 0; i < 20 && !full; i++) {
    const box = await sandbox({ name: unique() }).catch((e) => void (full = e));
    if (box) made.push(box);
    await box?.stop();
  }
  assert.equal(full.response.status, 429);
  assert.match(full.json.error.message, /max_sandboxes\) is 14/);
  await Promise.all(made.map((box) => box.delete()));
});

test("usage: a burn of two seconds and ten megabytes are counted and priced", async () => {
  const port = await world.https((request, response) => response.end(Buffer.alloc(10_000_000, 7)));
  const usage = async () => (await server.call("GET", `/x/v1/usage?${query}`)).projects.find((p) => p.projectId === "prj_test");
  const before = await usage();
  const box = await sandbox({ name: unique(), networkPolicy: { allow: ["files.test"] } });
  const burn = await sh(box, "node -e 'const end = process.cpuUsage().user + 2e6; while (process.cpuUsage().user < end);'");
  assert.equal(burn.exitCode, 0, burn.stderr);
  const got = await sh(box, `node -e 'fetch("https://files.test:${port}/").then(r => r.arrayBuffer()).then(b => console.log(b.byteLength))'`);
  assert.equal(got.stdout, "10000000\n", got.stderr);
  const live = await usage();
  assert.ok(live.activeCpuDurationMs - before.activeCpuDurationMs >= 2000, "a running one counts already");
  await box.stop();
  const done = await session(box.name);
  assert.ok(done.activeCpuDurationMs >= 2000 && done.activeCpuDurationMs < 60_000, `${done.activeCpuDurationMs}`);
  assert.ok(done.networkTransfer.ingress >= 10_000_000 && done.networkTransfer.ingress < 12_000_000, `${done.networkTransfer.ingress}`);
  const now = await usage();
  assert.equal(now.creations, before.creations + 1);
  assert.equal(now.ingressBytes - before.ingressBytes, done.networkTransfer.ingress);
  assert.equal(now.activeCpuDurationMs >= live.activeCpuDurationMs, true);
  const close = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${a} ${b}`);
  close(now.cpuHours, now.activeCpuDurationMs / 3_600_000);
  close(now.memoryGbHours, now.memoryMbMs / 1024 / 3_600_000);
  close(now.transferGb, (now.ingressBytes + now.egressBytes) / 1e9);
  close(now.cost.cpu, now.cpuHours * 100);
  close(now.cost.memory, now.memoryGbHours * 10);
  close(now.cost.creations, (now.creations - 1) * 0.5);
  close(now.cost.transfer, now.transferGb * 1000);
  close(now.cost.total, now.cost.cpu + now.cost.memory + now.cost.creations + now.cost.transfer);
  assert.equal(now.cost.currency, "EUR");
  await box.delete();
  assert.deepEqual((await usage()).creations, now.creations, "what was deleted stays counted");
});
