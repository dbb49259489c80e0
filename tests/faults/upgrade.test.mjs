// Programs of another build take over a data directory whose machines run: nothing of them is lost. The other build is
// bin/ahead, which speaks one version more of each protocol and sends further fields (cmake/sandbar.cmake). With the
// programs of a release: tools/test_upgrade.sh, or SANDBAR_UPGRADE_FROM=<old>/bin/sandbar node --test <this file>;
// SANDBAR_UPGRADE_TO names other programs than this build's for the later side.
import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { spawnerPid } from "../support/host.mjs";
import { binary, sleep, startServer, until } from "../support/server.mjs";

const released = process.env.SANDBAR_UPGRADE_FROM !== undefined;
const from = process.env.SANDBAR_UPGRADE_FROM ?? binary;
const to = process.env.SANDBAR_UPGRADE_TO ?? (released ? binary : join(dirname(binary), "ahead/sandbar"));
const scope = "projectId=prj_test";

const plain = 'isolation = "namespaces"\n';
async function enginesOf(program) {
  const server = await startServer({ config: plain, program });
  try {
    return (await server.call("GET", "/x/v1/info")).engines;
  } finally {
    await server.stop();
  }
}
const engines = { from: await enginesOf(from), to: await enginesOf(to) };

// Why an engine cannot be tested here, or false: both builds must be able to use it.
function whyNot(name) {
  for (const [side, list] of Object.entries(engines)) {
    const engine = list.find((e) => e.name === name);
    if (!engine?.usable) return `${name} cannot be used here (${side}): ${engine?.whyNot ?? "the program does not know it"}`;
  }
  return false;
}

// Memory is kept by virtual machines: on KVM where there is one, else emulated.
const withMemory = ["microvm", "microvm-emulated"];
const microvm = withMemory.find((name) => !whyNot(name));
const noMicrovm = microvm ? false : withMemory.map(whyNot).join("; ");
if (noMicrovm) console.error(`SKIPPED: no engine that keeps memory: ${noMicrovm}`);

// Why the earlier programs cannot take a data directory back, or false. They refuse a schema that they do not know.
async function whyNoRollback() {
  const server = await startServer({ config: plain, program: to });
  await server.stop({ keepData: true });
  try {
    const back = await startServer({ config: plain, data: server.data, program: from });
    await back.stop({ keepData: true });
    return false;
  } catch (error) {
    const schema = /the database has schema \d+, this version knows up to \d+/.exec(error.message);
    if (!schema) throw error;
    return `no way back: ${schema[0]}`;
  } finally {
    await rm(server.data, { recursive: true, force: true });
    await rm(`${server.data}.toml`, { force: true });
  }
}
const noRollback = await whyNoRollback();
if (noRollback) console.error(`SKIPPED: rollbacks: ${noRollback}`);

const logs = async (server, session, id) => {
  const response = await server.request("GET", `/v2/sandboxes/sessions/${session}/cmd/${id}/logs`);
  const lines = (await response.text()).split("\n").filter(Boolean).map((l) => JSON.parse(l));
  return lines.filter((l) => l.stream === "stdout").map((l) => l.data).join("");
};
const start = (server, session, script) =>
  server.call("POST", `/v2/sandboxes/sessions/${session}/cmd`, { body: { command: "sh", args: ["-c", script], env: {}, sudo: false } });
const wait = (server, session, id) => server.call("GET", `/v2/sandboxes/sessions/${session}/cmd/${id}?wait=true`);
const counter = (lines, code) => `for n in $(seq 1 ${lines}); do echo line-$n; sleep 0.1; done; exit ${code}`;
const counted = (lines) => Array.from({ length: lines }, (_, n) => `line-${n + 1}\n`).join("");
const box = { runtime: "node24", timeout: 3_600_000, persistent: true, resources: { vcpus: 1 } };

// A server of the one build is killed, one of the other build goes on with its machines and its spawner.
async function takeOver(engine, first, second) {
  const server = await startServer({ config: `isolation = "${engine}"\n[limits]\nmax_running = 16\n`, program: first });
  try {
    const { session, sandbox } = await server.create({ ...box, name: "lives" });
    const { command: ends } = await start(server, session.id, "sleep 1; echo over; exit 7");
    const { command: runs } = await start(server, session.id, counter(60, 3));
    await until(async () => (await server.exec(session.id, "sh", ["-c", "echo mine > file; cat file"])).stdout === "mine\n", "it works");
    const spawner = await spawnerPid(server.data);
    await server.crash();
    await sleep(1500);
    server.binary = second;
    server.output = "";
    await server.start();

    assert.equal(await spawnerPid(server.data), spawner, "the spawner is the one that was there");
    const again = await server.call("GET", `/v2/sandboxes/${sandbox.name}?${scope}`);
    assert.equal(again.session.id, session.id);
    assert.equal(again.session.status, "running");
    assert.equal((await wait(server, session.id, ends.id)).command.exitCode, 7);
    assert.equal(await logs(server, session.id, ends.id), "over\n");
    assert.equal((await wait(server, session.id, runs.id)).command.exitCode, 3);
    assert.equal(await logs(server, session.id, runs.id), counted(60), "no byte lost, none twice");
    assert.equal((await server.exec(session.id, "cat", ["file"])).stdout, "mine\n");

    // What is started from now on is started by the other build's spawner, with its agent.
    const fresh = await server.create({ ...box, name: "fresh" });
    assert.equal((await server.exec(fresh.session.id, "echo", ["new"])).stdout, "new\n");
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    const resumed = await server.call("GET", `/v2/sandboxes/${sandbox.name}?${scope}&resume=true`);
    assert.notEqual(resumed.session.id, session.id);
    assert.equal((await server.exec(resumed.session.id, "cat", ["file"])).stdout, "mine\n", "kept by a stop");
    return server.output;
  } finally {
    await server.stop();
  }
}

