// Many from one: forks at once, sandboxes warmed by a snapshot, and what a lost snapshot is repaired to.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { test } from "node:test";
import { promisify } from "node:util";
import { spawnerPid } from "../support/host.mjs";
import { sh, useSdk } from "./sdk.mjs";

const run = promisify(execFile);
const { Sandbox, sandbox, credentials, server } = await useSdk();
const unique = () => `f-${Math.random().toString(36).slice(2, 10)}`;
const base = { runtime: "node24", networkPolicy: "deny-all", ...credentials };
const read = async (box, path) => (await box.readFileToBuffer({ path }))?.toString() ?? null;

// Bytes of the store in use. It is mounted in the spawner's namespace only.
async function used() {
  const pid = await spawnerPid(server.data);
  const { stdout } = await run("nsenter", ["-t", String(pid), "-m", "--", "sh", "-c",
    "sync -f /run/sandbar/mnt/store; df --output=used -B1 /run/sandbar/mnt/store | tail -1"]);
  return Number(stdout);
}

test("20 forks of one snapshot at once share its contents until they write", async () => {
  const size = 48 << 20;
  const source = await sandbox({ name: unique() });
  await sh(source, `head -c ${size} /dev/urandom > big; mkdir d; echo one > d/a`);
  const { stdout: digest } = await sh(source, "sha256sum big");
  await source.stop();
  const before = await used();
  const forks = await Promise.all(Array.from({ length: 20 }, () => Sandbox.fork({ sourceSandbox: source.name, ...credentials })));
  try {
    const sums = await Promise.all(forks.map((box) => sh(box, "sha256sum big")));
    assert.deepEqual(new Set(sums.map((s) => s.stdout)), new Set([digest]));
    const grown = (await used()) - before;
    assert.ok(grown < size, `20 forks took ${grown} bytes, one copy would be ${size}`);
    await Promise.all(forks.map((box, i) => sh(box, `echo ${i} > d/a; mv d e`)));
    const marks = await Promise.all(forks.map((box) => read(box, "e/a")));
    assert.deepEqual(marks, forks.map((_, i) => `${i}\n`), "each has its own files");
    assert.equal(await read(source, "d/a"), "one\n");
  } finally {
    await Promise.allSettled(forks.map((box) => box.delete()));
  }
});

test("getOrCreate warmed by a snapshot: set up once, named and unnamed", async () => {
  const mark = String(randomInt(1e9));
  let setUps = 0;
  const warm = await Sandbox.getOrCreate({ ...base, name: unique(), onCreate: async (box) => {
    setUps++;
    await box.writeFiles([{ path: "warm", content: mark }]);
  } });
  const { snapshotId } = await warm.snapshot();
  const from = { ...base, source: { type: "snapshot", snapshotId } };
  delete from.runtime;
  const created = [];
  const onCreate = async (box) => void created.push(box.name);
  const name = unique();
  const boxes = [
    await Sandbox.getOrCreate({ ...from, name, onCreate }),
    await Sandbox.getOrCreate({ ...from, name, onCreate }),
    await Sandbox.getOrCreate({ ...from, onCreate }),
    await Sandbox.getOrCreate({ ...from, onCreate }),
  ];
  for (const box of boxes) assert.equal(await read(box, "warm"), mark);
  assert.equal(new Set(boxes.map((b) => b.name)).size, 3, "unnamed ones are always new");
  assert.deepEqual(created, [name, boxes[2].name, boxes[3].name]);
  assert.equal(setUps, 1);
  for (const box of [warm, ...boxes.slice(1)]) await box.delete();
});

test("getOrCreate replaces a sandbox whose snapshot is gone", async () => {
  const name = unique();
  const made = [];
  const params = { ...base, name, resume: true, onCreate: async (box) => void made.push(box.name) };
  const box = await Sandbox.getOrCreate(params);
  await box.writeFiles([{ path: "old", content: "x" }]);
  await box.stop();
  const { sandbox: row } = await server.call("GET", `/v2/sandboxes/${name}?projectId=prj_test&teamId=team_test`);
  await server.call("DELETE", `/v2/sandboxes/snapshots/${row.currentSnapshotId}?projectId=prj_test&teamId=team_test`);
  const again = await Sandbox.getOrCreate(params);
  assert.deepEqual(made, [name, name]);
  assert.equal(await read(again, "old"), null);
  await again.delete();
});
