// A header that the proxy puts in is nowhere else: not in the machine, the data directory, the logs, answers of the API,
// process lists, snapshots or core dumps. Every place is searched with something that must be found there as well.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { readFile, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { apiError, sh, useSdk } from "../clients/sdk.mjs";
import { binary, until } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";

const world = await makeWorld();
// One that says back what it was sent, as some debugging services do, and one that breaks in the middle.
const port = await world.https((request, response) => {
  const { authorization } = request.headers;
  if (request.url === "/reflect") response.writeHead(302, { location: `https://x.test/?t=${encodeURIComponent(authorization)}`, "x-you-sent": authorization, "set-cookie": `a=${authorization.split(" ")[1]}` });
  if (request.url === "/nonsense") return response.socket.end(`HTTP/1.1 200 OK\r\n${authorization}\r\n\r\n`);
  if (request.url.includes(".git")) return response.writeHead(404).end();
  if (request.url === "/early") return response.socket.destroy();
  response.end(authorization === `Bearer ${canary}` ? "got it" : "no");
});
const canary = "canary-header-5d1f0e9b";
const password = "canary-password-77ab2c";
const marker = "marker-written-by-the-guest-0b";
const { Sandbox, credentials, sandbox, server } = await useSdk({ config: world.config("", "[disk]\npool_bytes = 1073741824\n") });
const policy = { allow: { "api.test": [{ match: { path: { startsWith: "/" } }, transform: [{ headers: { authorization: `Bearer ${canary}` } }] }], "open.test": [] } };
// As it would look if somebody had encoded it on the way.
const forms = (secret) => [secret, Buffer.from(secret).toString("hex"), encodeURIComponent(`Bearer ${secret}`),
  ...[0, 1, 2].map((shift) => Buffer.from("x".repeat(shift) + secret).toString("base64").slice(4, -4))];
const secrets = [...forms(canary), ...forms(password)];
const clean = (text, where) => { for (const form of secrets) assert.ok(!text.includes(form), `${where} has ${form}`); };
const query = "teamId=team_test&projectId=prj_test&project=prj_test";
const cli = (...args) => new Promise((done) => execFile(binary, args, { env: { ...process.env, SANDBAR_DATA: server.data, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token } },
  (error, stdout, stderr) => done({ code: error ? error.code : 0, text: stdout + stderr })));

const box = await sandbox({ name: "keeper", networkPolicy: policy, env: { MARK: marker } });
const use = async () => assert.equal((await sh(box, `curl -sS -m 20 https://api.test:${port}/`)).stdout, "got it");

test("the machine does not see it, nor does it come back", async () => {
  await use();
  assert.equal((await sh(box, `curl -sS -m 20 -H 'Authorization: Bearer mine' https://api.test:${port}/`)).stdout, "got it", "the guest's own is replaced");
  for (const path of ["/reflect", "/nonsense", "/early"]) {
    const got = await sh(box, `curl -sSi -m 20 https://api.test:${port}${path}`);
    assert.match(got.stdout, /^HTTP\/1\.1 (302|502)/, path);
    clean(got.stdout, path);
  }
  // As root: every file, every process's environment, arguments and memory that can be read.
  await sh(box, `echo ${marker} > /tmp/mark`);
  const search = (what) => sh(box, `sudo grep -rlaF -e ${what} / --exclude-dir=proc --exclude-dir=sys 2>/dev/null; sudo sh -c 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps /proc/net/* /proc/mounts 2>/dev/null' | tr '\\0' '\\n'`, { timeoutMs: 300_000 });
  // (The search's own arguments have what it looks for, so it looks for less.)
  const hidden = (secret) => `"$(echo ${Buffer.from(secret.slice(0, 13)).toString("base64")} | base64 -d)"`;
  const found = await search(hidden(marker));
  assert.ok(found.stdout.includes("/tmp/mark") && found.stdout.includes(marker), "the search works");
  const none = await search(hidden(canary));
  clean(none.stdout, "the machine");
  assert.ok(!none.stdout.split("\n").some((l) => l.startsWith("/") && !l.startsWith("/proc")  && /canary/.test(l)), none.stdout.slice(0, 500));
});

