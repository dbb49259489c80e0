// The types: a program with every spelling compiles, and mistakes do not.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));

async function compile(source) {
  const dir = await mkdtemp(join(here, "node_modules/.types-"));
  try {
    await writeFile(join(dir, "main.mts"), source);
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--lib", "es2023,esnext.disposable,dom", "--module", "nodenext", "--types", "node"];
    return await new Promise((done) => execFile(process.execPath, [join(here, "node_modules/typescript/bin/tsc"), ...options, join(dir, "main.mts")], { cwd: here },
      (error, stdout) => done({ code: error?.code ?? 0, stdout })));
  } finally {
    await rm(dir, { recursive: true });
  }
}

const head = `import { Sandbox, Snapshot, APIError, type ExecResult, type RunCodeResult } from "../../index.mjs";\n`;

test("every spelling", async () => {
  const { code, stdout } = await compile(`${head}
    const box = await Sandbox.create({ runtime: "python3.13", idleTimeoutMs: 30_000, network: { allow: [] }, resources: { vcpu: 1 }, apiKey: process.env.KEY });
    const plain: Sandbox = await Sandbox.create();
    await Sandbox.create({ source: { type: "snapshot", snapshotId: "s" }, networkPolicy: "deny-all", onResume: async (s) => { await s.exec("true"); } });
    const warm = await Sandbox.getOrCreate({ name: "n", onCreate: async (s) => { await s.writeFile("a", "b"); }, onResume: async (s) => { await s.exec("x"); } });
    const got = [await Sandbox.get("n"), await Sandbox.get({ sandboxId: "n" }), await Sandbox.get({ name: "n" })];
    const run: ExecResult = await box.exec({ cmd: ["python", "-c", "1"], timeoutMs: 15_000 });
    const line: string = (await box.exec("ls | wc -l", { cwd: "/" })).stdout;
    const listed = await box.exec("ls", ["-l"]);
    const started = await box.exec({ cmd: ["sleep", "1"], detached: true });
    await started.wait();
    const { stdout, stderr, exitCode } = await box.commands.run({ command: "ls", timeout: 10_000 });
    await box.files.write({ path: "a", content: "b" });
    await box.files.write("a", new Uint8Array());
    const text: string = await box.files.read({ path: "a" });
    const same: string = await box.readFile("a");
    const stream = await box.readFile({ path: "a" });
    await box.downloadFile("a", "/tmp/a");
    const cell: RunCodeResult = await box.runCode("1", { language: "python" });
    const official = await box.runCommand("ls", ["-l"]);
    const out: string = await official.stdout();
    const fork: Sandbox = await Sandbox.fork({ sourceSandbox: "n", network: false });
    const snapshots = await Snapshot.list();
    let kept: Sandbox | null = null;
    kept = box;
    await kept.close();
    class Keeper { private box!: Awaited<ReturnType<typeof Sandbox.create>>; close() { return this.box.close(); } }
    export { APIError, Keeper, plain, warm, got, run, line, listed, stdout, stderr, exitCode, text, same, stream, cell, out, fork, snapshots };`);
  assert.equal(code, 0, stdout);
});

test("mistakes", async () => {
  for (const [line, complaint] of [
    ["await Sandbox.create({ networkPolcy: 'deny-all' })", /networkPolcy/],
    ["await (await Sandbox.create()).exec({ comand: 'ls' })", /comand|cmd/],
    ["(await (await Sandbox.create()).exec('ls')).stdout()", /not callable/],
    ["await (await Sandbox.create()).files.write({ path: 'a' })", /content/],
  ]) {
    const { code, stdout } = await compile(`${head}${line};`);
    assert.notEqual(code, 0, line);
    assert.match(stdout, complaint);
  }
});
