// Commands about what lasts: snapshots, forks, resume, usage; and what the command line says when something ends early.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { binary, startServer, until } from "../support/server.mjs";

let server;
before(async () => (server = await startServer({ config: "[prices]\ncurrency = \"EUR\"\ncreation = 1\n" })));
after(() => server?.stop());

const environment = (env = {}) => {
  const clean = { ...process.env, SANDBAR_DATA: server.data, ...env };
  for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN"]) if (!(name in env)) delete clean[name];
  return clean;
};
const cli = (args, env) =>
  new Promise((done) => {
    const child = execFile(binary, args, { env: environment(env), maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });
const json = (result) => JSON.parse(result.stdout);
const start = (args) => {
  const child = spawn(binary, args, { env: environment() });
  const seen = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (piece) => (seen[name] += piece));
  return { child, seen, ended: new Promise((done) => child.once("exit", done)) };
};

test("run --persistent, resume, snapshot, fork, run --from", async () => {
  const first = await cli(["run", "--persistent", "--name", "dev", "--", "sh", "-c", "echo kept > file"]);
  assert.equal(first.code, 0, first.stderr);
  assert.match(first.stderr, /sandbar resume dev/);
  assert.equal((await cli(["ps"])).stdout.includes("dev"), false);
  assert.match((await cli(["ps", "-a"])).stdout, /dev +stopped/);
  assert.equal((await cli(["resume", "dev"])).stdout, "dev\n");
  assert.match((await cli(["ps"])).stdout, /dev +running .* in \d+ min/, "ENDS");
  assert.equal((await cli(["exec", "dev", "--", "cat", "file"])).stdout, "kept\n");
  const taken = await cli(["snapshot", "dev"]);
  const id = taken.stdout.trim();
  assert.match(id, /^snap_/, taken.stderr);
  assert.match((await cli(["snapshot", "ls"])).stdout, new RegExp(`${id} +dev +manual`));
  assert.ok(json(await cli(["snapshot", "ls", "dev", "--json"])).snapshots.length >= 2);
  assert.equal((await cli(["fork", "dev", "dev2"])).stdout, "dev2\n");
  assert.equal((await cli(["exec", "dev2", "--", "cat", "file"])).stdout, "kept\n");
  assert.equal((await cli(["run", "--from", id, "--", "cat", "file"])).stdout, "kept\n");
  assert.equal((await cli(["snapshot", "rm", id])).stdout, `${id}\n`);
  assert.equal((await cli(["run", "--from", id, "--", "true"])).code, 125);
  assert.equal((await cli(["snapshot", "ls", "a", "b"])).code, 2);
});

test("snapshot of a sandbox that has stopped: one of its own, and it stays stopped", async () => {
  const first = await cli(["run", "--persistent", "--name", "still", "--", "sh", "-c", "echo kept > file"]);
  assert.equal(first.code, 0, first.stderr);
  const taken = await cli(["snapshot", "still"]);
  assert.equal(taken.code, 0, taken.stderr);
  const id = taken.stdout.trim();
  assert.match((await cli(["snapshot", "ls", "still"])).stdout, new RegExp(`${id} +still +manual`));
  assert.match((await cli(["ps", "-a"])).stdout, /still +stopped/);
  assert.equal((await cli(["run", "--from", id, "--", "cat", "file"])).stdout, "kept\n");
  assert.equal((await cli(["snapshot", "nobody"])).code, 125);
  await cli(["rm", "still"]);
});

test("without an image and a runtime: the server's default image", async () => {
  const got = await cli(["run", "--json", "--", "sh", "-c", "node -p 6*7 && python3 -c 'print(6*7)'"]);
  assert.equal(got.code, 0, got.stderr);
  assert.match(JSON.parse(got.stdout.split("\n")[0]).sandbox.image, /^vercel\/sandbox\/universal@/);
  assert.equal((await cli(["run", "--runtime", "node22", "--", "node", "-p", "process.version.split('.')[0]"])).stdout, "v22\n");
});

test("rm goes on after a name that is not there, and says so at the end", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "one", "--", "true"])).code, 0);
  const got = await cli(["rm", "nobody", "one"]);
  assert.equal(got.stdout, "one\n");
  assert.match(got.stderr, /nobody: .*not found/);
  assert.equal(got.code, 125);
});

