// Floods of connections from outside, without a token: whoever means it is answered while they last.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";

let server;
before(async () => {
  server = await startServer({ config: "[limits]\nmax_ports = 15\n" });
});
after(() => server?.stop());

const AGAIN_MS = 3000;

// Connections that send these bytes and nothing more; opened again a while after the server closed them, until the flood
// ends.
function flood(count, bytes) {
  const sockets = new Set();
  let over = false, opened = 0;
  const open = () => {
    if (over) return;
    const s = connect(server.port, "127.0.0.1", () => {
      opened++;
      s.write(bytes());
    });
    sockets.add(s);
    // Read, or the end of the server's side would never be seen.
    s.resume().on("error", () => {}).on("close", () => sockets.delete(s) && setTimeout(open, AGAIN_MS).unref());
  };
  for (let i = 0; i < count; i++) open();
  return {
    opened: () => opened,
    end: () => {
      over = true;
      for (const s of sockets) s.destroy();
    },
  };
}

// One answer by way of an agent; a time-out is a failure with a name.
const get = (path, agent, headers = {}, timeout = 30_000) => new Promise((done, fail) => {
  const q = request({ host: "127.0.0.1", port: server.port, path, agent, headers, timeout }, (r) => {
    r.resume().on("end", () => done(r.statusCode));
  });
  q.on("timeout", () => q.destroy(new Error(`${path}: no answer within ${timeout} ms`))).on("error", fail).end();
});

// Nine hundred more than there are places: one place at a time would be free after three quarters of a minute.
test("half-sent requests: new and old clients are answered", async () => {
  const kept = new Agent({ keepAlive: true, maxSockets: 1 });
  const token = { authorization: `Bearer ${server.token}` };
  let connections = 0;
  const sockets = new Set();
  const mine = async () => {
    assert.equal(await get("/x/v1/info", kept, token), 200);
    for (const s of Object.values(kept.freeSockets).flat()) if (!sockets.has(s)) sockets.add(s), connections++;
  };
  await mine();
  const half = flood(5000, () => `GET /health HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nX-Slow: `);
  try {
    await until(() => half.opened() >= 4900, "the flood is there");
    for (let i = 0; i < 5; i++) assert.equal(await get("/health", new Agent()), 200);
    await mine();
    assert.equal(connections, 1, "a client with a token keeps its connection");
  } finally {
    half.end();
    kept.destroy();
  }
  assert.equal(await get("/health", new Agent()), 200);
});

test("half-sent bodies leave room too", async () => {
  const bodies = flood(5000, () => `POST /v2/sandboxes HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Length: 200000\r\n\r\n{`);
  try {
    await until(() => bodies.opened() >= 4900, "the flood is there");
    for (let i = 0; i < 5; i++) assert.equal(await get("/health", new Agent()), 200);
  } finally {
    bodies.end();
  }
});

test("silent ports of two sandboxes leave the previews of a third alone", async () => {
  const ports = Array.from({ length: 15 }, (_, i) => 3000 + i);
  const make = async (script) => {
    const { session, routes } = await server.create({ runtime: "node24", ports });
    const body = { command: "node", args: ["-e", script], env: {}, sudo: false, wait: false };
    await server.call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { body });
    return routes.map((r) => new URL(r.url).host);
  };
  const listen = (each) => `for (const port of ${JSON.stringify(ports)}) ${each}.on("error", () => {}).listen(port, "127.0.0.1")`;
  const silent = [...(await make(listen("require('net').createServer((s) => s.on('error', () => {}))"))),
    ...(await make(listen("require('net').createServer((s) => s.on('error', () => {}))")))];
  const [third] = await make(listen("require('http').createServer((q, r) => r.end('here'))"));
  await until(async () => (await get("/", new Agent(), { host: third })) === 200, "the third answers");
  const hangs = (host) => get("/", new Agent(), { host }, 1000).then(() => false, () => true);
  for (const last of [silent[14], silent[29]]) await until(() => hangs(last), "the silent ports are listening");
  let next = 0;
  const hang = flood(2100, () => `GET / HTTP/1.1\r\nHost: ${silent[next++ % silent.length]}\r\n\r\n`);
  try {
    await until(() => hang.opened() >= 2100, "the flood is there");
    // A probe that finds a place waits for ever, as the others do.
    const refused = () => get("/", new Agent(), { host: silent[0] }, 3000).then((status) => status === 429, () => false);
    await until(refused, "its own previews are full");
    for (let i = 0; i < 10; i++) assert.equal(await get("/", new Agent(), { host: third }), 200);
    assert.equal(await get("/health", new Agent()), 200);
  } finally {
    hang.end();
  }
});

test("a project's token that ends soon gets no longer one from /sdk/env.sh", async () => {
  const b64 = (v) => Buffer.from(JSON.stringify(v)).toString("base64url");
  const key = (await readFile(join(server.data, "jwt.key"), "utf8")).trim();
  const exp = Math.floor(Date.now() / 1000) + 600;
  const head = `${b64({ alg: "HS256", typ: "JWT" })}.${b64({ owner_id: "team_sandbar", project_id: "prj_x", aud: "sandbar", exp })}`;
  let token = `${head}.${createHmac("sha256", key).update(head).digest("base64url")}`;
  for (let i = 0; i < 3; i++) {
    const script = await (await server.request("GET", "/sdk/env.sh", { token })).text();
    token = /VERCEL_OIDC_TOKEN='([^']+)'/.exec(script)?.[1];
    const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
    assert.equal(claims.exp, exp);
    assert.equal(claims.project_id, "prj_x");
  }
});
