// Snapshots on disk: durable, checked against their manifests, and never served silently when they are damaged.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { spawnerPid } from "../support/host.mjs";
import { binary, engine, startServer, until } from "../support/server.mjs";

const run = promisify(execFile);
const scope = "projectId=prj_sandbar&teamId=team_sandbar";
const server = await startServer({ config: "[snapshot]\nscrub = \"2s\"\n" });
const strict = await startServer({ config: "[snapshot]\nverify = \"strict\"\n" });
after(() => Promise.all([server.stop(), strict.stop()]));

const snapshot = async (on, id) => (await on.call("GET", `/v2/sandboxes/snapshots/${id}?${scope}`)).snapshot;
const durable = (on, id) => until(async () => (await snapshot(on, id)).durable && snapshot(on, id), `${id} is durable`);
const resume = (on, name) => on.call("GET", `/v2/sandboxes/${name}?${scope}&resume=true`);
const cli = async (on, ...words) => {
  const done = await run(binary, [...words, "--data", on.data], { env: { ...process.env, SANDBAR_URL: "", SANDBAR_TOKEN: "" } })
    .catch((e) => e);
  return { code: done.code ?? 0, stdout: done.stdout, stderr: done.stderr };
};

// Where a note lies in the store: a virtual machine's whole disk is one file there.
const block = engine.startsWith("microvm");
const note = block ? "disk.img" : "vercel/sandbox/note";
const noted = new RegExp(`changed /${note}`);

// A stopped sandbox with this file, made by this script; the id of its snapshot.
async function keep(on, name, script) {
  const { session } = await on.call("POST", `/v2/sandboxes?${scope}`, { body: { projectId: "prj_sandbar", name, runtime: "node24", networkPolicy: { mode: "deny-all" } } }).catch(() => resume(on, name));
  const done = await on.exec(session.id, "sh", ["-ec", script]);
  assert.equal(done.exitCode, 0, done.stderr);
  await on.call("POST", `/v2/sandboxes/sessions/${session.id}/stop?${scope}`);
  return (await on.call("GET", `/v2/sandboxes/${name}?${scope}`)).sandbox.currentSnapshotId;
}

// The store is mounted in the spawner's namespace only.
async function inStore(on, script) {
  const pid = await spawnerPid(on.data);
  await run("nsenter", ["-t", String(pid), "-m", "--", "sh", "-ec", `cd /run/sandbar/mnt/store; ${script}`]);
}

// One bit of one byte, and no trace of it in size or times.
const flip = (on, id, file) => inStore(on, `btrfs property set -f snapshots/${id} ro false; cd snapshots/${id}/upper; ` +
  `touch -r ${file} /tmp/times.$$; printf X | dd of=${file} conv=notrunc status=none; touch -r /tmp/times.$$ ${file}; rm /tmp/times.$$`);

test("a stop becomes durable and verified, with its real size", async () => {
  const id = await keep(server, "durable", "head -c 3000000 /dev/urandom > big");
  const row = await durable(server, id);
  assert.equal(row.verified, true);
  assert.ok(row.sizeBytes >= 3_000_000 && row.sizeBytes < (block ? 200_000_000 : 4_000_000), String(row.sizeBytes));
  const verified = await cli(server, "snapshot", "verify", id);
  assert.deepEqual([verified.code, verified.stdout], [0, `${id} ok\n`], verified.stderr);
});

test("a flipped byte is found by verify", async () => {
  const id = await keep(strict, "flipped", "echo hello > note");
  await durable(strict, id);
  await flip(strict, id, note);
  const verified = await cli(strict, "snapshot", "verify", id);
  assert.equal(verified.code, 1, verified.stderr);
  assert.match(verified.stdout, new RegExp(`damaged: .*changed /${note}`));
  assert.match((await snapshot(strict, id)).damage, noted);
});

test("… by the scrub", async () => {
  const id = await keep(server, "scrubbed", "echo hello > note");
  await durable(server, id);
  await flip(server, id, note);
  const row = await until(async () => { const s = await snapshot(server, id); return s.damage && s; }, "the scrub finds it");
  assert.match(row.damage, noted);
  assert.equal(row.verified, false);
});

test("… and by a resume under verify = strict, which refuses it", async () => {
  const id = await keep(strict, "served", "echo hello > note");
  await durable(strict, id);
  assert.equal((await resume(strict, "served")).resumed, true, "a good one is served");
  const second = await keep(strict, "served", "echo more > other");
  await durable(strict, second);
  await flip(strict, second, note); // what an earlier session wrote
  await assert.rejects(resume(strict, "served"), (e) => e.status === 409 && /is damaged/.test(e.text) && e.text.includes(note));
  await assert.rejects(strict.call("POST", `/v2/sandboxes/served/fork?${scope}`, { body: {} }), { status: 409 });
  // A rollback to one that is damaged is of no use either; the sandbox and its record are still there.
  assert.equal((await strict.call("GET", `/v2/sandboxes/served?${scope}`)).sandbox.name, "served");
});

test("a snapshot that is gone after a restart: the head falls back and says so", async () => {
  const first = await keep(server, "lost", "echo one > note");
  await durable(server, first);
  const second = await keep(server, "lost", "echo two > note");
  await durable(server, second);
  await server.crash();
  await inStore(server, `btrfs property set -f snapshots/${second} ro false; mv snapshots/${second} machines/w-lost`);
  await server.start();
  const inspect = await server.call("GET", `/x/v1/sandboxes/lost?${scope}`);
  assert.equal(inspect.sandbox.currentSnapshotId, first);
  assert.match(inspect.notices[0].text, new RegExp(`${second} is damaged.*starts from ${first}`));
  const { session } = await resume(server, "lost");
  assert.equal((await server.exec(session.id, "cat", ["note"])).stdout, "one\n");
});

test("a tree that is too deep to be read is kept as it is, and holds up nobody", { skip: block && "the host reads no trees of it" }, async () => {
  await keep(server, "deep", "echo one > note");
  const dig = "echo two > note; node -e 'for (let i = 0; i < 1700; i++) { fs.mkdirSync(\"d\"); process.chdir(\"d\"); }'";
  const id = await keep(server, "deep", dig);
  const other = await keep(server, "shallow", "echo three > note");
  await durable(server, other);
  assert.equal((await snapshot(server, id)).durable, false, "it has no digests");
  assert.equal((await snapshot(server, id)).damage, undefined);
  const { session } = await resume(server, "deep");
  assert.equal((await server.exec(session.id, "cat", ["note"])).stdout, "two\n");
});
