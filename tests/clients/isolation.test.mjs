// Isolation classes: a caller gets the class that it demands, or a higher one, or an error that says what is missing.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { binary, startServer } from "../support/server.mjs";
import { apiError, sh, useSdk } from "./sdk.mjs";

// The default engine is namespaces here, whatever the suite's switch says: the other classes are demanded.
const { Sandbox, sandbox, credentials, server } = await useSdk({ config: 'isolation = "namespaces"\n[limits]\nmax_running = 64\n' });
const { engines } = await server.call("GET", "/x/v1/info");
const usable = engines.filter((e) => e.usable);
const highest = Math.max(...usable.map((e) => e.class));
const known = (name) => engines.find((e) => e.name === name);
const view = (name) => server.call("GET", `/v2/sandboxes/${name}?teamId=team_test&projectId=prj_test`);
const scratch = await mkdtemp(join(tmpdir(), "sandbar-isolation-"));
await chmod(scratch, 0o755); // a server has its data in it
after(() => rm(scratch, { recursive: true, force: true }));

const cli = (...args) =>
  new Promise((done) => {
    const env = { ...process.env, SANDBAR_DATA: server.data };
    delete env.SANDBAR_URL;
    delete env.SANDBAR_TOKEN;
    execFile(binary, args, { env }, (error, stdout, stderr) => done({ code: error?.code ?? 0, stdout, stderr })).stdin.end();
  });

