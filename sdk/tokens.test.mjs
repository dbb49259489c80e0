// The tokens of `sandbar env` go to SANDBAR_URL alone, whatever sends them: programs in a real Node.js child, the hosts of
// the outside played by servers on loopback that write down everything they get.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import tls from "node:tls";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";

const here = new URL(".", import.meta.url);
const b64 = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
// As the server signs them.
const jwt = `${b64({ alg: "HS256", typ: "JWT" })}.${b64({ iss: "sandbar", aud: "sandbar", owner_id: "team_x", project_id: "prj_x", iat: 1, exp: 4e9 })}.c2ln`;
const opaque = "sbt_0123456789abcdef0123";
const dir = mkdtempSync(join(tmpdir(), "sandbar-tokens-"));
const seen = { ours: "", plain: "", secure: "", second: [] };
const servers = [];
let ports;

before(async () => {
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x", "-days", "2",
    "-keyout", join(dir, "key.pem"), "-out", join(dir, "cert.pem")], { stdio: "ignore" });
  const [key, cert] = ["key.pem", "cert.pem"].map((name) => readFileSync(join(dir, name)));
  const listen = async (server) => {
    servers.push(server);
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    return server.address().port;
  };
  // Answers every request and upgrade in its own words; every byte that came is kept.
  const record = (name) => (socket) => {
    socket.on("error", () => {});
    socket.on("data", (piece) => {
      seen[name] += piece.toString("latin1");
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    });
  };
  const second = http2.createSecureServer({ key, cert });
  second.on("stream", (stream, headers) => {
    seen.second.push(JSON.stringify(headers));
    stream.on("data", (piece) => seen.second.push(String(piece)));
    stream.on("error", () => {});
    stream.respond({ ":status": 200 });
    stream.end("hi");
  });
  second.on("sessionError", () => {});
  ports = {
    ours: await listen(http.createServer((request, response) => {
      seen.ours += JSON.stringify(request.headers);
      response.end("ours");
    })),
    plain: await listen(net.createServer(record("plain"))),
    secure: await listen(tls.createServer({ key, cert }, record("secure"))),
    second: await listen(second),
  };
});
beforeEach(() => Object.assign(seen, { ours: "", plain: "", secure: "", second: [] }));
after(() => {
  for (const server of servers) {
    server.closeAllConnections?.();
    server.close();
  }
  rmSync(dir, { recursive: true });
});

// Runs an async function body in a child with the preload; it returns what it prints as JSON.
const inChild = (body, env = {}) =>
  new Promise((done, failed) => {
    const code = `const token = process.env.VERCEL_OIDC_TOKEN; const errorOf = (p) => p.then(() => "reached", (e) => [e, e.cause].map((x) => x?.message).join(" / "));
      const ended = (emitter) => new Promise((r) => { emitter.on("error", (e) => r(e.message)); for (const end of ["response", "data", "close"]) emitter.on(end, () => r("reached")); });
      const run = async () => { ${body} }; run().then((v) => { console.log(JSON.stringify(v)); process.exit(); });`;
    const hosts = { "plain.test:80": ports.plain, "secure.test:443": ports.secure, "second.test:443": ports.second, "ai-gateway.vercel.sh:443": ports.secure };
    const child = spawn(process.execPath, [`--import=${new URL("../tests/articles/hosts.mjs", here)}`, `--import=${new URL("register.mjs", here)}`, "--input-type=module", "-e", code], {
      env: { PATH: process.env.PATH, SANDBAR_URL: `http://127.0.0.1:${ports.ours}`, VERCEL_OIDC_TOKEN: jwt, SANDBAR_TOKEN: opaque, NODE_TLS_REJECT_UNAUTHORIZED: "0",
        NODE_NO_WARNINGS: "1", SANDBAR_TEST_HOSTS: JSON.stringify(hosts), ...env },
      stdio: ["ignore", "pipe", "inherit"], cwd: new URL("../examples", here),
    });
    let out = "";
    child.stdout.on("data", (piece) => (out += piece));
    child.on("close", (code) => (code === 0 ? done(JSON.parse(out)) : failed(new Error(`child exited with ${code}`))));
  });
const nothingLeft = () => {
  for (const text of [seen.plain, seen.secure, seen.second.join()])
    for (const secret of [jwt, jwt.slice(10, -10), opaque, Buffer.from(`u:${jwt}`).toString("base64")]) assert.ok(!text.includes(secret), "a token left the machine");
};

