// Real clients under every kind of policy: what is allowed works and gets its header, what is not fails by itself.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import https from "node:https";
import { join } from "node:path";
import { test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { startServer, until } from "../support/server.mjs";
import { makeWorld, outside } from "../support/world.mjs";

const world = await makeWorld();
const seen = [];
// A repository and a package, as static files: git's dumb protocol, and what npm asks a registry for.
const work = join(world.dir, "work");
await mkdir(join(work, "package"), { recursive: true });
const git = (...args) => execFileSync("git", args, { cwd: work, stdio: ["ignore", "pipe", "ignore"],
  env: { ...process.env, GIT_AUTHOR_NAME: "t", GIT_AUTHOR_EMAIL: "t@x.test", GIT_COMMITTER_NAME: "t", GIT_COMMITTER_EMAIL: "t@x.test", GIT_CONFIG_GLOBAL: "/dev/null" } });
git("init", "-q", "-b", "main");
await writeFile(join(work, "package/package.json"), JSON.stringify({ name: "tiny", version: "1.0.0", main: "index.js" }));
await writeFile(join(work, "package/index.js"), "module.exports = 42;\n");
git("add", ".");
git("commit", "-q", "-m", "one");
git("clone", "-q", "--bare", ".", join(world.dir, "repo.git"));
execFileSync("git", ["update-server-info"], { cwd: join(world.dir, "repo.git") });
const tarball = execFileSync("tar", ["-czf", "-", "-C", work, "package"]);

async function serve(request, response) {
  const { host, authorization } = request.headers;
  seen.push({ host, authorization, url: request.url });
  if (request.url.startsWith("/repo.git/")) {
    const bytes = await readFile(join(world.dir, decodeURI(request.url).split("?")[0])).catch(() => undefined);
    return response.writeHead(bytes ? 200 : 404).end(bytes);
  }
  if (request.url === "/tiny") {
    const dist = { tarball: `https://${host}/tiny/-/tiny-1.0.0.tgz` };
    return response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ name: "tiny", "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": { name: "tiny", version: "1.0.0", dist } } }));
  }
  if (request.url.endsWith(".tgz")) return response.end(tarball);
  response.end(JSON.stringify({ host, auth: authorization ?? null }));
}
const secure = await world.https(serve);
const plain = await world.http(serve);
if (outside) await world.listen(https.createServer(world.tls, serve), outside, secure);
const { sandbox, server } = await useSdk({ config: world.config("", "[limits]\nmax_running = 64\n") });

const clients = {
  curl: (name) => `curl -sSf -m 60 https://${name}:${secure}/x`,
  "node fetch": (name) => `node -e 'fetch("https://${name}:${secure}/x").then((r) => r.text()).then(console.log, (e) => { console.error(e); process.exit(1); })'`,
  git: (name) => `rm -rf got && git clone -q https://${name}:${secure}/repo.git got && cat got/package/index.js`,
  npm: (name) => `rm -rf node_modules package*.json && npm install --no-audit --no-fund --fetch-retries 0 --prefer-online --cache "$(mktemp -d)" --registry https://${name}:${secure}/ tiny && node -p 'require("tiny")'`,
};
const python = (name) => `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://${name}:${secure}/x", timeout=60).read().decode())'`;
const token = "Bearer canary-clients";
const rules = [{ transform: [{ headers: { authorization: token } }] }];

async function check(box, script, name, { header = false } = {}) {
  seen.length = 0;
  const got = await sh(box, script(name), { timeoutMs: 120_000 });
  assert.equal(got.exitCode, 0, `${name}: ${got.stdout}${got.stderr}`);
  assert.ok(seen.length > 0 && seen.every((s) => s.host === `${name}:${secure}`), JSON.stringify(seen));
  assert.ok(seen.every((s) => (s.authorization === token) === header), JSON.stringify(seen));
}
async function refuse(box, script, name) {
  seen.length = 0;
  const got = await sh(box, script(name), { timeoutMs: 120_000 });
  assert.ok(got.exitCode !== 0 && got.exitCode !== 137, `${name}: exit code ${got.exitCode}, it must give up by itself\n${got.stdout}${got.stderr}`);
  assert.deepEqual(seen, []);
}

