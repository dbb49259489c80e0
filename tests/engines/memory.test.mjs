// Machines that go on with their memory: processes, variables and open files continue in a live fork.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { open, readdir, readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { sh, useSdk } from "../clients/sdk.mjs";
import { startServer, until } from "../support/server.mjs";
import { Cells } from "../code/cells.mjs";
import { machinePids, spawnerPid } from "../support/host.mjs";

const probe = await startServer({ config: 'isolation = "namespaces"\n' });
const { engines } = await probe.call("GET", "/x/v1/info");
await probe.stop();
const engine = engines.find((e) => e.name.startsWith("microvm") && e.usable);
assert.ok(engine, `no usable microVM: ${engines.map((e) => e.whyNot).join("; ")}`);

const { Sandbox, sandbox, credentials, server } = await useSdk({ config: `isolation = "${engine.name}"\nresume = "memory"\n` });
const unique = () => `m-${Math.random().toString(36).slice(2, 10)}`;
const small = { resources: { vcpus: 1 } };

const counter = `
import time, sys
n, log = 0, open("log", "a")
while True:
    n += 1
    print(n, flush=True)
    log.write(f"{n}\\n"); log.flush()
    time.sleep(0.2)
`;
async function counting(params = {}) {
  const box = await sandbox({ name: unique(), runtime: "python3.13", ...small, ...params });
  await box.writeFiles([{ path: "count.py", content: counter }]);
  const command = await box.runCommand({ cmd: "python3", args: ["count.py"], detached: true });
  await until(async () => (await numbers(box)).length > 3, "it counts");
  return [box, command];
}
const numbers = async (box) => (await sh(box, "cat log")).stdout.trim().split("\n").filter(Boolean).map(Number);
async function forkLive(box, body = {}) {
  const answer = await server.call("POST", `/x/v1/sandboxes/${box.name}/fork?projectId=prj_test&teamId=team_test`, { body: { live: true, name: unique(), ...body } });
  const copy = await Sandbox.get({ name: answer.sandbox.name, ...credentials });
  return [copy, answer];
}
const inOrder = (list) => assert.deepEqual(list, Array.from({ length: list.length }, (_, i) => i + 1));

const commands = async (session) => (await server.call("GET", `/v2/sandboxes/sessions/${session}/cmd`)).commands;
// What a running command has printed so far, and the next few lines.
async function follow(session, id, enough) {
  const controller = new AbortController();
  const response = await server.request("GET", `/v2/sandboxes/sessions/${session}/cmd/${id}/logs`, { signal: controller.signal });
  let text = "", seen = [];
  try {
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      text += piece;
      seen = text.split("\n").slice(0, -1).filter(Boolean).map((l) => JSON.parse(l).data).join("").trim().split("\n").map(Number);
      if (enough(seen)) break;
    }
  } finally {
    controller.abort();
  }
  return seen;
}
const idOf = (box) => box.currentSession().sessionId;

test("a counting process goes on in both copies, each for itself", async () => {
  const [box, command] = await counting();
  const [copy, answer] = await forkLive(box);
  assert.ok(answer.pauseMs >= 0 && answer.memoryBytes > 1 << 20, JSON.stringify(answer));
  const at = (await numbers(copy)).length;
  await until(async () => (await numbers(copy)).length > at + 3, "the fork counts on");
  inOrder(await numbers(copy));
  inOrder(await numbers(box));

  // The command is there in both, under different ids, with all that it printed.
  const [theirs] = (await commands(idOf(copy))).filter((c) => c.args[0] === "count.py");
  assert.notEqual(theirs.id, command.cmdId);
  assert.equal(theirs.exitCode ?? null, null);
  inOrder(await follow(idOf(copy), theirs.id, (seen) => seen.length > at + 5));
  inOrder(await follow(idOf(box), command.cmdId, (seen) => seen.length > at + 5));

  // Killed in one, it goes on in the other.
  await server.call("POST", `/v2/sandboxes/sessions/${idOf(copy)}/cmd/${theirs.id}/kill`, { body: { signal: 15 } });
  const ended = await server.call("GET", `/v2/sandboxes/sessions/${idOf(copy)}/cmd/${theirs.id}?wait=true`);
  assert.equal(ended.command.exitCode, 143);
  const before = (await numbers(box)).length;
  await until(async () => (await numbers(box)).length > before + 2, "the source counts on");
  await sh(copy, "echo mine > only");
  assert.notEqual((await sh(box, "cat only")).exitCode, 0);

  // Neither shares random numbers with the other, nor an old clock.
  const random = "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid";
  const [x, y] = [(await sh(box, random)).stdout.split("\n"), (await sh(copy, random)).stdout.split("\n")];
  for (const i of [0, 1]) assert.notEqual(x[i], y[i]);
  assert.ok(Math.abs(Number((await sh(copy, "date +%s")).stdout) - Date.now() / 1000) < 60);

  // A fork of a fork, whose command goes on there too.
  const again = await copy.runCommand({ cmd: "python3", args: ["-c", "import time\nn = 41\ntime.sleep(3)\nprint(n + 1)"], detached: true });
  const [third] = await forkLive(copy);
  const [sleeper] = (await commands(idOf(third))).filter((c) => c.args[0] === "-c");
  const slept = await server.call("GET", `/v2/sandboxes/sessions/${idOf(third)}/cmd/${sleeper.id}?wait=true`);
  assert.equal(slept.command.exitCode, 0);
  assert.deepEqual(await follow(idOf(third), sleeper.id, () => false), [42]);
  assert.equal((await again.wait()).exitCode, 0);
  assert.equal((await sh(third, "cat only")).stdout, "mine\n");
});

