// Ctrl-C and its relatives: they end what is running, and never what a person made.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, startServer, until } from "../support/server.mjs";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-interrupt-"));
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

const environment = () => {
  const clean = { ...process.env, SANDBAR_DATA: server.data };
  for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN"]) delete clean[name];
  return clean;
};
const cli = (args) =>
  new Promise((done) => {
    const child = execFile(binary, args, { env: environment(), maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });
const start = (args, { program = binary, ...options } = {}) => {
  const child = spawn(program, args, { env: environment(), stdio: ["ignore", "pipe", "pipe"], ...options });
  const seen = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (piece) => (seen[name] += piece));
  return { child, seen, ended: new Promise((done) => child.once("exit", (code, signal) => done(code ?? signal))) };
};
const all = async () => JSON.parse((await cli(["ps", "-a", "--json"])).stdout).sandboxes;
const running = async (name) => (await cli(["logs", name])).stdout.match(/ running /g)?.length ?? 0;

for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]]) {
  test(`${signal} on run --keep stops the command and keeps the sandbox, running`, async () => {
    const name = `keep-${signal.toLowerCase()}`;
    const run = start(["run", "--keep", "--name", name, "--", "sh", "-c", "echo mine > file; echo up; sleep 1000"]);
    await until(() => run.seen.stdout.includes("up"), "the command runs");
    run.child.kill(signal);
    assert.equal(await run.ended, code);
    assert.match(run.seen.stderr, new RegExp(`${name} is kept, running: \\S*sandbar exec ${name} -- …; remove it: \\S*sandbar rm ${name}`));
    assert.equal((await all()).find((s) => s.name === name)?.status, "running");
    assert.equal(await running(name), 0, "the command has ended");
    assert.equal((await cli(["exec", name, "--", "cat", "file"])).stdout, "mine\n");
    assert.equal((await cli(["rm", name])).code, 0);
  });
}

test("SIGINT on run --persistent stops the command and the sandbox, and keeps its files", async () => {
  const run = start(["run", "--persistent", "--name", "lasting", "--", "sh", "-c", "echo mine > file; echo up; sleep 1000"]);
  await until(() => run.seen.stdout.includes("up"), "the command runs");
  run.child.kill("SIGINT");
  assert.equal(await run.ended, 130);
  assert.match(run.seen.stderr, /lasting is kept, stopped: \S*sandbar resume lasting; remove it: \S*sandbar rm lasting/);
  assert.equal((await all()).find((s) => s.name === "lasting")?.status, "stopped");
  assert.equal((await cli(["exec", "lasting", "--", "cat", "file"])).stdout, "mine\n");
  assert.equal((await cli(["rm", "lasting"])).code, 0);
});

test("a command that does not listen is killed by the second signal; the sandbox stays", async () => {
  const run = start(["run", "--keep", "--name", "deaf", "--", "sh", "-c", "trap '' TERM INT; echo mine > file; echo up; while :; do sleep 1; done"]);
  await until(() => run.seen.stdout.includes("up"), "the command runs");
  run.child.kill("SIGINT");
  run.child.kill("SIGTERM");
  assert.ok([130, 143].includes(await run.ended), run.seen.stderr);
  assert.equal(await running("deaf"), 0);
  assert.equal((await cli(["exec", "deaf", "--", "cat", "file"])).stdout, "mine\n");
  assert.equal((await cli(["rm", "deaf"])).code, 0);
});

test("a reader that goes away ends the command of run --keep, not the sandbox", async () => {
  const shell = start(["-c", `'${binary}' run --keep --name piped -- sh -c 'echo mine > file; while :; do echo y; done' | head -n 1`], { program: "sh" });
  await shell.ended;
  await until(async () => (await running("piped")) === 0, "the command has ended");
  assert.equal((await cli(["exec", "piped", "--", "cat", "file"])).stdout, "mine\n");
  assert.equal((await cli(["rm", "piped"])).code, 0);
});

