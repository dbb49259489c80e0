// Standard input and byte-exact output of `sandbar run` and `sandbar exec`: pipes, files, their end, a second writer, and
// a server that is killed in the middle.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, sleep, startServer, until } from "../support/server.mjs";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-stdin-"));
  assert.equal((await cli(["run", "--keep", "--name", "box", "--", "true"])).code, 0);
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
const start = (args, { program = binary, stdio = ["pipe", "pipe", "pipe"] } = {}) => {
  const child = spawn(program, args, { env: environment(), stdio });
  const seen = { stdout: [], stderr: "" };
  child.stdout?.on("data", (piece) => seen.stdout.push(piece));
  child.stderr?.on("data", (piece) => (seen.stderr += piece));
  child.stdin?.on("error", () => {});
  return {
    child, out: () => Buffer.concat(seen.stdout).toString("latin1"),
    ended: new Promise((done) => child.once("close", (code) => done({ code, stdout: Buffer.concat(seen.stdout), stderr: seen.stderr }))),
  };
};
const cli = (args, input = "") => {
  const run = start(args);
  run.child.stdin.end(input);
  return run.ended;
};
const shell = (line) => start(["-c", line], { program: "sh", stdio: ["ignore", "pipe", "pipe"] }).ended;
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

test("what is piped reaches the command, and its end too", async () => {
  const ran = await cli(["run", "--", "cat"], "hi\n");
  assert.equal(ran.stdout.toString(), "hi\n", ran.stderr);
  assert.equal(ran.code, 0);
  assert.equal((await cli(["exec", "box", "--", "node", "-"], "console.log(6 * 7)")).stdout.toString(), "42\n");
  assert.equal((await cli(["exec", "box", "--", "cat"])).stdout.toString(), "", "an input that ends at once");
  assert.equal((await shell(`'${binary}' exec box -- wc -l < /etc/passwd`)).stdout.toString().trim(),
    String((await readFile("/etc/passwd", "utf8")).split("\n").length - 1), "a file");
  assert.equal((await shell(`'${binary}' exec box -- cat < /dev/null`)).code, 0);
  assert.equal((await shell(`'${binary}' exec box -- cat <&-`)).code, 0, "closed");
  assert.equal((await cli(["exec", "box", "--", "sh", "-c", "cat >/dev/null; exit 7"], "x")).code, 7);
});

test("tar in, tar out", async () => {
  await writeFile(join(scratch, "file"), "mine\n");
  const packed = await shell(`tar c -C '${scratch}' file | '${binary}' exec box -- tar x`);
  assert.equal(packed.code, 0, packed.stderr);
  assert.equal((await shell(`'${binary}' exec -n box -- tar c file | tar xO`)).stdout.toString(), "mine\n");
});

test("without a command the shell reads what is piped", async () => {
  assert.equal((await cli(["exec", "box"], "echo $((6 * 7))\nexit 5\n")).stdout.toString(), "42\n");
  assert.equal((await cli(["sh", "box"], "exit 5\n")).code, 5);
  const fresh = await cli(["sh", "--rm"], "echo new\n");
  assert.equal(fresh.stdout.toString(), "new\n", fresh.stderr);
  const names = JSON.parse((await cli(["ps", "-a", "--json"])).stdout).sandboxes.map((s) => s.name);
  assert.deepEqual(names, ["box"]);
});

test("-n leaves the input to the loop around it", async () => {
  const loop = (flag) => `printf 'a\\nb\\nc\\n' | while read x; do '${binary}' exec ${flag} box -- sh -c 'cat; echo got '"$x"; done`;
  assert.equal((await shell(loop("-n"))).stdout.toString(), "got a\ngot b\ngot c\n");
  assert.equal((await shell(loop(""))).stdout.toString(), "b\nc\ngot a\n", "without it the first command takes the rest");
});

test("bytes that are no text come out as they are; --json stays text and says so", async () => {
  const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const got = await cli(["exec", "box", "--", "cat"], all);
  assert.ok(got.stdout.equals(all));
  assert.equal(got.stderr, "");
  const lines = (await cli(["exec", "--json", "box", "--", "printf", "a\\377b"])).stdout.toString().trim().split("\n").map((l) => JSON.parse(l));
  assert.deepEqual(lines.find((l) => l.stream), { stream: "stdout", data: "a\ufffdb", replaced: true });
  assert.equal(lines.at(-1).command.exitCode, 0);
});

