// A disk that is full: creates say so, what runs goes on, and it mends itself when there is room again.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";

let server;
before(async () => (server = await startServer({ config: `[project]\ndisk_mb = 4096\n[disk]\npool_bytes = ${400 << 20}\n` })));
after(() => server?.stop());

const query = "projectId=prj_test";
// Appends: what the kernel had reserved for a write that failed is free again afterwards.
const fill = (session) => server.exec(session, "sh", ["-c", "cat /dev/zero >> big; sync"]);

test("a full store: 507, nobody else is hurt, room again is enough", async () => {
  const full = await server.create({ name: "hog", runtime: "node24", persistent: false });
  const other = await server.create({ name: "other", runtime: "node24" });
  const filled = await fill(full.session.id);
  assert.match(filled.stderr, /Disk quota exceeded/);
  const refused = await until(async () => {
    const response = await server.request("POST", "/v2/sandboxes", { body: { projectId: "prj_test", ports: [], runtime: "node24" } });
    if (response.ok) await server.call("DELETE", `/v2/sandboxes/${(await response.json()).sandbox.name}?${query}`);
    if (response.status === 507) return response;
    // Nearly full: a start may meet the common limit before the store counts as full.
    assert.ok(response.ok || response.status === 402, `${response.status}`);
    await fill(full.session.id);
  }, "a create is refused");
  assert.equal(refused.status, 507);
  const { error } = await refused.json();
  assert.equal(error.code, "insufficient_storage");
  assert.match(error.message, /disk is full/);
  for (const { session } of [full, other]) assert.equal((await server.exec(session.id, "echo", ["alive"])).stdout, "alive\n");
  assert.equal((await server.call("GET", "/health")).status, "ok");
  const { sandboxes } = await server.call("GET", `/v2/sandboxes?${query}&project=prj_test`);
  assert.deepEqual(sandboxes.map((s) => s.name).sort(), ["hog", "other"], "the refused ones left no record");

  await server.call("DELETE", `/v2/sandboxes/hog?${query}`);
  const again = await until(() => server.create({ runtime: "node24" }).catch((e) => {
    if (e.status !== 507) throw e;
  }), "a create works again");
  assert.equal((await server.exec(again.session.id, "sh", ["-c", "head -c 1000000 /dev/zero > x && sync && echo ok"])).stdout, "ok\n");
  assert.equal((await server.exec(other.session.id, "sh", ["-c", "echo more > y && sync && cat y"])).stdout, "more\n");
});
