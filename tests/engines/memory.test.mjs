// Machines that go on with their memory: processes, variables and open files continue in a live fork.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { startServer, until } from "../clients/server.mjs";
import { Cells } from "../code/cells.mjs";

const probe = await startServer({ config: 'isolation = "namespaces"\n' });
const { engines } = await probe.call("GET", "/x/v1/info");
await probe.stop();
const engine = engines.find((e) => e.name.startsWith("microvm") && e.usable);
assert.ok(engine, `no usable microVM: ${engines.map((e) => e.whyNot).join("; ")}`);

const { Sandbox, sandbox, credentials, server } = await useSdk({ config: `isolation = "${engine.name}"\n` });
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

test("variables go on in both copies", async () => {
  const box = await sandbox({ name: unique(), runtime: "python3.13", ...small });
  await cell(box.name, "n = 1");
  const [copy] = await forkLive(box);
  assert.equal(await cell(copy.name, "n += 10\nn"), "11");
  assert.equal(await cell(box.name, "n += 1\nn"), "2");
  assert.equal(await cell(copy.name, "n"), "11");
});
