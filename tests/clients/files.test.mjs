// Files in and out: every kind of content and name, modes, sizes.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";

const { sandbox } = await useSdk();
const box = await sandbox();
const here = await mkdtemp(join(tmpdir(), "sandbar-files-"));
after(() => rm(here, { recursive: true }));

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const back = (path) => box.readFileToBuffer({ path });

test("text, binary, empty", async () => {
  const binary = Buffer.from(Array.from({ length: 4096 }, (_, i) => i % 256));
  await box.writeFiles([{ path: "a.txt", content: "grüße\n" }, { path: "b.bin", content: binary }, { path: "c.empty", content: "" }]);
  assert.equal((await back("a.txt")).toString(), "grüße\n");
  assert.deepEqual(await back("b.bin"), binary);
  assert.equal((await back("c.empty")).length, 0);
  assert.equal((await sh(box, "stat -c '%s %n' a.txt b.bin c.empty")).stdout, "8 a.txt\n4096 b.bin\n0 c.empty\n");
});

test("50 MB of noise, there and back, and downloadFile", async () => {
  const big = randomBytes(50 << 20);
  await box.writeFiles([{ path: "big.bin", content: big }]);
  assert.equal((await sh(box, "sha256sum < big.bin")).stdout.split(" ")[0], sha256(big));
  const to = join(here, "deep/er/big.bin");
  assert.equal(await box.downloadFile({ path: "big.bin" }, { path: to }, { mkdirRecursive: true }), to);
  assert.equal(sha256(await readFile(to)), sha256(big));
  assert.equal(await box.downloadFile({ path: "not-there" }, { path: join(here, "x") }), null);
});

test("names: long, not ASCII, awkward", async () => {
  const names = [
    "ünïcödé/漢字/🙂.txt", "with space", "-dash", "'quote\"", "a".repeat(255), `${"d".repeat(120)}/${"e".repeat(120)}/${"f".repeat(120)}`, "new\nline", "back\\slash",
  ];
  await box.writeFiles(names.map((path, i) => ({ path: `names/${path}`, content: `content ${i}` })));
  for (const [i, path] of names.entries()) assert.equal((await back(`names/${path}`))?.toString(), `content ${i}`, path);
  assert.equal((await sh(box, "find names -type f | tr -cd '\\n' | wc -c")).stdout.trim(), String(names.length + 1));
});

test("modes, and the default ones, whatever the umask", async () => {
  await box.writeFiles([
    { path: "modes/run.sh", content: "#!/bin/sh\necho ran\n", mode: 0o755 },
    { path: "modes/secret", content: "x", mode: 0o600 },
    { path: "modes/open", content: "x", mode: 0o666 },
    { path: "modes/plain", content: "x" },
  ]);
  assert.equal((await sh(box, "cd modes && stat -c '%a %n' run.sh secret open plain")).stdout, "755 run.sh\n600 secret\n666 open\n644 plain\n");
  assert.equal(await (await box.runCommand("./modes/run.sh")).stdout(), "ran\n");
});

test("files belong to the default user; overwriting replaces", async () => {
  await box.writeFiles([{ path: "own/er", content: "long content" }]);
  await box.writeFiles([{ path: "own/er", content: "short" }]);
  assert.equal((await back("own/er")).toString(), "short");
  const { stdout } = await sh(box, "id -un; stat -c %U own own/er; stat -c %G own/er; id -gn");
  const [user, dirOwner, owner, group, primary] = stdout.split("\n");
  assert.deepEqual([dirOwner, owner, group], [user, user, primary]);
});

test("absolute paths and cwd", async () => {
  await box.writeFiles([{ path: "/tmp/absolute", content: "yes" }]);
  assert.equal((await back("/tmp/absolute")).toString(), "yes");
  assert.equal((await box.readFileToBuffer({ path: "absolute", cwd: "/tmp" })).toString(), "yes");
  const stream = await box.readFile({ path: "/tmp/absolute" });
  let text = "";
  for await (const piece of stream) text += piece;
  assert.equal(text, "yes");
});

test("what the user may not touch stays untouched", async () => {
  const denied = await apiError(box.writeFiles([{ path: "/etc/passwd", content: "root::0:0::/:/bin/sh\n" }]));
  assert.ok(denied.status >= 400 && denied.status < 500, `status ${denied.status}`);
  assert.match((await back("/etc/passwd")).toString(), /^root:x:0:0/);
});

test("mkDir: once, with its parent", async () => {
  await box.mkDir("made");
  for (const path of ["made", "missing/parent"]) {
    const { status, code } = await apiError(box.mkDir(path));
    assert.deepEqual([status, code], [400, "file_error"]);
  }
  assert.equal((await sh(box, "touch made/file && echo mine")).stdout, "mine\n");
});

test("reading what is no regular file fails quickly", async () => {
  await sh(box, "mkfifo fifo; mkdir -p dir");
  for (const path of ["fifo", "dir", "/dev/zero"]) {
    const got = await box.readFileToBuffer({ path }).then((b) => b, (e) => e);
    assert.ok(got === null || got instanceof Error, `${path}: ${got}`);
  }
});

test("a thousand small files in one call", async () => {
  await box.writeFiles(Array.from({ length: 1000 }, (_, i) => ({ path: `many/${i % 10}/${i}`, content: `${i}` })));
  assert.equal((await sh(box, "find many -type f | wc -l; cat many/7/777")).stdout, "1000\n777");
});