test("curl, fetch, git and npm: allowed, with a header, and denied", async () => {
  const box = await sandbox({ networkPolicy: { allow: { "api.test": rules, "open.test": [] } } });
  for (const script of Object.values(clients)) {
    await check(box, script, "open.test");
    await check(box, script, "api.test", { header: true });
    await refuse(box, script, "closed.test");
  }
});

test("python: the same", async () => {
  const box = await sandbox({ runtime: "python3.13", networkPolicy: { allow: { "api.test": rules, "open.test": [] } } });
  await check(box, python, "open.test");
  await check(box, python, "api.test", { header: true });
  await refuse(box, python, "closed.test");
});

test("set up with everything open, then lock down, in one session", { skip: !outside }, async () => {
  const address = Buffer.from(outside.split(".").map(Number));
  world.answers.set("registry.test", (type) => (type === 1 ? [address] : []));
  const box = await sandbox({ networkPolicy: "allow-all" });
  await check(box, clients.npm, "registry.test");
  assert.equal((await sh(box, `node -p 'require("tiny")'`)).stdout, "42\n");
  await box.updateNetworkPolicy("deny-all");
  for (const script of [clients.curl, clients["node fetch"], clients.git]) await refuse(box, script, "registry.test");
  assert.equal((await sh(box, `node -p 'require("tiny")'`)).stdout, "42\n", "what was installed stays");
  await refuse(box, clients.npm, "registry.test");
  await box.updateNetworkPolicy({ allow: ["registry.test"] });
  await check(box, clients.npm, "registry.test");
});

const reaches = async (box, url) => {
  const got = await sh(box, `curl -sS -m 60 ${url}`);
  return got.exitCode === 0 && !got.stdout.includes("egress_denied");
};
const both = async (box, name) => {
  const [a, b] = [await reaches(box, `https://${name}:${secure}/`), await reaches(box, `http://${name}:${plain}/`)];
  assert.equal(a, b, `${name}: TLS and plain HTTP differ`);
  return a;
};

test("patterns: exact, any depth below, one label inside, everything", async () => {
  for (const [pattern, yes, no] of [
    ["deep.test", ["deep.test"], ["x.deep.test"]],
    ["*.deep.test", ["x.deep.test", "y.x.deep.test"], ["deep.test", "open.test"]],
    ["y.*.deep.test", ["y.x.deep.test"], ["x.deep.test", "deep.test"]],
    ["*", ["deep.test", "y.x.deep.test", "open.test"], []],
    ["DEEP.Test.", ["deep.test"], ["x.deep.test"]],
  ]) {
    const box = await sandbox({ networkPolicy: { allow: [pattern] } });
    for (const name of yes) assert.ok(await both(box, name), `${pattern} lets ${name} through`);
    for (const name of no) assert.ok(!(await both(box, name)), `${pattern} does not fit ${name}`);
  }
});

test("subnets: deny beats a name and an allowed subnet, allow needs no name", async () => {
  const denied = await sandbox({ networkPolicy: { allow: ["open.test"], subnets: { deny: ["127.0.0.0/8"] } } });
  assert.ok(!(await both(denied, "open.test")));
  const other = await sandbox({ networkPolicy: { allow: ["open.test"], subnets: { deny: ["10.0.0.0/8"] } } });
  assert.ok(await both(other, "open.test"));
  const only = await sandbox({ networkPolicy: { subnets: { deny: ["10.0.0.0/8"] } } });
  assert.ok(!(await both(only, "open.test")), "nothing but denials is deny-all");
  if (!outside) return;
  const address = `https://${outside}:${secure}/ --insecure`;
  const near = `${outside.replace(/\.\d+$/, ".0")}/24`;
  for (const [subnets, open] of [[{ allow: [`${outside}/32`] }, true], [{ allow: [near] }, true], [{ allow: [near], deny: [`${outside}/32`] }, false], [{ allow: ["198.51.100.0/24"] }, false]]) {
    const box = await sandbox({ networkPolicy: { subnets } });
    assert.equal(await reaches(box, address), open, JSON.stringify(subnets));
  }
});

