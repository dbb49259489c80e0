// Published ports through the unmodified SDK: what domain(port) returns works, for every kind of server and traffic.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { createRequire } from "node:module";
import { test } from "node:test";
import { apiError, useSdk } from "../clients/sdk.mjs";
import { engine, until } from "../support/server.mjs";
import { app, exchange, raw, serve } from "./guest.mjs";

const { Sandbox, credentials, sandbox, server } = await useSdk();
const WebSocket = globalThis.WebSocket ?? createRequire(new URL("../clients/package.json", import.meta.url))("undici").WebSocket;
const box = await sandbox({ ports: [3000, 3001, 3002, 3003] }); // deny-all, as all of these
await serve(box, app(3000, "127.0.0.1"));
const url = box.domain(3000);
const ask = (bytes, host = new URL(url).host) => exchange(connect, server.port, bytes.replaceAll("HOST", host));

test("domain() is a URL that works, and the vendor's name leads to the same place", async () => {
  assert.match(url, /^http:\/\/sb-[a-z0-9]{12}\.localhost:\d+$/);
  const seen = await (await fetch(`${url}/seen?x=1`, { headers: { "x-mine": "yes" } })).json();
  assert.equal(seen.url, "/seen?x=1");
  assert.equal(seen.headers["x-mine"], "yes");
  assert.equal(seen.headers.host, new URL(url).host);
  const name = new URL(url).hostname.split(".")[0];
  assert.equal((await (await fetch(`https://${name}.vercel.run/seen`)).json()).url, "/seen");
  assert.equal((await (await fetch(`${url}/redirect`)).json()).url, "/seen", "a guest's own redirect is followed");
});

test("every version of the SDK has it, as a module and by require", async () => {
  const require = createRequire(new URL("../clients/package.json", import.meta.url));
  for (const name of ["sandbox-v1", "sandbox-v2", "@vercel/sandbox"]) {
    for (const load of [(n) => import(`../clients/node_modules/${n}/dist/index.js`), async (n) => require(n)]) {
      const sdk = await load(name);
      const made = await sdk.Sandbox.create({ runtime: "node24", ports: [3000], networkPolicy: "deny-all", ...credentials });
      try {
        assert.match(made.domain(3000), /^http:\/\/sb-\w{12}\.localhost:\d+$/, name);
        assert.equal((await fetch(made.domain(3000))).status, 502, name);
      } finally {
        await (made.delete ? made.delete() : made.stop());
      }
    }
  }
});

test("servers on 127.0.0.1, on every address and on ::1 alone are reached", async () => {
  for (const [port, address] of [[3001, "0.0.0.0"], [3002, "::1"], [3003, "::"]]) {
    await serve(box, app(port, address));
    assert.equal((await fetch(box.domain(port))).status, 200, address);
  }
});

test("50 MB up, down and both at once", async () => {
  const size = 50 << 20;
  const data = randomBytes(size);
  assert.equal(await (await fetch(`${url}/count`, { method: "POST", body: data })).text(), String(size));
  const down = await (await fetch(`${url}/big?n=${size}`)).arrayBuffer();
  assert.equal(down.byteLength, size);
  const echoed = Buffer.from(await (await fetch(`${url}/echo`, { method: "POST", body: data })).arrayBuffer());
  assert.ok(echoed.equals(data), "the same bytes come back");
  async function* pieces() { for (let i = 0; i < 40; i++) yield data.subarray(i * 1000, (i + 1) * 1000); }
  const chunked = await fetch(`${url}/echo`, { method: "POST", body: ReadableStream.from ? ReadableStream.from(pieces()) : data.subarray(0, 40000), duplex: "half" });
  assert.ok(Buffer.from(await chunked.arrayBuffer()).equals(data.subarray(0, 40000)));
});

test("events arrive when they are sent, and the guest learns that the reader left", async () => {
  const leave = new AbortController();
  const response = await fetch(`${url}/events`, { signal: leave.signal });
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  const reader = response.body.getReader();
  assert.equal(String(Buffer.from((await reader.read()).value)), "data: 1\n\n");
  await fetch(`${url}/go`);
  assert.equal(String(Buffer.from((await reader.read()).value)), "data: 2\n\n");
  leave.abort();
  await until(async () => (await (await fetch(`${url}/gone`)).text()) === "true", "the guest's connection closed");
});

