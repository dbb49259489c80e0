// `sandbar forward`: a local port that is a port of a sandbox, through the API alone.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { binary, startServer, until } from "../support/server.mjs";
import { startBrowser } from "./browser.mjs";
import { app, exchange } from "./guest.mjs";

let server, view;
const scope = "teamId=team_sandbar&projectId=prj_sandbar";
const running = [];
before(async () => {
  server = await startServer();
  view = await server.call("POST", `/v2/sandboxes?${scope}`, { body: { projectId: "prj_sandbar", name: "box", runtime: "node24", networkPolicy: { mode: "deny-all" } } });
  const echo = `require("net").createServer({ allowHalfOpen: true }, (s) => s.pipe(s)).listen(4000, "::1");`;
  for (const script of [app(3000, "127.0.0.1"), echo])
    await server.call("POST", `/v2/sandboxes/sessions/${view.session.id}/cmd?${scope}`, { body: { command: "node", args: ["-e", script], env: {}, sudo: false } });
});
after(async () => {
  for (const child of running) child.kill("SIGKILL");
  await server?.stop();
});

// A running `sandbar forward`, its local port known.
async function forward(...args) {
  const child = spawn(binary, ["forward", ...args, "--json", "--data", server.data], { stdio: ["ignore", "pipe", "pipe"] });
  running.push(child);
  const out = { child, stdout: "", stderr: "", exit: once(child, "exit") };
  child.stdout.on("data", (d) => (out.stdout += d));
  child.stderr.on("data", (d) => (out.stderr += d));
  await until(() => out.stdout.includes("\n") || child.exitCode !== null, "the command says where it listens");
  out.port = Number(JSON.parse(out.stdout || "{}").local?.split(":")[1]);
  return out;
}

test("HTTP, many connections at once, and Ctrl-C", async () => {
  const tunnel = await forward("box", "3000:0");
  assert.match(tunnel.stderr, /127\.0\.0\.1:\d+ is port 3000 of box/);
  await until(async () => fetch(`http://127.0.0.1:${tunnel.port}/up`).then((r) => r.ok, () => false), "the guest's server answers");
  const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => fetch(`http://127.0.0.1:${tunnel.port}/n${i}`).then((r) => r.json())));
  assert.deepEqual(answers.map((a) => a.url), Array.from({ length: 40 }, (_, i) => `/n${i}`));
  assert.equal(answers[0].headers["x-forwarded-for"], undefined, "bytes, not a proxy");
  tunnel.child.kill("SIGINT");
  assert.deepEqual(await tunnel.exit, [130, null]);
  await assert.rejects(fetch(`http://127.0.0.1:${tunnel.port}/`));
});

test("a browser gets a name of its own, so that no cookie is shared with the API; other programs are let through", async () => {
  const tunnel = await forward("box", "3000:0");
  const { browser: name } = JSON.parse(tunnel.stdout);
  assert.match(name, /^forward-[0-9a-f]{12}\.localhost:\d+$/);
  const ask = (host, headers = "") => exchange(connect, tunnel.port, `GET /cookies?x=1 HTTP/1.1\r\nHost: ${host}\r\nCookie: sandbar_session=secret\r\n${headers}Connection: close\r\n\r\n`);
  await until(async () => fetch(`http://127.0.0.1:${tunnel.port}/up`).then((r) => r.ok, () => false), "the guest's server answers");
  const browser = "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n";
  for (const host of [`127.0.0.1:${tunnel.port}`, `localhost:${tunnel.port}`, `[::1]:${tunnel.port}`]) {
    const answer = await ask(host, browser);
    assert.match(answer, /^HTTP\/1\.1 307 /);
    assert.ok(answer.includes(`Location: http://${name}/cookies?x=1\r\n`), answer);
    assert.doesNotMatch(answer, /set-cookie/i);
  }
  assert.match(await ask(name, browser), /^HTTP\/1\.1 200 [^]*set-cookie: a=1/i);
  assert.match(await ask(`127.0.0.1:${tunnel.port}`), /^HTTP\/1\.1 200 /);
  const real = await startBrowser();
  try {
    const page = await real.open(`http://127.0.0.1:${tunnel.port}/html`);
    assert.equal(await page.evaluate("location.host"), name);
    assert.equal(await page.evaluate(`document.querySelector("#x").textContent`), "hello");
    assert.equal(await page.evaluate(`document.cookie = "sandbar_session=mine"; document.cookie`), "sandbar_session=mine");
    // A page on loopback's own name, which is the API's, sees none of that.
    const other = await real.open(`http://localhost:${server.port}/health`);
    assert.match(await other.evaluate("document.body.innerText"), /"ok"/);
    assert.match(await page.evaluate(`new Promise((done) => { const w = new WebSocket("ws://127.0.0.1:${tunnel.port}/socket"); w.onopen = () => done("open"); w.onerror = () => done("refused"); })`), /refused/);
  } finally {
    await real.close();
  }
});

