// Sandboxes as things: named, listed, found again, timed out, extended, stopped, many at once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { until } from "../support/server.mjs";

const { Sandbox, sandbox, credentials } = await useSdk({
  config: "[limits]\nmax_running = 64\nmax_timeout = \"2h\"\n[pool]\nnode24 = 2\n",
});
const unique = () => `t-${Math.random().toString(36).slice(2, 10)}`;

test("names: generated, chosen, taken, wrong", async () => {
  const generated = await sandbox();
  assert.match(generated.name, /^[a-zA-Z0-9_-]+$/);
  const name = unique();
  const chosen = await sandbox({ name });
  assert.equal(chosen.name, name);
  const again = await apiError(sandbox({ name }));
  assert.deepEqual([again.status, again.code], [400, "bad_request"]);
  assert.equal((await apiError(sandbox({ name: "no spaces" }))).status, 400);
});

test("get finds it, getOrCreate makes it once", async () => {
  const name = unique();
  assert.equal((await apiError(Sandbox.get({ name, ...credentials }))).status, 404);
  let created = 0;
  const params = { name, runtime: "node24", networkPolicy: "deny-all", onCreate: async () => void created++, ...credentials };
  const first = await Sandbox.getOrCreate(params);
  await first.writeFiles([{ path: "mark", content: "here" }]);
  const second = await Sandbox.getOrCreate(params);
  assert.equal(created, 1);
  assert.equal((await second.readFileToBuffer({ path: "mark" })).toString(), "here");
  const found = await Sandbox.get({ name, ...credentials });
  assert.equal(found.currentSession().sessionId, first.currentSession().sessionId);
  await found.delete();
  assert.equal((await apiError(Sandbox.get({ name, ...credentials }))).status, 404);
});

test("list: pages by cursor, tags, prefix, order", async () => {
  const suite = unique();
  for (let i = 0; i < 3; i++) await sandbox({ name: `${suite}-${i}`, tags: { suite } });
  const pages = [];
  const list = await Sandbox.list({ limit: 1, tags: { suite }, ...credentials });
  for await (const page of list.pages()) pages.push(page.sandboxes.map((s) => s.name));
  assert.deepEqual(pages, [[`${suite}-2`], [`${suite}-1`], [`${suite}-0`]], "newest first, one each, then the end");
  const byName = await Sandbox.list({ namePrefix: suite, sortBy: "name", sortOrder: "asc", ...credentials });
  assert.deepEqual((await byName.toArray()).map((s) => s.name), [`${suite}-0`, `${suite}-1`, `${suite}-2`]);
  const none = await Sandbox.list({ tags: { suite: "other" }, ...credentials });
  assert.deepEqual([none.sandboxes, none.pagination.next], [[], null]);
});

test("the timeout ends it", async () => {
  const box = await sandbox({ timeout: 2000, persistent: false });
  assert.ok(box.expiresAt instanceof Date);
  const running = await box.runCommand({ cmd: "sleep", args: ["1000"], detached: true });
  await until(async () => (await Sandbox.get({ name: box.name, ...credentials })).status === "stopped", "the sandbox times out");
  const session = (await Sandbox.get({ name: box.name, ...credentials })).currentSession();
  assert.ok(session.duration >= 1500, `${session.duration} ms`);
  await assert.rejects(box.runCommand("true"));
  assert.ok(running.cmdId);
});

test("extendTimeout adds, up to the maximum", async () => {
  const box = await sandbox({ timeout: 3000 });
  await box.extendTimeout(60_000);
  assert.equal(box.currentSession().timeout, 63_000);
  const { status, code } = await apiError(box.extendTimeout(5 * 24 * 3600_000));
  assert.deepEqual([status, code], [400, "sandbox_timeout_invalid"]);
  const started = box.currentSession().startedAt.getTime();
  await until(() => Date.now() > started + 4000, "the first deadline is over");
  assert.equal((await sh(box, "echo alive")).stdout, "alive\n");
});

test("stop: blocks, reports, happens once", async () => {
  const box = await sandbox({ persistent: false });
  await sh(box, "head -c 100000 /dev/zero | sha256sum");
  const stopped = await box.stop();
  assert.equal(stopped.status, "stopped");
  assert.equal((await box.stop()).status, "stopped");
  const again = await Sandbox.get({ name: box.name, ...credentials });
  assert.equal(again.status, "stopped");
  const sessions = await again.listSessions();
  assert.equal(sessions.sessions.length, 1);
  assert.equal(sessions.sessions[0].status, "stopped");
  assert.ok(sessions.sessions[0].activeCpuDurationMs >= 0);
  assert.deepEqual(Object.keys(sessions.sessions[0].networkTransfer).sort(), ["egress", "ingress"]);
  const resume = await apiError(Sandbox.get({ name: box.name, resume: true, ...credentials }));
  assert.deepEqual([resume.status, resume.code], [400, "snapshot_not_found"]);
});

test("stop gives programs a moment to end properly", async () => {
  const box = await sandbox();
  const cmd = await box.runCommand({ cmd: "sh", args: ["-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"], detached: true });
  await until(async () => (await sh(box, "pgrep -f 'echo bye' | wc -l")).stdout.trim() !== "0", "it runs");
  const logs = (async () => { let text = ""; for await (const l of cmd.logs()) if (l.stream === "stdout") text += l.data; return text; })();
  await box.stop();
  assert.equal(await logs, "up\nbye\n");
});

test("update of simple fields", async () => {
  const box = await sandbox({ tags: { a: "1" } });
  await box.update({ tags: { b: "2" }, timeout: 600_000 });
  assert.deepEqual(box.tags, { b: "2" });
  assert.equal(box.timeout, 600_000);
  const again = await Sandbox.get({ name: box.name, ...credentials });
  assert.deepEqual([again.tags, again.timeout], [{ b: "2" }, 600_000]);
});

test("wishes beyond the limits are refused with the limit's name", async () => {
  const big = await apiError(sandbox({ resources: { vcpus: 512 } }));
  assert.equal(big.status, 400);
  assert.match(big.message, /vcpus/);
  assert.equal((await apiError(sandbox({ resources: { vcpus: 3 } }))).status, 400);
  assert.equal((await apiError(sandbox({ timeout: 10 }))).status, 400);
  assert.equal((await apiError(sandbox({ runtime: "cobol85" }))).status, 400);
  const typo = await apiError(sandbox({ resources: { vcpus: 1, memry: 5 } }));
  assert.equal(typo.status, 400);
  assert.match(typo.message, /memry[\s\S]*memory/);
});

test("20 sandboxes at once, each its own", async () => {
  const boxes = await Promise.all(Array.from({ length: 20 }, () => sandbox()));
  const outs = await Promise.all(boxes.map(async (box, i) => {
    await box.writeFiles([{ path: "who", content: `${i}` }]);
    return sh(box, "cat who; echo; node -v");
  }));
  outs.forEach(({ stdout }, i) => assert.match(stdout, new RegExp(`^${i}\\nv24\\.`)));
  assert.equal(new Set(boxes.map((b) => b.name)).size, 20);
  await Promise.all(boxes.map((b) => b.delete()));
});
