// Machines that go on with their memory: processes, variables and open files continue in a live fork.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { startServer, until } from "../clients/server.mjs";

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

test("a counting process goes on in both copies", async () => {
  const [box] = await counting();
  const [copy, answer] = await forkLive(box);
  assert.ok(answer.pauseMs >= 0 && answer.memoryBytes > 1 << 20, JSON.stringify(answer));
  console.log("pause", answer.pauseMs, "memory", answer.memoryBytes);
  const at = (await numbers(copy)).length;
  await until(async () => (await numbers(copy)).length > at + 3, "the fork counts on");
  inOrder(await numbers(copy));
  inOrder(await numbers(box));
});
