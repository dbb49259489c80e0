// Calls that take long: progress while they run, handles, waiting, looking, ending, giving up.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";
import { http1, kinds } from "./clients.mjs";

let server;
before(async () => (server = await startServer({ config: '[mcp]\nhandle_after = "4s"\n' })));
after(async () => server?.stop());

const handleOf = (text) => /handle (cmd_\w+)/.exec(text)[1];
const session = async (name, at = server) => (await at.call("GET", `/v2/sandboxes/${name}?projectId=prj_sandbar`)).session;
const commands = async (name) => (await server.call("GET", `/v2/sandboxes/sessions/${(await session(name)).id}/cmd`)).commands;

for (const kind of kinds) {
  const name = `long-${kinds.indexOf(kind)}`;
  const at = { path: `/mcp/s/${name}`, args: ["--sandbox", name] };

  test(`${kind.name}: progress arrives while the command runs`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    await mcp.call("run_command", { command: "rm -f go" });
    // The command ends only after a file is there that is written when its first progress was heard.
    let wrote;
    const seen = [];
    const done = await mcp.call("run_command", { command: "until [ -e go ]; do sleep 0.05; done; echo went" }, {
      progress: (p) => {
        seen.push(p);
        wrote ??= mcp.call("write_file", { path: "go", content: "" });
      },
    });
    await wrote;
    // On a slow machine the call may have returned a handle first; it ends all the same.
    const text = done.text.startsWith("running") ? (await mcp.call("read_output", { handle: handleOf(done.text) })).text : done.text;
    assert.match(text, /^exit code 0 [^]*went$/);
    assert.ok(seen.length >= 1);
    for (let i = 1; i < seen.length; i++) assert.ok(seen[i].progress > seen[i - 1].progress, "it grows");
    assert.match(seen[0].message, /^running/);
  });

  test(`${kind.name}: a long call returns a handle; look, wait, go on, end`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    await mcp.call("run_command", { command: "rm -f next" });
    const first = await mcp.call("run_command", { command: "echo one; until [ -e next ]; do sleep 0.05; done; echo two; sleep 1000" });
    assert.match(first.text, /^running · [^\n]* · handle cmd_\w+\nstdout:\none\nstill running/);
    assert.ok(!first.isError);
    const handle = handleOf(first.text);
    const after = Number(/"after":(\d+)/.exec(first.text)[1]);
    assert.equal(after, 4);
    const look = await mcp.call("read_output", { handle, waitMs: 0 });
    assert.match(look.text, /stdout:\none\nstill running/);
    await mcp.call("write_file", { path: "next", content: "" });
    const more = await until(async () => {
      const got = await mcp.call("read_output", { handle, waitMs: 1000, after });
      return /two/.test(got.text) && got;
    }, "the rest of the output");
    assert.match(more.text, /stdout:\ntwo\nstill running/);
    assert.doesNotMatch(more.text, /one/);
    const ended = await mcp.call("read_output", { handle, kill: true });
    assert.match(ended.text, /^exit code 143 · [^]*stdout:\none\ntwo$/);
    const again = await mcp.call("read_output", { handle });
    assert.match(again.text, /^exit code 143 /);
    const unknown = await mcp.call("read_output", { handle: "cmd_nothing" });
    assert.ok(unknown.isError);
  });

  test(`${kind.name}: code that takes long returns a handle, too`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    await mcp.call("run_code", { code: "import os, time\nif os.path.exists('/tmp/on'): os.remove('/tmp/on')\nkept = 41" });
    const first = await mcp.call("run_code", { code: "print('one')\nwhile not os.path.exists('/tmp/on'): time.sleep(0.05)\nprint('two')\nkept + 1" });
    assert.match(first.text, /^running · [^\n]* · handle cell_\w+\nstdout:\none\nstill running/);
    const handle = /handle (cell_\w+)/.exec(first.text)[1];
    assert.match((await mcp.call("read_output", { handle, waitMs: 0 })).text, /^running [^]*one\n/);
    await mcp.call("write_file", { path: "/tmp/on", content: "" });
    const ended = await until(async () => {
      const got = await mcp.call("read_output", { handle });
      return !got.text.startsWith("running") && got;
    }, "the code ends");
    assert.match(ended.text, /^exit code 0 · [^]*stdout:\none\ntwo\nresult:\n42$/);
    const endless = await mcp.call("run_code", { code: "while True: pass" });
    const killed = await mcp.call("read_output", { handle: /handle (cell_\w+)/.exec(endless.text)[1], kill: true });
    assert.match(killed.text, /^exit code 1 · [^\n]* · error · [^]*KeyboardInterrupt/);
    assert.match((await mcp.call("run_code", { code: "kept" })).text, /result:\n41$/, "the context lives on");
  });

  test(`${kind.name}: a call that the client gives up ends its command`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    const mark = `mark-${randomInt(1e9)}`;
    const giveUp = new AbortController();
    const call = mcp.call("run_command", { command: `sleep 1000 # ${mark}` }, { signal: giveUp.signal });
    const find = async () => (await commands(name)).find((c) => c.args.some((a) => a.includes(mark)));
    await until(find, "the command runs");
    giveUp.abort("enough");
    await assert.rejects(call);
    const ended = await until(async () => {
      const c = await find();
      return c.exitCode !== null && c;
    }, "the command is ended");
    assert.equal(ended.exitCode, 137);
    assert.match((await mcp.call("run_command", { command: "echo fine" })).text, /fine/, "the connection is still good");
  });
}