test("WebSocket both ways, small and large messages", async () => {
  const socket = new WebSocket(url.replace("http", "ws") + "/socket");
  socket.binaryType = "arraybuffer";
  const next = () => new Promise((done, fail) => { socket.onmessage = (e) => done(e.data); socket.onerror = () => fail(new Error("socket error")); });
  await new Promise((done, fail) => { socket.onopen = done; socket.onerror = (e) => fail(e.error ?? new Error("no socket")); });
  let got = next();
  socket.send("hello");
  assert.equal(await got, "hello");
  const large = randomBytes(3 << 20);
  got = next();
  socket.send(large);
  assert.ok(Buffer.from(await got).equals(large));
  const closed = new Promise((done) => (socket.onclose = done));
  socket.close(1000);
  await closed;
});

test("HEAD, keep-alive, pipelining and HTTP/1.0", async () => {
  const head = await fetch(`${url}/big?n=12345`, { method: "HEAD" });
  assert.equal(head.headers.get("content-length"), "12345");
  const two = await ask("GET /a HTTP/1.1\r\nHost: HOST\r\n\r\nGET /b HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n");
  assert.match(two, /"url":"\/a"[^]*HTTP\/1\.1 200[^]*"url":"\/b"/);
  assert.match(await ask("GET /old HTTP/1.0\r\nHost: HOST\r\n\r\n"), /^HTTP\/1\.1 200[^]*"url":"\/old"/);
});

