// An agent that answers nothing holds nobody up: its sandbox is stopped or deleted, and what it wrote is kept.
// The test compares the order of ends: the stop of a busy sandbox, whose program ignores SIGTERM for the grace of 20 s,
// must end after the stop and the delete of silent ones (3 s and 1 s).
import assert from "node:assert/strict";
import { readFile, readlink } from "node:fs/promises";
import { after, before, test } from "node:test";
import { engine, startServer, until } from "../support/server.mjs";
import { processes } from "../support/host.mjs";

const skip = engine !== "namespaces" && "the host's kernel knows no process of this guest";
let server;
before(async () => (server = skip ? null : await startServer({ config: '[limits]\nmax_running = 8\nstop_grace = "20s"\n' })));
after(() => server?.stop());

const create = (name) => server.create({ name, runtime: "node24", persistent: true, timeout: 3_600_000 });
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
const start = (session, script) =>
  server.call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { body: { command: "sh", args: ["-c", script], env: {}, sudo: false } });

// PID 1 of the machine in which a command with this argument runs, as the host sees it.
async function agentOf(mark) {
  const all = await processes();
  const inside = all.find((p) => p.cmdline[0] === "sleep" && p.cmdline[1] === mark);
  if (!inside) return null;
  const space = await readlink(`/proc/${inside.pid}/ns/pid`);
  for (const { pid } of all) {
    const its = await readlink(`/proc/${pid}/ns/pid`).catch(() => "");
    const first = /^NSpid:.*\s1$/m.test(await readFile(`/proc/${pid}/status`, "utf8").catch(() => ""));
    if (its === space && first) return pid;
  }
  return null;
}

// SIGSTOP from the host stands for whatever a guest does to starve its agent. Guest root cannot send it to PID 1.
async function silence(session, mark) {
  await start(session, `exec sleep ${mark}`);
  const pid = await until(() => agentOf(mark), "the agent's process");
  process.kill(pid, "SIGSTOP");
}

test("a stop and a delete do not wait for a silent agent as they do for a busy one", { skip }, async () => {
  const [busy, silent, doomed] = await Promise.all(["busy", "silent", "doomed"].map(create));
  await start(busy.session, "trap '' TERM; echo up > /tmp/up; while :; do sleep 1; done");
  await until(async () => (await server.exec(busy.session.id, "cat", ["/tmp/up"])).stdout === "up\n", "the program is up");
  const wrote = await server.exec(silent.session.id, "sh", ["-c", "echo mine > /vercel/sandbox/file"]);
  assert.equal(wrote.exitCode, 0, wrote.stderr);
  await silence(silent.session, "71001");
  await silence(doomed.session, "71002");

  const order = [];
  const note = (name) => (answer) => (order.push(name), answer);
  const slow = stop(busy.session).then(note("busy"));
  // Its stop is under way, and has the whole grace before it.
  await until(async () => (await server.call("GET", `/v2/sandboxes/sessions/${busy.session.id}`)).session.status === "stopping", "it is stopping");
  const [stopped] = await Promise.all([
    stop(silent.session).then(note("silent")),
    server.call("DELETE", "/v2/sandboxes/doomed?projectId=prj_test").then(note("doomed")),
  ]);
  assert.equal(stopped.session.status, "stopped");
  await slow;
  assert.equal(order.at(-1), "busy", `the order was ${order}`);
  await assert.rejects(server.call("GET", "/v2/sandboxes/doomed?projectId=prj_test"), { status: 404 });

  const again = await server.call("GET", "/v2/sandboxes/silent?projectId=prj_test&resume=true");
  assert.equal((await server.exec(again.session.id, "cat", ["/vercel/sandbox/file"])).stdout, "mine\n", "nothing it wrote is lost");
});

test("guest root cannot silence its agent by a signal", { skip }, async () => {
  const { session } = await create("signals");
  const sent = await server.exec(session.id, "sh", ["-c", "for s in STOP KILL TSTP TERM; do kill -$s 1; done; echo sent"], { sudo: true });
  assert.equal(sent.stdout, "sent\n", sent.stderr);
  assert.equal((await server.exec(session.id, "echo", ["there"])).stdout, "there\n");
});
