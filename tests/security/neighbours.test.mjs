// A neighbour with much to write to the disk does not hold up creates. This suite compares times, so nothing runs beside it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { engine, startServer } from "../support/server.mjs";

const HOUR = 3_600_000; // no sandbox ends by itself
let server;
before(async () => {
  server = await startServer({ config: "[limits]\nmax_running = 32\ndisk_mb = 4096\n" });
});
after(() => server?.stop());

const create = (projectId, fields) =>
  server.create({ projectId, runtime: "node24", resources: { vcpus: 1 }, timeout: HOUR, persistent: false, ...fields });
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];

// How long a create takes whose sandbox then runs a command.
async function creation() {
  const begin = performance.now();
  const { session } = await create("prj_quiet");
  assert.equal((await server.exec(session.id, "echo", ["here"])).stdout, "here\n");
  const took = performance.now() - begin;
  await stop(session);
  return took;
}

// Creations beside a neighbour that goes on from a snapshot of its own again and again, having written so much just before.
async function beside(name, mebibytes, rounds) {
  const scope = `projectId=prj_${name}`;
  let { session } = await create(`prj_${name}`, { name, persistent: true });
  const took = [];
  for (let i = 0; i < rounds; i++) {
    await server.exec(session.id, "sh", ["-c", `dd if=/dev/zero of=/var/tmp/x bs=1M count=${mebibytes} conv=notrunc 2>/dev/null; echo ${i} > /var/tmp/round`], { sudo: true });
    await stop(session);
    // Either is a copy of the snapshot, for which the kernel first writes what is not on the disk yet.
    const path = i % 2 === 0 ? ["GET", `/v2/sandboxes/${name}?${scope}&resume=true`] : ["POST", `/v2/sandboxes/${name}/fork?${scope}`, { body: { persistent: false } }];
    const going = server.call(...path);
    took.push(await creation());
    const next = (await going).session;
    assert.equal((await server.exec(next.id, "cat", ["/var/tmp/round"])).stdout, `${i}\n`);
    if (i % 2 === 0) {
      session = next;
      continue;
    }
    await stop(next);
    ({ session } = await server.call("GET", `/v2/sandboxes/${name}?${scope}&resume=true`));
  }
  await stop(session);
  return took;
}

const own = engine !== "namespaces" && "other engines start slowly enough by themselves";
test("a create does not wait for a neighbour's gigabyte, with which that neighbour goes on", { skip: own }, async () => {
  await creation();
  const idle = [];
  for (let i = 0; i < 5; i++) idle.push(await creation());
  // A neighbour that does the same with little takes as much of the processors: what is left between the two is the disk.
  const little = await beside("little", 1, 5);
  const much = await beside("much", 1000, 5);
  const list = (numbers) => numbers.map(Math.round).join();
  console.log(`create: idle ${list(idle)} ms, beside one mebibyte ${list(little)} ms, beside a gigabyte ${list(much)} ms`);
  assert.ok(median(much) <= 3 * median(little), `${list(little)} ms, then ${list(much)} ms`);
});
