// What stops leave behind: a sandbox that nobody named goes when its time is over, one that somebody used stays.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { useSdk } from "./sdk.mjs";
import { startServer, until } from "../support/server.mjs";

const scope = "projectId=prj_test&teamId=team_test";
const day = 86_400_000;
const stop = (server, { session }) => server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop?${scope}`);
const there = (server, { sandbox }) =>
  server.call("GET", `/v2/sandboxes/${sandbox.name}?${scope}`).then(() => true, (e) => (assert.equal(e.status, 404), false));
const snapshotsOf = async (server, name) =>
  (await server.call("GET", `/v2/sandboxes/snapshots?project=prj_test&teamId=team_test&name=${name}&limit=50`)).snapshots;

test("an unnamed sandbox goes when its time is over, with its snapshot; named, tagged and running ones stay", async () => {
  const server = await startServer({ config: '[retention]\nunnamed = "1s"\n' });
  after(() => server.stop());
  const create = (fields) =>
    server.call("POST", "/v2/sandboxes?teamId=team_test", { body: { projectId: "prj_test", runtime: "node24", networkPolicy: { mode: "deny-all" }, ...fields } });
  const unnamed = await create(), empty = await create({ persistent: false });
  const kept = [await create({ name: "mine" }), await create({ tags: { by: "me" } }), await create({ persistent: true })];
  const running = await create();
  for (const made of [unnamed, empty, ...kept, running]) assert.ok(await there(server, made));
  for (const made of [unnamed, empty, ...kept]) await stop(server, made);
  const [snapshot] = await snapshotsOf(server, unnamed.sandbox.name);
  assert.ok(snapshot.expiresAt - snapshot.createdAt <= 1000, "what the API says of it is true");
  // A delete has the house tidied.
  const tidy = async () => (await create({ name: "any", persistent: false }), server.call("DELETE", `/v2/sandboxes/any?${scope}`));
  for (const made of [unnamed, empty]) await until(async () => (await tidy(), !(await there(server, made))), "it is gone");
  await until(async () => (await tidy(), (await snapshotsOf(server, unnamed.sandbox.name)).every((s) => s.status === "deleted")), "and its snapshot");
  for (const made of [...kept, running]) assert.ok(await there(server, made), made.sandbox.name);
});

test("who uses an unnamed sandbox keeps it", async () => {
  const { Sandbox, sandbox, credentials, server } = await useSdk();
  const life = async (box) => {
    const oldest = (await snapshotsOf(server, box.name)).at(-1);
    return oldest.expiresAt - Date.now();
  };
  for (const [how, use] of Object.entries({
    resumed: async (box) => (await Sandbox.get({ name: box.name, ...credentials })).runCommand("true"),
    forked: (box) => Sandbox.fork({ sourceSandbox: box.name, name: "a-fork", ...credentials }),
    "started from": async (box) => Sandbox.create({ name: "b", source: { type: "snapshot", snapshotId: (await snapshotsOf(server, box.name))[0].id }, ...credentials }),
    tagged: async (box) => (await Sandbox.get({ name: box.name, resume: false, ...credentials })).update({ tags: { keep: "yes" } }),
  })) {
    const box = await sandbox();
    await box.stop();
    assert.ok((await life(box)) <= day, `${how}: a day at first`);
    await use(box);
    assert.ok((await life(box)) > 29 * day, `${how}: as long as others afterwards`);
  }
});
