// The API against other people's tokens, other people's web pages and broken HTTP.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startServer } from "../support/server.mjs";

let server, view;
before(async () => {
  server = await startServer();
  view = await server.create({ runtime: "node24" });
});
after(() => server?.stop());

const b64 = (v) => Buffer.from(JSON.stringify(v)).toString("base64url");
const jwt = (header, claims, key) => {
  const head = `${b64(header)}.${b64(claims)}`;
  return `${head}.${key ? createHmac("sha256", key).update(head).digest("base64url") : ""}`;
};
// Raw bytes in, everything up to the close out.
const send = (bytes) => new Promise((done) => {
  const s = connect(server.port, "127.0.0.1", () => s.write(bytes));
  let text = "";
  s.on("data", (d) => (text += d)).on("close", () => done(text)).on("error", () => done(text));
  s.setTimeout(20000, () => s.destroy());
});

test("every route refuses every bad credential", async () => {
  const { routes } = await server.call("GET", "/x/v1/routes");
  assert.ok(routes.length > 30, `only ${routes.length} routes`);
  const now = Math.floor(Date.now() / 1000);
  const claims = { owner_id: "team_sandbar", project_id: "prj_sandbar", aud: "sandbar", exp: now + 3600 };
  const key = await readFile(join(server.data, "jwt.key"));
  const bad = {
    none: null, wrong: "sbt_wrong", malformed: "a.b.c",
    unsigned: jwt({ alg: "none", typ: "JWT" }, claims),
    expired: jwt({ alg: "HS256", typ: "JWT" }, { ...claims, exp: now - 3600 }, key),
    otherKey: jwt({ alg: "HS256", typ: "JWT" }, claims, "guess"),
    otherAlg: jwt({ alg: "HS512", typ: "JWT" }, claims, key),
  };
  let checked = 0;
  for (const { method, pattern, auth } of routes) {
    if (auth === false || auth === "none") continue;
    const path = pattern.replace(/\{[^}]+\}/g, view.session.id);
    for (const [kind, token] of Object.entries(bad)) {
      const response = await server.request(method, path, { token, body: method === "GET" || method === "DELETE" ? undefined : {} });
      await response.arrayBuffer();
      assert.equal(response.status, 401, `${method} ${pattern} with ${kind} credential`);
      checked++;
    }
  }
  assert.ok(checked > 200);
  assert.equal((await server.exec(view.session.id, "echo", ["unharmed"])).stdout, "unharmed\n");
});

test("what the open routes are is a short, known list", async () => {
  const { routes } = await server.call("GET", "/x/v1/routes");
  const open = routes.filter((r) => r.auth === false || r.auth === "none").map((r) => `${r.method} ${r.pattern}`).sort();
  assert.deepEqual(open, [
    "GET /.well-known/jwks", "GET /.well-known/openid-configuration", "GET /health", "GET /llms.txt", "GET /login", "GET /openapi.json", "GET /sdk/register.mjs", "GET /sdk/sandbar.py",
    "GET /x/v1/terminal", "HEAD /health", "POST /x/v1/oauth/device", "POST /x/v1/oauth/introspect", "POST /x/v1/oauth/revoke", "POST /x/v1/oauth/token",
  ]);
});

test("a foreign page, a rebound name and a wrong Host are turned away", async () => {
  const get = (extra, host = `127.0.0.1:${server.port}`) =>
    send(`GET /v2/sandboxes HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${server.token}\r\nConnection: close\r\n${extra}\r\n`);
  assert.match(await get(""), /^HTTP\/1.1 200/);
  assert.match(await get("Origin: http://evil.example\r\n"), /^HTTP\/1.1 403/);
  assert.match(await get(`Origin: http://sb-aaaaaaaaaaaa.localhost:${server.port}\r\n`), /^HTTP\/1.1 403/);
  assert.match(await get("Sec-Fetch-Site: cross-site\r\n"), /^HTTP\/1.1 403/);
  assert.match(await get("", "evil.example"), /^HTTP\/1.1 403/);
  assert.match(await get("", `rebound.example:${server.port}`), /^HTTP\/1.1 403/);
  assert.doesNotMatch(await get(""), /access-control-allow/i);
});

test("ambiguous HTTP is refused", async () => {
  const H = `Host: 127.0.0.1:${server.port}\r\n`;
  const bad = [
    `POST /health HTTP/1.1\r\n${H}Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc`,
    `POST /health HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n`,
    `POST /health HTTP/1.0\r\n${H}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `POST /health HTTP/1.1\r\n${H}Content-Length: 3, 3\r\n\r\nabc`,
    `POST /health HTTP/1.1\r\n${H}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc`,
    `POST /health HTTP/1.1\r\n${H}Content-Length: +3\r\n\r\nabc`,
    `GET /health HTTP/1.1\r\n${H}X : y\r\n\r\n`,
    `GET /health HTTP/1.1\n${H}\n\n`,
    "GET /health HTTP/1.1\r\n\r\n",
    `GET /health HTTP/1.1\r\n${H}${H}\r\n`,
    `GET http://127.0.0.1/health HTTP/1.1\r\n${H}\r\n`,
  ];
  for (const bytes of bad) assert.match(await send(bytes), /^HTTP\/1.1 400/, JSON.stringify(bytes));
  assert.ok((await fetch(`${server.url}/health`)).ok);
});

test("bad bodies get a clear 400 in the protocol's form", async () => {
  const cases = [
    ["{", /JSON/i], ["[]", /object/i], ['{"ports":["x"]}', /ports/], ['{"resources":{"vcpuss":1}}', /vcpus/],
    ['{"name":"a b"}', /name/], ['{"timeout":1}', /timeout/], ["[".repeat(100000), /JSON|deep|depth|nest/i],
    ['{"tags":{"a":1}}', /tags/], ['{"networkPolicy":{"mode":"sideways"}}', /mode/],
  ];
  for (const [body, words] of cases) {
    const response = await server.request("POST", "/v2/sandboxes", { body });
    const { error } = await response.json();
    assert.equal(response.status, 400, `${body.slice(0, 60)} → ${response.status} ${JSON.stringify(error)}`);
    assert.match(error.message, words);
    assert.equal(typeof error.code, "string");
  }
});

test("secrets on disk are the daemon's alone", async () => {
  for (const file of ["token", "jwt.key", "sandbar.db"]) {
    const { mode } = await stat(join(server.data, file));
    assert.equal(mode & 0o077, 0, `${file} is ${(mode & 0o777).toString(8)}`);
  }
});

test("the daemon has no privileges, and only the spawner does", async () => {
  const status = await readFile(`/proc/${server.pid}/status`, "utf8");
  assert.match(status, /^CapEff:\s+0+$/m);
  assert.match(status, /^CapPrm:\s+0+$/m);
  assert.match(status, /^CapBnd:\s+0+$/m);
  assert.match(status, /^NoNewPrivs:\s+1$/m);
  assert.match(status, /^Seccomp:\s+2$/m);
  assert.doesNotMatch(status, /^Uid:\s+0\s/m);
  assert.match(await readFile(`/proc/${server.pid}/limits`, "utf8"), /^Max core file size\s+0\s+0/m);
});