test("raw bytes with a half-close", async () => {
  const tunnel = await forward("box", "4000:0");
  const data = randomBytes(5 << 20);
  const echoed = async () => {
    const socket = connect({ port: tunnel.port, host: "127.0.0.1", allowHalfOpen: true });
    socket.end(data);
    const pieces = [];
    for await (const piece of socket) pieces.push(piece);
    return Buffer.concat(pieces);
  };
  await until(async () => (await echoed().catch(() => Buffer.alloc(0))).equals(data), "every byte comes back after the end of the input", 20);
});

test("what cannot be reached is said", async () => {
  const tunnel = await forward("box", "9999:0");
  const socket = connect(tunnel.port, "127.0.0.1").on("error", () => {});
  await once(socket, "close");
  await until(() => /box: .*9999/.test(tunnel.stderr), `a remark about the port: ${tunnel.stderr}`);
  const unknown = await forward("nobody", "3000:0");
  assert.equal((await unknown.exit)[0], 125);
  assert.match(unknown.stderr, /nobody/);
  const taken = await forward("box", `3000:${server.port}`);
  assert.equal((await taken.exit)[0], 125);
  const { error } = JSON.parse(taken.stderr);
  assert.match(error.message, /in use/);
  assert.match(error.fix, /sandbar forward/);
});

test("the API's side wants a token, a machine of the caller's and never port 1", async () => {
  const ask = (path, headers = {}) => new Promise((done) => {
    const s = connect(server.port, "127.0.0.1").on("error", () => {});
    let text = "";
    s.on("data", (d) => (text += d)).on("close", () => done(text));
    const all = { Host: `127.0.0.1:${server.port}`, Connection: "Upgrade", Upgrade: "sandbar-tcp", Authorization: `Bearer ${server.token}`, ...headers };
    s.write(`GET ${path} HTTP/1.1\r\n${Object.entries(all).map(([k, v]) => `${k}: ${v}\r\n`).join("")}\r\n`);
    s.on("data", (d) => String(d).startsWith("HTTP/1.1 101") && s.destroy());
    setTimeout(() => s.end(), 300);
  });
  const path = (port, session = view.session.id) => `/x/v1/sessions/${session}/ports/${port}?${scope}`;
  assert.match(await ask(path(3000)), /^HTTP\/1\.1 101/);
  assert.match(await ask(path(3000), { Authorization: "Bearer wrong" }), /^HTTP\/1\.1 401/);
  assert.match(await ask(path(3000), { Origin: "http://evil.example" }), /^HTTP\/1\.1 403/);
  assert.match(await ask(path(3000), { Upgrade: "websocket" }), /^HTTP\/1\.1 400/);
  assert.match(await ask(path(1)), /^HTTP\/1\.1 400/);
  assert.match(await ask(path(70000)), /^HTTP\/1\.1 400/);
  assert.match(await ask(path(3000, "sbx_unknown")), /^HTTP\/1\.1 404/);
});
