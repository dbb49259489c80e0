// The facade: what it sends for each spelling (a recorder on loopback), and every spelling against a real server.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startServer } from "../tests/support/server.mjs";

const server = await startServer({ config: "[limits]\nmax_running = 64\n" });
process.env.SANDBAR_URL = server.url;
process.env.SANDBAR_TOKEN = server.token;
delete process.env.VERCEL_OIDC_TOKEN;
const { Sandbox, Snapshot, APIError } = await import("./index.mjs");

const made = [];
after(async () => {
  await Promise.allSettled(made.map((box) => box.delete()));
  await server.stop();
});
const number = () => Math.floor(Math.random() * 1e9);
async function sandbox(params = {}) {
  const box = await Sandbox.create({ runtime: "node24", network: { allow: [] }, ...params });
  made.push(box);
  return box;
}

// The body and headers with which a call arrives; the answer is an error, so that the call ends there.
async function sent(params, call = (p) => Sandbox.create(p)) {
  let seen;
  const recorder = http.createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      seen = { headers: request.headers, url: request.url, body: body ? JSON.parse(body) : undefined };
      response.writeHead(400, { "content-type": "application/json" }).end('{"error":{"code":"bad_request","message":"recorded"}}');
    });
  });
  await new Promise((done) => recorder.listen(0, "127.0.0.1", done));
  process.env.SANDBAR_URL = `http://127.0.0.1:${recorder.address().port}`;
  try {
    await assert.rejects(call(params), /recorded/);
  } finally {
    process.env.SANDBAR_URL = server.url;
    recorder.closeAllConnections();
    await new Promise((done) => recorder.close(done));
  }
  return seen;
}

test("other spellings arrive as the protocol's own", async () => {
  const ms = 1000 + (number() % 100_000);
  const { body, headers } = await sent({ apiKey: "key-1", idleTimeoutMs: ms, network: { allow: [] }, resources: { vcpu: 2 }, envs: { A: "b" } });
  assert.equal(headers.authorization, "Bearer key-1");
  assert.equal(body.__idleTimeoutMs, ms);
  assert.deepEqual(body.networkPolicy, { mode: "deny-all" });
  assert.deepEqual(body.resources, { vcpus: 2 });
  assert.deepEqual(body.env, { A: "b" });
  assert.deepEqual([body.network, body.apiKey, body.idleTimeoutMs], [undefined, undefined, undefined]);
});

test("isolation: short where it can be, because a get sends it in its query", async () => {
  const demand = async (isolation) => (await sent({ isolation })).body.__isolation;
  assert.equal(await demand(3), 3);
  assert.equal(await demand("gvisor"), "gvisor");
  assert.equal(await demand({ minClass: 2 }), 2);
  assert.equal(await demand({ engine: "gvisor" }), "gvisor");
  assert.deepEqual(await demand({ minClass: 2, engine: "gvisor" }), { minClass: 2, engine: "gvisor" });
  await assert.rejects(Sandbox.create({ isolation: { class: 3 } }), /minClass/);
  assert.equal((await sent({ nesting: true })).body.__nesting, true);
  const box = await sandbox();
  await assert.rejects(box.update({ isolation: 3 }), TypeError, "the official client would drop it");
});

test("network: what it becomes", async () => {
  const policy = async (network) => (await sent({ network })).body.networkPolicy;
  assert.deepEqual(await policy({ allow: ["a.example"] }), { allow: ["a.example"] });
  assert.deepEqual(await policy({ allow: {} }), { mode: "deny-all" });
  assert.deepEqual(await policy(false), { mode: "deny-all" });
  assert.deepEqual(await policy("none"), { mode: "deny-all" });
  assert.deepEqual(await policy("allow-all"), { mode: "allow-all" });
  assert.equal(await policy(undefined), undefined);
  const cidr = { allow: [], subnets: { allow: ["192.0.2.0/24"] } };
  assert.deepEqual(await policy(cidr), cidr, "not deny-all: addresses are allowed");
});

test("credentials: a token alone, the environment's, a key that is not set", async () => {
  assert.equal((await sent({ token: "tok" })).headers.authorization, "Bearer tok");
  assert.equal((await sent({})).headers.authorization, `Bearer ${server.token}`);
  assert.equal((await sent({ apiKey: undefined })).headers.authorization, `Bearer ${server.token}`);
  const jwt = `e30.${Buffer.from(JSON.stringify({ owner_id: "team_x", project_id: "prj_y" })).toString("base64url")}.sig`;
  const bound = await sent({ apiKey: jwt });
  assert.match(bound.url, /teamId=team_x/);
  assert.equal(bound.body.projectId, "prj_y");
});

