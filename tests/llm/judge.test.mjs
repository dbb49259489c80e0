// A solution against its judge: whatever a trial does to its own sandbox, its checker runs elsewhere, with the named files only.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";
import { left, random, sandbar, snapshots, start } from "./world.mjs";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-judge-"));
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

// Runs the steps of a scripted agent and has them judged: the report of the one trial.
let suites = 0;
async function judged(commands, body) {
  const file = join(scratch, `case-${++suites}.yaml`);
  const script = [...commands.map((command) => ({ tool: "run_command", input: { command } })), { text: "done" }];
  await writeFile(file, JSON.stringify({ input: "x", script, ...body }));
  const got = await sandbar(server, ["eval", file, "--json"]);
  assert.ok(got.stdout, got.stderr);
  assert.deepEqual(await left(server), []);
  assert.deepEqual(await snapshots(server), []);
  const [trial] = JSON.parse(got.stdout).cases[0].trials;
  return { green: got.code === 0, error: trial.error, message: trial.checks?.map((c) => c.message ?? "").join("\n"), calls: trial.run?.toolCalls };
}

const want = random(1e6, 9e6);
const checker = (more = {}) => ({
  outputs: ["out.txt"],
  setup: { files: { "expected.txt": String(want) } },
  checks: [{ checker: {
    command: "node /tmp/check.js",
    files: { "/tmp/check.js": `const fs = require("fs"); const got = fs.readFileSync("out.txt", "utf8").trim(); const want = fs.readFileSync("expected.txt", "utf8"); if (got !== want) { console.error("got", got); process.exit(1); }` },
    ...more,
  } }],
});

// Each does its worst to the sandbox; the answer is written last. Every attack must leave the verdict to the answer.
const attacks = {
  "sudo replaces node": "n=$(readlink -f $(command -v node)) && sudo rm -f $n && printf '#!/bin/sh\\nexit 0\\n' | sudo tee $n >/dev/null && sudo chmod 755 $n && node /not/there",
  "a background loop rewrites the check file":
    "nohup setsid sh -c 'while :; do echo \"process.exit(0)\" > /tmp/check.js; sleep 0.01; done' >/dev/null 2>&1 & echo started",
  "the check file is a symlink that root owns": "sudo ln -s /dev/null /tmp/check.js",
  "the shell itself": "printf '#!/bin/bash\\nexit 0\\n' > /tmp/sh && chmod 755 /tmp/sh && sudo mv -f /tmp/sh $(readlink -f /bin/sh)",
  "variables for every program": "echo 'NODE_OPTIONS=--require=/tmp/evil.js' | sudo tee -a /etc/environment; echo 'process.exit(0)' > /tmp/evil.js; echo 'export NODE_OPTIONS=--require=/tmp/evil.js' | sudo tee -a /etc/profile ~/.bashrc ~/.profile",
  "a library that the loader brings along": "sudo sh -c 'echo /tmp/evil.so > /etc/ld.so.preload'; true",
  "the expected value": "echo 1 > expected.txt",
};
for (const [name, attack] of Object.entries(attacks)) {
  test(`${name}: a wrong solution is red, a right one green`, async () => {
    // The file is written first: after some of the attacks nothing runs any more.
    const wrong = await judged(["echo 1 > out.txt", attack], checker());
    assert.equal(wrong.green, false);
    assert.match(wrong.message, /got 1/, JSON.stringify(wrong));
    const right = await judged([`echo ${want} > out.txt`, attack], checker());
    assert.equal(right.green, true, JSON.stringify(right));
  });
}

test("only the named files come along, as plain files; the checker's own win", async () => {
  const own = { outputs: ["out.txt", "lib/*.js", "check.js", "gone.txt", "old/*.txt"], setup: { files: { "gone.txt": "x", "old/a.txt": "a", "old/b.md": "b", "lib/keep.js": "1" } } };
  const spoil = ["mkdir -p lib/sub node_modules/.bin; echo 2 > lib/new.js; echo 3 > lib/.hidden.js; echo 4 > lib/sub/deep.js; ln -s /etc/passwd lib/link.js; echo x > package.json; echo x > conftest.py; echo x > .npmrc; echo x > node_modules/.bin/tool",
    "cp /bin/true out.txt && sudo chown root out.txt && sudo chmod 6755 out.txt; echo 'exit 0' > check.js; rm gone.txt; rm -r old; sudo mknod /tmp/dev c 1 3; mkfifo lib/fifo.js; true"];
  const look = "find . -type f -o -type l -o -type p | LC_ALL=C sort | tr '\\n' ' ' > /tmp/list; stat -c '%a %U' out.txt >> /tmp/list; cat check.js >> /tmp/list; cat /tmp/list >&2; exit 1";
  const seen = await judged(spoil, { ...own, checks: [{ checker: { command: look, files: { "check.js": "mine" } } }] });
  assert.equal(seen.green, false);
  assert.match(seen.message, /exit code 1: \.\/check\.js \.\/lib\/keep\.js \.\/lib\/new\.js \.\/old\/b\.md \.\/out\.txt 755 \S+ mine/, JSON.stringify(seen));
  assert.doesNotMatch(seen.message, /755 root/);
});

