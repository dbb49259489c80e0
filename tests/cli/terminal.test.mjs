// What guests and archives choose reaches a person's terminal only as text: every remark, table and message of the
// command line is free of bytes that a terminal acts on. Only a command's own output is passed on as it is.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, startServer, until } from "../support/server.mjs";

// A window's title, a cleared screen, C1 as a character, a turned direction, an invisible joiner, a carriage return.
const EVIL = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egpj\u2066\u200b\rforged";

let server, scratch;
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-terminal-"));
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

const cli = (args) =>
  new Promise((done) => {
    const env = { ...process.env, SANDBAR_DATA: server.data };
    delete env.SANDBAR_URL, delete env.SANDBAR_TOKEN;
    const child = execFile(binary, args, { env, encoding: "buffer", maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });
// Nothing but text: valid UTF-8 without control, direction and format characters.
function harmless(bytes, where) {
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  assert.doesNotMatch(text, /[^\P{C}\n\t]/u, `${where}: ${JSON.stringify(text)}`);
  return text;
}
async function clean(args, shown) {
  const got = await cli(args);
  const text = harmless(got.stdout, args) + harmless(got.stderr, args);
  if (shown) assert.match(text, shown, args.join(" "));
  return { ...got, text };
}

test("names, errors and reasons of a guest's making", async () => {
  assert.equal((await cli(["run", "--keep", "--name", "box", "--", "true"])).code, 0);
  await clean(["ps", "-a"], /box/);
  // A command line of the guest's tools' choice, in the list of commands and in what failed.
  await clean(["exec", "box", "--", `no-such${EVIL}`], /no-such\\x1b\]0;owned\\x07/);
  assert.equal((await cli(["exec", "box", "--", "sh", "-c", "true", EVIL])).code, 0);
  await clean(["logs", "box"], /\\x1b\]0;owned/);
  await clean(["cp", `box:/vercel/${EVIL}`, "-"], /\\x1b\]0;owned/);
  await clean(["exec", "-w", `/tmp/${EVIL}`, "box", "--", "true"], /\\x1b/);
  // Files with such names: in a difference, and as what a snapshot says of itself.
  assert.equal((await cli(["exec", "box", "--", "sh", "-c", 'mkdir "/vercel/$1"; touch "/vercel/$1/file"', "sh", EVIL])).code, 0);
  await clean(["stop", "box"]);
  const { text } = await clean(["snapshot", "ls", "box"], /snap_/);
  await clean(["diff", /snap_\w+/.exec(text)[0]], /%1B/);
  await clean(["inspect", "box"]);
  await clean(["race", "box", "-n", "2", "--", `no-such${EVIL}`]);
  await clean(["fork", "box", "--as", EVIL]);
  await clean(["rm", EVIL], /\\x1b/);
});

test("hosts that a guest asks for", async () => {
  // By DNS, as one label of a name, and by the Host of a request where the policy reads it.
  const script = `const net = require("net"), dgram = require("dgram"), evil = Buffer.from(process.argv[1].replace("\\r", ""));
    const query = Buffer.concat([Buffer.from([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, evil.length]), evil, Buffer.from([4]), Buffer.from("test"), Buffer.from([0, 0, 1, 0, 1])]);
    const ask = () => new Promise((done) => { const u = dgram.createSocket("udp4"); u.on("message", () => (u.close(), done())); u.send(query, 53, "192.0.2.53"); setTimeout(done, 3000).unref(); });
    const get = () => new Promise((done) => { const s = net.connect(80, "192.0.2.7", () => s.write(Buffer.concat([Buffer.from("GET / HTTP/1.1\\r\\nHost: "), evil, Buffer.from("\\r\\n\\r\\n")])));
      s.on("data", () => {}).on("close", done).on("error", done); setTimeout(done, 3000).unref(); });
    ask().then(get).then(() => process.exit())`;
  const ran = await cli(["run", "--keep", "--name", "asker", "--allow", "example.com", "--", "node", "-e", script, EVIL]);
  harmless(ran.stderr, "the remarks of run");
  await clean(["net", "log", "asker"], /owned/);
  await clean(["net", "suggest", "asker"]);
});

test("a command's own output is passed on as it is", async () => {
  const got = await cli(["run", "--", "printf", "\\033[31mred\\033[0m"]);
  assert.equal(got.stdout.toString(), "\x1b[31mred\x1b[0m");
});

test("archives", async () => {
  const make = async (name, settings) => {
    const file = join(scratch, "evil.tar.zst");
    execFileSync("python3", ["-c", `
import io, json, sys, tarfile
name, settings = sys.argv[1], sys.argv[2].encode()
out = tarfile.open(sys.argv[3], "w", format=tarfile.USTAR_FORMAT)
for n, data in ((name, settings), ("deleted", b""), ("files.tar", b"\\0" * 1024)):
    info = tarfile.TarInfo(n); info.size = len(data); out.addfile(info, io.BytesIO(data))
out.close()`, name, JSON.stringify(settings), `${file}.tar`]);
    execFileSync("zstd", ["-qf", `${file}.tar`, "-o", file]);
    return file;
  };
  await clean(["import", await make(`x${EVIL}`, {})], /not an archive of sandbar: it holds "x\\x1b/);
  const settings = { format: 1, name: `n${EVIL}`, image: `i${EVIL}`, vcpus: 2 };
  const got = await clean(["import", await make("sandbar.json", settings)], /error/);
  assert.notEqual(got.code, 0);
  await writeFile(join(scratch, `${"bad"}.tar.zst`), EVIL);
  await clean(["import", join(scratch, "bad.tar.zst")], /error/);
});

test("the server's own logs", async () => {
  await until(async () => (await server.spawnerLog()).length > 0, "there is a log");
  harmless(Buffer.from(server.output), "the server's log");
  harmless(await readFile(join(server.data, "log/spawner.log")), "the spawner's log");
});