test("an unknown option is an error that names the nearest one, before anything is sent", async () => {
  const cases = [
    [() => Sandbox.create({ networkPolcy: "deny-all" }), /Sandbox\.create: unknown option `networkPolcy`; did you mean `networkPolicy`\?/],
    [() => Sandbox.create({ timeOut: 5 }), /did you mean `timeout`\?/],
    [() => Sandbox.create({ resources: { vcpuz: 1 } }), /resources: unknown option `vcpuz`; did you mean `vcpus?`\?/],
    [() => Sandbox.create({ network: { alow: [] } }), /network policy: unknown option `alow`; did you mean `allow`\?/],
    [() => Sandbox.create({ network: "deny" }), /neither "deny-all" nor "allow-all"/],
    [() => Sandbox.create({ colour: "red" }), /unknown option `colour`; known are /],
    [() => Sandbox.create({ token: "a", apiKey: "b" }), /`apiKey` and `token` are the same option/],
    [() => Sandbox.get({ sandboxID: "x" }), /did you mean `sandboxId`\?/],
    [() => Sandbox.list({ limt: 3 }), /did you mean `limit`\?/],
  ];
  for (const [call, message] of cases) await assert.rejects(call, message);
  const box = await sandbox();
  await assert.rejects(box.exec({ cmd: ["true"], timoutMs: 1 }), /exec: unknown option `timoutMs`; did you mean `timeoutMs`\?/);
  await assert.rejects(box.exec({ cmd: [] }), /empty list/);
  await assert.rejects(box.commands.run({ comand: "ls" }), /did you mean `command`\?/);
  await assert.rejects(box.runCommand({ cmd: "ls", arg: [] }), /did you mean `args`\?/);
  await assert.rejects(box.update({ timeouts: 5 }), /did you mean `timeout`\?/);
  await assert.rejects(box.writeFile("x", 7), /content of x must be a string/);
});

test("exec: a list, a line, options; a failure is a result", async () => {
  const box = await sandbox();
  const [a, b] = [number(), number()];
  const listed = await box.exec({ cmd: ["node", "-e", `console.log(${a} + ${b}); console.error("hm"); process.exit(3)`], timeoutMs: 60_000 });
  assert.deepEqual([listed.exitCode, listed.stdout, listed.stderr], [3, `${a + b}\n`, "hm\n"]);
  assert.equal((await box.exec(`echo $((${a} - ${b})) | cat`)).stdout, `${a - b}\n`);
  assert.equal((await box.exec("echo", ["$HOME"])).stdout, "$HOME\n");
  assert.equal((await box.exec("pwd; echo $V", { cwd: "/usr", env: { V: String(a) } })).stdout, `/usr\n${a}\n`);
  const slow = await box.exec({ cmd: ["sleep", "1000"], timeoutMs: 300 });
  assert.equal(slow.exitCode, 137);
  const detached = await box.exec({ cmd: ["sh", "-c", "exit 4"], detached: true });
  assert.equal((await detached.wait()).exitCode, 4);
});

