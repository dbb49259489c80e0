// The command line on the real programs: exit codes, streams, clean-up on every way out.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { chmod, copyFile, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { lookup } from "node:dns/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, engine, startServer, until } from "../support/server.mjs";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-cli-"));
  await chmod(scratch, 0o755);
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

// Runs the program to its end: {code, signal, stdout, stderr}.
const cli = (args, { env = {}, options = {}, program = binary } = {}) =>
  new Promise((done) => {
    const clean = { ...process.env, SANDBAR_DATA: server.data, ...env };
    for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN"]) if (!(name in env)) delete clean[name];
    const child = execFile(program, args, { env: clean, maxBuffer: 1 << 26, ...options }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, signal: error?.signal, stdout, stderr }));
    child.stdin.end();
  });
const json = (result) => JSON.parse(result.stdout);
const embedded = async () => (await readdir("/var/lib/sandbar-run").catch(() => [])).length;

test("run: output where it belongs, the command's exit code, nothing left", async () => {
  const got = await cli(["run", "-e", "A=caf\u00e9", "-w", "/tmp", "--", "sh", "-c", "pwd; echo $A; echo no >&2; exit 7"]);
  assert.equal(got.stdout, "/tmp\ncaf\u00e9\n");
  assert.match(got.stderr, /^no$/m);
  assert.match(got.stderr, engine === "gvisor" ? /class 2/ : /class 1/);
  assert.equal(got.code, 7);
  assert.deepEqual(json(await cli(["ps", "--json"])).sandboxes, []);
});

test("run: deny-all unless asked, and sudo is root of the sandbox only", async () => {
  const denied = await cli(["run", "--", "node", "-e", "fetch('http://192.0.2.1').then((r) => process.exit(r.status === 403 ? 9 : 1), () => process.exit(9))"]);
  assert.equal(denied.code, 9);
  assert.equal((await cli(["run", "--sudo", "--", "id", "-u"])).stdout, "0\n");
});

test("run --keep without a server that stays is refused, not promised", async () => {
  const got = await cli(["run", "--keep", "--", "true"], { env: { SANDBAR_DATA: join(scratch, "nobody") } });
  assert.equal(got.code, 125);
  assert.match(got.stderr, /sandbar up/);
});

test("run: a missing program is 127, our own failures are 125", async () => {
  assert.equal((await cli(["run", "--", "no-such-program"])).code, 127);
  const wrong = await cli(["run", "--image", "no/such-image", "--", "true"]);
  assert.equal(wrong.code, 125);
  assert.match(wrong.stderr, /image/);
});

test("run: a signal stops the sandbox before we leave", async () => {
  const child = spawn(binary, ["run", "--", "sh", "-c", "echo up; sleep 1000"], { env: { ...process.env, SANDBAR_DATA: server.data } });
  let out = "";
  child.stdout.on("data", (piece) => (out += piece));
  await until(() => out.includes("up"), "the command's first line");
  child.kill("SIGINT");
  const code = await new Promise((done) => child.once("exit", done));
  assert.equal(code, 130);
  assert.deepEqual(json(await cli(["ps", "-a", "--json"])).sandboxes, []);
});

test("run: a reader that goes away ends it", async () => {
  const child = spawn("sh", ["-c", `'${binary}' run -- sh -c 'while :; do echo y; done' | head -n 1`],
    { env: { ...process.env, SANDBAR_DATA: server.data }, stdio: ["ignore", "pipe", "ignore"] });
  await new Promise((done) => child.once("exit", done));
  await until(async () => json(await cli(["ps", "-a", "--json"])).sandboxes.length === 0, "the sandbox is gone");
});

test("run without a server: an embedded one, gone on every way out", async () => {
  const alone = { SANDBAR_DATA: join(scratch, "none") };
  const before = await embedded();
  const got = await cli(["run", "--", "node", "-e", "console.log(6*7)"], { env: alone });
  assert.equal(got.stdout, "42\n");
  assert.equal(got.code, 0);
  // What an earlier, killed one left may be swept meanwhile; ours must not be added.
  assert.ok((await embedded()) <= before);
  // Not even kill -9 of the client leaves a machine or a server behind.
  const child = spawn(binary, ["run", "--", "sh", "-c", "echo up; sleep 1000"], { env: { ...process.env, ...alone } });
  let out = "";
  child.stdout.on("data", (piece) => (out += piece));
  await until(() => out.includes("up"), "the command's first line");
  const dirs = (await readdir("/var/lib/sandbar-run")).map((d) => join("/var/lib/sandbar-run", d));
  child.kill("SIGKILL");
  await until(async () => {
    for (const pid of (await readdir("/proc")).filter((n) => /^\d+$/.test(n))) {
      const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      if (dirs.some((dir) => line.includes(dir))) return false;
    }
    return true;
  }, "server and spawner are gone");
});

test("the sandbox sees nothing of the host: file, variable, process", async () => {
  const canary = `canary-${process.pid}-${Date.now()}`;
  await writeFile(join(scratch, canary), canary);
  const sleeper = spawn("sleep", ["1000"]);
  after(() => sleeper.kill());
  const lines = await cli(["run", "--sudo", "--", "sh", "-c", "env"], { env: { HOST_CANARY: canary, SANDBAR_DATA: server.data } });
  assert.ok(!lines.stdout.includes(canary));
  const cat = await cli(["run", "--sudo", "--", "cat", join(scratch, canary)]);
  assert.notEqual(cat.code, 0);
  const pids = await cli(["run", "--sudo", "--", "sh", "-c", "cat /proc/[0-9]*/comm"]);
  assert.equal(pids.code, 0);
  assert.ok(!pids.stdout.includes("sleep"));
});

