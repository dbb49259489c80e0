// A real Next.js app, built and started, asked with curl. Its agent runs what the scripted model writes in sandboxes.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { freePort, startServer, until } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";
import { scriptedModel } from "./model.mjs";
import { environment, examples, hostSecret, node, nothingRuns, number } from "./run.mjs";

const run = promisify(execFile);
const app = join(examples, "next-app");
const next = join(app, "node_modules/next/dist/bin/next");
const world = await makeWorld();
const server = await startServer({ config: world.config("", "[limits]\nmax_running = 32\n") });
const scripts = new Map(); // by prompt
const model = await scriptedModel((conversation) => scripts.get(conversation.prompt)(conversation));
let url, started, log = "";

// A registry with one package, whose answer is new in every run.
const factor = number();
const packed = await mkdtemp(join(tmpdir(), "sandbar-registry-"));
await mkdir(join(packed, "package"));
await writeFile(join(packed, "package/package.json"), JSON.stringify({ name: "tiny-times", version: "1.0.0", main: "index.js" }));
await writeFile(join(packed, "package/index.js"), `module.exports = (n) => n * ${factor};\n`);
await run("tar", ["-czf", "p.tgz", "package"], { cwd: packed });
const tarball = await readFile(join(packed, "p.tgz"));
const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`;
const registry = await world.http((request, response) => {
  if (request.url === "/p.tgz") return response.end(tarball);
  if (request.url !== "/tiny-times") return response.writeHead(404, { "content-type": "application/json" }).end("{}");
  const dist = { tarball: `http://registry.test:${registry}/p.tgz`, integrity };
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ name: "tiny-times", "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": { name: "tiny-times", version: "1.0.0", main: "index.js", dist } } }));
});

// Every file of the app but what the build made and npm installed.
async function hashes(dir = app) {
  const out = {};
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.name === "node_modules" || entry.name === ".next") continue;
    if (entry.isDirectory()) Object.assign(out, await hashes(path));
    else out[path] = createHash("sha256").update(await readFile(path)).digest("hex");
  }
  return out;
}

async function curl(body) {
  const { stdout } = await run("curl", ["-sS", "-X", "POST", "-H", "content-type: application/json", "-d", body, "-w", "\n%{http_code}", `${url}/api/agent`]);
  const [text, status] = [stdout.slice(0, stdout.lastIndexOf("\n")), Number(stdout.slice(stdout.lastIndexOf("\n") + 1))];
  return { status, answer: JSON.parse(text) };
}

// Asks with a script of its own and waits until after() has cleaned up.
async function ask(prompt, script) {
  scripts.set(prompt, script);
  const before_ = await server.call("GET", "/v2/sandboxes?limit=50");
  const { status, answer } = await curl(JSON.stringify({ prompt }));
  assert.deepEqual(model.failures, []);
  assert.equal(status, 200, JSON.stringify(answer) + log);
  await until(() => nothingRuns(server).then(() => true, () => false), "after() stops the sandbox");
  const now = await server.call("GET", "/v2/sandboxes?limit=50");
  assert.equal(now.sandboxes.length, before_.sandboxes.length + 1, "one sandbox per request");
  return answer.text;
}

const call = (code, packages) => ({ calls: [{ name: "runJavaScript", input: { code, ...(packages && { packages }) } }] });

before(async () => {
  const lines = await (await server.request("GET", "/sdk/env.sh")).text();
  const env = environment(server, model, {
    HOME: packed, NEXT_TELEMETRY_DISABLED: "1", NODE_ENV: "production", SANDBOX_REGISTRY: `http://registry.test:${registry}`,
    VERCEL_OIDC_TOKEN: /VERCEL_OIDC_TOKEN='([^']+)'/.exec(lines)[1],
    NODE_OPTIONS: `--import=${new URL("../../sdk/register.mjs", import.meta.url).href}`,
    PATH: `${dirname(node)}:${process.env.PATH}`,
  });
  await run(node, [next, "build"], { cwd: app, env, maxBuffer: 64 << 20 }).catch((error) => assert.fail(error.stdout + error.stderr));
  const port = await freePort();
  started = spawn(node, [next, "start", "-H", "127.0.0.1", "-p", String(port)], { cwd: app, env, stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [started.stdout, started.stderr]) stream.on("data", (d) => (log += d));
  url = `http://127.0.0.1:${port}`;
  await until(() => fetch(url).then((r) => r.ok, () => { assert.equal(started.exitCode, null, log); return false; }), "next answers");
});
after(async () => {
  if (started) {
    started.kill("SIGTERM");
    await new Promise((done) => (started.exitCode !== null || started.signalCode ? done() : started.once("exit", done)));
  }
  await server.stop();
  await rm(packed, { recursive: true, force: true });
  await rm(join(app, "tmp"), { recursive: true, force: true });
});

