// The disk is everybody's: a project gets its budget of it, a sandbox its limit over all its sessions, and neither more.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { engine, startServer, until } from "../support/server.mjs";

const HOUR = 3_600_000; // nothing here is about time
const LIMIT = 256, BUDGET = 600; // MiB: of a sandbox, of a project
let server;
before(async () => {
  server = await startServer({
    config: `[limits]\ndisk_mb = ${LIMIT}\n[project]\ndisk_mb = ${BUDGET}\n[disk]\npool_bytes = ${2048 * 2 ** 20}\n`,
  });
});
after(() => server?.stop());

const create = (project, fields) => server.create({ projectId: project, runtime: "node24", timeout: HOUR, ...fields });
const sh = (session, script) => server.exec(session.id, "sh", ["-c", script]);
const writes = async (session, mib) =>
  assert.equal((await sh(session, `head -c ${mib}M /dev/zero > neighbour && sync neighbour && rm neighbour && echo ok`)).stdout, "ok\n");
const remove = (project, name) => server.call("DELETE", `/v2/sandboxes/${name}?projectId=${project}`);

// Takes all that it can get, in smaller and smaller pieces, and says how many MiB that were.
const bomb = (dir) =>
  `cd ${dir}; i=0; for size in 1048576 1024 256 64 16 1; do ` +
  `while fallocate -l \${size}M f$i 2>/dev/null; do i=$((i+1)); done; rm -f f$i; done; du -sm . | cut -f1`;

test("a drive of the default size takes its project's budget; others write and create as before", async () => {
  const neighbour = await create("prj_calm");
  const { drive } = await server.call("POST", "/v2/sandboxes/drives/hoard", { body: { projectId: "prj_greedy" } });
  assert.ok(drive.maxSizeBytes > 2 ** 31, "larger than the store: a ceiling, not a reservation");
  const { session } = await create("prj_greedy", { name: "greedy", persistent: false, mounts: { "/mnt/hoard": { drive: "hoard", mode: "read-write" } } });
  const taken = Number((await sh(session, bomb("/mnt/hoard"))).stdout);
  assert.ok(taken <= BUDGET, `${taken} MiB were taken`);
  assert.ok(taken > BUDGET / 2, `only ${taken} MiB could be taken`);
  await writes(neighbour.session, 100);
  const more = await create("prj_calm");
  await writes(more.session, 100);
  // Whoever is over its budget is told so; a file of its own does not help.
  assert.match((await sh(session, "head -c 100M /dev/zero > more")).stderr, /Disk quota exceeded/);
  const refused = await until(async () => {
    const response = await server.request("POST", "/v2/sandboxes", { body: { projectId: "prj_greedy", ports: [], runtime: "node24" } });
    if (!response.ok) return response;
    await remove("prj_greedy", (await response.json()).sandbox.name);
    await sh(session, "sync");
  }, "a create is refused");
  assert.equal(refused.status, 402);
  const { error } = await refused.json();
  assert.equal(error.code, "quota_exceeded");
  assert.match(error.message, /budget is 600 MiB.*delete/);
  // The cause gone, the room is back.
  await remove("prj_greedy", "greedy");
  await server.call("DELETE", "/v2/sandboxes/drives/hoard?projectId=prj_greedy");
  const again = await until(() => create("prj_greedy").catch((e) => {
    if (e.status !== 402) throw e;
  }), "a create works again");
  await until(async () => (await sh(again.session, "fallocate -l 200M back && echo ok")).stdout === "ok\n", "and has room");
});

test("a sandbox has its limit in all its sessions together", { skip: engine.startsWith("microvm") && "the size of its device holds it" }, async () => {
  let { session } = await create("prj_cycles", { name: "grow" });
  for (let i = 0; i < 5; i++) {
    await sh(session, `fallocate -l 60M f${i} || rm -f f${i}`);
    const held = Number((await sh(session, "du -sm . | cut -f1")).stdout);
    assert.ok(held <= LIMIT, `${held} MiB in a limit of ${LIMIT} after ${i} cycles`);
    if (i === 4) assert.ok(held >= 180, `only ${held} MiB of ${LIMIT}`);
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    ({ session } = await server.call("GET", "/v2/sandboxes/grow?projectId=prj_cycles&resume=true"));
  }
  assert.equal((await sh(session, "rm f0 && echo again > x && cat x")).stdout, "again\n", "deleting makes room");
});

test("old files can be written anew in every session", async () => {
  let { session } = await create("prj_rewrite", { name: "anew" });
  assert.equal((await sh(session, "head -c 100M /dev/urandom > old && echo ok")).stdout, "ok\n");
  for (let i = 0; i < 3; i++) {
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    ({ session } = await server.call("GET", "/v2/sandboxes/anew?projectId=prj_rewrite&resume=true"));
    const r = await sh(session, "dd if=/dev/urandom of=old bs=1M count=100 conv=notrunc,fsync 2>&1 && echo ok");
    assert.match(r.stdout, /ok\n$/, `session ${i}: ${r.stdout}`);
  }
});