test("keep, exec, logs, cp, stop, rm, inspect", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "kept", "--", "true"])).code, 0);
  assert.equal((await cli(["exec", "kept", "--", "sh", "-c", "exit 5"])).code, 5);
  const id = (await cli(["exec", "-d", "kept", "--", "sh", "-c", "echo one; echo two >&2; sleep 0.3; echo three"])).stdout.trim();
  assert.match(id, /^cmd_/);
  const logs = await cli(["logs", "-f", "kept", id]);
  assert.equal(logs.stdout, "one\nthree\n");
  assert.equal(logs.stderr, "two\n");
  const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7919) & 255));
  await writeFile(join(scratch, "in.bin"), bytes);
  assert.equal((await cli(["cp", join(scratch, "in.bin"), "kept:sub/dir/"])).code, 0);
  assert.equal((await cli(["cp", "kept:sub/dir/in.bin", join(scratch, "out.bin")])).code, 0);
  assert.ok(bytes.equals(await readFile(join(scratch, "out.bin"))));
  assert.equal((await cli(["cp", "kept:no/such", join(scratch, "x")])).code, 125);
  assert.equal(json(await cli(["inspect", "kept"])).sandbox.name, "kept");
  assert.equal(json(await cli(["ps", "--json"])).sandboxes[0].name, "kept");
  assert.equal((await cli(["stop", "kept"])).stdout, "kept\n");
  assert.match((await cli(["snapshot", "ls", "kept"])).stdout, /published|durable|verified/);
  assert.equal((await cli(["exec", "kept", "--", "test", "-s", "sub/dir/in.bin"])).code, 0, "it goes on with its files");
  assert.equal((await cli(["rm", "kept"])).code, 0);
  assert.equal((await cli(["rm", "kept"])).code, 125);
});

test("run --json: one object per line, the last one with the exit code", async () => {
  const got = await cli(["run", "--json", "--", "sh", "-c", "echo out; exit 3"]);
  const lines = got.stdout.trim().split("\n").map((l) => JSON.parse(l));
  assert.ok(lines[0].sandbox.name);
  assert.equal(lines.filter((l) => l.stream === "stdout").map((l) => l.data).join(""), "out\n");
  assert.equal(lines.at(-1).command.exitCode, 3);
  assert.equal(got.code, 3);
});

test("another user: client commands work with URL and token, the rest says what to do", async () => {
  // A copy, because the checkout may be closed to other users.
  const program = join(scratch, "sandbar");
  await copyFile(binary, program);
  await chmod(program, 0o755);
  const nobody = { program, options: { uid: 65534, gid: 65534, cwd: "/" } };
  assert.equal((await cli(["version"], nobody)).code, 0);
  const env = { SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token, SANDBAR_DATA: "" };
  assert.equal((await cli(["run", "--", "echo", "hi"], { env, ...nobody })).stdout, "hi\n");
  const blind = await cli(["ps"], nobody);
  assert.notEqual(blind.code, 0);
  assert.match(blind.stderr, /fix:/);
  const serve = await cli(["serve", "--data", join(scratch, "other")], nobody);
  assert.equal(serve.code, 2);
  assert.match(serve.stderr, /root/);
});

test("token, env, version, doctor", async () => {
  assert.equal((await cli(["token"])).stdout.trim(), server.token);
  const env = (await cli(["env"])).stdout;
  assert.match(env, new RegExp(`^export SANDBAR_URL='${server.url}'$`, "m"));
  assert.match(env, /^export VERCEL_OIDC_TOKEN='[\w-]+\.[\w-]+\.[\w-]+'$/m);
  assert.match(env, /--import=file:\/\/\S*register\.mjs/);
  const twice = await new Promise((done) => execFile("sh", ["-c", `${env}${env}printf %s "$NODE_OPTIONS"`],
    { env: { PATH: process.env.PATH } }, (_, out) => done(out)));
  assert.equal(twice.match(/--import/g).length, 1);
  assert.match((await cli(["version"])).stdout, /^sandbar \d+\.\d+\.\d+\n$/);
  const { ok, findings } = json(await cli(["doctor", "--json"]));
  assert.equal(typeof ok, "boolean");
  // Where the machine does not know the name it says so; where it does, it is the server that answers.
  const previews = findings.find((f) => f.name === "previews");
  const known = await lookup("sb-doctor.localhost").catch(() => null);
  assert.match(previews.detail, known ? /lead to the server: http:\/\/sb-doctor\.localhost:\d+$/ : /does not lead to the server.*\.localhost by themselves/);
});

test("serve refuses what cannot work, at once and with a fix", async () => {
  const taken = await cli(["serve", "--listen", `127.0.0.1:${server.port}`, "--data", join(scratch, "d1")]);
  assert.equal(taken.code, 2);
  assert.match(taken.stderr, /taken[\s\S]*fix: --listen/);
  const open = await cli(["serve", "--listen", "0.0.0.0:0", "--data", join(scratch, "d2")]);
  assert.equal(open.code, 2);
  assert.match(open.stderr, /--insecure-http/);
  const locked = await cli(["serve", "--listen", "127.0.0.1:0", "--data", server.data]);
  assert.equal(locked.code, 2);
  assert.match(locked.stderr, /another server/);
  await writeFile(join(scratch, "bad.toml"), "[limits]\nmax_vcpu = 3\n");
  const config = await cli(["serve", "--config", join(scratch, "bad.toml"), "--data", join(scratch, "d3")]);
  assert.equal(config.code, 2);
  assert.match(config.stderr, /`limits\.max_vcpu`, did you mean `max_vcpus`/);
});