// A sandbox that was stopped under one build resumes under the other, of which all programs are then.
async function resumeStopped(engine, first, second) {
  const config = `isolation = "${engine}"\n`;
  const server = await startServer({ config, program: first });
  let next = server;
  try {
    const { session } = await server.create({ ...box, name: "stopped" });
    const made = "mkdir d; echo one > d/a; ln d/a d/b; ln -s a d/c; rm -f .profile; sudo rm -rf /opt; sudo touch /etc/mine";
    assert.equal((await server.exec(session.id, "sh", ["-c", made])).exitCode, 0);
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    const spawner = await spawnerPid(server.data);
    await server.stop({ keepData: true });
    next = await startServer({ config, data: server.data, program: second });
    assert.notEqual(await spawnerPid(next.data), spawner);
    const resumed = await next.call("GET", `/v2/sandboxes/stopped?${scope}&resume=true`);
    const seen = await next.exec(resumed.session.id, "sh", ["-c", "cat d/a d/b d/c; stat -c %h d/a; ls /etc/mine; ls -d /opt .profile"]);
    assert.equal(seen.stdout, "one\none\none\n2\n/etc/mine\n");
    const { snapshots } = await next.call("GET", `/v2/sandboxes/snapshots?name=stopped&${scope}`);
    assert.equal(snapshots.length, 1);
    await next.exec(resumed.session.id, "sh", ["-c", "echo two >> d/a"]);
    await next.call("POST", `/v2/sandboxes/sessions/${resumed.session.id}/stop`);
    const again = await next.call("GET", `/v2/sandboxes/stopped?${scope}&resume=true`);
    assert.equal((await next.exec(again.session.id, "cat", ["d/b"])).stdout, "one\ntwo\n", "kept on top of the earlier build's snapshot");
  } finally {
    await next.stop();
  }
}

for (const engine of ["namespaces", "gvisor", microvm ?? "microvm"]) {
  const skip = engine === "microvm" ? noMicrovm : whyNot(engine);
  test(`${engine}: live sandboxes go on under the programs of a later build`, { skip }, async () => {
    const output = await takeOver(engine, from, to);
    if (!released) assert.match(output, /the spawner is of an earlier release/);
  });
  test(`${engine}: and under those of an earlier one`, { skip: skip || noRollback }, () => takeOver(engine, to, from));
  test(`${engine}: stopped sandboxes resume under the programs of a later build`, { skip }, () => resumeStopped(engine, from, to));
}

// All programs are of the other build then, and only the agent, in the saved memory, is of the one before.
async function goOnFromMemory(first, second) {
  const config = `isolation = "${microvm}"\nresume = "memory"\n`;
  const server = await startServer({ config, program: first });
  try {
    const { session } = await server.create({ ...box, name: "sleeper" });
    await start(server, session.id, "i=0; while :; do i=$((i+1)); echo $i >> count; sleep 0.2; done");
    const count = async (id) => Number((await server.exec(id, "sh", ["-c", "tail -n 1 count"])).stdout);
    await until(async () => (await count(session.id)) > 3, "it counts");
    const paused = await server.call("POST", `/x/v1/sandboxes/sleeper/pause?${scope}`);
    assert.equal(paused.snapshot.memory, true);
    const spawner = await spawnerPid(server.data);
    await server.stop({ keepData: true });
    const next = await startServer({ config, data: server.data, program: second });
    try {
      assert.notEqual(await spawnerPid(next.data), spawner);
      const { resumed } = await next.call("POST", `/x/v1/sandboxes/sleeper/resume?${scope}`, { body: { from: "memory" } });
      assert.equal(resumed, true);
      const { session: later } = await next.call("GET", `/v2/sandboxes/sleeper?${scope}`);
      const at = Number((await next.exec(later.id, "sh", ["-c", "tail -n 1 count"])).stdout);
      assert.ok(at > 3);
      await until(async () => Number((await next.exec(later.id, "sh", ["-c", "tail -n 1 count"])).stdout) > at + 2, "it counts on");
      const { commands } = await next.call("GET", `/v2/sandboxes/sessions/${later.id}/cmd`);
      assert.ok(commands.some((c) => c.exitCode == null), "the command that counts is still known");
    } finally {
      await next.stop();
    }
  } catch (error) {
    if (!server.exited) await server.stop();
    throw error;
  }
}

test("a memory snapshot goes on under the programs of a later build", { skip: noMicrovm }, () => goOnFromMemory(from, to));
test("and under those of an earlier one", { skip: noMicrovm || noRollback }, () => goOnFromMemory(to, from));