test("the guest sees who asked, but no credential of ours and no lie about the client", async () => {
  const answer = await ask(
    "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer " + server.token + "\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: evil.example\r\n" +
    "Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\nCookie: a=1; sandbar_preview_token=zz; b=2\r\nX-Sandbar-Preview-Token: zz\r\n\r\n");
  const { headers } = JSON.parse(answer.split("\r\n\r\n")[1]);
  const host = new URL(url).host;
  assert.deepEqual(headers, { host, cookie: "a=1; b=2", "x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "http", "x-forwarded-host": host, connection: "close" });
  for (const spelling of [`bearer   ${server.token}`, `BeArEr \t${server.token}`, `Bearer\t${server.token}`, `Token ${server.token}`,
    `Basic ${Buffer.from(`x:${server.token}`).toString("base64")}`, `other\r\nAuthorization: bearer  ${server.token}`]) {
    const got = await ask(`GET /?a=1&t=${server.token} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nAuthorization: ${spelling}\r\n` +
      `X-Key: ${server.token}\r\nCookie: a=1; t=${server.token}\r\nSec-WebSocket-Protocol: chat, bearer.${server.token}\r\nReferer: http://HOST/?t=${server.token}\r\n\r\n`);
    const seen = got.split("\r\n\r\n")[1];
    assert.ok(!seen.includes(server.token) && !seen.includes(Buffer.from(`x:${server.token}`).toString("base64")), `${spelling}: ${seen}`);
    assert.equal(JSON.parse(seen).url, "/?a=1");
    assert.equal(JSON.parse(seen).headers.cookie, "a=1");
    assert.equal(JSON.parse(seen).headers["sec-websocket-protocol"], "chat");
  }
  // Somebody else's bearer is the application's business.
  const own = await (await fetch(url, { headers: { authorization: "Bearer application" } })).json();
  assert.equal(own.headers.authorization, "Bearer application");
});

test("a preview's cookies are its own host's alone", async () => {
  const answer = await ask("GET /cookies HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n");
  assert.match(answer, /set-cookie: a=1; Path=\/\r\n/i);
  assert.match(answer, /set-cookie: b=2; HttpOnly\r\n/i);
  assert.doesNotMatch(answer, /alt-svc|domain=/i);
});

test("nothing of the API is served on a preview's name, and no other name is a preview", async () => {
  const host = new URL(url).host;
  for (const path of ["/v2/sandboxes", "/health", "/x/v1/info", "/sdk/env.sh"])
    assert.match(await ask(`GET ${path} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer ${server.token}\r\nConnection: close\r\n\r\n`), new RegExp(`"url":"${path}"`));
  const get = (name) => ask("GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n", name);
  assert.match(await get(host.toUpperCase()), /^HTTP\/1\.1 200/);
  assert.match(await get(`x.${host}`), /^HTTP\/1\.1 403/);
  assert.match(await get(host.replace("localhost", "evil.example")), /^HTTP\/1\.1 403/);
  assert.match(await get(host.replace(".localhost", ".x.localhost")), /^HTTP\/1\.1 404/);
  assert.match(await get(host.replace("localhost", "localhost.")), /^HTTP\/1\.1 403/);
});

test("ambiguous requests do not reach the guest", async () => {
  const before = Number(JSON.parse((await ask("GET /n HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n")).split("\r\n\r\n")[1]).raw);
  assert.ok(before > 0);
  const bad = [
    "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "POST /x HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3, 3\r\n\r\nabc",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: +3\r\n\r\nabc",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0x3\r\n\r\nabc",
    "GET /x HTTP/1.1\r\nHost: HOST\r\nX : y\r\n\r\n",
    "GET /x HTTP/1.1\nHost: HOST\n\n",
    "GET /x HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n",
    "GET http://HOST/x HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "CONNECT HOST HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
  ];
  for (const bytes of bad) assert.match(await ask(bytes), /^HTTP\/1\.1 400/, JSON.stringify(bytes));
  // h2c would speak past the parser from then on.
  const h2c = await ask("GET /plain HTTP/1.1\r\nHost: HOST\r\nConnection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");
  assert.match(h2c, /^HTTP\/1\.1 200/);
  assert.equal(JSON.parse(h2c.split("\r\n\r\n")[1]).headers.upgrade, undefined);
});

test("a guest that breaks HTTP harms only its own answer", async () => {
  const other = await sandbox({ ports: [4000] });
  const host = new URL(other.domain(4000)).host;
  const get = (path = "/", more = "") => ask(`GET ${path} HTTP/1.1\r\nHost: HOST\r\n${more}Connection: close\r\n\r\n`, host);
  const cases = [
    ["HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nsmuggled", /^HTTP\/1\.1 502[^]*SANDBOX_BAD_ANSWER/],
    ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", /^HTTP\/1\.1 502/],
    ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", /^HTTP\/1\.1 502/],
    ["hello, this is no HTTP\r\n\r\n", /^HTTP\/1\.1 502/],
    ["HTTP/1.1 200 OK\r\nX: " + "y".repeat(70_000) + "\r\n\r\n", /^HTTP\/1\.1 502/],
    ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled", /^HTTP\/1\.1 200[^]*\r\n\r\nok$/],
    ["HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", /^HTTP\/1\.1 200[^]*\r\n\r\nok$/],
    ["HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50), /^HTTP\/1\.1 502/],
  ];
  for (const [bytes, expected] of cases) {
    const stop = await serve(other, raw(4000, bytes));
    const answer = await get();
    assert.match(answer, expected, JSON.stringify(bytes.slice(0, 80)));
    assert.doesNotMatch(answer, /smuggled/);
    await stop();
    await until(async () => (await get()).includes("SANDBOX_NOT_LISTENING"), "the server is gone");
  }
  assert.equal((await fetch(url)).status, 200);
});

test("errors say what is wrong, as JSON or as a page", async () => {
  const boxed = await sandbox({ ports: [5000] });
  const silent = boxed.domain(5000);
  let response = await fetch(silent);
  assert.equal(response.status, 502);
  let { error } = await response.json();
  assert.equal(error.code, "SANDBOX_NOT_LISTENING");
  assert.match(error.message, /port 5000/);
  response = await fetch(silent, { headers: { accept: "text/html" } });
  assert.match(response.headers.get("content-type"), /text\/html/);
  assert.match(await response.text(), /SANDBOX_NOT_LISTENING/);
  assert.equal((await fetch(`${url}/drop`)).status, 502);
  await boxed.stop();
  response = await fetch(silent);
  assert.equal(response.status, 410);
  assert.equal((await response.json()).error.code, "SANDBOX_STOPPED");
  response = await fetch(silent.replace(/sb-\w+/, "sb-aaaaaaaaaaaa"));
  assert.equal(response.status, 404);
  assert.equal((await response.json()).error.code, "SANDBOX_NOT_FOUND");
});

test("PATCH replaces the ports: what stays keeps its name", async () => {
  const changing = await sandbox({ ports: [3000, 3001] });
  const before = changing.domain(3000);
  const gone = changing.domain(3001);
  await changing.update({ ports: [4000, 3000] });
  assert.equal(changing.domain(3000), before);
  assert.notEqual(changing.domain(4000), before);
  assert.throws(() => changing.domain(3001), /No route/);
  assert.equal((await fetch(gone)).status, 404);
  const again = await Sandbox.get({ name: changing.name, ...credentials });
  assert.deepEqual([again.domain(4000), again.domain(3000)], [changing.domain(4000), before]);
  await changing.update({ ports: [3000, 3001] });
  assert.notEqual(changing.domain(3001), gone, "a name is never given out again");
  assert.equal((await apiError(changing.update({ ports: [80] }))).status, 400);
  assert.equal((await apiError(sandbox({ ports: Array.from({ length: 16 }, (_, i) => 3000 + i) }))).status, 400);
});

test("a route with a token wants it, and keeps it from the guest", async () => {
  const path = `/x/v1/sandboxes/${box.name}/routes/3000/token?teamId=team_test&projectId=prj_test`;
  const made = await server.call("POST", path);
  assert.match(made.token, /^sbp_\w{24}$/);
  try {
    assert.equal((await fetch(url)).status, 401);
    assert.equal((await fetch(url, { headers: { "x-sandbar-preview-token": "sbp_wrong" } })).status, 401);
    assert.equal((await fetch(`${url}/?sandbar_token=sbp_wrong`)).status, 401);
    const seen = await (await fetch(`${url}/p`, { headers: { "x-sandbar-preview-token": made.token } })).json();
    assert.equal(seen.url, "/p");
    assert.equal(seen.headers["x-sandbar-preview-token"], undefined);
    const opened = await fetch(`${url}/p?a=1&sandbar_token=${made.token}&b=2`, { redirect: "manual" });
    assert.equal(opened.status, 303);
    assert.equal(opened.headers.get("location"), `${url}/p?a=1&b=2`);
    for (const port of ["", "0", "65536", "80x", "80@evil.example"]) {
      const junk = await ask(`GET /?sandbar_token=${made.token} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n`, `${new URL(url).hostname}:${port}`);
      assert.match(junk, /^HTTP\/1.1 400 /, port);
      assert.doesNotMatch(junk, /^location/im);
    }
    const cookie = opened.headers.get("set-cookie");
    assert.match(cookie, /; HttpOnly/);
    assert.doesNotMatch(cookie, /domain/i);
    const inside = await (await fetch(`${url}/q`, { headers: { cookie: cookie.split(";")[0] } })).json();
    assert.equal(inside.headers.cookie, undefined);
    const { routes } = await server.call("GET", `/v2/sandboxes/sessions/${box.currentSession?.().sessionId ?? box.sandboxId ?? box.sessionId}?teamId=team_test`).catch(() => ({ routes: [] }));
    assert.doesNotMatch(JSON.stringify(routes), new RegExp(made.token));
  } finally {
    await server.call("DELETE", path);
  }
  assert.equal((await fetch(url)).status, 200);
  assert.equal((await server.request("POST", path.replace("3000", "3999"))).status, 404);
});

test("requests that never end leave the API and other previews alone", async () => {
  const busy = await sandbox({ ports: [3000] });
  await serve(busy, app(3000, "127.0.0.1"));
  const host = new URL(busy.domain(3000)).host;
  const sockets = [];
  const hang = () => {
    const s = connect(server.port, "127.0.0.1");
    s.on("error", () => {});
    s.write(`GET /never HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    sockets.push(s);
  };
  for (let i = 0; i < 200; i++) hang();
  // Half of a head, never finished: the slow way to hold a connection.
  const slow = Array.from({ length: 200 }, () => {
    const s = connect(server.port, "127.0.0.1");
    s.on("error", () => {});
    s.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Slow: `);
    return s;
  });
  try {
    await until(async () => {
      const { status } = await fetch(busy.domain(3000));
      if (status !== 429) hang(); // this very request may have taken the last place
      return status === 429;
    }, "the route's own limit is reached");
    assert.equal((await fetch(url)).status, 200);
    assert.ok((await fetch(`${server.url}/health`)).ok);
    assert.equal((await server.call("GET", "/x/v1/info")).engine, engine);
  } finally {
    for (const s of [...sockets, ...slow]) s.destroy();
  }
  await until(async () => (await fetch(busy.domain(3000))).status === 200, "the places are free again");
});

test("open streams end with their sandbox", async () => {
  const ending = await sandbox({ ports: [3000] });
  await serve(ending, app(3000, "127.0.0.1"));
  const there = ending.domain(3000);
  const events = (await fetch(`${there}/events`)).body.getReader();
  await events.read();
  const socket = new WebSocket(there.replace("http", "ws"));
  await new Promise((done) => (socket.onopen = done));
  const closed = new Promise((done) => (socket.onclose = done));
  const stopped = ending.stop();
  await events.read().then(({ done }) => assert.ok(done), () => {});
  await closed;
  await stopped;
  assert.equal((await fetch(there)).status, 410);
});

test("open streams end when their route is withdrawn", async () => {
  const changing = await sandbox({ ports: [3000] });
  await serve(changing, app(3000, "127.0.0.1"));
  const socket = new WebSocket(changing.domain(3000).replace("http", "ws"));
  await new Promise((done) => (socket.onopen = done));
  const closed = new Promise((done) => (socket.onclose = done));
  await changing.update({ ports: [] });
  await closed;
});

test("a restart of the server keeps every URL, and its place in the machine", async () => {
  await server.crash();
  await server.start();
  assert.equal((await fetch(`${url}/again`)).status, 200);
  assert.equal((await Sandbox.get({ name: box.name, ...credentials })).domain(3000), url);
});
