// Drives with the unmodified SDK: one writer, many readers, limits, and nothing lost or let through.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { engine, until } from "../support/server.mjs";

const { Drive, Sandbox, sandbox, credentials, server } = await useSdk();
let counter = 0;
const unique = (prefix) => `${prefix}-${++counter}`;
const drive = (params = {}) => Drive.getOrCreate({ name: unique("drive"), ...credentials, ...params });
const again = (d) => Drive.getOrCreate({ name: d.name, ...credentials });
// Writes a file to a drive through a sandbox of its own.
async function fill(d, script) {
  const box = await sandbox({ mounts: { "/data": d }, persistent: false });
  const done = await sh(box, `cd /data && ${script}`);
  assert.equal(done.exitCode, 0, done.stderr);
  await box.stop();
}

// gVisor keeps them in its own memory.
const keepsFifos = engine !== "gvisor";

test("get or create, list, delete", async () => {
  const made = await drive();
  assert.match(made.driveId, /^drv_/);
  assert.deepEqual([made.region, made.maxSize, made.currentSessionId], ["iad1", 2 ** 40, undefined]);
  assert.equal((await again(made)).driveId, made.driveId);
  const conflict = await apiError(Drive.getOrCreate({ name: made.name, maxSize: 2 ** 30, ...credentials }));
  assert.deepEqual([conflict.status, conflict.code], [409, "conflict"]);
  assert.equal((await apiError(Drive.getOrCreate({ name: made.name, region: "sfo1", ...credentials }))).status, 409);
  assert.equal((await apiError(Drive.getOrCreate({ name: "no/slash", ...credentials }))).status, 400);
  assert.equal((await apiError(Drive.getOrCreate({ name: "x".repeat(65), ...credentials }))).status, 400);

  const names = ["list-a", "list-b", "list-c"];
  for (const name of names) await Drive.getOrCreate({ name, ...credentials });
  const page = await Drive.list({ namePrefix: "list-", sortBy: "name", sortOrder: "asc", limit: 2, ...credentials });
  assert.deepEqual(page.drives.map((d) => d.name), ["list-a", "list-b"]);
  assert.deepEqual((await page.toArray()).map((d) => d.name), names);
  for (const d of await page.toArray()) await d.delete();
  assert.deepEqual((await Drive.list({ namePrefix: "list-", ...credentials })).drives, []);
  assert.equal((await apiError(page.drives[0].delete())).status, 404);
  const reborn = await Drive.getOrCreate({ name: "list-a", ...credentials });
  assert.notEqual(reborn.driveId, page.drives[0].driveId, "a deleted drive does not come back");
});

test("what one sandbox writes the next one has, as its user", async () => {
  const d = await drive();
  const first = await sandbox({ name: unique("writer"), mounts: { "/data/deep": d } });
  assert.deepEqual(first.mounts, { "/data/deep": { drive: d.name, mode: "read-write" } });
  const wrote = await sh(first, "cd /data/deep && echo hello > f && mkdir bin && printf '#!/bin/sh\\necho ran\\n' > bin/run && chmod +x bin/run && stat -c %U .");
  assert.equal(wrote.stdout, (await sh(first, "id -un")).stdout, wrote.stderr);
  const held = await again(d);
  assert.deepEqual([held.currentSandboxName, held.currentSessionId], [first.name, first.currentSession().sessionId]);
  assert.equal((await apiError(d.delete())).status, 409);
  const second = await apiError(sandbox({ mounts: { "/data": d } }));
  assert.deepEqual([second.status, second.code], [409, "conflict"]);
  assert.match(second.message, new RegExp(first.name));
  await first.stop();
  assert.equal((await again(d)).currentSessionId, undefined);

  const next = await sandbox({ mounts: { "/elsewhere": d } });
  assert.equal((await sh(next, "cat /elsewhere/f; /elsewhere/bin/run")).stdout, "hello\nran\n");
  assert.equal((await apiError(sh(first, "true"))).status, 409, "resume of the first would need the drive");
  await next.stop();
  assert.equal((await sh(first, "cat /data/deep/f")).stdout, "hello\n", "resumed with its drive");
  await first.stop();
});

test("readers see the last detach, also while somebody writes", async () => {
  const d = await drive();
  const early = await apiError(sandbox({ mounts: { "/d": d.snapshot() } }));
  assert.deepEqual([early.status, early.code], [400, "drive_not_initialized"]);
  await fill(d, "echo one > f; mkfifo p; chmod 666 p");
  const writer = await sandbox({ mounts: { "/d": d } });
  await sh(writer, "echo two > /d/f; echo new > /d/n");
  const readers = await Promise.all([1, 2].map(() => sandbox({ mounts: { "/d": d.snapshot() } })));
  for (const reader of readers) {
    assert.equal((await sh(reader, "cat /d/f; ls /d")).stdout, keepsFifos ? "one\nf\np\n" : "one\nf\n");
    assert.match((await sh(reader, "echo x > /d/f", { sudo: true })).stderr, /[Rr]ead-only/);
  }
  // A FIFO in a drive snapshot is each reader's own.
  if (keepsFifos) {
    await sh(readers[0], "sleep 600 <>/d/p >/dev/null 2>&1 &");
    await sh(readers[1], "echo secret 1<>/d/p");
    assert.equal((await sh(readers[0], "echo own 1<>/d/p; timeout 1 cat /d/p")).stdout, "own\n");
  }
  await writer.stop();
  assert.equal((await sh(readers[0], "cat /d/f")).stdout, "one\n", "a session keeps the drive snapshot it started with");
  const later = await sandbox({ mounts: { "/d": { drive: d.name, mode: "read-only" } } });
  assert.equal((await sh(later, "cat /d/f /d/n")).stdout, "two\nnew\n");
});

