// 300 create/run/stop cycles and 50 failed creates: then everything on the host is as before.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";
import { inventory, settled } from "../support/host.mjs";

let server;
before(async () => (server = await startServer({ config: "[limits]\nmax_running = 64\n" })));
after(() => server?.stop());

async function cycle() {
  const { session } = await server.create({ runtime: "node24" });
  assert.equal((await server.exec(session.id, "sh", ["-c", "head -c 1000000 /dev/zero > big; sleep 60 & echo hi"])).stdout, "hi\n");
  const stopped = await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  assert.equal(stopped.session.status, "stopped");
}

test("cycles and failures leave nothing behind", async () => {
  for (let i = 0; i < 5; i++) await cycle(); // pools and caches reach their level
  const before_ = await settled(server);
  for (let i = 0; i < 75; i++) await Promise.all([cycle(), cycle(), cycle(), cycle()]);
  for (let i = 0; i < 50; i++) {
    const bad = [{ runtime: "node24", timeout: 1 }, { runtime: "nope" }, { name: "a b" }, { resources: { vcpus: 1000 } }, { source: { type: "git", url: "x" } }];
    const response = await server.request("POST", "/v2/sandboxes", { body: { projectId: "p", ports: [], ...bad[i % bad.length] } });
    assert.ok(response.status >= 400 && response.status < 500, `${response.status} ${await response.text()}`);
  }
  // Teardown goes on in the background: wait for the level, not for a time.
  await until(async () => {
    const now = await inventory(server);
    return Object.keys(before_).every((k) => now[k] <= before_[k] + (k === "namespaces" ? 4 : 2));
  }, "the inventory returns to its level").catch(async (e) => {
    assert.deepEqual(await inventory(server), before_, e.message);
  });
});
