// `sandbar kernel` on a directory of its own: what it puts there is what ls and a server's spawner look at.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { binary } from "../support/server.mjs";

const dir = mkdtempSync(join(tmpdir(), "sandbar-kernel-"));
after(() => rmSync(dir, { recursive: true }));
const kernel = (...words) => new Promise((done) =>
  execFile(binary, ["kernel", "--dir", join(dir, "kernel"), ...words], (error, stdout, stderr) => done({ code: error?.code ?? 0, stdout, stderr })));

test("none, one, another in its place", async () => {
  const none = await kernel("ls", "--json");
  assert.deepEqual(JSON.parse(none.stdout), { kernels: [] });
  for (const text of ["first", "the second"]) {
    const file = join(dir, "mine");
    writeFileSync(file, text);
    const used = await kernel("use", file, "--json");
    assert.equal(used.code, 0, used.stderr);
    assert.match(used.stderr, /next start/);
    const [current] = JSON.parse((await kernel("ls", "--json")).stdout).kernels;
    assert.deepEqual(current, JSON.parse(used.stdout));
    assert.deepEqual(current, { path: join(dir, "kernel/kernel"), about: file, bytes: text.length, current: true });
    assert.equal(readFileSync(current.path, "utf8"), text);
    assert.equal(statSync(current.path).mode & 0o022, 0, "only root writes it");
  }
  assert.match((await kernel("ls")).stdout, /^\* .*mine +10 B/m);
});

test("what fails leaves the old one, and says why", async () => {
  for (const words of [["use", join(dir, "missing")], ["cloud", join(dir, "missing.deb")]]) {
    const failed = await kernel(...words);
    assert.equal(failed.code, 125);
    assert.match(failed.stderr, /missing/);
  }
  assert.equal(readFileSync(join(dir, "kernel/kernel"), "utf8"), "the second");
  assert.equal((await kernel("use")).code, 2);
  assert.equal((await kernel("make")).code, 2);
});
