// JavaScript and TypeScript cells on the real server.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { startServer } from "../support/server.mjs";
import { Cells, number } from "./cells.mjs";

let server, js, ts;
before(async () => {
  server = await startServer();
  const { sandbox } = await server.create({ runtime: "node24", timeout: 1_800_000 });
  js = new Cells(server, sandbox.name, "javascript");
  ts = new Cells(server, sandbox.name, "typescript");
});
after(() => server?.stop());

test("const, let, class and functions survive and may be declared again", async () => {
  const a = number(), b = number();
  assert.equal((await js.ok(`const x = ${a}; let y = { deep: [${b}] }; function f() { return x + 1 } class K { z = x }`)).result, undefined);
  const cell = await js.ok(`console.log("seen", f()); console.error("err"); y.deep[0] + x`);
  assert.equal(cell.stdout, `seen ${a + 1}\n`);
  assert.equal(cell.stderr, "err\n");
  assert.equal(cell.text, String(a + b));
  assert.equal((await js.ok(`const x = ${b}; x`)).text, String(b));
  assert.equal((await js.ok("new K()")).text, `K { z: ${b} }`);
  assert.equal((await js.ok("y")).text, `{ deep: [ ${b} ] }`);
});

test("await at the top; a promise as the last expression is waited for", async () => {
  const n = number();
  assert.equal((await js.ok(`const v = await new Promise((r) => setTimeout(() => r(${n}), 5)); v * 2`)).text, String(2 * n));
  assert.equal((await js.ok("v")).text, String(n));
  assert.equal((await js.ok(`(async () => { await null; return "p${n}" })()`)).text, `'p${n}'`);
  const failed = await js.run(`(async () => { await null; throw new RangeError("r${n}") })()`);
  assert.deepEqual([failed.status, failed.error.name, failed.error.value], ["error", "RangeError", `r${n}`]);
});

test("import in all its forms, and words that only look like it", async () => {
  const n = number();
  await js.ok(`require("fs").writeFileSync("own.mjs", "export const n = ${n}; export default 'd'")`);
  const cell = await js.ok(`import os, { EOL as newline } from "node:os";\nimport * as path from 'node:path'\nimport own, { n } from "./own.mjs"\nconst { readFileSync } = await import("node:fs");\nconst s = "import('x')" + \`\${"import fs from 'fs'"} import("y")\`; // import("z")\n[own, n, typeof os.cpus, newline, path.basename("/a/b"), typeof readFileSync, s, /import("|')/.test("import'")]`);
  assert.equal(cell.text, `[\n  'd',\n  ${n},\n  'function',\n  '\\n',\n  'b',\n  'function',\n  \`import('x')import fs from 'fs' import("y")\`,\n  true\n]`);
});

test("errors point at the cell and name nothing of ours", async () => {
  const n = number();
  const cell = await js.run(`function broken() {\n  null.field${n}\n}\nbroken()`);
  assert.equal(cell.error.name, "TypeError");
  assert.match(cell.error.value, new RegExp(`field${n}`));
  const frames = cell.error.traceback.split("\n").filter((l) => /^\s+at /.test(l));
  assert.equal(frames.length, 2, cell.error.traceback);
  assert.match(frames[0], /at broken \(cell-\d+:2:\d+\)/);
  assert.match(frames[1], /at cell-\d+:4:1/);
  assert.equal((await js.run("const = 1")).error.name, "SyntaxError");
  const odd = await js.run(`throw { code: ${n} }`);
  assert.match(odd.error.value, new RegExp(String(n)));
  const left = await js.run("process.exit(3)");
  assert.deepEqual([left.status, left.error.name], ["error", "ProcessExit"]);
  assert.equal((await js.ok("x")).text, (await js.ok("x")).text, "the context is still there");
});

test("what nobody awaits fails beside the cell", async () => {
  const n = number();
  const cell = await js.ok(`setTimeout(() => { throw new Error("stray${n}") }, 1); Promise.reject(new Error("lost${n}")); await new Promise((r) => setTimeout(r, 50)); ${n}`);
  assert.equal(cell.text, String(n));
  assert.match(cell.stderr, new RegExp(`stray${n}`));
  assert.match(cell.stderr, new RegExp(`lost${n}`));
});