// A server in between that holds the answer to a create back until the test lets it go.
async function slowCreate() {
  const seen = {};
  seen.asked = new Promise((done) => (seen.onAsked = done));
  const gate = new Promise((done) => (seen.release = done));
  const proxy = createServer(async (request, response) => {
    const body = [];
    for await (const piece of request) body.push(piece);
    const answer = await fetch(server.url + request.url, {
      method: request.method, body: body.length ? Buffer.concat(body) : undefined,
      headers: { authorization: request.headers.authorization, ...(body.length && { "content-type": "application/json" }) },
    });
    const text = Buffer.from(await answer.arrayBuffer());
    if (request.method === "POST" && /^\/v[23]\/sandboxes\?/.test(request.url)) {
      seen.onAsked();
      await gate;
    }
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type"), "content-length": text.length }).end(text);
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  return { ...seen, asked: seen.asked, release: seen.release, close: () => proxy.close(),
    env: { ...environment(), SANDBAR_URL: `http://127.0.0.1:${proxy.address().port}`, SANDBAR_TOKEN: server.token } };
}

test("a signal while the sandbox is being made: kept when it should be, gone when not", async () => {
  for (const keep of [true, false]) {
    const slow = await slowCreate();
    const run = start(["run", ...(keep ? ["--keep", "--name", "early"] : []), "--", "sleep", "1000"], { env: slow.env });
    await slow.asked;
    run.child.kill("SIGINT");
    slow.release();
    assert.equal(await run.ended, 130, run.seen.stderr);
    assert.deepEqual((await all()).map((s) => s.name), keep ? ["early"] : [], run.seen.stderr);
    if (keep) assert.equal(await running("early"), 0, "its command never began");
    await cli(["rm", "early"]);
    slow.close();
  }
});

test("two signals while the sandbox is being made: no more waiting, and where to look is said", async () => {
  const slow = await slowCreate();
  const run = start(["run", "--keep", "--name", "late", "--", "true"], { env: slow.env });
  await slow.asked;
  // Signals of one number may become one: two numbers do not.
  run.child.kill("SIGINT");
  run.child.kill("SIGTERM");
  assert.ok([130, 143].includes(await run.ended), run.seen.stderr);
  assert.match(run.seen.stderr, /the server may still make the sandbox; look for it: \S*sandbar ps/);
  slow.release();
  slow.close();
  await cli(["rm", "late"]);
});

test("a process that was told to ignore a signal goes on ignoring it", async () => {
  const run = start(["-c", `trap '' HUP; exec '${binary}' run -- sh -c 'echo up; while ! [ -e /tmp/go ]; do sleep 0.1; done; echo done'`], { program: "sh" });
  await until(() => run.seen.stdout.includes("up"), "the command runs");
  run.child.kill("SIGHUP");
  const [box] = await all();
  assert.equal((await cli(["exec", box.name, "--", "touch", "/tmp/go"])).code, 0);
  assert.equal(await run.ended, 0, run.seen.stderr);
  assert.match(run.seen.stdout, /done/);
});

test("cp: an interrupted copy leaves the file that was there, and no rubbish", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "big", "--", "sh", "-c", "mkdir -p tree; head -c 300000000 /dev/zero > tree/big; echo new > tree/a"])).code, 0);
  const here = join(scratch, "cp");
  await mkdir(join(here, "tree"), { recursive: true });
  await writeFile(join(here, "big"), "precious");
  await writeFile(join(here, "tree/big"), "precious");
  for (const [from, to, file] of [["big:tree/big", join(here, "big"), "big"], ["big:tree", here, "tree/big"]]) {
    const copy = start(["cp", from, to]);
    // As soon as something of the copy is there.
    await until(async () => (await readdir(here, { recursive: true })).some((n) => /part-|\.sandbar-cp-/.test(n)) || copy.child.exitCode !== null, "it has begun");
    const interrupted = copy.child.exitCode === null;
    copy.child.kill("SIGINT");
    const code = await copy.ended;
    if (interrupted && code !== 0) {
      assert.equal(code, 130, copy.seen.stderr);
      assert.equal(await readFile(join(here, file), "utf8"), "precious");
    }
    assert.deepEqual((await readdir(here, { recursive: true })).filter((n) => /part-|\.sandbar-cp-/.test(n)), []);
  }
  assert.equal((await cli(["exec", "big", "--", "sh", "-c", "ls -A /tmp | grep -c sandbar-cp"])).stdout, "0\n");
  await cli(["rm", "big"]);
});

