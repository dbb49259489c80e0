// Snapshots beside each other: what differs, promoting a fork, races.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startServer } from "../support/server.mjs";

const scope = "projectId=prj_sandbar&teamId=team_sandbar";
const server = await startServer();
after(() => server.stop());

const view = (name, resume = false) => server.call("GET", `/v2/sandboxes/${name}?${scope}&resume=${resume}`);
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session}/stop?${scope}`);
const names = async () => (await server.call("GET", `/v2/sandboxes?project=prj_sandbar&teamId=team_sandbar&limit=50`)).sandboxes.map((s) => s.name).sort();
const read = async (name, file) => {
  const { session } = await view(name, true);
  const { stdout } = await server.exec(session.id, "cat", [file]);
  await stop(session.id);
  return stdout;
};
async function keep(name, script) {
  const { session } = await server.call("POST", `/v2/sandboxes?${scope}`, { body: { projectId: "prj_sandbar", name, runtime: "node24", networkPolicy: { mode: "deny-all" } } }).catch(() => view(name, true));
  const done = await server.exec(session.id, "sh", ["-ec", script]);
  assert.equal(done.exitCode, 0, done.stderr);
  await stop(session.id);
  return (await view(name)).sandbox.currentSnapshotId;
}

test("diff: two snapshots, and a sandbox against its image", async () => {
  const first = await keep("box", "mkdir d; echo one > d/a; echo two > d/b; echo same > d/c");
  const second = await keep("box", "echo three > d/a; rm d/b; mkdir e; echo new > 'e/with space'; touch d/c; mv d/c d/c2; mv d/c2 d/c");
  const between = await server.call("GET", `/x/v1/diff?a=${first}&b=${second}&${scope}`);
  const root = "/vercel/sandbox";
  const own = between.changes.filter((c) => c.path.startsWith(root));
  assert.deepEqual(own.map((c) => [c.change, c.type, c.path]).sort(), [
    ["added", "directory", `${root}/e`],
    ["added", "file", `${root}/e/with%20space`],
    ["changed", "file", `${root}/d/a`],
    ["deleted", "file", `${root}/d/b`],
  ]);
  assert.deepEqual(own.filter((c) => c.path.endsWith("/a")).map((c) => [c.sizeBefore, c.size]), [[4, 6]]);
  const base = await server.call("GET", `/x/v1/diff?a=box&${scope}`);
  assert.ok(base.changes.some((c) => c.change === "added" && c.path === `${root}/d/a`));
  assert.ok(!base.changes.some((c) => c.path.startsWith("/usr/")), "what nobody touched is not listed");
  await assert.rejects(server.call("GET", `/x/v1/diff?a=nobody&${scope}`), { status: 404 });
});

test("promote: a fork becomes the state of its source", async () => {
  const first = await keep("source", "echo one > note");
  const fork = await server.call("POST", `/v2/sandboxes/source/fork?${scope}`, { body: { name: "fork" } });
  assert.equal((await server.exec(fork.session.id, "sh", ["-c", "echo two > note"])).exitCode, 0);
  const done = await server.call("POST", `/x/v1/sandboxes/fork/promote?${scope}`, { body: {} });
  assert.equal(done.sandbox, "source");
  assert.notEqual(done.currentSnapshotId, first);
  // Now it stands on what the fork made, but it is nobody's fork.
  await assert.rejects(server.call("POST", `/x/v1/sandboxes/source/promote?${scope}`, { body: {} }), (e) => e.status === 400 && /not forked/.test(e.text));
  await server.call("DELETE", `/v2/sandboxes/fork?${scope}`);
  assert.equal(await read("source", "note"), "two\n");
});

test("race: the best is kept, the rest is gone", async () => {
  await keep("track", "echo start > state");
  const before = await names();
  // Every fork draws a number; the highest wins.
  const race = await server.call("POST", `/x/v1/race?${scope}`, { body: {
    source: "track", count: 3, command: "sh", score: "score: ([0-9]+)",
    args: ["-c", "n=$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo $n > state; echo score: $n"],
  } });
  const scores = race.racers.map((r) => r.score);
  assert.equal(race.winner, scores.indexOf(Math.max(...scores)), JSON.stringify(race));
  assert.deepEqual(await names(), before, "no fork is left");
  assert.equal(await read("track", "state"), `${Math.max(...scores)}\n`);
});

test("race: nobody wins, nothing is kept; a crash in the middle leaves nothing", async () => {
  const head = await keep("tie", "echo start > state");
  const before = await names();
  const race = await server.call("POST", `/x/v1/race?${scope}`, { body: { source: "tie", count: 2, command: "false" } });
  assert.equal(race.winner, null);
  assert.deepEqual(race.racers.map((r) => r.exitCode), [1, 1]);
  assert.equal((await view("tie")).sandbox.currentSnapshotId, head);
  assert.deepEqual(await names(), before);
  await assert.rejects(server.call("POST", `/x/v1/race?${scope}`, { body: { source: "tie", count: 99, command: "true" } }), { status: 400 });
  await assert.rejects(server.call("POST", `/x/v1/race?${scope}`, { body: { source: "tie", command: "true", score: "(" } }), { status: 400 });

  const cut = server.request("POST", `/x/v1/race?${scope}`, { body: { source: "tie", count: 2, command: "sleep", args: ["600"] } }).catch(() => null);
  const running = async () => (await names()).filter((n) => n.startsWith("race-")).length;
  while ((await running()) < 2) await new Promise((done) => setTimeout(done, 50));
  await server.crash();
  await cut;
  await server.start();
  while ((await running()) > 0) await new Promise((done) => setTimeout(done, 100));
  assert.deepEqual(await names(), before);
});
