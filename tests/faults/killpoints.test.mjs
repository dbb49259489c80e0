// kill -9 of the daemon at random points of create, stop, snapshot, fork, race, resume and delete: what was acknowledged is
// there and readable afterwards, and nothing of the rest is left. SEED=… repeats a run.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep, startServer, until } from "../support/server.mjs";
import { inventory, settled } from "../support/host.mjs";

const rounds = 100;
const query = "projectId=prj_test";
const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
console.log(`SEED=${seed}`);

let state = seed;
const random = () => {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
  return state / 0x7fffffff;
};
const pick = (list) => list[Math.floor(random() * list.length)];

let server;
before(async () => (server = await startServer({ config: "[limits]\nmax_running = 64\n" })));
after(() => server?.stop());

const named = (name, rest = "") => `/v2/sandboxes/${name}?${query}${rest}`;
const write = async (session, text) =>
  assert.equal((await server.exec(session, "sh", ["-c", `echo ${text} > mark`])).exitCode, 0);
const read = async (session) => (await server.exec(session, "cat", ["mark"])).stdout.trim();

// What the client was told. A name whose last call got no answer may or may not have changed.
const boxes = new Map(); // name -> {mark}
const snapshots = new Map(); // id -> mark
let count = 0;

const operations = {
  async create() {
    const name = `k-${++count}`;
    const { session } = await server.create({ name, runtime: "node24" });
    boxes.set(name, { mark: "", session: session.id });
  },
  async mark(name) {
    const text = `m${++count}`;
    const { session } = await server.call("GET", named(name, "&resume=true"));
    boxes.get(name).unsure = text;
    await write(session.id, text);
    boxes.get(name).mark = text;
    boxes.get(name).unsure = undefined;
  },
  async stop(name) {
    const { session } = await server.call("GET", named(name));
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  },
  async snapshot(name) {
    const { session } = await server.call("GET", named(name, "&resume=true"));
    const { snapshot } = await server.call("POST", `/v2/sandboxes/sessions/${session.id}/snapshot`);
    snapshots.set(snapshot.id, boxes.get(name).mark);
  },
  async fork(name) {
    const as = `k-${++count}`;
    const { session } = await server.call("GET", named(name));
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    const mark = boxes.get(name).mark;
    await server.call("POST", `/v2/sandboxes/${name}/fork?${query}`, { body: { name: as } });
    boxes.set(as, { mark });
  },
  async race(name) {
    const { session } = await server.call("GET", named(name));
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    const text = `m${++count}`;
    boxes.get(name).unsure = text;
    await server.call("POST", `/x/v1/race?${query}`,
      { body: { source: name, count: 2, command: "sh", args: ["-c", `echo ${text} > mark`] } });
    boxes.get(name).mark = text;
    boxes.get(name).unsure = undefined;
  },
  async resume(name) {
    await server.call("GET", named(name, "&resume=true"));
  },
  async delete(name) {
    boxes.get(name).leaving = true;
    await server.call("DELETE", named(name));
    boxes.delete(name);
  },
};

// One operation that a kill may cut off. Any answer but none is an error of the test.
async function operate() {
  const names = [...boxes].filter(([, b]) => !b.leaving).map(([name]) => name);
  const kind = names.length < 2 ? "create" : names.length > 6 ? "delete" : pick(Object.keys(operations));
  const name = names.length ? pick(names) : undefined;
  const dead = (error) => {
    if (error.status === undefined || server.exited) return;
    throw new Error(`${kind} ${name}: ${error.message}`);
  };
  if (kind !== "create" && kind !== "resume") busy.add(name);
  await operations[kind](kind === "create" ? undefined : name).catch(dead);
}
const busy = new Set();

async function everythingIsThere() {
  const { sandboxes } = await server.call("GET", `/v2/sandboxes?${query}&project=prj_test&limit=50`);
  const there = new Set(sandboxes.map((s) => s.name));
  for (const [name, box] of [...boxes]) {
    if (box.leaving) {
      // A delete that had begun is finished by the next start; asking again does no harm.
      const answer = await server.request("DELETE", named(name));
      assert.ok(answer.ok || answer.status === 404, `${name} cannot be deleted: ${answer.status}`);
      boxes.delete(name);
      there.delete(name);
      continue;
    }
    assert.ok(there.has(name), `${name} was acknowledged and is gone`);
  }
  // A create or fork without an answer may have happened; it is complete then, and ours to delete. What a race made
  // goes by itself.
  for (const name of there) if (name.startsWith("k-") && !boxes.has(name)) await server.call("DELETE", named(name));
}

async function isReadable(name) {
  const box = boxes.get(name);
  const { session } = await server.call("GET", named(name, "&resume=true"));
  if (!box.mark && !box.unsure) return void assert.equal((await server.exec(session.id, "true")).exitCode, 0);
  const text = await read(session.id);
  assert.ok([box.mark, box.unsure].includes(text), `${name} has ${text}, not ${box.mark}`);
  box.mark = text;
  box.unsure = undefined;
}

test(`${rounds} kills lose nothing and leave nothing`, async () => {
  const warm = await server.create({ runtime: "node24" }); // pools and caches reach their level
  await server.call("DELETE", named(warm.sandbox.name));
  const clean = await settled(server, (now) => now.machineProcesses <= 1 && now.agentSockets === 0);
  for (let i = 0; i < 3; i++) await operations.create();
  for (let round = 0; round < rounds; round++) {
    busy.clear();
    const killing = sleep(random() * 500).then(() => server.crash());
    // One after the other until the kill comes.
    while (!server.exited) await operate();
    await killing;
    await server.start();
    await everythingIsThere();
    for (const name of busy) if (boxes.has(name)) await isReadable(name);
  }
  for (const name of boxes.keys()) await isReadable(name);
  for (const [id, mark] of snapshots) {
    const { session, sandbox } = await server.call("POST", "/v3/sandboxes",
      { body: { projectId: "prj_test", ports: [], persistent: false, source: { type: "snapshot", snapshotId: id } } });
    if (mark) assert.equal(await read(session.id), mark, id);
    await server.call("DELETE", named(sandbox.name));
  }
  for (const name of [...boxes.keys()]) await server.call("DELETE", named(name, "&deleteOrphanSnapshots=true"));
  await until(async () => {
    const now = await inventory(server);
    return ["machineProcesses", "cgroups", "hostMounts", "spawnerMounts", "spawnerFds", "agentSockets"].every((k) => now[k] <= clean[k] + 2);
  }, "everything on the host is as before").catch(async (e) => {
    assert.deepEqual(await inventory(server), clean, e.message);
  });
  await until(async () => (await server.call("GET", `/v2/sandboxes?${query}&project=prj_test`)).sandboxes.length === 0, "no record is left");
  assert.doesNotMatch(server.output, /has no record/);
});