// The tar of this sandbox is a script that never ends: the copy waits for it until the signal comes.
test("cp of a directory: a signal while the sandbox packs ends the copy and the packing", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "slow", "--", "sh", "-c", "mkdir -p tree; echo new > tree/a"])).code, 0);
  const tar = "#!/bin/sh\necho $$ > /tmp/packing\nexec sleep 100000\n";
  const put = await cli(["exec", "--sudo", "slow", "--", "sh", "-c", `t=$(command -v tar); mv $t /tmp/real-tar; printf '%s' "$1" > $t; chmod 755 $t`, "sh", tar]);
  assert.equal(put.code, 0, put.stderr);
  const here = join(scratch, "packing");
  await mkdir(join(here, "merged/tree"), { recursive: true });
  await writeFile(join(here, "merged/tree/a"), "precious");
  for (const [to, said] of [[join(here, "fresh"), /nothing was copied to \S*fresh/], [join(here, "merged"), /not complete: 0 files of it are in \S*tree/]]) {
    const copy = start(["cp", "slow:tree", to]);
    await until(async () => (await cli(["exec", "slow", "--", "cat", "/tmp/packing"])).code === 0, "the sandbox packs");
    copy.child.kill("SIGINT");
    assert.equal(await copy.ended, 130, copy.seen.stderr);
    assert.match(copy.seen.stderr, /interrupted/);
    assert.match(copy.seen.stderr, said);
    assert.equal(await running("slow"), 0, "the packing command has ended");
    assert.equal((await cli(["exec", "slow", "--", "sh", "-c", "rm /tmp/packing; ls -A /tmp | grep -c sandbar-cp"])).stdout, "0\n");
  }
  assert.deepEqual((await readdir(here, { recursive: true })).sort(), ["merged", "merged/tree", "merged/tree/a"]);
  assert.equal(await readFile(join(here, "merged/tree/a"), "utf8"), "precious");
  // With the real tar the same copy is whole.
  assert.equal((await cli(["exec", "--sudo", "slow", "--", "sh", "-c", "mv /tmp/real-tar $(command -v tar)"])).code, 0);
  assert.equal((await cli(["cp", "slow:tree", join(here, "fresh")])).code, 0);
  assert.deepEqual(await readdir(join(here, "fresh")), ["a"]);
  await cli(["rm", "slow"]);
});

test("cp of a directory: a copy that is interrupted on its way has no name yet", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "heavy", "--", "sh", "-c", "mkdir -p tree; echo new > tree/a; head -c 600000000 /dev/zero > tree/z"])).code, 0);
  const here = join(scratch, "halfway");
  await mkdir(here);
  const copy = start(["cp", "heavy:tree", join(here, "tree")]);
  await until(async () => (await readdir(here, { recursive: true })).some((n) => n.includes(".sandbar-cp-")) || copy.child.exitCode !== null, "a file arrives");
  copy.child.kill("SIGINT");
  const code = await copy.ended;
  // A machine that is fast enough has copied everything by now.
  const names = await readdir(here, { recursive: true });
  if (code === 0) assert.deepEqual(names.sort(), ["tree", "tree/a", "tree/z"]);
  else assert.deepEqual([code, names], [130, []], copy.seen.stderr);
  await cli(["rm", "heavy"]);
});

test("export, import, fork, snapshot, race: interrupted at any time, the source has its files", async () => {
  assert.equal((await cli(["run", "--persistent", "--name", "source", "--", "sh", "-c", "echo mine > file; head -c 20000000 /dev/urandom > noise"])).code, 0);
  const file = join(scratch, "s.tar.zst");
  const exported = await cli(["export", "source", file]);
  assert.equal(exported.code, 0, exported.stderr);
  const whole = await readFile(file);
  const words = [
    ["export", "source", file],
    ["import", file, "--name", "imported"],
    ["fork", "source", "forked"],
    ["snapshot", "source"],
    ["race", "source", "-n", "2", "--", "true"],
  ];
  for (const args of words) {
    if (args[0] === "snapshot") await cli(["resume", "source"]);
    for (const delay of [0, 150, 600]) {
      const command = start(args);
      await new Promise((done) => setTimeout(done, delay));
      command.child.kill("SIGINT");
      await command.ended;
      // A half-made sandbox is worse than none: an import that was interrupted leaves none or all of it.
      if (args[0] === "import" && (await all()).some((s) => s.name === "imported")) {
        assert.equal((await cli(["exec", "imported", "--", "cat", "file"])).stdout, "mine\n", command.seen.stderr);
      }
      await cli(["rm", "imported", "forked"]);
    }
  }
  await until(async () => (await all()).every((s) => s.name === "source"), "no fork of ours is left");
  assert.deepEqual((await readdir(scratch)).filter((n) => n.includes("part-")), []);
  assert.ok(whole.length > 0 && (await readFile(file)).length > 0);
  assert.equal((await cli(["exec", "source", "--", "cat", "file"])).stdout, "mine\n");
  await cli(["rm", "source"]);
});