const scope = "projectId=prj_test&teamId=team_test";
const native = (method, name, what, body) => server.call(method, `/x/v1/sandboxes/${name}/${what}?${scope}`, { body });
const cell = async (name, code) => (await new Cells(server, name, "python", scope).ok(code)).text;

test("paused by name, a sandbox goes on where it was, also with another server", async () => {
  const [box, command] = await counting({ persistent: false });
  await cell(box.name, "x = 41");
  const paused = await native("POST", box.name, "pause");
  assert.equal(paused.snapshot.memory, true);
  assert.equal(paused.session.status, "stopped");
  const [gone] = await commands(idOf(box));
  assert.notEqual(gone.exitCode ?? null, null);
  await server.crash();
  await server.start();
  const before = Date.now();
  const resumed = await native("POST", box.name, "resume", { from: "memory" });
  assert.equal(resumed.resumed, true);
  const again = await Sandbox.get({ name: box.name, ...credentials });
  const at = (await numbers(again)).length;
  await until(async () => (await numbers(again)).length > at + 2, "it counts on");
  inOrder(await numbers(again));
  const [counts] = (await commands(idOf(again))).filter((c) => c.args[0] === "count.py");
  assert.notEqual(counts.id, command.cmdId);
  inOrder(await follow(idOf(again), counts.id, (seen) => seen.length > at + 3));
  assert.equal(await cell(box.name, "x + 1"), "42");
  // The memory was used up; the clock is today's.
  const { snapshots } = await server.call("GET", `/v2/sandboxes/snapshots?name=${box.name}&${scope}`);
  assert.deepEqual(snapshots.map((s) => s.memory), [false]);
  assert.ok(Number((await sh(again, "date +%s%3N")).stdout) > before - 1000);
  await again.stop();
  await assert.rejects(native("POST", box.name, "resume", { from: "memory" }), (e) => e.status === 409 && /no memory|no snapshot/.test(e.text));
});

// The files with memory, which only the spawner's own mounts show.
const memoryDir = async () => `/proc/${await spawnerPid(server.data)}/root/run/sandbar/mnt/store/memory`;
async function flipBit(snapshot) {
  const file = await open(`${await memoryDir()}/${snapshot}/memory`, "r+");
  const { size } = await file.stat();
  const at = Math.floor(size / 2), byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, at);
  byte[0] ^= 4;
  await file.write(byte, 0, 1, at);
  await file.close();
}

test("deleting a paused sandbox deletes its memory, with what its programs had in theirs", async () => {
  const secret = `canary-${Math.random().toString(36).slice(2)}`;
  const box = await sandbox({ name: unique(), runtime: "python3.13", ...small });
  await box.runCommand({ cmd: "python3", args: ["-c", "import time; time.sleep(1000)"], env: { KEPT: secret }, detached: true });
  const { snapshot } = await native("POST", box.name, "pause");
  assert.equal(snapshot.memory, true);
  assert.ok((await readdir(await memoryDir())).includes(snapshot.id));
  const held = async () => (await promisify(execFile)("grep", ["-rlaF", "--devices=skip", "--exclude=store.img", secret, server.data, dirname(await memoryDir())]).catch((e) => e)).stdout;
  assert.match(await held(), /memory/, "the search finds it while it is there");
  await server.call("DELETE", `/v2/sandboxes/${box.name}?${scope}`);
  // Before the answer; the rest when it is tidied up.
  assert.ok(!(await readdir(await memoryDir())).includes(snapshot.id));
  await until(async () => (await held()) === "", "nothing of it is left");
});

