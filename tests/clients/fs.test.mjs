// sandbox.fs: the facade that looks like node:fs/promises.
import assert from "node:assert/strict";
import { test } from "node:test";
import { useSdk } from "./sdk.mjs";

const { sandbox } = await useSdk();
const { fs, ...rest } = await sandbox().then((box) => ({ fs: box.fs, box }));
const box = rest.box;
const code = (expected) => (e) => e.code === expected || assert.fail(`${e.code ?? e.message} instead of ${expected}`);

test("readFile, writeFile, appendFile", async () => {
  await fs.writeFile("t.txt", "one\n");
  await fs.appendFile("t.txt", "two\n");
  assert.equal(await fs.readFile("t.txt", "utf8"), "one\ntwo\n");
  const bytes = Buffer.from([0, 255, 128, 10]);
  await fs.writeFile("t.bin", bytes);
  assert.deepEqual(await fs.readFile("t.bin"), bytes);
  await assert.rejects(fs.readFile("absent", "utf8"), code("ENOENT"));
});

test("mkdir, readdir, rm, rmdir", async () => {
  await fs.mkdir("d/e/f", { recursive: true });
  await fs.mkdir("d/g");
  await fs.writeFile("d/file", "x");
  assert.deepEqual((await fs.readdir("d")).sort(), ["e", "file", "g"]);
  const types = (await fs.readdir("d", { withFileTypes: true })).map((e) => [e.name, e.isDirectory(), e.isFile()]);
  assert.deepEqual(types.sort(), [["e", true, false], ["file", false, true], ["g", true, false]]);
  await fs.rmdir("d/g");
  await assert.rejects(fs.rmdir("d/e"), code("ENOTEMPTY"));
  await assert.rejects(fs.readdir("nowhere"), code("ENOENT"));
  await fs.rm("d", { recursive: true });
  assert.equal(await fs.exists("d"), false);
  await assert.rejects(fs.rm("d"), code("ENOENT"));
  await fs.rm("d", { force: true });
});

test("stat, lstat, chmod, truncate", async () => {
  await fs.writeFile("s", "12345");
  await fs.chmod("s", 0o640);
  const stat = await fs.stat("s");
  assert.deepEqual([stat.size, stat.mode & 0o777, stat.isFile(), stat.isDirectory()], [5, 0o640, true, false]);
  assert.ok(Math.abs(stat.mtimeMs - Date.now()) < 3600_000);
  await fs.truncate("s", 2);
  assert.equal(await fs.readFile("s", "utf8"), "12");
  await fs.symlink("s", "link");
  assert.equal((await fs.lstat("link")).isSymbolicLink(), true);
  assert.equal((await fs.stat("link")).isFile(), true);
  assert.equal(await fs.readlink("link"), "s");
  assert.equal(await fs.realpath("link"), `${box.cwd}/s`);
  await assert.rejects(fs.stat("absent"), code("ENOENT"));
});

test("rename, copyFile, unlink, access, mkdtemp", async () => {
  await fs.writeFile("from", "payload");
  await fs.copyFile("from", "copy");
  await fs.rename("from", "to");
  assert.equal(await fs.exists("from"), false);
  assert.equal(await fs.readFile("to", "utf8"), "payload");
  assert.equal(await fs.readFile("copy", "utf8"), "payload");
  await fs.access("to");
  await assert.rejects(fs.access("from"), code("ENOENT"));
  await fs.unlink("to");
  await assert.rejects(fs.unlink("to"), code("ENOENT"));
  const dir = await fs.mkdtemp("/tmp/pre-");
  assert.match(dir, /^\/tmp\/pre-\w{6}$/);
  assert.equal((await fs.stat(dir)).isDirectory(), true);
});

test("rename of a directory that came with the image", async () => {
  // Overlay filesystems refuse this unless they are mounted for it; package managers do it.
  await box.runCommand({ cmd: "mv", args: ["/usr/share/doc", "/usr/share/doc-moved"], sudo: true });
  const moved = await box.runCommand("sh", ["-c", "ls /usr/share/doc-moved > /dev/null && ! ls /usr/share/doc 2>/dev/null && echo moved"]);
  assert.equal(await moved.stdout(), "moved\n");
});
