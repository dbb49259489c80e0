// Python cells on the real server: state, results, errors, rich values, artifacts.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { startServer } from "../support/server.mjs";
import { Cells, number } from "./cells.mjs";

let server, py;
before(async () => {
  server = await startServer();
  const { sandbox } = await server.create({ runtime: "python3.13", timeout: 1_800_000 });
  py = new Cells(server, sandbox.name, "python");
});
after(() => server?.stop());

test("variables, functions and imports survive; the last expression is shown; the first cell says it is fresh", async () => {
  const a = number(), b = number();
  const first = await py.ok(`import math\nx = ${a}\ndef plus(n): return x + n`);
  assert.equal(first.result, undefined);
  assert.equal(first.started.fresh, true);
  assert.equal(first.started.context, "python");
  const second = await py.ok(`x += 1\nprint("seen", x)\nplus(${b})`);
  assert.equal(second.started.fresh, false);
  assert.equal(second.end.executionCount, first.end.executionCount + 1);
  assert.equal(second.stdout, `seen ${a + 1}\n`);
  assert.equal(second.text, String(a + 1 + b));
  assert.equal((await py.ok("math.floor(2.5);")).result, undefined, "a semicolon hides the value");
  assert.equal((await py.ok("__name__")).text, "'__main__'");
  assert.ok(second.end.maxRssBytes > 4 << 20 && second.end.maxRssBytes < 1 << 30);
  assert.ok(second.end.durationMs >= 0 && second.end.cpuMs >= 0);
});

test("await works at the top, and tasks live on between cells that await", async () => {
  const n = number();
  const cell = await py.ok(`import asyncio\nasync def later(v):\n    await asyncio.sleep(0.01)\n    return v * 2\nawait later(${n})`);
  assert.equal(cell.text, String(2 * n));
  await py.ok(`task = asyncio.get_event_loop().create_task(later(${n + 1}))`);
  assert.equal((await py.ok("await task")).text, String(2 * (n + 1)));
});

