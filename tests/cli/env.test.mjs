// `sandbar env`: printed, written into a file, given to a program; for the server of this machine and for another one's.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, chown, copyFile, lstat, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { binary, repo, startServer } from "../support/server.mjs";

const server = await startServer();
const scratch = await mkdtemp(join(tmpdir(), "sandbar-env-"));
await chmod(scratch, 0o755);
after(async () => {
  await server.stop();
  await rm(scratch, { recursive: true, force: true });
});

const cli = (args, { env = {}, program = binary, cwd = scratch, ...options } = {}) => new Promise((done) => {
  execFile(program, args, { env: { PATH: process.env.PATH, HOME: scratch, ...env }, cwd, ...options }, (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr }));
});
const env = (...args) => cli(["env", "--data", server.data, ...args]);
const remote = { SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token };
const nobody = { uid: 65534, gid: 65534 };
const makesOffline = `import { Sandbox } from "@vercel/sandbox";
  const box = await Sandbox.create({ runtime: "node24", network: { allow: [] }, ports: [3000] });
  console.log(box.networkPolicy, (await box.exec("echo in")).stdout.trim(), typeof process.env.VERCEL_TOKEN, (await fetch(box.domain(3000))).status);
  await box.delete();`;
const file = join(repo, "tests/clients/node_modules/.env-program.mjs");
await writeFile(file, makesOffline);
after(() => rm(file, { force: true }));

test("a program with the environment: its output, its exit code, its arguments as they are", async () => {
  const shown = await env("--default-net", "deny-all", "--", "sh", "-c", 'echo "$SANDBAR_URL $SANDBAR_ALIASES $SANDBAR_DEFAULT_NET $VERCEL_TEAM_ID $VERCEL_PROJECT_ID $1"; exit 7', "x", "--json 'a b'");
  assert.deepEqual([shown.code, shown.stdout], [7, `${server.url} 1 deny-all team_sandbar prj_sandbar --json 'a b'\n`]);
  assert.equal((await env("--no-aliases", "--", "printenv", "SANDBAR_ALIASES")).stdout, "0\n");
  const token = (await env("--", "printenv", "VERCEL_TOKEN")).stdout.trim();
  assert.equal((await server.request("GET", "/v2/sandboxes?teamId=team_sandbar&project=prj_sandbar", { token })).status, 200);
  assert.equal((await env("--", "no-such-program-here")).code, 127);
  const program = await env("--", process.execPath, file);
  assert.deepEqual([program.code, program.stdout], [0, "deny-all in string 502\n"], program.stderr);
});

test("another machine: the preload comes from the server, and the same works", async () => {
  const home = join(scratch, "nobodys");
  await mkdir(home);
  await chown(home, nobody.uid, nobody.gid);
  const copy = join(scratch, "sandbar");
  await copyFile(binary, copy);
  await chmod(copy, 0o755);
  const there = { program: copy, env: { ...remote, HOME: home, SANDBAR_DATA: join(scratch, "none") }, cwd: home, ...nobody };
  const program = join(home, "program.mjs");
  await writeFile(program, makesOffline.replace('"@vercel/sandbox"', JSON.stringify(join(repo, "tests/clients/node_modules/@vercel/sandbox/dist/index.js"))));
  // Only root may be able to read the checkout: then the program is root's, and everything else the other user's.
  const ran = await cli(["env", "--default-net", "deny-all", "--", process.execPath, program], { ...there, uid: 0, gid: 0 });
  assert.deepEqual([ran.code, ran.stdout], [0, "deny-all in string 502\n"], ran.stderr);
  await rm(join(home, ".cache"), { recursive: true });
  const written = await cli(["env", "--no-aliases", "--write", ".env.local"], there);
  assert.equal(written.code, 0, written.stderr);
  const text = await readFile(join(home, ".env.local"), "utf8");
  assert.match(text, /^SANDBAR_ALIASES='0'$/m);
  assert.match(text, /^VERCEL_OIDC_TOKEN='[\w-]+\.[\w-]+\.[\w-]+'$/m);
  const preload = /^NODE_OPTIONS='--import="?file:\/\/([^"']+)"?'$/m.exec(text)[1];
  assert.match(await readFile(preload, "utf8"), /const embedded = \{/);
  assert.equal((await stat(join(home, ".env.local"))).mode & 0o777, 0o600);
});