test("the server says what it has, and why not what it has not", () => {
  const { whyNoNesting, ...namespaces } = known("namespaces");
  assert.deepEqual(namespaces, { name: "namespaces", class: 1, usable: true, nesting: false });
  assert.match(whyNoNesting, /allow_nesting_on_class1/);
  assert.match(server.output, /engine namespaces \(class 1: shares the host's kernel\)/);
  for (const e of engines) {
    assert.equal(!e.usable, Boolean(e.whyNot), `${e.name}: a reason, if and only if it cannot be used`);
    if (e.usable && e.name !== "namespaces") assert.match(server.output, new RegExp(`on demand: engine ${e.name} \\(class ${e.class}\\)`));
  }
});

for (const { name, class: rung } of usable) {
  test(`${name}: demanded through the SDK, said everywhere, kept over a stop and by forks`, async () => {
    const box = await sandbox({ __isolation: { engine: name, minClass: rung }, persistent: true });
    assert.equal((await sh(box, "echo $((6*7))")).stdout, "42\n");
    const said = await view(box.name);
    assert.deepEqual(said.session.isolation, { engine: name, class: rung });
    assert.deepEqual(said.sandbox.isolation, { engine: name, class: rung, demand: { minClass: rung, engine: name } });
    await box.stop({ blocking: true });
    const back = await Sandbox.get({ name: box.name, resume: true, ...credentials });
    assert.equal((await sh(back, "echo again")).stdout, "again\n");
    assert.deepEqual((await view(box.name)).session.isolation, { engine: name, class: rung });
    const fork = await Sandbox.fork({ sourceSandbox: box.name, ...credentials });
    try {
      assert.deepEqual((await view(fork.name)).sandbox.isolation, said.sandbox.isolation);
    } finally {
      await fork.delete();
    }
  });

  test(`${name}: minClass ${rung} is met by it or by more`, async () => {
    const box = await sandbox({ __isolation: { minClass: rung } });
    const { isolation } = (await view(box.name)).session;
    assert.ok(isolation.class >= rung && known(isolation.engine).usable, JSON.stringify(isolation));
  });

  test(`${name}: on the command line`, async () => {
    const ran = await cli("run", "--keep", "--name", `cli-${name}`, "--isolation", name, "--min-class", String(rung), "--", "echo", "there");
    assert.equal(ran.stdout, "there\n", ran.stderr);
    assert.match(ran.stderr, new RegExp(`class ${rung} \\(${name}, `));
    const row = (await cli("ps")).stdout.split("\n").find((line) => line.startsWith(`cli-${name}`));
    assert.match(row, new RegExp(` ${rung} ${name} `));
    const inspected = JSON.parse((await cli("inspect", `cli-${name}`)).stdout);
    assert.deepEqual(inspected.isolation, { engine: name, class: rung });
    assert.deepEqual(inspected.sandbox.isolation.demand, { engine: name, minClass: rung });
    assert.equal((await cli("rm", `cli-${name}`)).code, 0);
  });
}

test("the tag demands a class", async () => {
  const box = await sandbox({ tags: { "sandbar:min-isolation": String(highest) } });
  const said = await view(box.name);
  assert.ok(said.session.isolation.class >= highest);
  assert.deepEqual(said.sandbox.isolation.demand, { minClass: highest });
  const wrong = await apiError(sandbox({ tags: { "sandbar:min-isolation": "high" } }));
  assert.equal(wrong.status, 400);
  assert.match(wrong.message, /sandbar:min-isolation/);
});

test("what is not there is refused with what is missing, and nothing is left", { skip: highest === 3 && "this host has everything" }, async () => {
  for (const params of [{ __isolation: { minClass: 3 } }, { __isolation: 3 }, { tags: { "sandbar:min-isolation": "3" } }]) {
    const refused = await apiError(sandbox({ name: "never", ...params }));
    assert.equal(refused.status, 422, refused.message);
    assert.equal(refused.code, "unsupported");
    for (const e of engines.filter((x) => x.class >= 3)) assert.ok(refused.message.includes(e.whyNot), refused.message);
    // An emulator is no boundary, however much it looks like a virtual machine from inside.
    if (known("microvm-emulated")?.usable) assert.match(refused.message, /allow_tcg_as_class3/);
  }
  for (const e of engines.filter((x) => !x.usable)) {
    const refused = await apiError(sandbox({ name: "never", __isolation: { engine: e.name } }));
    assert.equal(refused.status, 422);
    assert.ok(refused.message.includes(e.whyNot), refused.message);
  }
  await assert.rejects(view("never"), { status: 404 });
  const ran = await cli("run", "--min-class", "3", "--", "true");
  assert.equal(ran.code, 125);
  assert.match(ran.stderr, /class 3/);
});

test("values that mean nothing are a 400 that names the field", async () => {
  for (const [isolation, field] of [[{ minClass: 4 }, "isolation.minClass"], [{ minClass: "3" }, "isolation.minClass"], [{ engine: "xen" }, "isolation.engine"],
    [{ class: 3 }, "isolation.class"], [0, "isolation"], [true, "isolation"]]) {
    const wrong = await apiError(sandbox({ __isolation: isolation }));
    assert.equal(wrong.status, 400, JSON.stringify(isolation));
    assert.ok(wrong.message.includes(field), wrong.message);
  }
  assert.equal((await cli("run", "--min-class", "7", "--", "true")).code, 2);
});

test("a demand is raised, never lowered, and never on a running machine", { skip: highest === 1 && "one class only" }, async () => {
  const box = await sandbox({ persistent: true });
  const patch = (body) => server.call("PATCH", `/v2/sandboxes/${box.name}?teamId=team_test&projectId=prj_test`, { body });
  await assert.rejects(patch({ isolation: { minClass: highest } }), { status: 409 });
  await box.stop({ blocking: true });
  const raised = await patch({ isolation: { minClass: 2 } }).catch((e) => e);
  // A snapshot of one format does not start on the engines of the other.
  if (raised.status) return assert.equal(raised.status, 409);
  await patch({ tags: {} });
  await Sandbox.get({ name: box.name, resume: true, ...credentials });
  assert.ok((await view(box.name)).session.isolation.class >= 2);
});

test("getOrCreate: what exists has to have what is demanded", async () => {
  const name = "isolation-goc";
  const first = await Sandbox.getOrCreate({ name, runtime: "node24", __isolation: 1, ...credentials });
  const again = await Sandbox.getOrCreate({ name, runtime: "node24", __isolation: 1, ...credentials });
  assert.equal(again.name, first.name);
  const more = await apiError(Sandbox.getOrCreate({ name, runtime: "node24", __isolation: 3, ...credentials }));
  assert.equal(more.status, 409);
  // As an object the demand is lost in the client's query: refused with the spelling that works.
  const lost = await apiError(Sandbox.getOrCreate({ name, runtime: "node24", __isolation: { minClass: 1 }, ...credentials }));
  assert.equal(lost.status, 400);
  assert.match(lost.message, /__isolation: 3/);
  await first.delete();
});

test("a chosen default that cannot be used: the server does not start", async (t) => {
  const missing = engines.find((e) => !e.usable) ?? ["gvisor", "microvm"].map((name) => ({ name, whyNot: "there is no such engine here" })).find((e) => !known(e.name));
  if (!missing) return t.skip("this host has everything");
  await assert.rejects(startServer({ data: join(scratch, "refused"), config: `isolation = "${missing.name}"\n` }), (error) => {
    assert.ok(error.message.includes(missing.whyNot), error.message);
    assert.match(error.message, new RegExp(`isolation = \\\\?"${missing.name}`));
    return true;
  });
});

test("the operator may count emulation as class 3, and may take that back", { skip: !known("microvm-emulated")?.usable && "no emulated microVM here" }, async () => {
  const data = join(scratch, "tcg");
  let other = await startServer({ data, config: 'isolation = "namespaces"\nallow_tcg_as_class3 = true\n' });
  try {
    const made = await other.create({ name: "vm", persistent: true, isolation: { minClass: 3 } });
    assert.deepEqual(made.session.isolation, { engine: "microvm-emulated", class: 3 });
    await other.call("POST", `/v2/sandboxes/sessions/${made.session.id}/stop`);
    await other.stop({ keepData: true });
    other = await startServer({ data, config: 'isolation = "namespaces"\n' });
    await assert.rejects(other.call("GET", "/v2/sandboxes/vm?projectId=prj_test&resume=true"), { status: 422 });
  } finally {
    await other.stop();
  }
});

test("doctor runs something in every engine", async () => {
  const report = JSON.parse((await cli("doctor", "--json")).stdout);
  for (const e of engines) {
    const finding = report.findings.find((f) => f.name === `engine ${e.name}`);
    assert.equal(finding.verdict, e.usable ? "ok" : "warn", JSON.stringify(finding));
    assert.ok(finding.detail.includes(e.usable ? "ran `true`" : e.whyNot), finding.detail);
    assert.ok(finding.detail.includes(`class ${e.class}`), finding.detail);
  }
  assert.match(report.findings.find((f) => f.name === "kernel").detail, /6\.1 or newer/);
  assert.ok(report.findings.some((f) => f.name === "fallbacks"));
});

test("an archive takes the demand along", async () => {
  assert.equal((await cli("run", "--persistent", "--name", "packed", "--min-class", "1", "--", "touch", "here")).code, 0);
  const file = join(scratch, "packed.tar.zst");
  const packed = await cli("export", "packed", file);
  assert.equal(packed.code, 0, packed.stderr);
  const unpacked = await cli("import", file, "--name", "unpacked");
  assert.equal(unpacked.code, 0, unpacked.stderr);
  assert.deepEqual(JSON.parse((await cli("inspect", "unpacked")).stdout).sandbox.isolation.demand, { minClass: 1 });
  for (const name of ["packed", "unpacked"]) assert.equal((await cli("rm", name)).code, 0);
});
