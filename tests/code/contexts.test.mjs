// Contexts and limits on the real server: life cycle, concurrency, time, memory, bad input, growth.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { engine, startServer, until } from "../support/server.mjs";
import { Cells, number, readEvents } from "./cells.mjs";

let server, py;
before(async () => {
  // The sanitizer's quarantine of freed memory would drown what is measured.
  server = await startServer({ env: { ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ""}:quarantine_size_mb=8:thread_local_quarantine_size_kb=64` } });
  const { sandbox } = await server.create({ runtime: "python3.13", timeout: 1_800_000, resources: { vcpus: 1 } });
  py = new Cells(server, sandbox.name, "python");
});
after(() => server?.stop());

// Cuts a cell short once it has printed something.
const onOutput = (act) => { let done = false; return async (e) => { if (e.type === "stdout" && !done) { done = true; await act(); } }; };

test("contexts are made, listed, used apart, restarted and deleted", async () => {
  const a = number(), b = number();
  const one = (await py.contexts("POST", "", { language: "python", env: { WHO: `one${a}` }, cwd: "/tmp" })).context;
  const two = (await py.contexts("POST", "", { language: "python" })).context;
  assert.match(one.id, /^ctx_/);
  assert.deepEqual([one.state, one.executionCount, one.default, one.language], ["cold", 0, false, "python"]);
  await py.ok(`v = ${a}; import os`, { context: one.id });
  await py.ok(`v = ${b}`, { context: two.id, language: undefined });
  assert.equal((await py.ok("(v, os.environ['WHO'], os.getcwd())", { context: one.id })).text, `(${a}, 'one${a}', '/tmp')`);
  assert.equal((await py.ok("v", { context: two.id })).text, String(b));
  assert.equal((await py.run("v")).error.name, "NameError");
  const list = (await py.contexts("GET")).contexts;
  assert.deepEqual(list.map((c) => [c.id, c.state, c.executionCount]).sort(), [[one.id, "idle", 2], [two.id, "idle", 2], ["python", "idle", 1]].sort());
  assert.equal((await py.contexts("POST", `/${one.id}/restart`)).context.state, "cold");
  const fresh = await py.run("v", { context: one.id });
  assert.deepEqual([fresh.error.name, fresh.started.fresh, fresh.started.executionCount], ["NameError", true, 1]);
  await py.contexts("DELETE", `/${one.id}`);
  await assert.rejects(py.run("1", { context: one.id }), { status: 404 });
  await assert.rejects(py.contexts("DELETE", `/${one.id}`), { status: 404 });
  await py.contexts("DELETE", `/${two.id}`);
  for (let i = (await py.contexts("GET")).contexts.length; i < 16; i++) await py.contexts("POST", "", { language: "bash" });
  await assert.rejects(py.contexts("POST", "", { language: "bash" }), { status: 429, message: /delete one/ });
  for (const c of (await py.contexts("GET")).contexts.filter((c) => !c.default)) await py.contexts("DELETE", `/${c.id}`);
});

test("one cell at a time in a context (409), several contexts side by side", async () => {
  const ids = await Promise.all([1, 2, 3].map(async () => (await py.contexts("POST", "", { language: "python" })).context.id));
  const numbers = ids.map(number);
  // Each waits until all have begun: they can only end when they run at the same time.
  const code = (i) => `import os, time\nopen("/tmp/begun-${i}", "w").close()\nwhile not all(os.path.exists(f"/tmp/begun-{i}") for i in range(3)): time.sleep(0.01)\n${numbers[i]}`;
  const cells = await Promise.all(ids.map((id, i) => py.ok(code(i), { context: id })));
  assert.deepEqual(cells.map((c) => c.text), numbers.map(String));
  const running = await py.run("print('in', flush=True)\nimport time\nwhile True: time.sleep(0.01)", { context: ids[0] }, onOutput(async () => {
    assert.equal((await py.contexts("GET")).contexts.find((c) => c.id === ids[0]).state, "running");
    await assert.rejects(py.run("1", { context: ids[0] }), { status: 409, message: /is running something/ });
    await py.contexts("POST", `/${ids[0]}/interrupt`);
  }));
  assert.equal(running.error.name, "KeyboardInterrupt");
  for (const id of ids) await py.contexts("DELETE", `/${id}`);
});

test("an endless loop is interrupted and the context stays usable; an idle one does not mind", async () => {
  const n = number();
  await py.ok(`kept = ${n}`);
  assert.equal((await py.contexts("POST", "/python/interrupt")).context.state, "idle");
  for (const code of ["while True: pass", "import time\nwhile True: time.sleep(100)", "import asyncio\nawait asyncio.sleep(1000)",
    "import subprocess\nsubprocess.run(['sleep', '1000'])"]) {
    const cell = await py.run(`print("in", flush=True)\n${code}`, {}, onOutput(() => py.contexts("POST", "/python/interrupt")));
    assert.deepEqual([cell.status, cell.error.name], ["error", "KeyboardInterrupt"], code);
    const next = await py.ok("kept");
    assert.deepEqual([next.text, next.started.fresh], [String(n), false], code);
  }
});

test("a timeout interrupts; what does not obey is killed, and says so", async () => {
  const n = number();
  await py.ok(`kept = ${n}`);
  const polite = await py.run("while True: pass", { timeoutMs: 300 });
  assert.deepEqual([polite.status, polite.error.name], ["timeout", "KeyboardInterrupt"]);
  assert.ok(polite.end.durationMs >= 300);
  assert.deepEqual([(await py.ok("kept")).text], [String(n)]);
  const deaf = await py.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", { timeoutMs: 300 });
  assert.equal(deaf.status, "timeout");
  assert.match(deaf.error.value, /was killed/);
  const fresh = await py.run("kept");
  assert.deepEqual([fresh.started.fresh, fresh.error.name], [true, "NameError"]);
});

test("a client that goes away interrupts its cell", async () => {
  const n = number();
  await py.ok(`kept = ${n}`);
  const abort = new AbortController();
  const response = await py.start("print('in', flush=True)\nwhile True: pass", {}, { signal: abort.signal });
  await assert.rejects(readEvents(response, onOutput(() => abort.abort())));
  await until(async () => (await py.contexts("GET")).contexts.find((c) => c.id === "python").state === "idle", "the cell was interrupted");
  assert.equal((await py.ok("kept")).text, String(n));
});

test("out of memory is oom, and the next cell works in a fresh context", async () => {
  const n = number();
  await py.ok(`kept = ${n}`);
  const cell = await py.run("print('in')\nhog = []\nwhile True: hog.append(bytearray(64 << 20))");
  assert.equal(cell.status, "oom", JSON.stringify(cell.events));
  assert.match(cell.error.value, /out of memory \(limit 2048 MiB\)/);
  assert.equal(cell.stdout, "in\n");
  // gVisor ends as a whole: nobody is left to tell.
  if (engine !== "gvisor") assert.ok(cell.end.maxRssBytes > 1 << 30, `peak ${cell.end.maxRssBytes}`);
  const next = await py.ok(`${n} + 1`);
  assert.deepEqual([next.text, next.started.fresh], [String(n + 1), true]);
  assert.equal((await py.run("kept")).error.name, "NameError");
});

test("an interpreter that dies is killed, deleting or stopping under a cell ends it", async () => {
  const died = await py.run("import os; os._exit(7)");
  assert.equal(died.status, "killed");
  assert.match(died.error.value, /exit code 7/);
  const deleted = await py.run("print('in', flush=True)\nwhile True: pass", {}, onOutput(() => py.contexts("DELETE", "/python")));
  assert.equal(deleted.status, "killed");
  const { sandbox, session } = await server.create({ runtime: "node24" });
  const sh = new Cells(server, sandbox.name, "bash");
  const stopped = await sh.run("echo in; sleep 1000", {}, onOutput(() => server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`)));
  assert.equal(stopped.status, "killed");
});