test("commands.run and files.*", async () => {
  const box = await sandbox({ runtime: "python3.13" });
  const [a, b] = [number(), number()];
  await box.files.write({ path: "src/sum.py", content: `import sys\nprint(${a} + int(sys.argv[1]))\n` });
  const run = await box.commands.run({ command: `python src/sum.py ${b} | tee out.txt`, timeout: 60_000 });
  assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, `${a + b}\n`, ""]);
  assert.equal(await box.files.read({ path: "out.txt" }), run.stdout);
  assert.equal(await box.files.read("out.txt"), run.stdout);
  await box.files.write([{ path: "l/1", data: "one" }, { path: "l/2", content: Buffer.from("two") }]);
  assert.deepEqual((await box.files.list("l")).sort(), ["1", "2"]);
  assert.equal(await box.files.exists("l/2"), true);
  await box.files.remove("l/2");
  assert.equal(await box.files.exists("l/2"), false);
  await assert.rejects(box.files.read("l/2"), { code: "ENOENT" });
  await box.writeFile("note.txt", "text");
  assert.equal(await box.readFile("note.txt"), "text");
  assert.equal((await box.readFileToBuffer({ path: "note.txt" })).toString(), "text");
  const dir = await mkdtemp(join(tmpdir(), "sandbar-facade-"));
  try {
    await box.downloadFile("note.txt", join(dir, "here.txt"));
    assert.equal(await readFile(join(dir, "here.txt"), "utf8"), "text");
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("network: { allow: [] } really is offline, also when it is set later", async () => {
  const box = await sandbox();
  assert.equal(box.networkPolicy, "deny-all");
  const probe = { cmd: ["node", "-e", "fetch('http://192.0.2.1/').then((r) => console.log(r.status), () => console.log('no way'))"] };
  assert.match((await box.exec(probe)).stdout, /^(403|no way)\n$/);
  await box.updateNetworkPolicy({ allow: ["a.example"] });
  assert.deepEqual(await box.updateNetworkPolicy({ allow: [] }), "deny-all");
});

test("handles: sandboxId, get by id or name, list, close, getOrCreate with hooks", async () => {
  const box = await sandbox();
  assert.equal(box.sandboxId, box.name);
  const [byId, byName] = [await Sandbox.get({ sandboxId: box.sandboxId }), await Sandbox.get(box.name)];
  for (const again of [byId, byName]) assert.equal((await again.exec("echo here")).stdout, "here\n");
  const { sandboxes } = await Sandbox.list({ limit: 50 });
  assert.ok(sandboxes.some((s) => s.name === box.name));
  await box.close();
  assert.equal(box.status, "stopped");
  assert.equal(typeof box.networkUsage?.egress, "number");

  const name = `warm-${number()}`;
  const calls = [];
  const params = {
    name, runtime: "node24", network: false,
    onCreate: async (s) => {
      await s.writeFile("seed.txt", name);
      await s.snapshot();
      calls.push("create");
    },
    onResume: async (s) => void calls.push(`resume ${(await s.exec("cat seed.txt")).stdout}`),
  };
  for (let i = 0; i < 2; i++) {
    const warm = await Sandbox.getOrCreate(params);
    assert.equal((await warm.exec("cat seed.txt")).stdout, name);
    await warm.close();
  }
  made.push(await Sandbox.get(name));
  assert.equal(calls[0], "create");
  assert.ok(calls.includes(`resume ${name}`), String(calls));
  assert.equal(calls.filter((c) => c === "create").length, 1);
});

test("snapshots with a token alone", async () => {
  const box = await sandbox();
  await box.writeFile("kept.txt", box.name);
  const snapshot = await box.snapshot({ expiration: 86_400_000 });
  const { snapshots } = await Snapshot.list();
  assert.ok(snapshots.some((s) => s.id === snapshot.snapshotId));
  const copy = await sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId: snapshot.snapshotId } });
  assert.equal(await copy.files.read("kept.txt"), box.name);
  await (await Snapshot.get({ snapshotId: snapshot.snapshotId })).delete();
});

test("domain() leads to a server in the sandbox", async () => {
  const box = await sandbox({ ports: [3000] });
  const secret = String(number());
  await box.writeFile("server.mjs", `import http from "node:http"; http.createServer((q, r) => r.end("${secret}")).listen(3000, () => console.log("up"))`);
  const running = await box.exec({ cmd: ["node", "server.mjs"], detached: true });
  for await (const line of running.logs()) if (line.data.includes("up")) break;
  assert.equal(await (await fetch(box.domain(3000))).text(), secret);
  assert.throws(() => box.domain(4000), /No route for port 4000; publish it at create/);
});

test("runCode: variables live on, errors are results, events come one by one", async () => {
  const box = await sandbox({ runtime: "python3.13" });
  const [a, b] = [number(), number()];
  assert.equal((await box.runCode(`x = ${a}`)).status, "ok");
  const types = [];
  const sum = await box.runCode(`print("hi")\nx + ${b}`, { onEvent: (event) => types.push(event.type) });
  assert.deepEqual([sum.status, sum.text, sum.stdout, sum.executionCount], ["ok", String(a + b), "hi\n", 2]);
  assert.deepEqual([types[0], types.at(-1)], ["started", "end"]);
  const wrong = await box.runCode({ code: "nope", language: "python" });
  assert.deepEqual([wrong.status, wrong.error.name], ["error", "NameError"]);
  await assert.rejects(box.runCode("1", { langauge: "python" }), /did you mean `language`\?/);
  await assert.rejects(box.runCode("1", { context: "none-such" }), (error) => error instanceof APIError && error.response.status === 404);
});

