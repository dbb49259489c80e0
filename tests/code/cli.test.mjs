// `sandbar code`: where output goes, exit codes, fresh and named sandboxes.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, startServer } from "../support/server.mjs";
import { number } from "./cells.mjs";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-code-"));
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

const cli = (args, input = "") => new Promise((done) => {
  const env = { ...process.env, SANDBAR_DATA: server.data };
  for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN"]) delete env[name];
  const child = spawn(binary, args, { env });
  let stdout = "", stderr = "";
  child.stdout.on("data", (d) => (stdout += d));
  child.stderr.on("data", (d) => (stderr += d));
  child.on("close", (code, signal) => done({ code, signal, stdout, stderr }));
  child.stdin.on("error", () => {});
  child.stdin.end(input);
});
const boxes = async () => JSON.parse((await cli(["ps", "-a", "--json"])).stdout).sandboxes.map((s) => s.name);

test("a fresh sandbox: output, result and errors where they belong, nothing left", async () => {
  const n = number();
  const good = await cli(["code", "-c", `import sys\nprint("out")\nprint("err", file=sys.stderr)\n${n} + 1`]);
  assert.deepEqual([good.code, good.stdout], [0, `out\n${n + 1}\n`], good.stderr);
  assert.match(good.stderr, /^err$/m);
  assert.match(good.stderr, /deny-all/);
  const bad = await cli(["code", "--lang", "javascript", "-c", `throw new TypeError("t${n}")`]);
  assert.equal(bad.code, 1);
  assert.match(bad.stderr, new RegExp(`TypeError: t${n}\\n\\s+at cell-1:1:7`));
  assert.deepEqual(await boxes(), []);
});

test("files by their ending, standard input, a named sandbox whose variables stay", async () => {
  const n = number(), file = join(scratch, "a.ts");
  await writeFile(file, `const v: number = ${n}; v * 2`);
  assert.equal((await cli(["code", file])).stdout, `${2 * n}\n`);
  assert.equal((await cli(["run", "--keep", "--name", "box", "--image", "sandbar/data", "--", "true"])).code, 0);
  assert.equal((await cli(["code", "box", "-"], `x = ${n}`)).code, 0);
  assert.equal((await cli(["code", "box", "-c", "x + 1"])).stdout, `${n + 1}\n`);
  assert.equal((await cli(["code", "box", "--lang", "bash", "-c", "echo $((6 * 7)); exit 3"])).code, 1);
  assert.equal((await cli(["code", "box", "--context", "python", "-c", "x"])).stdout, `${n}\n`);
});

test("timeouts are 124, killed ones 137, our own failures 125, wrong usage 2", async () => {
  const late = await cli(["code", "box", "--timeout", "300ms", "-c", "while True: pass"]);
  assert.equal(late.code, 124);
  assert.match(late.stderr, /timeout/);
  assert.equal((await cli(["code", "box", "-c", "import os; os._exit(1)"])).code, 137);
  assert.equal((await cli(["code", "nobody", "-c", "1"])).code, 125);
  for (const wrong of [["code"], ["code", "--context", "x", "-c", "1"], ["code", "box", "--image", "i", "-c", "1"], ["code", "a", "b", "c"],
    ["code", "--lang", "perl", "-c", "1"]]) {
    assert.equal((await cli(wrong)).code, 2, wrong.join(" "));
  }
});

test("--json gives the events, --out saves the images", async () => {
  const n = number(), out = join(scratch, "images");
  const events = (await cli(["code", "box", "--json", "-c", `${n}`])).stdout.trim().split("\n").map((l) => JSON.parse(l));
  assert.deepEqual(events.map((e) => e.type), ["started", "result", "end"]);
  assert.equal(events[1].data["text/plain"], String(n));
  const plot = await cli(["code", "box", "--out", out, "-c", "import matplotlib.pyplot as plt\nplt.plot([1, 2])\ndisplay({'image/svg+xml': '<svg/>'}, raw=True)"]);
  assert.equal(plot.code, 0, plot.stderr);
  const files = (await readdir(out)).sort();
  assert.deepEqual(files, ["image-1.svg", "image-2.png"]);
  assert.equal(await readFile(join(out, "image-1.svg"), "utf8"), "<svg/>");
  assert.equal((await readFile(join(out, "image-2.png"))).subarray(1, 4).toString("latin1"), "PNG");
  await cli(["rm", "box"]);
});

test("output that is not UTF-8 is marked in the events and named on stderr", async () => {
  const code = 'import sys; sys.stdout.buffer.write(b"caf\\xc3\\xa9 \\xff\\n"); sys.stdout.flush()';
  const shown = await cli(["code", "-c", code]);
  assert.deepEqual([shown.code, shown.stdout], [0, "café \ufffd\n"], shown.stderr);
  assert.match(shown.stderr, /not all UTF-8 text/);
  const events = (await cli(["code", "--json", "-c", code])).stdout.trim().split("\n").map((line) => JSON.parse(line));
  assert.ok(events.some((event) => event.type === "stdout" && event.replaced === true));
  const plain = await cli(["code", "--json", "-c", 'print("café 😀")']);
  assert.doesNotMatch(plain.stdout, /replaced/);
  assert.doesNotMatch(plain.stderr, /UTF-8/);
});