test("a stopped sandbox that keeps its files goes on, its contexts are fresh; one that does not is 4xx", async () => {
  const n = number();
  const { sandbox, session } = await server.create({ runtime: "node24", persistent: true });
  const sh = new Cells(server, sandbox.name, "bash");
  await sh.ok(`x=${n}; echo $x > file`);
  await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  assert.deepEqual((await sh.contexts("GET")).contexts, []);
  const cell = await sh.ok('cat file; echo "[$x]"');
  assert.deepEqual([cell.stdout, cell.started.fresh], [`${n}\n[]\n`, true]);
  const gone = await server.create({ runtime: "node24", persistent: false });
  await server.call("POST", `/v2/sandboxes/sessions/${gone.session.id}/stop`);
  await assert.rejects(new Cells(server, gone.sandbox.name, "bash").run("true"), (e) => e.status >= 400 && e.status < 500);
});

test("bad input is refused with the field and the fix", async () => {
  const refused = (fields, status, text) => assert.rejects(py.run("1", fields), (e) => {
    assert.equal(e.status, status, e.text);
    assert.match(e.text, text);
    return true;
  });
  await refused({ language: "perl" }, 400, /language/);
  await refused({ language: undefined }, 400, /language: is required/);
  await refused({ code: undefined }, 400, /code/);
  await refused({ code: 5 }, 400, /code/);
  await refused({ code: "x".repeat((1 << 20) + 1) }, 413, /code: .*file/);
  await refused({ code: "a\0b" }, 400, /code/);
  await refused({ timeoutMs: 0 }, 400, /timeoutMs/);
  await refused({ timeoutMs: "1" }, 400, /timeoutMs/);
  await refused({ env: { "A B": "1" } }, 400, /env/);
  await refused({ env: { A: "x".repeat(70_000) } }, 413, /env/);
  await refused({ cwd: "" }, 400, /cwd/);
  await refused({ context: "ctx_nobody" }, 404, /ctx_nobody/);
  await refused({ context: "bash" }, 400, /is of bash, not of python/);
  await refused({ languge: "python" }, 400, /did you mean/);
  await assert.rejects(py.contexts("POST", "", { language: "cobol" }), { status: 400 });
  await assert.rejects(py.contexts("POST", "/python/explode"), { status: 404 });
  await assert.rejects(new Cells(server, "no-such-sandbox", "python").run("1"), { status: 404 });
  await assert.rejects(new Cells(server, py.name, "javascript").run("1"), { status: 400, message: /no node, which javascript needs/ });
  assert.deepEqual((await py.contexts("GET")).contexts.filter((c) => c.language === "javascript"), []);
});

