// What everybody writes first: put a program in, run it, look at what it did; fix it and run it again.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { binary, hasMemory, repo } from "../support/server.mjs";

const { sandbox, server, Sandbox, credentials } = await useSdk();

test("write, run, read", async () => {
  const box = await sandbox();
  assert.equal(box.status, "running");
  await box.writeFiles([{ path: "main.js", content: "console.log(6 * 7); console.error('careful'); process.exit(3)" }]);
  const run = await box.runCommand("node", ["main.js"]);
  assert.equal(run.exitCode, 3);
  assert.equal(await run.stdout(), "42\n");
  assert.equal(await run.stderr(), "careful\n");
  assert.equal((await box.readFileToBuffer({ path: "main.js" })).toString(), "console.log(6 * 7); console.error('careful'); process.exit(3)");
  assert.equal(await box.readFileToBuffer({ path: "nothing-here" }), null);
});

test("a program that throws is fixed and runs again", async () => {
  const box = await sandbox();
  await box.writeFiles([{ path: "app/index.mjs", content: "import { f } from './lib.mjs';\nconsole.log(f());\n" },
                        { path: "app/lib.mjs", content: "export const f = () => { throw new Error('not yet'); };\n" }]);
  const broken = await box.runCommand("node", ["app/index.mjs"]);
  assert.equal(broken.exitCode, 1);
  assert.match(await broken.stderr(), /Error: not yet[\s\S]*lib\.mjs:1/);
  await box.writeFiles([{ path: "app/lib.mjs", content: "export const f = () => 'works';\n" }]);
  const fixed = await box.runCommand("node", ["app/index.mjs"]);
  assert.equal(fixed.exitCode, 0);
  assert.equal(await fixed.stdout(), "works\n");
});

test("environment: of the sandbox, of the command, and nothing else", async () => {
  const box = await sandbox({ env: { ALL: "sandbox", BOTH: "sandbox" } });
  const { stdout } = await sh(box, "echo $ALL $BOTH $MINE", { env: { BOTH: "command", MINE: "näh \"quoted\"" } });
  assert.equal(stdout, 'sandbox command näh "quoted"\n');
  assert.equal((await sh(box, "export LEFT=1; echo $LEFT")).stdout, "1\n");
  assert.equal((await sh(box, "echo ${LEFT-unset} ${MINE-unset}")).stdout, "unset unset\n");
  process.env.SANDBAR_CANARY = "host";
  assert.equal((await sh(box, "env | grep -c CANARY")).stdout, "0\n");
});

test("working directory: default, absolute, relative, missing", async () => {
  const box = await sandbox();
  assert.equal(box.cwd, "/vercel/sandbox");
  assert.equal((await sh(box, "pwd")).stdout, "/vercel/sandbox\n");
  assert.equal((await sh(box, "pwd", { cwd: "/usr/lib" })).stdout, "/usr/lib\n");
  await box.mkDir("sub");
  assert.equal((await sh(box, "pwd", { cwd: "sub" })).stdout, "/vercel/sandbox/sub\n");
  const missing = await apiError(sh(box, "pwd", { cwd: "/no/such/place" }));
  assert.equal(missing.status, 400);
  assert.match(missing.message, /\/no\/such\/place/);
});

test("arguments arrive as they are, without a shell", async () => {
  const box = await sandbox();
  const args = ["-e", "console.log(JSON.stringify(process.argv.slice(1)))", "--", "a b", "$HOME", "*", "'\"\\", "", "ünï"];
  const run = await box.runCommand("node", args);
  assert.deepEqual(JSON.parse(await run.stdout()), args.slice(3));
});

test("stdin is empty, exit codes are the shell's", async () => {
  const box = await sandbox();
  assert.equal((await sh(box, "cat; echo end")).stdout, "end\n");
  for (const [script, code] of [["exit 0", 0], ["exit 255", 255], ["kill -9 $$", 137], ["kill -TERM $$", 143], ["kill -INT $$", 130]])
    assert.equal((await sh(box, script)).exitCode, code, script);
});

test("a command that does not exist is an error of its own", async () => {
  const box = await sandbox();
  for (const detached of [false, true]) {
    const { status, code, message } = await apiError(box.runCommand({ cmd: "no-such-program", detached }));
    assert.equal(status, 400);
    assert.equal(code, "executable_not_found");
    assert.match(message, /executable file not found in \$PATH: no-such-program/);
  }
  await box.writeFiles([{ path: "bin/hello", content: "#!/bin/sh\necho found me\n", mode: 0o755 }]);
  const own = await box.runCommand({ cmd: "hello", env: { PATH: `${box.cwd}/bin:/usr/bin:/bin` } });
  assert.equal(await own.stdout(), "found me\n", "PATH of the command's own environment decides");
});

test("sudo: root with the caller's environment", async () => {
  const box = await sandbox();
  const user = (await sh(box, "id -un")).stdout.trim();
  assert.notEqual(user, "root");
  const { stdout } = await sh(box, "echo $(id -u) $USER $SUDO_USER $HOME $MINE; command -v node", { sudo: true, env: { MINE: "kept" } });
  const [first, node] = stdout.split("\n");
  assert.equal(first, `0 root ${user} /root kept`);
  assert.equal(node, (await sh(box, "command -v node")).stdout.trim(), "the same PATH");
  assert.equal((await sh(box, "sudo -n id -u")).stdout, "0\n", "sudo from inside needs no password");
});

test("the sandbox knows its own size", async () => {
  const box = await sandbox({ resources: { vcpus: 1 } });
  assert.equal(box.vcpus, 1);
  assert.equal(box.memory, 2048);
  assert.equal((await sh(box, "nproc")).stdout, "1\n");
  const { stdout } = await sh(box, `node -p 'require("os").cpus().length + " " + Math.round(require("os").totalmem() / 2 ** 20)'`);
  const [cpus, mib] = stdout.split(" ").map(Number);
  assert.ok(cpus === 1 && hasMemory(mib, 2048), stdout);
});

test("Sandbox.create() without arguments, as after `eval \"$(sandbar env)\"`", async () => {
  const exports_ = execFileSync("sh", ["-c", `eval "$("${binary}" env --data "${server.data}")"; node -p 'JSON.stringify(process.env)'`],
    { env: { PATH: process.env.PATH, SANDBAR_URL: server.url }, encoding: "utf8" });
  const env = JSON.parse(exports_.trim().split("\n").at(-1));
  assert.ok(env.VERCEL_OIDC_TOKEN && env.NODE_OPTIONS.includes("--import"));
  const program = `
    import { Sandbox } from "@vercel/sandbox";
    const box = await Sandbox.create({ runtime: "node24", networkPolicy: "deny-all" });
    const run = await box.runCommand("echo", ["hello"]);
    process.stdout.write(await run.stdout());
    await box.delete();`;
  const out = execFileSync("node", ["--input-type=module", "-e", program],
    { cwd: join(repo, "tests/clients"), env: { ...env, PATH: process.env.PATH }, encoding: "utf8" });
  assert.equal(out, "hello\n");
});

test("the default image has every runtime", async () => {
  const box = await Sandbox.create({ networkPolicy: "deny-all", ...credentials });
  try {
    assert.match(box.image ?? "", /^vercel\/sandbox\/universal@sha256:/);
    assert.equal(box.cwd, "/vercel");
    const { stdout, stderr } = await sh(box, "id -un; node -v && python3 --version && bun --version && pnpm --version && git --version");
    assert.match(stdout, /^ubuntu\nv24\.[\s\S]*Python 3\.13/, stderr);
  } finally {
    await box.delete();
  }
});