test("a command that ignores SIGTERM is ended all the same; time limits and memory are told", async (t) => {
  const mcp = await http1.connect(server, { path: "/mcp/s/stubborn" }, t);
  const run = await mcp.call("run_command", { command: "trap '' TERM; echo deaf; while :; do sleep 0.1; done", background: true });
  const handle = handleOf(run.text);
  await until(async () => /deaf/.test((await mcp.call("read_output", { handle, waitMs: 0 })).text), "it runs");
  assert.match((await mcp.call("read_output", { handle, kill: true })).text, /^exit code 137 /);
  const late = await mcp.call("run_command", { command: "sleep 1000", timeoutMs: 500 });
  assert.match(late.text, /^exit code \d+ · [^\n]* · timed out\n/);
});

test("a sandbox that nobody calls goes; the next call gets a new one and is told", async (t) => {
  const hasty = await startServer({ config: '[mcp]\nidle = "20s"\n' });
  t.after(() => hasty.stop());
  const mcp = await http1.connect(hasty, { path: "/mcp/s/idle" }, t);
  await mcp.call("write_file", { path: "x", content: "1" });
  // Calls keep it: the limit moves past where it was.
  const first = await session("idle", hasty);
  await until(async () => {
    await mcp.call("run_command", { command: "true" });
    return (await session("idle", hasty)).timeout > first.timeout;
  }, "the limit moves");
  assert.equal((await mcp.call("read_file", { path: "x" })).text, "1");
  await until(async () => (await session("idle", hasty)).status === "stopped", "it stops when idle", 1200);
  const fresh = await mcp.call("run_command", { command: "ls x" });
  assert.match(fresh.text, /^exit code 2 [^]*note: the sandbox had been stopped[^]*new, empty one$/);
  const gone = async () => (await hasty.request("GET", "/v2/sandboxes/idle?projectId=prj_sandbar")).status === 404;
  await until(gone, "no record of it stays either", 2400);
});

test("first calls that come at once share one sandbox", async (t) => {
  const clients = await Promise.all(Array.from({ length: 4 }, () => http1.connect(server, { path: "/mcp/s/rush" }, t)));
  const hosts = await Promise.all(clients.map((mcp) => mcp.call("run_command", { command: "cat /proc/sys/kernel/random/boot_id; echo $$ >> seen; hostname" })));
  for (const host of hosts) assert.match(host.text, /^exit code 0 /);
  assert.match((await clients[0].call("run_command", { command: "wc -l < seen" })).text, /\n4/);
});

test("somebody else's stopped sandbox is not replaced", async (t) => {
  const made = await server.create({ name: "others", persistent: false, projectId: "prj_sandbar" });
  await server.call("POST", `/v2/sandboxes/sessions/${made.session.id}/stop`, { body: {} });
  const mcp = await http1.connect(server, { path: "/mcp/s/others" }, t);
  const refused = await mcp.call("run_command", { command: "true" });
  assert.ok(refused.isError);
  assert.match(refused.text, /has stopped/);
});