test("a name that is not there, or is taken, comes with the way on", async () => {
  for (const args of [["exec", "nobody", "--", "true"], ["rm", "nobody"], ["stop", "nobody"], ["logs", "nobody"], ["cp", "nobody:x", "."], ["cp", ".", "nobody:"]]) {
    const got = await cli(args);
    assert.equal(got.code, 125, args.join(" "));
    assert.match(got.stderr, /sandbox not found: nobody\n\s+fix: \S*sandbar ps -a/, args.join(" "));
  }
  assert.equal((await cli(["run", "--keep", "--name", "once", "--", "true"])).code, 0);
  assert.match((await cli(["logs", "once", "cmd_none"])).stderr, /once has no command cmd_none\n\s+fix: \S*sandbar logs once/);
  assert.match((await cli(["run", "--name", "once", "--", "true"])).stderr, /named "once" exists already in this project: choose another name, or delete that one first/);
  // What cp did in the sandbox can be told from the user's own commands.
  assert.equal((await cli(["cp", "once:/etc/os-release", "/dev/null"])).code, 0);
  assert.match((await cli(["logs", "once"])).stdout, /sh -c : sandbar cp;/);
  await cli(["rm", "once"]);
});

test("--json: errors are JSON on stderr", async () => {
  const got = await cli(["inspect", "nobody", "--json"]);
  assert.equal(got.code, 125);
  assert.equal(got.stdout, "");
  const { error } = JSON.parse(got.stderr);
  assert.equal(error.code, "not_found");
  assert.match(error.message, /nobody/);
  const none = await cli(["ps", "--json", "--data", `${server.data}-none`]);
  assert.match(JSON.parse(none.stderr).error.fix, /sandbar up/);
});

test("--data wins over SANDBAR_URL, which wins over SANDBAR_DATA", async () => {
  const elsewhere = { SANDBAR_URL: "http://127.0.0.1:9", SANDBAR_TOKEN: "x" };
  assert.equal((await cli(["ps", "--data", server.data], elsewhere)).code, 0);
  assert.match((await cli(["ps"], elsewhere)).stderr, /127\.0\.0\.1:9/);
  assert.match((await cli(["ps", "--data", `${server.data}-none`], elsewhere)).stderr, /no server is running for/);
});

test("a command that did not end by itself: why is on stderr", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "brief", "--", "true"])).code, 0);
  const late = await cli(["exec", "--timeout", "300ms", "brief", "--", "sleep", "1000"]);
  assert.equal(late.code, 137);
  assert.match(late.stderr, /killed: its --timeout is over/);
  const victim = start(["exec", "brief", "--", "sh", "-c", "echo up; exec sleep 1000"]);
  await until(() => victim.seen.stdout.includes("up"), "it runs");
  await cli(["stop", "brief"]);
  assert.ok((await victim.ended) > 128);
  assert.match(victim.seen.stderr, /the sandbox has stopped \(requested\)/);
});

test("Ctrl-C on exec: the command hears the first; after the second it goes on unless -k was given", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "busy", "--", "true"])).code, 0);
  const ctrlC = async (...flags) => {
    const { child, seen, ended } = start(["exec", ...flags, "busy", "--", "sh", "-c", "trap 'echo heard' INT; echo up; while :; do sleep 0.1; done"]);
    await until(() => seen.stdout.includes("up"), "it runs");
    child.kill("SIGINT");
    await until(() => seen.stdout.includes("heard"), "it was told");
    child.kill("SIGINT");
    return { code: await ended, stderr: seen.stderr };
  };
  const running = async () => (await cli(["logs", "busy"])).stdout.match(/running/g)?.length ?? 0;
  const left = await ctrlC();
  assert.equal(left.code, 130);
  assert.match(left.stderr, /goes on in busy; its output: \S*sandbar logs -f busy cmd_/);
  assert.equal(await running(), 1);
  const killed = await ctrlC("-k");
  assert.equal(killed.code, 130);
  await until(async () => (await running()) === 1, "only the first one runs");
  await cli(["rm", "busy"]);
});

test("usage: a table, or JSON with the prices of the configuration", async () => {
  const { projects } = json(await cli(["usage", "--json"]));
  const mine = projects.find((p) => p.projectId === "prj_sandbar");
  assert.ok(mine.creations >= 5 && mine.memoryGbHours > 0 && mine.activeCpuDurationMs > 0);
  assert.equal(mine.cost.creations, mine.creations);
  assert.match((await cli(["usage"])).stdout, /PROJECT +CPU-HOURS +GB-HOURS[\s\S]*prj_sandbar .* EUR/);
});