test("our server gets the token, under each of loopback's names", async () => {
  const got = await inChild(`const at = (name) => fetch(name + ":${ports.ours}/x", { headers: { authorization: "Bearer " + token } }).then((r) => r.text());
    return [await at("http://127.0.0.1"), await at("http://localhost")];`);
  assert.deepEqual(got, ["ours", "ours"]);
  assert.ok(seen.ours.includes(jwt));
});

test("fetch: refused before anything is sent, with what to set instead", async () => {
  const got = await inChild(`const go = (url, init) => errorOf(fetch(url, init));
    return [
      await go("http://plain.test/", { headers: { authorization: "Bearer " + token } }),
      await go("https://secure.test/", { headers: new Headers({ "x-api-key": token }) }),
      await go(new Request("https://secure.test/", { headers: [["authorization", "Basic " + Buffer.from("user:" + token).toString("base64")]] })),
      await go("https://secure.test/?token=" + token),
      await go("https://secure.test/", { headers: { authorization: "Bearer " + process.env.SANDBAR_TOKEN } }),
      await go("https://secure.test/", { method: "POST", body: JSON.stringify({ token }) }),
      await go("http://sb-abcdefghijkl.localhost:${ports.ours}/", { headers: { "x-mine": token } }),
    ];`);
  for (const message of got) assert.match(message, /for SANDBAR_URL alone[^]*AI_GATEWAY_API_KEY[^]*provider package/);
  nothingLeft();
  assert.equal(seen.ours, "", "a preview is a guest's, not ours");
});

test("http, https, raw TLS, WebSocket and HTTP/2", async () => {
  const got = await inChild(`
    const http = (await import("node:http")).default, https = (await import("node:https")).default, tls = (await import("node:tls")).default, h2 = await import("node:http2");
    const { WebSocket } = (await import("node:module")).createRequire(process.cwd() + "/x.js")("undici");
    const headers = { authorization: "Bearer " + token };
    const raw = tls.connect({ host: "secure.test", port: 443 });
    raw.on("secureConnect", () => { raw.write("GET / HTTP/1.1\\r\\nauthorization: Bearer " + token.slice(0, 50)); raw.write(token.slice(50) + "\\r\\n\\r\\n"); });
    const out = [await ended(http.get("http://plain.test/", { headers })), await ended(https.get("https://secure.test/", { headers })), await ended(raw)];
    const posting = https.request("https://secure.test/", { method: "POST" });
    const posted = ended(posting);
    posting.end("token=" + token);
    out.push(await posted);
    const socket = new WebSocket("wss://secure.test/", ["x." + token]);
    out.push(await new Promise((r) => { socket.onopen = () => r("reached"); socket.onerror = () => r("for SANDBAR_URL alone"); }));
    const session = h2.connect("https://second.test");
    session.on("error", () => {});
    try { session.request({ ":path": "/", ...headers }); out.push("reached"); } catch (e) { out.push(e.message); }
    const stream = session.request({ ":path": "/", ":method": "POST" });
    const streamed = ended(stream);
    stream.end("token=" + token);
    out.push(await streamed);
    session.destroy();
    return out;`);
  assert.equal(got.length, 7);
  for (const message of got) assert.match(message, /for SANDBAR_URL alone/);
  nothingLeft();
});

test("what is not ours goes where the program sends it", async () => {
  const got = await inChild(`const text = (url, key) => fetch(url, { headers: { authorization: "Bearer " + key } }).then((r) => r.text());
    return [await text("http://plain.test/", "somebody-elses-key"), await text("https://ai-gateway.vercel.sh/v4/ai/config", "gateway-key")];`);
  assert.deepEqual(got, ["hi", "hi"]);
  assert.match(seen.plain, /Bearer somebody-elses-key/);
  assert.match(seen.secure, /Bearer gateway-key/);
});

test("the model gateway of the AI SDK, as programs use it: a text for a model", async () => {
  const body = `const { generateText } = await import("ai");
    try { await generateText({ model: "anthropic/some-model", prompt: "hi", maxRetries: 0 }); return "reached"; }
    catch (e) { const all = []; for (let x = e; x; x = x.cause) all.push(x.message); return all.join(" / "); }`;
  const message = await inChild(body.replace('await import("ai")', `await import(${JSON.stringify(new URL("../examples/node_modules/ai/dist/index.js", here).href)})`));
  assert.match(message, /for SANDBAR_URL alone and is not sent to ai-gateway\.vercel\.sh[^]*AI_GATEWAY_API_KEY/);
  nothingLeft();
  assert.equal(seen.secure, "", "not even a request without the token");
});
