// bash cells on the real server: one shell that stays.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { startServer } from "../support/server.mjs";
import { Cells, number } from "./cells.mjs";

let server, sh;
before(async () => {
  server = await startServer();
  const { sandbox } = await server.create({ runtime: "node24", timeout: 1_800_000 });
  sh = new Cells(server, sandbox.name, "bash");
});
after(() => server?.stop());

test("directory, variables and functions survive", async () => {
  const n = number();
  await sh.ok(`cd /tmp; x=${n}; declare -A map=([k]=v$x); f() { echo "f $1 $x"; }; export E=e$x`);
  const cell = await sh.ok(`pwd; f "a b"; echo "\${map[k]}"; sh -c 'echo $E'; echo err >&2`);
  assert.equal(cell.stdout, `/tmp\nf a b ${n}\nv${n}\ne${n}\n`);
  assert.equal(cell.stderr, "err\n");
  assert.equal(cell.end.exitCode, 0);
  await sh.ok("cd -");
});

test("quotes, several lines, here-documents and odd characters arrive as they are", async () => {
  const n = number();
  const cell = await sh.ok(`cat <<'X'\nit's $x \\n "${n}"\n\ttab é 😀\nX\nprintf '%s\\n' 'a\nb' "!!" \\\\\n# a comment at the end`);
  assert.equal(cell.stdout, `it's $x \\n "${n}"\n\ttab é 😀\na\nb\n!!\n\\\n`);
});

test("a status that is not 0 is an error with that code; exit and set -e end the cell, not the shell", async () => {
  const n = number();
  await sh.ok(`kept=${n}`);
  for (const [code, status] of [["false", 1], ["(exit 4)", 4], ["echo in; exit 3; echo no", 3], ["set -e; (exit 6); echo no", 6],
    ["set -euo pipefail; g() { sh -c 'exit 9'; echo no; }; g; echo no", 9], ["if then", 2], ["no-such-command-here", 127]]) {
    const cell = await sh.run(code);
    assert.deepEqual([cell.status, cell.end.exitCode], ["error", status], code);
    assert.equal(cell.error.value, `exit status ${status}`);
    assert.doesNotMatch(cell.stdout, /no/, code);
    const next = await sh.ok("echo $kept");
    assert.deepEqual([next.stdout, next.started.fresh], [`${n}\n`, false], code);
  }
});

test("standard input is empty, the channel is not handed on, env and cwd are the cell's", async () => {
  const n = number();
  const cell = await sh.ok("cat; echo $A \"$B\"; pwd; ls /proc/self/fd | tr '\\n' ' '", { env: { A: `a${n}`, B: "it's\n2" }, cwd: "/tmp" });
  assert.equal(cell.stdout, `a${n} it's\n2\n/tmp\n0 1 2 3 `, "3 is the directory that ls reads");
  assert.equal((await sh.ok('echo "[$A]"; pwd')).stdout, "[]\n/vercel/sandbox\n");
  assert.equal((await sh.run("echo no", { cwd: "/no/such" })).status, "error");
});

test("an endless loop and a sleeping child are interrupted; the shell knows what it knew", async () => {
  const n = number();
  await sh.ok(`kept=${n}`);
  for (const code of ["echo in; while :; do :; done", "echo in; sleep 1000; echo no"]) {
    const cell = await sh.run(code, {}, async (event) => {
      if (event.type === "stdout") await sh.contexts("POST", "/bash/interrupt");
    });
    assert.deepEqual([cell.status, cell.error.name, cell.stdout], ["error", "KeyboardInterrupt", "in\n"]);
    const next = await sh.ok("echo $kept");
    assert.deepEqual([next.stdout, next.started.fresh], [`${n}\n`, false]);
  }
});

test("artifacts, also with names that need care", async () => {
  const n = number();
  const cell = await sh.ok(`mkdir -p sub .git; echo ${n} > 'sub/a "b" \\c é.txt'; echo no > .git/x`);
  assert.deepEqual(cell.end.artifacts, [{ path: '/vercel/sandbox/sub/a "b" \\c é.txt', size: String(n).length + 1, mime: "text/plain",
    sha256: createHash("sha256").update(`${n}\n`).digest("hex") }]);
  assert.deepEqual((await sh.ok("cat sub/*")).end.artifacts, []);
});

test("background jobs go on, and what they print comes with a later cell", async () => {
  const n = number();
  await sh.ok(`rm -f go; (until [ -e go ]; do sleep 0.05; done; echo late ${n}) &`);
  let seen = (await sh.ok("touch go")).stdout;
  for (let i = 0; i < 200 && !seen.includes(`late ${n}`); i++) seen += (await sh.ok("sleep 0.05")).stdout;
  assert.match(seen, new RegExp(`late ${n}`));
});

test("a shell that leaves by itself is replaced", async () => {
  const cell = await sh.run("exec true");
  assert.equal(cell.status, "killed");
  const next = await sh.ok("echo back");
  assert.deepEqual([next.stdout, next.started.fresh, next.end.executionCount], ["back\n", true, 1]);
});
