// kill -9 of the daemon at work: nothing acknowledged is lost, nobody else is touched, deadlines hold.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep, startServer, until } from "../support/server.mjs";
import { machinePids, spawnerPid } from "../support/host.mjs";

let server;
before(async () => (server = await startServer({ config: "[limits]\nmax_running = 64\n" })));
after(() => server?.stop());

const logs = async (s, session, id) => {
  const response = await s.request("GET", `/v2/sandboxes/sessions/${session}/cmd/${id}/logs`);
  const lines = (await response.text()).split("\n").filter(Boolean).map((l) => JSON.parse(l));
  return lines.filter((l) => l.stream === "stdout").map((l) => l.data).join("");
};
const start = (s, session, script) =>
  s.call("POST", `/v2/sandboxes/sessions/${session}/cmd`, { body: { command: "sh", args: ["-c", script], env: {}, sudo: false } });

test("20 live sandboxes with running commands survive a kill -9 of the daemon", async () => {
  const sandboxes = await Promise.all(Array.from({ length: 20 }, () => server.create({ runtime: "node24", timeout: 3_600_000 })));
  // Each prints numbered lines before, during and after the crash, and ends with a code of its own.
  const commands = await Promise.all(sandboxes.map(({ session }, i) =>
    start(server, session.id, `for n in $(seq 1 60); do echo line-$n; sleep 0.1; done; exit ${i}`)));
  await sleep(1000); // some lines were delivered, most were not
  await server.crash();
  await server.start();
  for (const [i, { session, sandbox }] of sandboxes.entries()) {
    const again = await server.call("GET", `/v2/sandboxes/${sandbox.name}?projectId=prj_test`);
    assert.equal(again.session.id, session.id);
    assert.equal(again.session.status, "running");
    const done = await server.call("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${commands[i].command.id}?wait=true`);
    assert.equal(done.command.exitCode, i);
    const expected = Array.from({ length: 60 }, (_, n) => `line-${n + 1}\n`).join("");
    assert.equal(await logs(server, session.id, commands[i].command.id), expected, "no byte lost, none twice");
    assert.equal((await server.exec(session.id, "echo", ["alive"])).stdout, "alive\n");
  }
  await Promise.all(sandboxes.map(({ sandbox }) => server.call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_test`)));
});

test("a command that ended while the daemon was dead has its exit code and output", async () => {
  const { session } = await server.create({ runtime: "node24" });
  const { command } = await start(server, session.id, "sleep 1; echo done; exit 7");
  await server.crash();
  await sleep(2000);
  await server.start();
  const done = await server.call("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${command.id}?wait=true`);
  assert.equal(done.command.exitCode, 7);
  assert.equal(await logs(server, session.id, command.id), "done\n");
});

test("output beyond the daemon's memory survives the crash too", async () => {
  const { session } = await server.create({ runtime: "node24" });
  const { command } = await start(server, session.id, "sleep 0.5; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end");
  await server.crash();
  await sleep(2500);
  await server.start();
  await server.call("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${command.id}?wait=true`);
  assert.equal((await logs(server, session.id, command.id)).length, 3000000 + 1 + 4);
});

test("a sandbox is gone at its timeout although the daemon is dead", async () => {
  const others = await machinePids(await spawnerPid(server.data));
  const { session, sandbox } = await server.create({ runtime: "node24", timeout: 3000 });
  assert.equal((await server.exec(session.id, "true")).exitCode, 0);
  const machine = (await machinePids(await spawnerPid(server.data))).find((pid) => !others.includes(pid));
  assert.ok(machine);
  await server.crash();
  const spawner = await spawnerPid(server.data);
  assert.ok(spawner, "the spawner outlives the daemon");
  await until(async () => !(await machinePids(spawner)).includes(machine), "the spawner ends the machine by itself");
  await server.start();
  const again = await server.call("GET", `/v2/sandboxes/${sandbox.name}?projectId=prj_test`);
  assert.equal(again.session.status, "stopped");
});

test("two daemons on one host, each killed and restarted, leave each other's machines alone", async () => {
  const other = await startServer();
  try {
    const mine = await server.create({ runtime: "node24" });
    const theirs = await other.create({ runtime: "node24" });
    await other.crash();
    assert.equal((await server.exec(mine.session.id, "echo", ["a"])).stdout, "a\n");
    await other.start();
    assert.equal((await other.exec(theirs.session.id, "echo", ["b"])).stdout, "b\n");
    await server.crash();
    assert.equal((await other.exec(theirs.session.id, "echo", ["c"])).stdout, "c\n");
    await server.start();
    assert.equal((await server.exec(mine.session.id, "echo", ["d"])).stdout, "d\n");
    const seen = await other.request("GET", `/v2/sandboxes/sessions/${mine.session.id}`);
    assert.equal(seen.status, 404);
  } finally {
    await other.stop();
  }
});
