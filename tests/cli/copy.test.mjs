// `sandbar cp`: all of a tree arrives, both ways, or what did not is named; and a sandbox cannot write anywhere else.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { chmod, lstat, mkdir, mkdtemp, readFile, readdir, readlink, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, startServer } from "../support/server.mjs";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-copy-"));
  assert.equal((await cli(["run", "--keep", "--name", "box", "--", "true"])).code, 0);
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

const cli = (args, options = {}) =>
  new Promise((done) => {
    const env = { ...process.env, SANDBAR_DATA: server.data };
    for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN"]) delete env[name];
    const child = execFile(binary, args, { env, maxBuffer: 1 << 26, ...options }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });
const inside = async (script) => {
  const got = await cli(["exec", "box", "--", "sh", "-c", script]);
  assert.equal(got.code, 0, got.stderr);
  return got.stdout;
};
// Name, type, mode, time, target and contents of everything below a directory, in one text that both sides can make.
const LIST = `stat -c '%a %Y' .; find . -mindepth 1 ! -type l -printf '%y %m %Ts %P\\n' -o -mindepth 1 -printf 'l %l %P\\n' | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum`;
const listHere = (dir) => execFileSync("sh", ["-c", `cd "$1" && ${LIST}`, "sh", dir], { encoding: "latin1" });
const plain = (text) => text.replace(/[^\n -~]/g, "?").replace(/\?+/g, "?");

async function tree() {
  const dir = await mkdtemp(join(scratch, "tree-"));
  await mkdir(join(dir, "node_modules/.bin"), { recursive: true });
  await mkdir(join(dir, "node_modules/tool"));
  await mkdir(join(dir, "empty"));
  await writeFile(join(dir, "node_modules/tool/cli.js"), "#!/usr/bin/env node\nconsole.log('tool ran')\n");
  await chmod(join(dir, "node_modules/tool/cli.js"), 0o755);
  await symlink("../tool/cli.js", join(dir, "node_modules/.bin/tool"));
  await symlink("/etc/hostname", join(dir, "absolute"));
  await symlink("no/where", join(dir, "dangling"));
  await symlink("node_modules", join(dir, "dir-link"));
  await writeFile(join(dir, "secret"), "s");
  await chmod(join(dir, "secret"), 0o600);
  await mkdir(join(dir, "closed"));
  await writeFile(join(dir, "closed/in"), "i");
  await writeFile(Buffer.concat([Buffer.from(join(dir, "odd-")), Buffer.from([0xff, 0x0a, 0x27])]), "odd");
  await writeFile(join(dir, "n".repeat(200)), "long");
  await utimes(join(dir, "secret"), 1e9, 1e9);
  await chmod(dir, 0o751);
  await chmod(join(dir, "closed"), 0o555);
  await utimes(join(dir, "closed"), 1.1e9, 1.1e9);
  await utimes(dir, 1.2e9, 1.2e9);
  return dir;
}

test("a directory in and out again: every file, link, mode, time and name", async () => {
  const dir = await tree();
  const sent = await cli(["cp", dir, "box:sent"]);
  assert.equal(sent.code, 0, sent.stderr);
  assert.equal(plain(await inside(`cd sent && ${LIST}`)), plain(listHere(dir)));
  assert.equal(await inside("sent/node_modules/.bin/tool"), "tool ran\n");
  const back = join(scratch, "back");
  const got = await cli(["cp", "box:sent", back]);
  assert.equal(got.code, 0, got.stderr);
  assert.equal(listHere(back), listHere(dir));
  const { copied } = JSON.parse((await cli(["cp", "--json", dir, "box:counted"])).stdout);
  assert.equal(copied, 9, "files and links, and no directories");
});

test("where a copy goes: as docker cp does it", async () => {
  const dir = join(scratch, "sem");
  await mkdir(join(dir, "d"), { recursive: true });
  await writeFile(join(dir, "d/f"), "f");
  await writeFile(join(dir, "one"), "1");
  const opts = { cwd: dir };
  await inside("mkdir -p sem/there; echo old > sem/file");
  for (const [from, to, name] of [
    ["d", "box:sem/new", "sem/new/f"], ["d", "box:sem/there", "sem/there/d/f"], ["d/", "box:sem/there/", "sem/there/d/f"],
    ["d/.", "box:sem/there", "sem/there/f"], ["d", "box:", "d/f"], ["d/.", "box:", "f"], ["one", "box:sem/there", "sem/there/one"],
    ["one", "box:sem/file", "sem/file"], ["one", "box:sem/made/", "sem/made/one"], ["one", "box:/tmp/abs", "/tmp/abs"],
  ]) {
    const got = await cli(["cp", from, to], opts);
    assert.equal(got.code, 0, `${from} ${to}: ${got.stderr}`);
    await inside(`test -s ${name}`);
  }
  assert.match((await cli(["cp", "d", "box:sem/file"], opts)).stderr, /exists in the sandbox and is no directory/);
  await inside("mkdir -p src/sub; echo s > src/sub/s");
  for (const [from, to, name] of [
    ["box:src", ".", "src/sub/s"], ["box:src", "as", "as/sub/s"], ["box:src/.", ".", "sub/s"], ["box:src/sub/s", "s2", "s2"],
    ["box:src/sub/s", "d", "d/s"], ["box:/vercel/src/sub", "d/", "d/sub/s"],
  ]) {
    const got = await cli(["cp", from, to], opts);
    assert.equal(got.code, 0, `${from} ${to}: ${got.stderr}`);
    assert.equal(await readFile(join(dir, name), "utf8"), "s\n");
  }
  assert.match((await cli(["cp", "box:src", "one"], opts)).stderr, /exists and is no directory/);
  assert.equal((await cli(["cp", "box:no/such", "x"], opts)).code, 125);
  assert.equal((await cli(["cp", "no-such", "box:"], opts)).code, 125);
  assert.equal((await cli(["cp", "one", "d"], opts)).code, 2, "wrong usage");
  assert.equal((await cli(["cp", "box:src/sub/s", "-"], opts)).stdout, "s\n");
});

test("a file comes with its mode and time", async () => {
  await inside("echo '#!/bin/sh' > tool; chmod 750 tool; touch -d @1000000000 tool");
  const to = join(scratch, "tool");
  assert.equal((await cli(["cp", "box:tool", to])).code, 0);
  const st = await lstat(to);
  assert.equal(st.mode & 0o7777, 0o750);
  assert.equal(st.mtimeMs, 1e12);
});

test("what cannot be copied is named, and the rest arrives", async () => {
  const dir = join(scratch, "special");
  await mkdir(dir);
  await writeFile(join(dir, "file"), "f");
  execFileSync("mkfifo", [join(dir, "pipe")]);
  const sent = await cli(["cp", dir, "box:special"]);
  assert.equal(sent.code, 125);
  assert.match(sent.stderr, /1 not copied:\n.*special\/pipe: neither a file/);
  assert.equal(await inside("cat special/file"), "f");
  await inside("mkfifo special/pipe; echo x > special/unreadable; chmod 0 special/unreadable");
  const got = await cli(["cp", "box:special", join(scratch, "special-back")]);
  assert.equal(got.code, 125);
  assert.match(got.stderr, /pipe: neither a file/);
  assert.match(got.stderr, /unreadable: Cannot open: Permission denied/);
  assert.equal(await readFile(join(scratch, "special-back/file"), "utf8"), "f");
});

test("a hostile sandbox writes nothing outside of the target", async () => {
  const here = join(scratch, "target"), outside = join(scratch, "outside");
  await mkdir(here);
  await mkdir(outside);
  await writeFile(join(outside, "precious"), "precious");
  const before = listHere(outside);
  // What `tar` makes in the sandbox is the sandbox's to choose: this one makes an archive of its own.
  const evil = `
const fs = require("fs");
const block = (name, type, body = "", link = "", mode = "0004777") => {
  const h = Buffer.alloc(512);
  h.write(name, 0, 100, "latin1"); h.write(mode, 100); h.write("0000000", 108); h.write("0000000", 116);
  h.write(body.length.toString(8).padStart(11, "0"), 124); h.write("00000000000", 136); h.write("        ", 148);
  h.write(type, 156); h.write(link, 157, 100, "latin1"); h.write("ustar\\0" + "00", 257);
  h.write([...h].reduce((a, b) => a + b, 0).toString(8).padStart(6, "0") + "\\0 ", 148);
  return Buffer.concat([h, Buffer.from(body), Buffer.alloc((512 - body.length % 512) % 512)]);
};
const parts = process.env.WHAT === "dots"
  ? [block("good", "0", "g"), block("../outside/precious", "0", "evil")]
  : [block("way", "2", "", ${JSON.stringify(outside)}), block("way/precious", "0", "evil"), block("way/new", "0", "evil"),
     block("hard", "1", "", ${JSON.stringify(join(outside, "precious"))}), block("dev", "3"), block("there", "0", "mine"),
     block("dirlink/precious", "0", "evil"), block("dirlink", "5"), block("suid", "0", "#!"), block("\\u001b[31mred", "6")];
const out = process.argv[process.argv.indexOf("-cf") + 1];
fs.writeFileSync(out, Buffer.concat([...parts, Buffer.alloc(1024)]));`;
  await writeFile(join(scratch, "evil.js"), evil);
  assert.equal((await cli(["cp", join(scratch, "evil.js"), "box:evil.js"])).code, 0);
  await inside("mkdir -p victim");
  const install = (what) => cli(["exec", "--sudo", "box", "--", "sh", "-c",
    `printf '#!/bin/sh\\nWHAT=${what} exec node /vercel/evil.js "$@"\\n' > /usr/local/bin/tar; chmod 755 /usr/local/bin/tar`]);
  assert.equal((await install("links")).code, 0);
  await symlink(join(outside, "precious"), join(here, "there"));
  await symlink(outside, join(here, "dirlink"));
  const got = await cli(["cp", "box:victim/.", here]);
  assert.equal(got.code, 125, got.stderr);
  assert.match(got.stderr, /way\/precious: a link or a file is in the way/);
  assert.ok(!got.stderr.includes("\u001b[31m"), "no escape sequence of the guest reaches the terminal");
  assert.equal(listHere(outside), before);
  assert.equal(await readFile(join(here, "there"), "utf8"), "mine");
  assert.ok(!(await lstat(join(here, "there"))).isSymbolicLink(), "the link was replaced");
  assert.equal(await readlink(join(here, "dirlink")), outside);
  assert.equal((await lstat(join(here, "suid"))).mode & 0o7000, 0);
  assert.deepEqual((await readdir(here)).sort(), ["dirlink", "suid", "there", "way"]);
  assert.equal((await install("dots")).code, 0);
  const dots = await cli(["cp", "box:victim/.", here]);
  assert.equal(dots.code, 125);
  assert.match(dots.stderr, /"\.\."/);
  assert.equal(listHere(outside), before);
});

test("a device and /dev/stdout are written to, never replaced, by cp and by export", async () => {
  assert.equal((await cli(["run", "--persistent", "--name", "stopped", "--", "sh", "-c", "echo mine > file"])).code, 0);
  await inside("echo hello > plain");
  const device = join(scratch, "null");
  execFileSync("mknod", ["-m", "666", device, "c", "1", "3"]);
  for (const args of [["cp", "box:plain", device], ["export", "stopped", device], ["cp", "box:plain", "/dev/null"], ["export", "stopped", "/dev/null"]]) {
    const wrote = await cli(args);
    assert.equal(wrote.code, 0, wrote.stderr);
    assert.ok((await lstat(args[2])).isCharacterDevice(), args.join(" "));
  }
  assert.deepEqual((await readdir(scratch)).filter((n) => n.includes("part-")), []);
  // A redirected /dev/stdout leads to a regular file.
  const redirected = join(scratch, "redirected.tar.zst");
  execFileSync("sh", ["-c", `'${binary}' export stopped /dev/stdout > '${redirected}'`], { env: { ...process.env, SANDBAR_URL: "", SANDBAR_DATA: server.data } });
  assert.ok((await lstat("/dev/stdout")).isSymbolicLink());
  assert.equal((await cli(["import", redirected, "--name", "again"])).code, 0);
  assert.equal((await cli(["exec", "again", "--", "cat", "file"])).stdout, "mine\n");
  // What can never become a file is said before the sandbox is packed, and nothing is made for it.
  const refused = await cli(["export", "stopped", scratch]);
  assert.equal(refused.code, 125);
  assert.match(refused.stderr, /is a directory: name a file in it/);
  // Below /dev there are directories for ordinary files too.
  const shared = `/dev/shm/${scratch.split("/").pop()}`;
  assert.equal((await cli(["cp", "box:plain", shared])).code, 0);
  assert.equal(await readFile(shared, "utf8"), "hello\n");
  await rm(shared);
  await cli(["rm", "stopped", "again"]);
});