test("display, rich values, env, cwd, children, artifacts", async () => {
  const n = number();
  const cell = await js.ok(`display.html("<b>${n}</b>"); display.png(Buffer.from("png${n}")); display({ n: ${n} });\n({ [Symbol.for("Jupyter.display")]: () => ({ "text/markdown": "**${n}**" }) })`);
  assert.equal(cell.displays[0]["text/html"], `<b>${n}</b>`);
  assert.equal(Buffer.from(cell.displays[1]["image/png"], "base64").toString(), `png${n}`);
  assert.equal(cell.displays[2]["text/plain"], `{ n: ${n} }`);
  assert.equal(cell.result["text/markdown"], `**${n}**`);
  const env = await js.ok(`require("node:child_process").execSync("echo $CELL; pwd", { stdio: "inherit" }); process.env.CELL`, { env: { CELL: `v'${n}` }, cwd: "/tmp" });
  assert.equal(env.stdout, `v'${n}\n/tmp\n`);
  assert.equal(env.text, `"v'${n}"`);
  assert.equal((await js.ok("process.env.CELL")).result, undefined);
  const made = await js.ok(`require("fs").writeFileSync("out.json", "[${n}]")`);
  assert.deepEqual(made.end.artifacts, [{ path: "/vercel/sandbox/out.json", size: String(n).length + 2, mime: "application/json",
    sha256: createHash("sha256").update(`[${n}]`).digest("hex") }]);
  assert.equal((await js.ok(`${n}n ** 2n`)).text, `${BigInt(n) ** 2n}n`);
});

test("TypeScript: types are taken off, enums work, state is its own", async () => {
  const n = number();
  await ts.ok(`interface Point { x: number; y?: number }\nenum Color { Red = ${n}, Green }\nconst p: Point = { x: ${n} };\nfunction twice<T extends number>(v: T): number { return v * 2 }`);
  const cell = await ts.ok(`import type { Stats } from "node:fs";\nconst r: Array<number> = [twice(p.x), Color.Green];\nawait Promise.resolve(r as unknown)`);
  assert.equal(cell.text, `[ ${2 * n}, ${n + 1} ]`);
  assert.equal(cell.stderr, "", "no warning about experiments");
  assert.equal((await ts.run("const a: number = ;")).error.name, "SyntaxError");
  assert.equal((await js.run("twice(1)")).error.name, "ReferenceError");
});

test("an endless loop and an endless wait are interrupted, and the context stays", async () => {
  const n = number();
  await js.ok(`globalThis.kept = ${n}`);
  for (const code of ["console.log('in'); for (;;) {}", "console.log('in'); await new Promise(() => {})"]) {
    const cell = await js.run(code, {}, async (event) => {
      if (event.type === "stdout") await js.contexts("POST", "/javascript/interrupt");
    });
    assert.deepEqual([cell.status, cell.error.name], ["error", "KeyboardInterrupt"], JSON.stringify(cell.events));
    const next = await js.ok("kept");
    assert.deepEqual([next.text, next.started.fresh], [String(n), false]);
  }
});

test("a full heap is oom, and the next cell works in a fresh context", async () => {
  const n = number();
  const cell = await js.run("require('node:v8').setFlagsFromString('--max-old-space-size=100'); const hog = []; for (;;) hog.push(new Array(1e5).fill(hog.length))");
  assert.equal(cell.status, "oom", JSON.stringify(cell.events));
  const next = await js.ok(`${n} + 1`);
  assert.deepEqual([next.text, next.started.fresh], [String(n + 1), true]);
});

test("1,000 cells in one context do not make the interpreter grow", async () => {
  const rss = async () => Number((await js.ok("gc?.(); process.memoryUsage.rss()")).text) / (1 << 20);
  await js.ok("require('node:v8').setFlagsFromString('--expose-gc'); globalThis.gc = require('node:vm').runInNewContext('gc'); let sum = 0");
  const some = async (count) => {
    for (let i = 0; i < count; i++) await js.ok(`const step = ${number()}; sum += step; console.log("x".repeat(100), step); ({ sum, list: [step] })`);
  };
  await some(300);
  const before = await rss();
  await some(700);
  const after = await rss();
  assert.ok(after - before < 32, `${before} -> ${after} MiB`);
});