test("an API error is the official one", async () => {
  await assert.rejects(Sandbox.get("nobody-has-this"), (error) => error instanceof APIError && error.response.status === 404);
});

// Programs as they are found: they import the official name and know nothing of us.
async function program(source, { aliases = true, env = {}, name = "main.mjs" } = {}) {
  const dir = await mkdtemp(join(fileURLToPath(new URL(".", import.meta.url)), "node_modules/.program-"));
  try {
    await writeFile(join(dir, name), source);
    const child = spawn(process.execPath, [`--import=${new URL("register.mjs", import.meta.url).href}`, join(dir, name)], {
      env: { PATH: process.env.PATH, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token, ...(aliases && { SANDBAR_ALIASES: "1" }), ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let [out, err] = ["", ""];
    child.stdout.on("data", (d) => (out += d));
    child.stderr.on("data", (d) => (err += d));
    const code = await new Promise((done) => child.on("close", done));
    assert.equal(code, 0, err);
    return out;
  } finally {
    await rm(dir, { recursive: true });
  }
}

test("a program that imports the official name gets the spellings from the hook", async () => {
  const [a, b] = [number(), number()];
  const out = await program(`
    import { Sandbox } from "@vercel/sandbox";
    class Notebook {
      async open() { this.box = await Sandbox.create({ runtime: "python3.13", idleTimeoutMs: 10 * 60_000, network: { allow: [] } }); }
      put(path, body) { return this.box.writeFile(path, body); }
      run(cmd) { return this.box.exec({ cmd, timeoutMs: 60_000 }); }
      close() { return this.box.close(); }
    }
    const book = new Notebook();
    await book.open();
    try {
      await book.put("data.json", "[${a}, ${b}]");
      const result = await book.run(["python", "-c", "import json; print(sum(json.load(open('data.json'))))"]);
      process.stdout.write(result.stdout + result.exitCode);
    } finally {
      await book.close();
    }`);
  assert.equal(out, `${a + b}\n0`);
});

test("the same with a key option and grouped methods", async () => {
  const a = number();
  const out = await program(`
    import { Sandbox } from "@vercel/sandbox";
    const box = await Sandbox.create({ apiKey: process.env.VERCEL_SANDBOX_API_KEY });
    try {
      await box.files.write({ path: "index.js", content: "console.log(${a} * 2)" });
      const { stdout, stderr, exitCode } = await box.commands.run({ command: "node index.js > report.txt && cat report.txt", timeout: 60_000 });
      console.log(JSON.stringify({ stdout, stderr, exitCode, report: await box.files.read({ path: "report.txt" }) }));
    } finally {
      await box.close();
    }`, { env: { VERCEL_SANDBOX_API_KEY: server.token, SANDBAR_TOKEN: "" } });
  assert.deepEqual(JSON.parse(out), { stdout: `${a * 2}\n`, stderr: "", exitCode: 0, report: `${a * 2}\n` });
});

test("official spellings in one long program", async () => {
  const a = number();
  const out = await program(`
    import { Sandbox, Snapshot } from "@vercel/sandbox";
    const say = (...words) => console.log(JSON.stringify(words));
    const box = await Sandbox.create({ runtime: "node24", timeout: 120_000, networkPolicy: "deny-all", ports: [3000], resources: { vcpu: 1 }, env: { WHO: "sandbox" } });
    const run = await box.runCommand("node", ["-e", "console.log(${a} + 1)"]);
    say(run.exitCode, await run.stdout());
    await box.mkDir("app");
    const own = await box.runCommand({ cmd: "sh", args: ["-c", "pwd; echo $WHO; id -u"], cwd: box.cwd + "/app", env: { WHO: "command" }, sudo: true });
    say(await own.stdout());
    const cmd = await box.runCommand({ cmd: "sh", args: ["-c", "echo out; echo err >&2"], detached: true });
    const seen = [];
    for await (const log of cmd.logs()) seen.push(log.stream + ":" + log.data);
    await cmd.wait();
    say(seen.sort());
    await box.writeFiles([{ path: "app.js", content: Buffer.from("x") }, { path: "b/package.json", content: Buffer.from("{}") }]);
    say((await box.readFileToBuffer({ path: "app.js" })).toString(), (await box.readFile({ path: "app.js" })) !== null);
    await box.updateNetworkPolicy({ allow: ["api.example", "*.example.com"] });
    await box.updateNetworkPolicy({ allow: { "api.example": [{ transform: [{ headers: { "x-api-key": "k" } }] }] } });
    await box.updateNetworkPolicy("deny-all");
    await box.extendTimeout(60_000);
    say(new URL(box.domain(3000)).protocol, box.status);
    const again = await Sandbox.get({ sandboxId: box.sandboxId });
    say(again.name === box.name);
    const snapshot = await box.snapshot({ expiration: 86400_000 });
    const { snapshots } = await Snapshot.list();
    say(snapshots.some((s) => s.id === snapshot.snapshotId));
    const next = await Sandbox.create({ source: { type: "snapshot", snapshotId: snapshot.snapshotId }, networkPolicy: "deny-all" });
    say((await next.readFileToBuffer({ path: "app.js" })).toString());
    await next.stop();
    say(next.status, typeof next.activeCpuUsageMs, typeof next.networkUsage.ingress);
    await (await Snapshot.get({ snapshotId: snapshot.snapshotId })).delete();
    await next.delete(); await box.delete();`);
  assert.deepEqual(out.trim().split("\n").map((l) => JSON.parse(l)), [
    [0, `${a + 1}\n`], ["/vercel/sandbox/app\ncommand\n0\n"], [["stderr:err\n", "stdout:out\n"]], ["x", true], ["http:", "running"], [true], [true], ["x"],
    ["stopped", "number", "number"],
  ]);
});

test("the same for programs that say require()", async () => {
  const a = number();
  const out = await program(`
    const { Sandbox, APIError } = require("@vercel/sandbox");
    (async () => {
      const box = await Sandbox.create({ runtime: "node24", network: { allow: [] }, ports: [3000] });
      try {
        const { stdout } = await box.exec({ cmd: ["node", "-p", "${a} + 1"] });
        const error = await Sandbox.get("nobody-has-this").catch((e) => e);
        console.log(stdout.trim(), error instanceof APIError, require("@vercel/sandbox").Sandbox === Sandbox, new URL(box.domain(3000)).protocol);
        await Sandbox.create({ netwrk: {} }).catch((e) => console.log(e.message));
      } finally {
        await box.close();
      }
    })();`, { name: "main.cjs" });
  assert.equal(out, `${a + 1} true true http:\nSandbox.create: unknown option \`netwrk\`; did you mean \`network\`? (the official client would drop it without a word)\n`);
});

test("without the switch the official package stays what it is", async () => {
  const out = await program(`import { Sandbox } from "@vercel/sandbox"; console.log(typeof Sandbox.prototype.exec);`, { aliases: false });
  assert.equal(out, "undefined\n");
});

test("the package has every file that it needs, for import and require", async (t) => {
  const here = new URL(".", import.meta.url).pathname;
  const { files, exports } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
  const home = await mkdtemp(join(tmpdir(), "sandbar-package-"));
  t.after(() => rm(home, { recursive: true }));
  const installed = join(home, "node_modules/sandbar");
  await mkdir(installed, { recursive: true });
  for (const file of [...files, "package.json"]) await cp(join(here, file), join(installed, file));
  await symlink(join(here, "node_modules/@vercel"), join(home, "node_modules/@vercel"));
  const list = "console.log(typeof Sandbox.create, typeof Sandbox.prototype.exec)";
  await writeFile(join(home, "a.mjs"), `import { Sandbox } from "sandbar"; import "sandbar/eval"; ${list}`);
  await writeFile(join(home, "b.cjs"), `const { Sandbox } = require("sandbar"); ${list}`);
  const env = { ...process.env, SANDBAR_URL: "http://127.0.0.1:9", SANDBAR_TOKEN: "t" };
  for (const program of ["a.mjs", "b.cjs"]) {
    const { stdout } = await promisify(execFile)(process.execPath, [join(home, program)], { env });
    assert.equal(stdout, "function function\n", program);
  }
  for (const target of Object.values(exports).flatMap((e) => (typeof e === "string" ? [e] : Object.values(e))))
    assert.ok([...files, "package.json"].includes(target.slice(2)), target);
});