test("the limit holds inside and nowhere else", async () => {
  const small = await drive({ maxSize: 32 * 2 ** 20 });
  assert.equal(small.maxSize, 32 * 2 ** 20);
  const box = await sandbox({ mounts: { "/small": small } });
  const full = await sh(box, "dd if=/dev/zero of=/small/f bs=1M count=100");
  assert.notEqual(full.exitCode, 0);
  assert.match(full.stderr, /quota|space/i);
  assert.equal((await sh(box, "dd if=/dev/zero of=/tmp/f bs=1M count=100 status=none && echo fits")).stdout, "fits\n");
});

test("no privilege comes from a drive", async () => {
  const d = await drive();
  const box = await sandbox({ mounts: { "/d": d } });
  await sh(box, "cp /usr/bin/id /d/id && chown root /d/id && chmod 4755 /d/id", { sudo: true });
  assert.equal((await sh(box, "stat -c '%a %u' /d/id; /d/id -u")).stdout, `4755 0\n${(await sh(box, "id -u")).stdout}`);
  const made = (await sh(box, "mknod /d/null c 1 3", { sudo: true })).exitCode;
  // The root of a virtual machine may make one; nobody may open it.
  if (!engine.startsWith("microvm")) assert.notEqual(made, 0);
  assert.notEqual((await sh(box, "cat /d/null", { sudo: true })).exitCode, 0);
  // gVisor shows no options there; what they would keep out does not exist in it.
  if (engine !== "gvisor") assert.match((await sh(box, "grep ' /d ' /proc/mounts")).stdout, /nosuid,nodev/);
});

test("a link at the mount path redirects nothing", async () => {
  const d = await drive();
  const box = await sandbox({ name: unique("linked") });
  await sh(box, "ln -s /etc /trap", { sudo: true });
  await box.stop();
  await box.update({ mounts: { "/trap": d } });
  const refused = await apiError(sh(box, "true"));
  // A virtual machine finds out by itself, and ends.
  assert.equal(refused.status, engine.startsWith("microvm") ? 503 : 400);
  assert.match(refused.message, /not a directory/i);
  assert.equal((await again(d)).currentSessionId, undefined, "a session that did not start holds nothing");
  await box.update({ mounts: {} });
  assert.equal((await sh(box, "readlink /trap")).stdout, "/etc\n");
});

test("mounts: checks, update and fork", async () => {
  const d = await drive();
  for (const path of ["relative", "/", "/a/../b", "/a//b", "/a/", "/proc/x", "/dev"]) {
    assert.equal((await apiError(sandbox({ mounts: { [path]: d } }))).status, 400, path);
  }
  assert.equal((await apiError(sandbox({ mounts: { "/a": d, "/a/b": d.snapshot() } }))).status, 400);
  assert.equal((await apiError(sandbox({ mounts: { "/a": d, "/b": d } }))).status, 400);
  assert.equal((await apiError(sandbox({ mounts: { "/a": { drive: "nobody", mode: "snapshot" } } }))).status, 404);
  assert.equal((await apiError(sandbox({ region: "sfo1", mounts: { "/a": d } }))).status, 400);
  const five = Object.fromEntries([1, 2, 3, 4, 5].map((i) => [`/m${i}`, d.snapshot()]));
  assert.equal((await apiError(sandbox({ mounts: five }))).status, 400);

  await fill(d, "echo content > f");
  const box = await sandbox({ name: unique("updated") });
  await box.update({ mounts: { "/d": d.snapshot() } });
  assert.equal((await sh(box, "ls /d 2>/dev/null")).stdout, "", "from the next session on");
  await box.stop();
  assert.equal((await sh(box, "cat /d/f")).stdout, "content\n");
  await box.stop();
  const fork = await Sandbox.fork({ sourceSandbox: box.name, ...credentials });
  assert.deepEqual(fork.mounts, { "/d": { drive: d.name, mode: "snapshot" } });
  assert.equal((await sh(fork, "cat /d/f")).stdout, "content\n");
  await fork.delete();
});

test("a drive survives kill -9 of the server while it is attached", async () => {
  const d = await drive();
  const box = await sandbox({ name: unique("crashed"), mounts: { "/d": d } });
  await sh(box, "echo before > /d/f");
  await server.crash();
  await server.start();
  assert.equal((await again(d)).currentSandboxName, box.name, "still attached");
  assert.equal((await sh(box, "cat /d/f; echo after > /d/g")).stdout, "before\n");
  // And while the session is being stopped.
  const stopping = box.stop().catch(() => {});
  await until(async () => (await server.call("GET", `/v2/sandboxes/${box.name}?projectId=prj_test&teamId=team_test`)).sandbox.status !== "running", "the stop begins");
  await server.crash();
  await server.start();
  await stopping;
  await until(async () => (await again(d)).currentSessionId === undefined, "the stop is finished");
  const reader = await sandbox({ mounts: { "/d": d.snapshot() } });
  assert.equal((await sh(reader, "cat /d/f /d/g")).stdout, "before\nafter\n");
  await reader.stop();
  await d.delete();
});