test("a traceback has the program's frames and no others", async () => {
  const n = number();
  const cell = await py.run(`def inner(v):\n    return v / 0\n\ninner(${n})`);
  assert.equal(cell.status, "error");
  assert.equal(cell.error.name, "ZeroDivisionError");
  const frames = cell.error.traceback.split("\n").filter((l) => l.startsWith("  File "));
  assert.equal(frames.length, 2, cell.error.traceback);
  assert.match(cell.error.traceback, new RegExp(`line 4, in <module>\\n\\s+inner\\(${n}\\)`));
  assert.match(cell.error.traceback, /line 2, in inner\n\s+return v \/ 0/);
  const async_ = await py.run(`import asyncio\nasync def bad(): raise KeyError("k${n}")\nawait bad()`);
  assert.equal(async_.error.traceback.split("\n").filter((l) => l.startsWith("  File ")).length, 2, async_.error.traceback);
  const syntax = await py.run("x = (1,\ny = 2");
  assert.equal(syntax.error.name, "SyntaxError");
  assert.match(syntax.error.traceback, /<cell \d+>", line 1/);
});

test("sys.exit, input and a bad directory are errors of the cell; the context goes on", async () => {
  const n = number();
  await py.ok(`kept = ${n}`);
  const left = await py.run("import sys; sys.exit(3)");
  assert.equal(left.status, "error");
  assert.deepEqual([left.error.name, left.error.value], ["SystemExit", "3"]);
  assert.equal((await py.run("sys.exit(0)")).status, "ok");
  const asked = await py.run("input('name? ')");
  assert.match(asked.error.value, /nobody to ask/);
  assert.equal((await py.run("1", { cwd: "/no/such/dir" })).error.name, "FileNotFoundError");
  assert.equal((await py.ok("kept")).text, String(n));
});

test("env and cwd are the cell's alone; chdir stays", async () => {
  const n = number();
  const cell = await py.ok("import os; (os.environ['CELL'], os.getcwd())", { env: { CELL: `v${n}` }, cwd: "/tmp" });
  assert.equal(cell.text, `('v${n}', '/tmp')`);
  assert.equal((await py.ok("(os.environ.get('CELL'), os.getcwd())")).text, "(None, '/vercel/sandbox')");
  await py.ok("os.makedirs('/tmp/deep', exist_ok=True); os.chdir('/tmp/deep')");
  assert.equal((await py.ok("os.getcwd()")).text, "'/tmp/deep'");
  await py.ok("os.chdir('/vercel/sandbox')");
});

test("what a program prints cannot be taken for events, wherever it writes it", async () => {
  const n = number();
  const fake = `{"type":"end","status":"ok","n":${n}}`;
  const cell = await py.run([
    `import os, subprocess, sys`, `fake = ${JSON.stringify(fake)}`,
    `print(fake)`, `os.write(1, (fake + "\\n").encode())`, `print(fake, file=sys.stderr)`,
    `subprocess.run(["sh", "-c", "echo '" + fake + "'; echo '" + fake + "' >&3; true"])`,
    `raise ValueError(fake)`].join("\n"));
  assert.equal(cell.status, "error");
  assert.equal(cell.stdout.split("\n").filter((l) => l === fake).length, 3, cell.stdout);
  assert.equal(cell.error.value, fake);
  assert.equal((await py.ok(`${n}`)).text, String(n));
});

test("output of children and of C code is in order, bytes that are no text are replaced", async () => {
  const cell = await py.ok(`import os, subprocess\nfor i in range(50):\n    print("p", i)\n    subprocess.run(["echo", "c", str(i)])\nos.write(1, b"\\xff\\xfe caf\\xc3\\xa9\\n")`);
  const lines = cell.stdout.trimEnd().split("\n");
  assert.deepEqual(lines.slice(0, 100), Array.from({ length: 100 }, (_, i) => `${i % 2 ? "c" : "p"} ${i >> 1}`));
  assert.equal(lines[100], "\ufffd\ufffd café");
});

test("display and mime reprs", async () => {
  const n = number();
  const cell = await py.ok(`
class Rich:
    def _repr_html_(self): return "<b>${n}</b>"
    def _repr_markdown_(self): return "**${n}**"
    def _repr_svg_(self): return "<svg>${n}</svg>"
    def _repr_png_(self): return bytes([137, 80, 78, 71]) + b"${n}"
    def _repr_json_(self): return {"n": ${n}}
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None): return {"text/latex": "$${n}$"}
display(Bundle())
display({"text/html": "<i>raw</i>"}, raw=True)
Rich()`);
  assert.deepEqual(cell.displays[0]["text/latex"], `$${n}$`);
  assert.deepEqual(cell.displays[1], { "text/html": "<i>raw</i>" });
  assert.equal(cell.result["text/html"], `<b>${n}</b>`);
  assert.equal(cell.result["text/markdown"], `**${n}**`);
  assert.equal(cell.result["image/svg+xml"], `<svg>${n}</svg>`);
  assert.equal(Buffer.from(cell.result["image/png"], "base64").subarray(1).toString("latin1"), `PNG${n}`);
  assert.deepEqual(cell.result["application/json"], { n });
  assert.match(cell.result["text/plain"], /Rich object/);
  const odd = await py.ok(`"\\ud800 ${n}"`);
  assert.match(odd.text, new RegExp(String(n)), "a lone surrogate does not cost the result");
  const huge = await py.ok(`display({"image/png": "A" * (7 << 20)}, raw=True)`);
  assert.match(huge.displays[0]["text/plain"], /too large/);
});

test("changed files are artifacts, once, with size, type and hash", async () => {
  const n = number();
  const cell = await py.ok(`import os\nos.makedirs("sub/node_modules", exist_ok=True)\nopen("r.csv", "w").write("a,b\\n${n},2\\n" * 1000)\nopen("sub/p.png", "wb").write(bytes(range(256)) * ${1 + (n % 7)})\nopen("sub/node_modules/x.js", "w").write("1")`);
  const sha = (data) => createHash("sha256").update(data).digest("hex");
  const csv = `a,b\n${n},2\n`.repeat(1000), png = Buffer.concat(Array(1 + (n % 7)).fill(Buffer.from(Array.from({ length: 256 }, (_, i) => i))));
  const want = [
    { path: "/vercel/sandbox/r.csv", size: csv.length, mime: "text/csv", sha256: sha(csv) },
    { path: "/vercel/sandbox/sub/p.png", size: png.length, mime: "image/png", sha256: sha(png) },
  ];
  assert.deepEqual(cell.end.artifacts, want);
  assert.deepEqual(cell.artifacts, want.map((a) => ({ ...a, type: "artifact" })));
  assert.deepEqual((await py.ok("open('r.csv').read(3)")).end.artifacts, []);
  const again = await py.ok(`open("r.csv", "a").write("${n}")`);
  assert.deepEqual(again.end.artifacts.map((a) => [a.path, a.sha256]), [["/vercel/sandbox/r.csv", sha(csv + n)]]);
  const many = await py.ok(`for i in range(300): open(f"many-{i}.txt", "w").write(str(i))`);
  assert.equal(many.end.artifacts.length, 200);
  assert.equal(many.end.truncated.artifacts, true);
  await py.ok("for i in range(300): os.remove(f'many-{i}.txt')");
  const big = await py.ok(`open("big.bin", "wb").truncate((64 << 20) + 1)`);
  assert.deepEqual(big.end.artifacts.map((a) => [a.size, a.sha256]), [[(64 << 20) + 1, null]]);
});

test("output is kept at both ends, and the gap is said", async () => {
  const n = number();
  const cell = await py.run(`print("first ${n}")\nfor i in range(200000): print("line", i)\nraise RuntimeError("last ${n}")`);
  assert.equal(cell.status, "error");
  assert.ok(cell.stdout.startsWith(`first ${n}\nline 0\n`));
  assert.ok(cell.stdout.endsWith("line 199999\n"));
  const gap = cell.events.find((e) => e.gap > 0);
  assert.match(gap.text, new RegExp(`${gap.gap} bytes of output are missing here`));
  assert.equal(cell.end.truncated.stdout.dropped, gap.gap);
  const whole = `first ${n}\n`.length + Array.from({ length: 200000 }, (_, i) => `line ${i}\n`.length).reduce((a, b) => a + b);
  assert.equal(cell.stdout.length - gap.text.length + gap.gap, whole, "what is shown and what is missing are all there was");
  assert.ok(cell.stdout.length < 1 << 20);
  assert.ok(cell.events.indexOf(gap) < cell.events.findIndex((e) => e.type === "error"));
});

test("what threads print between cells comes with the next one", async () => {
  const n = number();
  await py.ok(`import threading, time\nthreading.Timer(0.05, lambda: print("late ${n}")).start()`);
  let seen = "";
  for (let i = 0; i < 200 && !seen.includes(`late ${n}`); i++) seen += (await py.ok("time.sleep(0.02)")).stdout;
  assert.match(seen, new RegExp(`late ${n}`));
});

test("threads may show values while the cell does", async () => {
  const cell = await py.ok(`import threading\nworkers = [threading.Thread(target=lambda i=i: [display({"application/json": {"i": i, "j": j, "pad": "x" * 5000}}, raw=True) for j in range(50)]) for i in range(4)]\n[w.start() for w in workers]\nfor j in range(50): display({"application/json": {"i": 4, "j": j, "pad": "x" * 5000}}, raw=True)\n[w.join() for w in workers]\nNone`);
  assert.deepEqual(cell.end.truncated, {});
  assert.deepEqual([0, 1, 2, 3, 4].map((i) => cell.displays.filter((d) => d["application/json"].i === i).map((d) => d["application/json"].j).join()),
    Array(5).fill(Array.from({ length: 50 }, (_, j) => j).join()));
});
