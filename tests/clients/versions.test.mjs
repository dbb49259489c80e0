// The older major versions of the client: what programs written for them rely on.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { until } from "../support/server.mjs";

const v2 = await useSdk({ client: "sandbox-v2" });
const v1 = await import("sandbox-v1");
const { credentials } = v2;

for (const [version, create] of [
  ["2.9", (params) => v2.sandbox(params)],
  ["1.10", (params) => v1.Sandbox.create({ runtime: "node24", networkPolicy: "deny-all", ...credentials, ...params })],
]) {
  test(`${version}: write, run, read, fail, background, kill, stop`, async () => {
    const box = await create({ env: { FROM: "sandbox" } });
    assert.equal(box.status, "running");
    await box.writeFiles([{ path: "main.js", content: "console.log(process.env.FROM, process.env.MINE); process.exit(4)" }]);
    const { exitCode, stdout } = await sh(box, "node main.js", { env: { MINE: "command" } });
    assert.deepEqual([exitCode, stdout], [4, "sandbox command\n"]);
    assert.equal((await box.readFileToBuffer({ path: "main.js" })).toString().slice(0, 7), "console");
    assert.equal(await box.readFileToBuffer({ path: "absent" }), null);
    await box.mkDir("dir");
    assert.equal((await sh(box, "pwd", { cwd: "dir" })).stdout, "/vercel/sandbox/dir\n");
    assert.equal((await sh(box, "id -u", { sudo: true })).stdout, "0\n");
    assert.equal((await apiError(box.runCommand("no-such-program"))).code, "executable_not_found");

    const server = await box.runCommand({ cmd: "sh", args: ["-c", "echo up; exec sleep 1000"], detached: true });
    let seen = "";
    const following = (async () => { for await (const line of server.logs()) seen += line.data; })();
    await until(() => seen === "up\n", "its log follows");
    await server.kill("SIGTERM");
    assert.equal((await server.wait()).exitCode, 143);
    await following;

    await box.fs.writeFile("f", "x");
    assert.deepEqual((await box.fs.readdir(".")).sort(), ["dir", "f", "main.js"]);
    await box.extendTimeout(60_000);
    await box.updateNetworkPolicy("allow-all");
    await box.stop({ blocking: true });
    // The newer clients go on from the snapshot, which the older ones know nothing of.
    if (version === "1.10") assert.equal((await apiError(box.runCommand("true"))).status, 410);
    else assert.equal((await sh(box, "cat main.js | wc -l")).exitCode, 0);
  });
}

test("1.10: get by id, list", async () => {
  const box = await v1.Sandbox.create({ runtime: "node24", networkPolicy: "deny-all", timeout: 120_000, ...credentials });
  assert.match(box.sandboxId, /^sbx_/);
  assert.equal(box.timeout, 120_000);
  const again = await v1.Sandbox.get({ sandboxId: box.sandboxId, ...credentials });
  assert.equal((await sh(again, "echo same")).stdout, "same\n");
  const { json } = await v1.Sandbox.list({ ...credentials, limit: 5 });
  assert.equal(json.sandboxes[0].id, box.sandboxId);
  assert.equal(typeof json.pagination.count, "number");
  const upgraded = await v2.Sandbox.get({ name: box.sandboxId, ...credentials });
  assert.equal(upgraded.currentSession().sessionId, box.sandboxId, "found under its id by newer clients");
  await box.stop({ blocking: true });
});

for (const [version, sdk, create] of [
  ["2.9", v2, (params) => v2.sandbox(params)],
  ["1.10", v1, (params) => v1.Sandbox.create({ networkPolicy: "deny-all", ...credentials, ...params })],
]) {
  test(`${version}: snapshots: take, start from, get, list, delete`, async () => {
    const box = await create({ runtime: "node24" });
    await box.writeFiles([{ path: "base", content: version }]);
    const snapshot = await box.snapshot({ expiration: 86_400_000 });
    assert.match(snapshot.snapshotId, /^snap_/);
    assert.equal(snapshot.status, "created");
    assert.ok(snapshot.sizeBytes >= 0);
    // It stops its sandbox. Version 2 resumes at the next call, version 1 cannot.
    if (version === "1.10") assert.ok((await apiError(box.runCommand("true"))).status >= 400);
    else assert.equal((await sh(box, "cat base")).stdout, version);
    const copies = await Promise.all([1, 2].map(() => create({ runtime: undefined, source: { type: "snapshot", snapshotId: snapshot.snapshotId } })));
    for (const copy of copies) {
      assert.equal((await copy.readFileToBuffer({ path: "base" })).toString(), version);
      await copy.stop({ blocking: true });
    }
    const found = await sdk.Snapshot.get({ snapshotId: snapshot.snapshotId, ...credentials });
    assert.equal(found.status, "created");
    assert.ok(found.expiresAt > new Date());
    const listed = await sdk.Snapshot.list({ ...credentials, limit: 50 });
    const ids = (listed.json?.snapshots ?? listed.snapshots).map((s) => s.id);
    assert.ok(ids.includes(snapshot.snapshotId));
    await found.delete();
    assert.equal((await sdk.Snapshot.get({ snapshotId: snapshot.snapshotId, ...credentials })).status, "deleted");
    const gone = await apiError(create({ runtime: undefined, source: { type: "snapshot", snapshotId: snapshot.snapshotId } }));
    assert.equal(gone.status, 410);
  });
}

test("1.10: a sandbox leaves nothing when it stops", async () => {
  const box = await v1.Sandbox.create({ runtime: "node24", networkPolicy: "deny-all", ...credentials });
  await box.stop({ blocking: true });
  const { snapshots } = await v2.server.call("GET", "/v1/sandboxes/snapshots?project=prj_test&teamId=team_test&limit=50");
  assert.ok(!snapshots.some((s) => s.sourceSandboxId === box.sandboxId));
});