test("links, huge files and too many of them are refused by name", async () => {
  const check = { checks: [{ checker: { command: "true" } }] };
  const link = await judged(["ln -s /etc/hostname out.txt"], { outputs: ["out.txt"], ...check });
  assert.equal(link.green, false);
  assert.match(link.message, /out\.txt is a symlink; only regular files/);
  const sparse = await judged(["truncate -s 3G out.txt"], { outputs: ["out.txt"], ...check });
  assert.equal(sparse.green, false);
  assert.match(sparse.error, /`outputs`: at most 1000 files of 64 MiB[^]*out\.txt \(3221225472 bytes\)/);
  const many = await judged(["mkdir d; cd d; for i in $(seq 1001); do echo x > $i; done"], { outputs: ["d/*"], ...check });
  assert.match(many.error, /at most 1000 files/);
});

test("a checker has no network, and each has a sandbox of its own", async () => {
  const file = join(scratch, "network.yaml");
  const wait = "touch mark; until test -e /tmp/go; do sleep 0.1; done";
  await writeFile(file, JSON.stringify({ input: "x", outputs: [], setup: { net: "allow" }, script: [{ text: "a" }],
    checks: [{ checker: { command: wait } }, { checker: { command: "test ! -e mark" } }] }));
  const run = start(server, ["eval", file, "--json"]);
  const running = async () => (await left(server)).filter((s) => s.status === "running" && s.networkPolicy?.mode === "deny-all");
  const judge = await until(async () => {
    for (const box of await running()) {
      // The other checker's sandbox may end at any moment: whoever is gone is not the one that waits.
      const { session } = await server.call("GET", `/v2/sandboxes/${box.name}?projectId=prj_sandbar&teamId=team_sandbar`).catch(() => ({}));
      const seen = session && await server.exec(session.id, "test", ["-e", "mark"]).catch(() => null);
      if (seen?.exitCode === 0) return session;
    }
  }, "the checker's sandbox, without a network");
  assert.equal(judge.networkPolicy.mode, "deny-all");
  await server.exec(judge.id, "touch", ["/tmp/go"]);
  assert.deepEqual(await run.gone, { code: 0, signal: null }, run.text);
});

test("`runs`: the solution's code works in a sandbox that gives no verdict", async () => {
  const body = { outputs: ["solve.js"], setup: { files: { "expected.txt": "42" } }, checks: [{ checker: { runs: { "/tmp/said": "node solve.js" }, command: "grep -qx 42 /tmp/said" } }] };
  const write = (code) => [`cat > solve.js <<'EOF'\n${code}\nEOF`];
  const right = await judged(write("console.log(6 * 7)"), body);
  assert.equal(right.green, true, JSON.stringify(right));
  // It becomes root where it runs and spoils grep: no use, grep is run elsewhere.
  const evil = `require("child_process").execSync("g=$(readlink -f $(command -v grep)); printf '#!/bin/sh\\\\nexit 0\\\\n' | sudo tee $g; sudo chmod 755 $g"); console.log(1)`;
  const wrong = await judged(write(evil), body);
  assert.equal(wrong.green, false);
  assert.match(wrong.message, /exit code 1/, JSON.stringify(wrong));
  const failing = await judged(write("process.exit(3)"), body);
  assert.match(failing.message, /'node solve\.js' of `runs` ended with 3/);
});

test("`serve`: the solution's server runs beside the checker, as a user who can do nothing to it", async () => {
  const body = { outputs: ["server.js"], checks: [{ checker: {
    serve: { command: "node server.js", port: 3000 },
    command: "node /tmp/check.js",
    files: { "/tmp/check.js": "fetch('http://127.0.0.1:3000/').then((r) => r.text()).then((t) => { console.error('said', t); process.exit(t === 'hello' ? 0 : 1); })" },
  } }] };
  const serve = (first, says) => [`cat > server.js <<'EOF'\n${first}\nrequire("http").createServer((q, r) => r.end(${says})).listen(3000)\nEOF`];
  const right = await judged(serve("require('fs').writeFileSync('mine.txt', 'x')", "'hello'"), body);
  assert.equal(right.green, true, JSON.stringify(right));
  const tries = `const t = (f) => { try { return String(f()); } catch (e) { return e.code ?? "failed"; } };
const fs = require("fs"), sh = (c) => require("child_process").execSync(c, { stdio: "pipe" });
const got = [t(() => sh("sudo -n id -u")), t(() => fs.readFileSync("/tmp/check.js")), t(() => fs.writeFileSync("/tmp/check.js", "process.exit(0)")), t(() => fs.writeFileSync("/vercel/sandbox/x", ""))].join();`;
  const wrong = await judged(serve(tries, "got"), body);
  assert.equal(wrong.green, false);
  assert.match(wrong.message, /said (failed|1),EACCES,EACCES,EACCES/, JSON.stringify(wrong));
  const silent = await judged(["echo 'console.log(\"no port\")' > server.js"], body);
  assert.match(silent.message, /serve: nothing listens on port 3000: no port/, JSON.stringify(silent));
});