// Connections that stay open, each saying when it opens and when it ends.
const holder = `
const https = require("https"), http = require("http"), tls = require("tls");
const say = (what, name) => console.log(what, name);
const hold = (name, socket) => { say("open", name); socket.on("error", () => {}).on("close", () => say("cut", name)); };
const raw = tls.connect({ host: "open.test", port: ${secure}, servername: "open.test" }, () => hold("tunnel", raw));
const kept = (module, name, label, port) => {
  const request = module.get({ host: name, port, agent: new module.Agent({ keepAlive: true }), path: "/" }, (r) => r.resume().on("end", () => hold(label, request.socket)));
};
kept(https, "api.test", "ended", ${secure});
kept(http, "open.test", "plain", ${plain});
const web = new WebSocket("wss://api.test:SOCKET/");
web.onmessage = () => say("open", "websocket");
web.onclose = () => say("cut", "websocket");
web.onerror = (e) => say("error", e.message);
setInterval(() => {}, 1000);`;

test("a change of policy cuts what it forbids and nothing else", async () => {
  const { createHash } = await import("node:crypto");
  const upgrader = https.createServer(world.tls);
  upgrader.on("upgrade", (request, socket) => {
    const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    socket.write(Buffer.concat([Buffer.from([0x81, 2]), Buffer.from(request.headers.authorization === token ? "hi" : "no")]));
    socket.on("error", () => {});
  });
  const sockets = await world.listen(upgrader);
  const start = { allow: { "api.test": rules, "open.test": [], "other.test": [] } };
  const box = await sandbox({ networkPolicy: start });
  const running = await box.runCommand({ cmd: "node", detached: true, args: ["-e", holder.replace("SOCKET", sockets)] });
  let said = "";
  const following = (async () => { for await (const line of running.logs()) said += line.data; })().catch(() => {});
  const has = (what, names) => until(() => names.every((n) => said.includes(`${what} ${n}\n`)), `${what}: ${names}`).catch((e) => { throw new Error(`${e.message}, only\n${said}`); });
  await has("open", ["tunnel", "ended", "plain", "websocket"]);
  // Another name goes: nobody notices. One more denied network: whatever is behind a name may be in it.
  await box.updateNetworkPolicy({ allow: { "api.test": rules, "open.test": [] } });
  await box.updateNetworkPolicy({ allow: { "open.test": [], "api.test": rules } });
  assert.ok(await reaches(box, `https://open.test:${secure}/`));
  assert.ok(!said.includes("cut"), said);
  await box.updateNetworkPolicy({ allow: { "api.test": rules } });
  await has("cut", ["tunnel", "plain"]);
  assert.ok(!said.includes("cut ended") && !said.includes("cut websocket"), said);
  await box.updateNetworkPolicy({ allow: { "api.test": rules }, subnets: { deny: ["127.0.0.0/8"] } });
  await has("cut", ["ended", "websocket"]);
  await running.kill("SIGKILL");
  await following;
});

