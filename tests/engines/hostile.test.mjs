// An escaped guest owns its QEMU. Here QEMU is a program of ours that does what such a guest would: it gets nowhere, the
// server goes on, the caller is told why, and nothing is left. Each of its ways is chosen by the number of processors.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { repo, startServer, until } from "../support/server.mjs";
import { inventory, settled } from "../support/host.mjs";

const dir = mkdtempSync(join(tmpdir(), "sandbar-hostile-"));
execFileSync("clang-19", ["-O1", "-Wall", "-Wextra", "-Werror", "-o", join(dir, "qemu"), join(repo, "tests/engines/hostile_qemu.c")]);
const config = `isolation = "microvm-emulated"
[limits]
max_vcpus = 64
max_memory_mb = 262144
[microvm]
qemu = "${join(dir, "qemu")}"
start_timeout = "10s"
`;
const server = await startServer({ config });
after(async () => {
  await server.stop();
  rmSync(dir, { recursive: true });
});

const create = (vcpus) => server.create({ runtime: "node24", resources: { vcpus }, persistent: false });
async function refused(vcpus) {
  try {
    await create(vcpus);
  } catch (error) {
    assert.ok(error.status >= 500, error.message);
    return JSON.parse(error.text).error.message;
  }
  assert.fail("it was taken for a machine");
}

// Everything of a machine is gone, whatever it did. Spare resources are made in the background.
const SLACK = { machineProcesses: 0, spawnerMounts: 0, agentSockets: 0, cgroups: 8, daemonFds: 8, spawnerFds: 32 };
let clean;
const same = async () => {
  const now = await inventory(server);
  return Object.entries(SLACK).every(([what, slack]) => now[what] <= clean[what] + slack);
};
before(async () => {
  await refused(18);
  clean = await settled(server, (now) => now.machineProcesses === 0);
});

async function ends(vcpus, message) {
  assert.match(await refused(vcpus), message);
  assert.equal((await server.request("GET", "/health")).status, 200);
  await until(same, `nothing is left: ${JSON.stringify(clean)}`);
}

test("an intruder gets nowhere, on its own or from a template", async () => {
  await until(async () => {
    await refused(16);
    return (await server.spawnerLog()).includes("template of 32768 MiB: ready");
  }, "it passed as a template");
  await refused(16);
  const said = await until(async () => {
    const found = [...(await server.spawnerLog()).matchAll(/intruder: (\d+) attempts, (\d+) got somewhere:(.*)\./g)];
    return found.length >= 2 && found;
  }, "the intruder has told");
  for (const [, , count, loot] of said) assert.equal(count, "0", loot);
  assert.ok(Number(said.at(-1)[1]) > Number(said[0][1]) && Number(said[0][1]) > 30, "it tried the template too");
  await until(same, "nothing is left");
});

test("gone at once", () => ends(18, /did not come up: it ended before its agent answered/));
test("silent", () => ends(2, /did not come up: its agent did not answer in time/));
test("talks without end", () => ends(4, /without an answer/));
test("a frame longer than memory", () => ends(6, /did not come up: the agent.s answer to the hello does not come/));
test("an agent that is not this machine's", () => ends(8, /not the one that was configured/));
test("all memory, all threads", () => ends(1, /did not come up: its agent did not answer in time|did not come up: it ended/));
test("the log gets a word, not all of it", async () => {
  await ends(12, /did not come up: it ended/);
  const log = await server.spawnerLog();
  assert.match(log, /no end/);
  assert.ok(log.length < 100_000 && !/[^\n -~]/.test(log), "what it said is short and harmless");
});

test("one that was believed, and lies then, fails its session", async () => {
  const { session } = await create(10).catch((error) => ({ session: error }));
  if (session instanceof Error) assert.match(session.message, /protocol|agent/);
  else
    await until(async () => (await server.call("GET", `/v2/sandboxes/sessions/${session.id}`)).session.status === "failed", "the session has failed");
  await until(same, "nothing is left");
});

// A stream that everybody in the machine can write to loses its frames: the machine ends at once, and nobody waits for it.
for (const [vcpus, what] of [[14, "bytes that belong to no frame"], [20, "half a frame, and then nothing"]])
  test(`believed, then ${what}: the session fails with a reason, delete is quick`, async () => {
    const { session, sandbox } = await create(vcpus);
    const failed = await until(async () => {
      const now = (await server.call("GET", `/v2/sandboxes/sessions/${session.id}`)).session;
      return now.status === "failed" && now;
    }, "the session has failed");
    const { sandbox: seen } = await server.call("GET", `/x/v1/sandboxes/${sandbox.name}?projectId=prj_test`);
    assert.equal(seen.status, "failed");
    assert.match(JSON.stringify(failed) + JSON.stringify(await server.call("GET", `/x/v1/sandboxes/${sandbox.name}?projectId=prj_test`)), /broke the protocol/);
    await server.call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_test`);
    await until(same, "nothing is left");
  });

// With files to keep it would get half a minute: what it says could be on its way.
test("believed, then silent: a delete does not wait for what it keeps back", async () => {
  const { sandbox } = await create(22);
  const gone = server.call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_test`, { signal: AbortSignal.timeout(25_000) });
  await gone;
  await until(same, "nothing is left");
});