test("a crash of the server loses the contexts, says so, and leaves no interpreter behind", async () => {
  await py.ok("kept = 1");
  await server.crash();
  await server.start();
  const cell = await py.run("kept");
  assert.deepEqual([cell.started.fresh, cell.error.name], [true, "NameError"]);
  const count = "import os\nsum(b'_driver()' in open(f'/proc/{p}/cmdline', 'rb').read() for p in os.listdir('/proc') if p.isdigit())";
  await until(async () => (await py.ok(count)).text === "1", "only our own interpreter is left");
});

test("1,000 cells in one context: neither the interpreter nor the server grows", async () => {
  const rss = async () => Number((await py.ok("import re\nint(re.search(r'VmRSS:\\s+(\\d+)', open('/proc/self/status').read())[1])")).text);
  const fds = () => readdirSync(`/proc/${server.pid}/fd`).length;
  const serverKb = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))[1]);
  let sum = 0;
  const some = async (count) => {
    for (let i = 0; i < count; i++) {
      const n = number();
      sum += n;
      const cell = await py.ok(`total = globals().get("total", 0) + ${n}\nprint("x" * 1000)\ntotal`);
      assert.equal(cell.text, String(sum));
    }
  };
  await some(100); // caches fill
  const before = { rss: await rss(), fds: fds(), server: serverKb() };
  await some(900);
  const after = { rss: await rss(), fds: fds(), server: serverKb() };
  const told = JSON.stringify({ before, after });
  assert.ok(after.rss - before.rss < 4096, told);
  assert.ok(after.fds - before.fds < 10, told);
  // The sanitizer keeps a little of what was freed; 900 cells that leak are far more.
  assert.ok(after.server - before.server < 100 << 10, told);
});