test("memory is refused where it does not fit, and when a bit of it has flipped", async () => {
  const box = await sandbox({ name: unique(), ...small });
  await sh(box, "echo kept > f");
  const sleeper = await box.runCommand({ cmd: "sleep", args: ["1000"], detached: true });
  const { snapshot } = await native("POST", box.name, "pause");
  const path = `/v2/sandboxes/${box.name}?${scope}`;
  await server.call("PATCH", path, { body: { resources: { vcpus: 2 } } });
  await assert.rejects(native("POST", box.name, "resume", {}), (e) => e.status === 409 && /needs the memory size 2048 MiB.*--disk/.test(e.text), "another size");
  await server.call("PATCH", path, { body: { resources: { vcpus: 1 } } });
  await flipBit(snapshot.id);
  await assert.rejects(native("POST", box.name, "resume", {}), (e) => e.status === 409 && /damaged/.test(e.text), "a flipped bit");
  await native("POST", box.name, "resume", { from: "disk" });
  const again = await Sandbox.get({ name: box.name, ...credentials });
  assert.equal((await sh(again, "cat f; pgrep -x sleep")).stdout, "kept\n");

  // A stop keeps the memory too, because the operator wants that; then it may go on without, and says so.
  await again.runCommand({ cmd: "sleep", args: ["2000"], detached: true });
  await again.stop();
  const third = await Sandbox.get({ name: box.name, ...credentials });
  assert.match((await sh(third, "pgrep -x sleep")).stdout, /^\d+\n$/);
  const stopped = await server.call("POST", `/v2/sandboxes/sessions/${idOf(third)}/stop`);
  assert.equal(stopped.snapshot.memory, true);
  await flipBit(stopped.snapshot.id);
  const fourth = await Sandbox.get({ name: box.name, ...credentials });
  assert.equal((await sh(fourth, "cat f; pgrep -x sleep")).stdout, "kept\n");
  const { notices } = await server.call("GET", `/x/v1/notices?sandbox=${box.name}&${scope}`);
  assert.match(notices[0].text, /from its files.*damaged/);
  assert.ok(sleeper);
});

test("engines without it say who has it", async () => {
  const box = await sandbox({ name: unique(), __isolation: "namespaces" });
  for (const [what, body] of [["fork", { live: true }], ["pause", undefined]])
    await assert.rejects(native("POST", box.name, what, body), (e) => e.status === 422 && e.text.includes(engine.name) && /namespaces/.test(e.text), what);
  await box.stop();
  await assert.rejects(native("POST", box.name, "fork", { live: true }), (e) => e.status === 410 && /does not run/.test(e.text));
});

test("who speaks with a QEMU that a guest may own can do nothing else", async () => {
  const spawner = await spawnerPid(server.data);
  const earlier = new Set(await machinePids(spawner));
  const box = await sandbox({ name: unique(), persistent: false, ...small });
  const about = async (pid, file) => readFile(`/proc/${pid}/${file}`, "utf8").catch(() => "");
  let qemu;
  for (const pid of await machinePids(spawner)) if (!earlier.has(pid) && (await about(pid, "comm")).startsWith("qemu")) qemu = pid;
  process.kill(qemu, "SIGSTOP"); // it does not answer, so whoever asks waits
  const forking = forkLive(box);
  let status;
  try {
    status = await until(async () => {
      for (const pid of await machinePids(spawner)) {
        const text = await about(pid, "status");
        if (/^Name:\tsandbar-spawner/.test(text) && /\nCapPrm:\t0+\n/.test(text)) return text;
      }
    }, "somebody asks for its memory");
  } finally {
    process.kill(qemu, "SIGCONT");
  }
  assert.match(status, /\nCapEff:\t0+\nCapBnd:\t0+\nCapAmb:\t0+\nNoNewPrivs:\t1\n(.*\n)?Seccomp:\t2\n/);
  const [copy] = await forking;
  assert.equal((await sh(copy, "echo on")).stdout, "on\n");
  await copy.delete();
});

test("a server that dies in the middle of a fork leaves nothing, and the source goes on", async () => {
  const [box] = await counting();
  const asked = native("POST", box.name, "fork", { live: true }).catch(() => {});
  await until(async () => (await readdir(await memoryDir())).length > 0, "the memory is being written");
  await server.crash();
  await asked;
  await server.start();
  const at = (await numbers(box)).length;
  await until(async () => (await numbers(box)).length > at + 2, "the source counts on");
  await until(async () => {
    await (await sandbox({ persistent: false, __isolation: "namespaces" })).delete(); // whoever deletes tidies up
    return (await readdir(await memoryDir())).length === 0;
  }, "no memory is left");
  inOrder(await numbers(box));
});

test("variables go on in both copies", async () => {
  const box = await sandbox({ name: unique(), runtime: "python3.13", ...small });
  await cell(box.name, "n = 1");
  const [copy] = await forkLive(box);
  assert.equal(await cell(copy.name, "n += 10\nn"), "11");
  assert.equal(await cell(box.name, "n += 1\nn"), "2");
  assert.equal(await cell(copy.name, "n"), "11");

  // One that writes faster than its memory can be written down is held for it, and goes on too.
  await cell(box.name, "import threading\nb = bytearray(32 << 20)\ndef dirty():\n    global n\n    while True:\n        b[::4096] = bytes(len(b) // 4096)\n        n += 1\nthreading.Thread(target=dirty, daemon=True).start()");
  const [busy, answer] = await forkLive(box);
  assert.ok(answer.pauseMs > 0);
  const seen = Number(await cell(busy.name, "n"));
  await until(async () => Number(await cell(busy.name, "n")) > seen, "it goes on in the fork");
});
