// Deleting deletes: canaries are put in every place that a sandbox has, and looked for on the disk when it is gone.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { engine, startServer, until } from "../support/server.mjs";
import { spawnerPid } from "../support/host.mjs";

const run = promisify(execFile);
const scope = "projectId=prj_sandbar&teamId=team_sandbar";
let server;
before(async () => (server = await startServer()));
after(() => server?.stop());

const marks = new Map();
const canary = (place) => {
  const text = `canary-${place}-${randomBytes(8).toString("hex")}`;
  marks.set(place, text);
  return text;
};
// Which canaries any file holds, by content or by name: the data directory, and the store as the spawner sees it.
async function found() {
  const store = `/proc/${await spawnerPid(server.data)}/root/run/sandbar/mnt/store`;
  const { stdout: names } = await run("find", [server.data, store], { maxBuffer: 1 << 26 }).catch((e) => e);
  const patterns = [...marks.values()].flatMap((text) => ["-e", text]);
  const { stdout: texts } = await run("grep", ["-raoF", "--devices=skip", "--exclude=store.img", ...patterns, server.data, store], { maxBuffer: 1 << 26 }).catch((e) => e);
  return [...marks].filter(([, text]) => names.includes(text) || texts.includes(text))
    .map(([place, text]) => `${place} (${[...texts.split("\n"), ...names.split("\n")].find((line) => line.includes(text))})`);
}
const call = (method, path, body) => server.call(method, path.includes("?") ? `${path}&${scope}` : `${path}?${scope}`, body && { body });
const sh = async (session, script) => {
  const done = await server.exec(session, "sh", ["-ec", script]);
  assert.equal(done.exitCode, 0, done.stderr);
  return done;
};

// Everything that a sandbox can leave somewhere.
async function fill(name) {
  const { session } = await call("POST", "/v2/sandboxes", {
    projectId: "prj_sandbar", name, runtime: "node24", env: { SECRET: canary("env") }, tags: { note: canary("tag") }, ports: [3000],
    networkPolicy: { allow: { "example.com": [{ transform: [{ headers: { authorization: canary("header") } }] }] } },
  });
  await sh(session.id, `echo ${canary("file")} > file; echo ${canary("output")}; mkdir ${canary("directory")}; sudo sh -c 'echo ${canary("root")} > /etc/of-root'`);
  await server.exec(session.id, "sh", ["-c", "true", canary("argument")], { env: { VALUE: canary("variable") }, cwd: "/tmp" });
  await server.exec(session.id, "sh", ["-c", `echo ${canary("error-output")} >&2; exit 3`]);
  const code = await server.request("POST", `/x/v1/sandboxes/${name}/code?${scope}`, { body: { language: "javascript", code: `console.log("${canary("cell")}"); "${canary("result")}"` } });
  await code.text();
  await call("PATCH", `/v2/sandboxes/${name}`, { tags: { note: canary("new-tag") } });
  return session;
}

test("a sandbox that is deleted while it runs leaves nothing", async () => {
  await fill("running");
  const there = await found();
  for (const place of ["tag", "argument", "output", "file"]) assert.ok(there.some((f) => f.startsWith(`${place} `)), `the search sees ${place}: ${there}`);
  await call("DELETE", "/v2/sandboxes/running");
  await until(async () => (await found()).length === 0 || undefined, "no trace is left", 100).catch(async (e) => assert.fail(`${e.message}: ${await found()}`));
});

test("a stopped one leaves nothing either: what its stops kept goes with it", async () => {
  const session = await fill("stopped");
  await call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  const again = await call("GET", "/v2/sandboxes/stopped?resume=true");
  await sh(again.session.id, `echo ${canary("second")} > second`);
  await call("POST", `/v2/sandboxes/sessions/${again.session.id}/stop`);
  await call("DELETE", "/v2/sandboxes/stopped");
  await until(async () => (await found()).length === 0 || undefined, "no trace is left", 100).catch(async (e) => assert.fail(`${e.message}: ${await found()}`));
});

test("forks, races and drives leave nothing; a snapshot made by hand stays until it is deleted", async () => {
  const drive = await call("POST", "/v2/sandboxes/drives/volume", { projectId: "prj_sandbar", maxSizeBytes: 64 << 20 }).catch((e) => e);
  const { session } = await call("POST", "/v2/sandboxes", {
    projectId: "prj_sandbar", name: "parent", runtime: "node24", ...(drive instanceof Error ? {} : { mounts: { "/mnt/volume": { drive: "volume", mode: "read-write" } } }),
  });
  if (!(drive instanceof Error)) await sh(session.id, `echo ${canary("drive")} | sudo tee /mnt/volume/x`);
  await sh(session.id, `echo ${canary("parent")} > file`);
  await call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  if (!(drive instanceof Error)) await call("PATCH", "/v2/sandboxes/parent", { mounts: {} });
  const race = await call("POST", "/x/v1/race", { source: "parent", command: "sh", args: ["-c", `echo ${canary("racer")} | tee raced`], count: 2 });
  assert.ok(race.winner !== null, JSON.stringify(race));
  const fork = await call("POST", "/v2/sandboxes/parent/fork", { name: "child" });
  await sh(fork.session.id, `echo ${canary("child")} > child`);
  const byHand = canary("by-hand");
  await sh(fork.session.id, `echo ${byHand} > kept`);
  const { snapshot } = await call("POST", `/v2/sandboxes/sessions/${fork.session.id}/snapshot`, {});
  for (const name of ["parent", "child"]) await call("DELETE", `/v2/sandboxes/${name}`);
  if (!(drive instanceof Error)) await call("DELETE", "/v2/sandboxes/drives/volume");
  const kept = await call("POST", "/v2/sandboxes", { projectId: "prj_sandbar", name: "from-kept", source: { type: "snapshot", snapshotId: snapshot.id } });
  assert.equal((await sh(kept.session.id, "cat kept")).stdout.trim(), byHand);
  await call("DELETE", "/v2/sandboxes/from-kept");
  await call("DELETE", `/v2/sandboxes/snapshots/${snapshot.id}`);
  await until(async () => (await found()).length === 0 || undefined, "no trace is left", 100).catch(async (e) => assert.fail(`${e.message}: ${await found()}`));
});

test("the server's own log has none of it", () => {
  for (const [place, text] of marks) assert.ok(!server.output.includes(text), `${place} is in the log`);
});