test("compute", async () => {
  const [a, b] = [number(), number()];
  const text = await ask(`what is ${a} times ${b}?`, ({ results, last, tools }) => {
    assert.deepEqual(tools, ["runJavaScript"]);
    return results.length === 0 ? call(`console.log(${a} * ${b})`) : { text: `It is ${JSON.parse(last).stdout.trim()}.` };
  });
  assert.equal(text, `It is ${a * b}.`);
});

test("a package is installed first, and one that does not exist is told", async () => {
  const n = number(1000);
  const text = await ask(`times of ${n}`, ({ results, last }) => {
    if (results.length === 0) return call("console.log(1)", ["no-such-package-here"]);
    if (results.length === 1) {
      const { exitCode, stderr } = JSON.parse(last);
      assert.notEqual(exitCode, 0);
      assert.match(stderr, /404/);
      return call(`console.log(require("tiny-times")(${n}))`, ["tiny-times"]);
    }
    const { exitCode, stdout, stderr } = JSON.parse(last);
    assert.equal(exitCode, 0, stderr);
    return { text: stdout.trim() };
  });
  assert.equal(text, String(n * factor));
});

test("deleting ./tmp deletes the sandbox's, not the app's", async () => {
  await mkdir(join(app, "tmp"), { recursive: true });
  await writeFile(join(app, "tmp/keep.txt"), String(number()));
  const before_ = await hashes();
  assert.ok(Object.keys(before_).some((path) => path.endsWith("tmp/keep.txt")));
  const code = `const fs = require("fs"); fs.mkdirSync("tmp", { recursive: true }); fs.writeFileSync("tmp/x", "");
    fs.rmSync("./tmp", { recursive: true }); console.log(fs.existsSync("./tmp"), process.cwd());
    try { fs.rmSync(${JSON.stringify(app)}, { recursive: true }); } catch (error) { console.log(error.code); }`;
  const text = await ask("delete the ./tmp folder", ({ results, last }) => (results.length === 0 ? call(code) : { text: JSON.parse(last).stdout }));
  // EACCES where the app is below a directory that exists in the guest, too, and is closed there, such as /root.
  assert.match(text, /^false \/vercel\/sandbox\n(ENOENT|EACCES)\n$/);
  assert.deepEqual(await hashes(), before_);
});

test("the environment is the sandbox's, without a secret of the host", async () => {
  const text = await ask("print process.env", ({ results, last }) => (results.length === 0 ? call("console.log(JSON.stringify(process.env))") : { text: JSON.parse(last).stdout }));
  const seen = JSON.parse(text);
  assert.ok(seen.PATH && seen.HOME);
  assert.ok(!text.includes(hostSecret) && !text.includes(server.token));
  for (const name of ["HOST_SECRET", "OPENAI_API_KEY", "SANDBAR_TOKEN", "VERCEL_OIDC_TOKEN"]) assert.ok(!(name in seen), name);
});

test("an invalid body is a 400, and no sandbox is made for it", async () => {
  const before_ = await server.call("GET", "/v2/sandboxes?limit=50");
  for (const body of ['{"prompt":""}', "{}", '{"prompt":7}', "not json", JSON.stringify({ prompt: "x".repeat(10_001) })]) {
    const { status, answer } = await curl(body);
    assert.equal(status, 400, body.slice(0, 40));
    assert.match(answer.error, /Expected/);
  }
  assert.equal((await server.call("GET", "/v2/sandboxes?limit=50")).sandboxes.length, before_.sandboxes.length);
});

test("a model that fails is an error, and the sandbox is cleaned up all the same", async () => {
  scripts.set("break", () => ({ calls: Array.from({ length: 1 }, () => ({ name: "runJavaScript", input: { code: "1" } })) }));
  const { status, answer } = await curl(JSON.stringify({ prompt: "break" }));
  assert.equal(status, 502);
  assert.match(answer.error, /No answer/);
  await until(() => nothingRuns(server).then(() => true, () => false), "after() stops the sandbox");
});