test("a .env file: mode 0600, other lines stay, a second time changes nothing", async () => {
  const path = join(scratch, ".env.local");
  await writeFile(path, "# mine\nA=1\nVERCEL_TOKEN=old\n\nexport VERCEL_OIDC_TOKEN=\"older\"\nB='x y'", { mode: 0o644 });
  await chown(path, nobody.uid, nobody.gid);
  assert.equal((await env("--write", path)).code, 0);
  const first = await readFile(path, "utf8");
  assert.match(first, /^# mine\nA=1\n\nB='x y'\n# Set by /);
  assert.equal(first.match(/VERCEL_TOKEN=/g).length, 1);
  assert.match(first, new RegExp(`^SANDBAR_URL='${server.url}'$`, "m"));
  assert.match(first, /^NODE_OPTIONS='--import=file:\/\/\S*register\.mjs'$/m);
  const { mode, uid } = await stat(path);
  assert.deepEqual([mode & 0o777, uid], [0o600, nobody.uid]);
  assert.equal((await cli(["env", "--data", server.data, "--write", ".env.local"])).code, 0);
  assert.equal((await readFile(path, "utf8")).split("\n").length, first.split("\n").length);
});

test("options for Node.js that the file has stay, and ours is there once", async () => {
  const path = join(scratch, ".env.options");
  const options = async () => /^NODE_OPTIONS=(['"])(.*)\1$/m.exec(await readFile(path, "utf8"))[2];
  const ours = /--import="?file:\/\/\S*register\S*\.mjs"?/;
  for (const line of ["NODE_OPTIONS=--max-old-space-size=4096 # mine", `export NODE_OPTIONS="--max-old-space-size=4096"`, "NODE_OPTIONS='--max-old-space-size=4096'"]) {
    await writeFile(path, `${line}\nA=1\n`);
    for (let i = 0; i < 3; i++) {
      const written = i === 1 ? await cli(["env", "--write", path], { env: { ...remote, SANDBAR_DATA: join(scratch, "none") } }) : await env("--write", path);
      assert.equal(written.code, 0, written.stderr);
      assert.match(await options(), new RegExp(`^--max-old-space-size=4096 ${ours.source}$`), `${line}, time ${i}`);
    }
    assert.equal((await readFile(path, "utf8")).match(/NODE_OPTIONS=/g).length, 1);
  }
  // A preload of the user's own is not ours, whatever its name.
  await writeFile(path, `NODE_OPTIONS='--import=file:///app/register.mjs --require "./my hooks.cjs"'\n`);
  for (let i = 0; i < 2; i++) {
    assert.equal((await env("--write", path)).code, 0);
    assert.match(await options(), new RegExp(`^--import=file:///app/register\\.mjs --require "\\./my hooks\\.cjs" ${ours.source}$`));
  }
  // A file of an earlier version does not say which option is ours.
  await writeFile(path, "# Set by `sandbar env --write`; a token of your server's is among them.\nNODE_OPTIONS='--import=file:///gone/sdk/register.mjs'\n");
  assert.equal((await env("--write", path)).code, 0);
  assert.match(await options(), new RegExp(`^${ours.source}$`));
  assert.doesNotMatch(await options(), /gone/);
});

test("the environment says which server, as for every other command; --data wins", async () => {
  const other = await startServer();
  try {
    const shown = async (environment, ...args) => {
      const printed = await cli(["env", ...args, "--", "printenv", "SANDBAR_URL"], { env: { SANDBAR_DATA: server.data, ...environment } });
      assert.equal(printed.code, 0, printed.stderr);
      return printed.stdout.trim();
    };
    const there = { SANDBAR_URL: other.url, SANDBAR_TOKEN: other.token };
    assert.equal(await shown(there), other.url);
    assert.equal(await shown(there, "--data", server.data), server.url);
    assert.equal(await shown({}), server.url);
    const token = (await cli(["env", "--", "printenv", "VERCEL_TOKEN"], { env: { SANDBAR_DATA: server.data, ...there } })).stdout.trim();
    assert.equal((await other.request("GET", "/v2/sandboxes?teamId=team_sandbar&project=prj_sandbar", { token })).status, 200);
    assert.equal((await server.request("GET", "/v2/sandboxes?teamId=team_sandbar&project=prj_sandbar", { token })).status, 401);
    // A token that the server does not know is refused, not replaced by the key that happens to be here.
    const wrong = await cli(["env"], { env: { SANDBAR_DATA: server.data, SANDBAR_TOKEN: "sb_wrong" } });
    assert.equal(wrong.code, 125);
    assert.equal(wrong.stdout, "");
    // The variables of this machine's own server lead to its own preload, also a second time.
    const again = await cli(["env"], { env: { SANDBAR_DATA: server.data, SANDBAR_URL: server.url } });
    assert.match(again.stdout, /sdk\/register\.mjs/);
  } finally {
    await other.stop();
  }
});

test("--json: the same keys from the server of this machine and from another", async () => {
  const local = await env("--json", "--default-net", "deny-all");
  const far = await cli(["env", "--json", "--default-net", "deny-all"], { env: { ...remote, SANDBAR_DATA: join(scratch, "none") } });
  assert.equal(far.code, 0, far.stderr);
  const [here, there] = [local, far].map(({ stdout }) => JSON.parse(stdout));
  assert.deepEqual(Object.keys(there), Object.keys(here));
  for (const report of [here, there]) {
    assert.deepEqual([report.SANDBAR_URL, report.SANDBAR_DEFAULT_NET, report.SANDBAR_ALIASES], [server.url, "deny-all", "1"]);
    assert.match(await readFile(report.register, "utf8"), /const embedded = /);
    assert.ok(report.NODE_OPTIONS.includes(report.register));
  }
  assert.equal(far.stdout.trim().split("\n").length, 1);
});

test("a link is not followed, and what is no file stays what it is", async () => {
  const target = join(scratch, "precious");
  await writeFile(target, "keep\n");
  await symlink(target, join(scratch, "link"));
  await symlink(join(scratch, "not-there"), join(scratch, "dangling"));
  for (const name of ["link", "dangling"]) {
    const refused = await env("--write", join(scratch, name));
    assert.equal(refused.code, 125, name);
    assert.match(refused.stderr, /is a link/);
    assert.ok((await lstat(join(scratch, name))).isSymbolicLink());
  }
  assert.equal(await readFile(target, "utf8"), "keep\n");
  await assert.rejects(stat(join(scratch, "not-there")));
  assert.match((await env("--write", scratch)).stderr, /is no file|names no file/);
  assert.match((await env("--write", join(scratch, "no/such/dir/.env"))).stderr, /directory/);
  assert.equal((await env("--write", "x", "--", "true")).code, 2);
});

test("a forwarded port: another port of loopback, the same server", async () => {
  const tunnel = net.createServer((from) => {
    const to = net.connect(server.port, "127.0.0.1");
    from.pipe(to).pipe(from);
    for (const socket of [from, to]) socket.on("error", () => { from.destroy(); to.destroy(); });
  });
  await new Promise((done) => tunnel.listen(0, "127.0.0.1", done));
  try {
    const url = `http://localhost:${tunnel.address().port}`;
    const program = await env("--", "sh", "-c", 'SANDBAR_URL=$0 exec "$@"', url, process.execPath, file);
    assert.deepEqual([program.code, program.stdout], [0, "deny-all in string 502\n"], program.stderr);
    const asked = await fetch(`${url}/sdk/env.sh`, { headers: { authorization: `Bearer ${server.token}` } });
    assert.match(await asked.text(), new RegExp(`^export SANDBAR_URL='${url}'$`, "m"));
    // A page on any other port is a stranger, and a name that was bound to loopback is no name of ours.
    const from = (headers) => new Promise((done) => {
      const socket = net.connect(tunnel.address().port, "127.0.0.1", () => socket.write(`GET /health HTTP/1.1\r\n${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join("")}Connection: close\r\n\r\n`));
      let text = "";
      socket.on("data", (d) => (text += d)).on("close", () => done(text));
    });
    const host = new URL(url).host;
    assert.match(await from({ Host: host, Origin: url }), /^HTTP\/1\.1 200/);
    assert.match(await from({ Host: host, Origin: "http://localhost:1" }), /^HTTP\/1\.1 403/);
    assert.match(await from({ Host: `rebound.example:${tunnel.address().port}` }), /^HTTP\/1\.1 403[^]*misdirected_request[^]*public_url/);
  } finally {
    tunnel.close();
  }
});

test("the token of this machine's server goes to no other server", async () => {
  const heard = [];
  const other = net.createServer((s) => s.on("data", (d) => {
    heard.push(String(d));
    s.end("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
  }));
  await new Promise((done) => other.listen(0, "127.0.0.1", done));
  try {
    const refused = await cli(["ps"], { env: { SANDBAR_DATA: server.data, SANDBAR_URL: `http://127.0.0.1:${other.address().port}` } });
    assert.equal(refused.code, 125, refused.stdout);
    assert.match(refused.stderr, /SANDBAR_URL is set and SANDBAR_TOKEN is not/);
    assert.ok(!heard.join("").includes(server.token), heard.join("\n"));
  } finally {
    other.close();
  }
  // A name that only begins like an address of loopback is another machine's.
  const alike = await cli(["ps"], { env: { SANDBAR_DATA: server.data, SANDBAR_URL: `http://127.0.0.1.example.test:${server.port}` } });
  assert.match(alike.stderr, /SANDBAR_URL is set and SANDBAR_TOKEN is not/);
  // Another name of the same server is the same server.
  const own = await cli(["ps"], { env: { SANDBAR_DATA: server.data, SANDBAR_URL: `http://localhost:${server.port}/` } });
  assert.equal(own.code, 0, own.stderr);
});
