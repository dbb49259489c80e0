// The preload in a real Node.js child, against a server on loopback: rewritten, streamed, aborted, and never past us.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const preload = new URL("register.mjs", import.meta.url).href;
let server, url;

before(async () => {
  server = http.createServer((request, response) => {
    if (request.url === "/never") return;
    if (request.url === "/api/back") return void response.writeHead(302, { location: "https://vercel.com/x" }).end();
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => response.end(`${request.method} ${request.url} ${request.headers.probe ?? "-"} ${body}`));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  url = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

// Runs an async function body in a child with the preload; it returns what it prints as JSON.
const inChild = (body, sandbarUrl) =>
  new Promise((done, failed) => {
    const code = `const run = async () => { ${body} }; run().then((v) => console.log(JSON.stringify(v)));`;
    const env = { ...process.env, NODE_OPTIONS: "", SANDBAR_URL: sandbarUrl };
    const child = spawn(process.execPath, [`--import=${preload}`, "--input-type=module", "-e", code], {
      env, stdio: ["ignore", "pipe", "inherit"], cwd: fileURLToPath(new URL(".", import.meta.url)),
    });
    let out = "";
    child.stdout.on("data", (piece) => (out += piece));
    child.on("exit", (code) => (code === 0 ? done(JSON.parse(out)) : failed(new Error(`child exited with ${code}`))));
  });
const errorOf = "(p) => p.then(() => 'reached', (e) => e.message)";

test("API calls arrive at our server, with method, headers and body", async () => {
  const got = await inChild(`
    const text = async (p) => (await p).text();
    return [
      await text(fetch("https://vercel.com/api/v2/sandboxes?teamId=t", { method: "POST", headers: { probe: "1" }, body: "a" })),
      await text(fetch(new Request("https://api.vercel.com/v2/user", { method: "PUT", body: "b" }))),
      await text(fetch(new URL("https://vercel.com/api/v1"))),
      await text(fetch("https://oidc.vercel.com/.well-known/jwks")),
    ];`, url);
  assert.deepEqual(got, ["POST /api/v2/sandboxes?teamId=t 1 a", "PUT /api/v2/user - b", "GET /api/v1 - ", "GET /.well-known/jwks - "]);
});

test("a streamed request body keeps working", async () => {
  const got = await inChild(`
    const body = new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("streamed")); c.close(); } });
    return (await fetch("https://vercel.com/api/s", { method: "POST", body })).text();`, url);
  assert.equal(got, "POST /api/s - streamed");
});

test("an abort stays an abort", async () => {
  const got = await inChild(`
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 20);
    return fetch("https://vercel.com/never", { signal: stop.signal }).then(() => "answered", (e) => e.name);`, url);
  assert.equal(got, "AbortError");
});

test("other hosts are left alone", async () => {
  assert.equal(await inChild(`return (await fetch(process.env.SANDBAR_URL + "/plain")).text();`, url), "GET /plain - ");
});

test("an unreachable server is an error that names it, never the vendor", async () => {
  const gone = "http://127.0.0.1:9";
  const message = await inChild(`return (${errorOf})(fetch("https://vercel.com/api/v2/sandboxes"));`, gone);
  assert.match(message, /SANDBAR_URL=http:\/\/127\.0\.0\.1:9/);
});

test("without SANDBAR_URL nothing leaves", async () => {
  const message = await inChild(`return (${errorOf})(fetch("https://vercel.com/api/v2/sandboxes"));`, "");
  assert.match(message, /SANDBAR_URL is not set/);
});

test("a redirect cannot lead back to the vendor", async () => {
  const message = await inChild(`return (${errorOf})(fetch("https://vercel.com/api/back"));`, url);
  assert.notEqual(message, "reached");
});

test("every other way to the vendor's hosts is refused, and telemetry goes nowhere", async () => {
  const got = await inChild(`
    const https = (await import("node:https")).default, tls = (await import("node:tls")).default;
    const failure = (emitter) => new Promise((r) => { emitter.on("error", (e) => r(e.message)); emitter.on("response", () => r("reached")); emitter.on("secureConnect", () => r("reached")); });
    return [
      await (${errorOf})(fetch("https://www.vercel.run/")),
      await (${errorOf})(fetch("https://oidc.vercel.com/token")),
      await failure(https.get("https://vercel.com/")),
      await failure(https.get({ host: "API.Vercel.Com.", path: "/" })),
      await failure(tls.connect({ host: "telemetry.vercel.com", port: 443 })),
      (await fetch("https://telemetry.vercel.com/api", { method: "POST", body: "x" })).status,
    ];`, url);
  assert.equal(got.pop(), 204);
  for (const message of got) assert.match(message, /is not contacted from here/);
});

test("a CommonJS program has everything that its `require` has without the preload", () => {
  const dir = mkdtempSync(join(tmpdir(), "sandbar-register-"));
  try {
    writeFileSync(join(dir, "other.cjs"), "module.exports = typeof require.extensions;");
    writeFileSync(join(dir, "main.cjs"), "console.log(typeof require.extensions['.js'], require.main === module, require('./other.cjs'));");
    const out = execFileSync(process.execPath, [`--import=${preload}`, join(dir, "main.cjs")], { env: { ...process.env, NODE_OPTIONS: "", SANDBAR_URL: url }, encoding: "utf8" });
    assert.equal(out, "function true object\n");
  } finally {
    rmSync(dir, { recursive: true });
  }
});