test("no answer of the API has it, no command of ours prints it", async () => {
  const { routes } = await server.call("GET", "/x/v1/routes");
  const session = box.currentSession().sessionId;
  const command = (await server.exec(session, "echo", ["hi"])).command.id;
  let answered = 0;
  for (const { pattern } of routes.filter((r) => r.method === "GET")) {
    for (const id of [session, "keeper"]) {
      const path = pattern.replace(/\{(cmd|command)[^}]*\}/, command).replace(/\{[^}]+\}/g, id);
      const response = await server.request("GET", `${path}?${query}&name=keeper&wait=false`, { signal: AbortSignal.timeout(20_000) });
      if (response.ok) answered++;
      clean(JSON.stringify([...response.headers]) + (await response.text().catch(() => "")), path);
    }
  }
  assert.ok(answered > 10, `only ${answered} routes answered`);
  for (const args of [["inspect", "keeper"], ["--json", "inspect", "keeper"], ["ps"], ["--json", "ps"], ["net", "log", "keeper"], ["net", "suggest", "keeper"], ["net", "test", "keeper", "deny-all"], ["doctor"]]) {
    clean((await cli(...args)).text, args.join(" "));
  }
  // Errors about a policy do not quote it.
  for (const rule of [{ transform: [{ headers: { "bad name": canary } }] }, { transform: [{ headers: { a: `${canary}\r\nx: y` } }] }, { transform: [{ headers: { a: [canary] } }] },
    { transform: [{ header: { a: canary } }] }, { forwardURL: `https://user:${canary}@proxy.test/` }, { response: { statusCode: 99, headers: { a: canary } } }]) {
    const response = await server.request("POST", `/v2/sandboxes/sessions/${session}/network-policy?${query}`, { body: { allow: { "api.test": [rule] } } });
    assert.equal(response.status, 400, JSON.stringify(rule));
    clean(await response.text(), JSON.stringify(rule));
  }
  const source = await apiError(sandbox({ source: { type: "git", url: `https://closed.test:${port}/none.git`, username: "robot", password } }));
  assert.equal(source.status, 400);
  clean(JSON.stringify(source.error.json ?? "") + source.message, "a source's error");
});

test("no process shows it", async () => {
  const processes = execFileSync("ps", ["axeww"], { encoding: "utf8", maxBuffer: 1 << 28 });
  assert.ok(processes.includes(server.data), "the server is in the list");
  clean(processes, "ps");
  const limits = await readFile(`/proc/${server.pid}/limits`, "utf8");
  assert.match(limits, /^Max core file size +0 +0 /m);
  // Not dumpable: what a process of another user has in /proc is root's then.
  const status = await readFile(`/proc/${server.pid}/status`, "utf8");
  assert.doesNotMatch(status, /^Uid:\t0\t/m);
  for (const file of ["environ", "mem", "maps"]) assert.equal((await stat(`/proc/${server.pid}/${file}`)).uid, 0, file);
});

async function searchData({ image = false } = {}) {
  clean(server.output, "the server's output");
  const found = [];
  for (const name of await readdir(server.data, { recursive: true })) {
    const path = join(server.data, name);
    if (!(await stat(path).catch(() => undefined))?.isFile()) continue;
    found.push(name);
    if (name === "store.img" && !image) continue; // large, and searched when it matters
    // grep reads files of any size; 1: not found.
    const args = ["-aqF", ...secrets.flatMap((s) => ["-e", s]), path];
    const code = await new Promise((done) => execFile("grep", args, { env: { ...process.env, LC_ALL: "C" } }, (e) => done(e ? e.code : 0)));
    assert.equal(code, 1, `${name} (exit code of grep)`);
  }
  return found;
}

test("nothing on the host's disk has it, while it runs, stopped, as a snapshot and after a crash", async () => {
  await use();
  const files = await searchData();
  for (const name of ["sandbar.db", "sandbar.db-wal", "store.img", "secrets.key", "log/spawner.log"]) assert.ok(files.includes(name), name);
  // Written to the disk by the guest: this is how a snapshot would have it.
  await sh(box, `for i in $(seq 4000); do echo ${marker} $i; done > big; sync big`);
  await box.stop();
  const image = join(server.data, "store.img");
  const onDisk = () => new Promise((done) => execFile("grep", ["-aqF", `${marker} 3999`, image], { env: { ...process.env, LC_ALL: "C" } }, (e) => done(!e)));
  await until(onDisk, "the guest's file is found in the image", 60);
  await searchData({ image: true });
  await use(); // resumed, with the same policy
  await server.crash();
  await searchData();
  await server.start();
  await use();
  // A fork has the settings of its source, and shows no more of them.
  const fork = await Sandbox.fork({ sourceSandbox: "keeper", name: "forked", ...credentials });
  try {
    assert.equal((await sh(fork, `curl -sS -m 20 https://api.test:${port}/`)).stdout, "got it");
    assert.notEqual((await sh(fork, `curl -sS -m 20 https://closed.test:${port}/`)).exitCode, 0);
    clean(JSON.stringify([fork.networkPolicy, await server.call("GET", `/v2/sandboxes/forked?${query}`)]), "a fork");
  } finally {
    await fork.delete();
  }
  await searchData();
  for (const name of ["secrets.key", "forward.key", "jwt.key", "token"]) assert.equal((await stat(join(server.data, name))).mode & 0o777, 0o600, name);
});