test("a gigabyte through stdin and stdout", async () => {
  // The same bytes for everybody who has the key: nobody keeps them.
  const bytes = "openssl enc -aes-128-ctr -nosalt -K 00112233445566778899aabbccddeeff -iv 00 -in /dev/zero 2>/dev/null | head -c 1000000000";
  const sent = shell(`${bytes} | sha256sum`);
  const got = await shell(`${bytes} | '${binary}' exec box -- cat | sha256sum`);
  assert.equal(got.stdout.toString(), (await sent).stdout.toString(), got.stderr);
});

test("a command that does not read its input, or stops reading, ends as it likes", async () => {
  const zero = await shell(`head -c 10000000 /dev/zero | '${binary}' exec box -- true`);
  assert.equal(zero.code, 0, zero.stderr);
  const first = await shell(`yes | '${binary}' exec box -- head -n 1`);
  assert.equal(first.stdout.toString(), "y\n");
});

test("a terminal without input is at its end: nothing waits for keys that nobody can type", async () => {
  for (const line of ["exec -it box -- bash < /dev/null", "exec -n -t box -- cat", "exec -t box -- cat <&-"]) {
    const got = await shell(`'${binary}' ${line}`);
    assert.equal(got.code, 0, `${line}: ${got.stderr}`);
  }
});

test("a command whose output nobody reads any more gets SIGPIPE", async () => {
  const got = await shell(`'${binary}' exec box -- yes | head -n 2`);
  assert.equal(got.stdout.toString(), "y\ny\n");
  await until(async () => !/running .*\byes\b/.test((await cli(["logs", "box"])).stdout.toString()), "yes has ended");
});

test("a second writer: one at a time", async () => {
  // Nobody reads: the writer of the first request waits.
  const holder = start(["exec", "box", "--", "sh", "-c", "echo up; sleep 1000"]);
  holder.child.stdin.write(Buffer.alloc(1 << 20));
  await until(() => holder.out().includes("up"), "it runs");
  const { session } = await server.call("GET", "/v2/sandboxes/box?projectId=prj_sandbar");
  const { commands } = await server.call("GET", `/v2/sandboxes/sessions/${session.id}/cmd?projectId=prj_sandbar`);
  const { id } = commands.find((c) => c.exitCode === null);
  const path = `/x/v1/sessions/${session.id}/commands/${id}/stdin`;
  await until(async () => (await server.call("GET", `${path}?projectId=prj_sandbar`)).accepted > 0, "it waits");
  const { accepted } = await server.call("GET", `${path}?projectId=prj_sandbar`);
  assert.equal((await server.request("POST", `${path}?offset=${accepted}&projectId=prj_sandbar`, { body: "x" })).status, 409);
  holder.child.kill("SIGINT");
  assert.equal((await holder.ended).code, 130);
});

test("the server is killed and restarted in the middle of an upload: nothing is lost, nothing comes twice", async () => {
  const bytes = randomBytes(24 << 20);
  const run = start(["exec", "box", "--", "sh", "-c", "echo up; tee /tmp/copy | sha256sum; exit 3"]);
  await until(() => run.out().includes("up"), "it runs");
  const half = bytes.length / 2;
  for (let at = 0; at < half; at += 1 << 20) run.child.stdin.write(bytes.subarray(at, at + (1 << 20)));
  await sleep(300);
  await server.crash();
  run.child.stdin.write(bytes.subarray(half, half + 1000));
  await sleep(500);
  await server.start();
  run.child.stdin.end(bytes.subarray(half + 1000));
  const got = await run.ended;
  assert.equal(got.code, 3, got.stderr);
  assert.equal(got.stdout.toString(), `up\n${sha(bytes)}  -\n`);
});

test("the server is restarted while a command writes: every byte, once", async () => {
  const run = start(["exec", "-n", "box", "--", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); [ $((i % 500)) = 0 ] && sleep 0.5; done; exit 4"]);
  await until(() => run.out().includes("line 700"), "it writes");
  await server.crash();
  await sleep(300);
  await server.start();
  const got = await run.ended;
  assert.equal(got.code, 4, got.stderr);
  assert.equal(got.stdout.toString(), Array.from({ length: 3000 }, (_, i) => `line ${i}\n`).join(""));
});