test("PostgreSQL's way of asking for TLS is decided by the name in it", async () => {
  const { default: net } = await import("node:net");
  const { TLSSocket, createSecureContext } = await import("node:tls");
  const asked = [];
  const database = await world.listen(net.createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (request) => {
      asked.push(request.toString("hex"));
      socket.write("S");
      const secured = new TLSSocket(socket, { isServer: true, secureContext: createSecureContext(world.tls) });
      secured.on("error", () => {}).on("data", (d) => secured.end(`row for ${d}`));
    });
  }));
  const box = await sandbox({ runtime: "python3.13", networkPolicy: { allow: ["open.test"] } });
  const ask = (name) => sh(box, `python3 -c '
import socket, ssl
s = socket.create_connection(("203.0.113.8", ${database}), 60)
s.sendall(bytes.fromhex("0000000804d2162f"))
assert s.recv(1) == b"S"
t = ssl.create_default_context().wrap_socket(s, server_hostname="${name}")
t.sendall(b"you"); print(t.recv(100).decode())'`);
  assert.equal((await ask("open.test")).stdout, "row for you\n");
  assert.deepEqual(asked, ["0000000804d2162f"]);
  assert.notEqual((await ask("closed.test")).exitCode, 0);
  // Without TLS behind it there is no name to decide by.
  const clear = await sh(box, `python3 -c '
import socket
s = socket.create_connection(("203.0.113.8", ${database}), 60)
s.sendall(bytes.fromhex("0000000804d2162f")); s.recv(1); s.sendall(b"\\x00\\x00\\x00\\x08\\x00\\x03\\x00\\x00"); print(s.recv(100))'`);
  assert.ok(clear.exitCode !== 0 || clear.stdout === "b''\n", clear.stdout);
  assert.equal(asked.length, 1);
});

test("HTTP/2 passes where nothing is read, and is refused with a reason where it would have to be", async () => {
  const http2 = await import("node:http2");
  const both = http2.createSecureServer({ ...world.tls, allowHTTP1: true }, (request, response) => response.end(request.httpVersion));
  const two = await world.listen(both);
  const box = await sandbox({ networkPolicy: { allow: { "api.test": rules, "open.test": [] } } });
  const only = (name) => sh(box, `node -e '
    const session = require("http2").connect("https://${name}:${two}");
    session.on("error", (e) => { console.log(e.code); process.exit(1); });
    session.request({ ":path": "/" }).on("data", (d) => { console.log(String(d)); process.exit(0); }).on("error", () => {});'`);
  assert.equal((await only("open.test")).stdout, "2.0\n");
  const refused = await only("api.test");
  assert.equal(refused.exitCode, 1, refused.stdout);
  const { denials } = await server.call("GET", `/x/v1/sessions/${box.currentSession().sessionId}/network/log`);
  assert.ok(denials.some((d) => d.host === "api.test" && /HTTP\/2/.test(d.reason) && d.hint), JSON.stringify(denials));
  assert.equal((await sh(box, `curl -sS -m 60 --http2 https://api.test:${two}/`)).stdout, "1.1", "who can do both does the other");
});

test("bytes of previews count, both ways", async () => {
  const box = await sandbox({ ports: [3000] });
  await box.runCommand({ cmd: "node", detached: true, args: ["-e", `require("http").createServer((q, r) => q.resume().on("end", () => r.end("x".repeat(300_000)))).listen(3000)`] });
  const url = box.domain(3000);
  await until(() => fetch(url).then((r) => r.ok && r.text(), () => false), "the server answers");
  assert.equal((await (await fetch(url, { method: "POST", body: "y".repeat(2_000_000) })).text()).length, 300_000);
  const { networkTransfer } = await box.stop();
  assert.ok(networkTransfer.ingress > 2_000_000 && networkTransfer.ingress < 3_000_000 && networkTransfer.egress > 300_000, JSON.stringify(networkTransfer));
});

test("a create without a policy gets the operator's default", async () => {
  for (const [mode, open] of [["deny-all", false], ["allow-all", true]]) {
    const own = await startServer({ config: world.config(`default = "${mode}"`) });
    try {
      assert.ok(own.output.includes(`network default ${mode}`), own.output);
      const { session, sandbox: row } = await own.call("POST", "/v2/sandboxes", { body: { projectId: "prj_test", ports: [], runtime: "node24" } });
      assert.equal((row ?? session).networkPolicy, undefined, "and it is not answered");
      const before = world.asked.length;
      await own.exec(session.id, "curl", ["-sS", "-m", "20", `http://default.test:${plain}/`]);
      assert.equal(world.asked.slice(before).includes("default.test"), open);
    } finally {
      await own.stop();
    }
  }
});
