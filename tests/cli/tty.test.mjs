// `sandbar run -it`, `exec -it`, `sh` and `attach` in a real pseudo-terminal (tests/support/pseudo_terminal.py): sizes, signals, job
// control, an editor, leaving and coming back.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, repo, sleep, startServer, until } from "../support/server.mjs";

let server;
before(async () => {
  server = await startServer();
  assert.equal((await cli(["run", "--keep", "--name", "box", "--", "true"])).code, 0);
});
after(() => server?.stop());

const environment = () => {
  const clean = { ...process.env, SANDBAR_DATA: server.data, TERM: "xterm" };
  for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN"]) delete clean[name];
  return clean;
};
const cli = (args) =>
  new Promise((done) => {
    const child = execFile(binary, args, { env: environment(), maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });

class Terminal {
  constructor(args, { cols = 91, rows = 33, env = {} } = {}) {
    this.screen = "";
    this.said = "";
    this.child = spawn("python3", [join(repo, "tests/support/pseudo_terminal.py"), cols, rows, binary, ...args],
      { env: { ...environment(), ...env }, stdio: ["pipe", "pipe", "pipe", "pipe"] });
    this.child.stdout.on("data", (piece) => (this.screen += piece));
    this.child.stderr.on("data", (piece) => (this.said += piece));
    this.child.stdin.on("error", () => {});
    this.ended = new Promise((done) => this.child.once("close", (code) => done(code)));
  }
  type(keys) {
    this.child.stdin.write(keys);
  }
  resize(cols, rows) {
    this.child.stdio[3].write(`${cols} ${rows}\n`);
  }
  // Waits until the screen shows it, after what `see` has returned before.
  async see(what) {
    const found = () => (what instanceof RegExp ? what.exec(this.screen.slice(this.from)) : null) ??
      (typeof what === "string" && this.screen.indexOf(what, this.from) >= 0 ? { index: this.screen.indexOf(what, this.from) - this.from, 0: what } : null);
    const hit = await until(found, `the screen shows ${what}`, 300).catch((error) => {
      throw new Error(`${error.message}\n${JSON.stringify(this.screen)}\n${this.said}`);
    });
    this.from += hit.index + hit[0].length;
    return hit;
  }
  from = 0;
  async left(code) {
    const got = await this.ended;
    assert.equal(got, code, `${JSON.stringify(this.screen)}\n${this.said}`);
    assert.match(this.said, /restored\n$/, "the terminal's settings");
  }
}

test("exec -it: a terminal of this size, the exit code, the settings restored", async () => {
  const t = new Terminal(["exec", "-it", "box", "--", "sh", "-c", "tty; stty size; echo $TERM; exit 7"]);
  await t.see(/\/dev\/pts\/\d+\r\n33 91\r\nxterm\r\n/);
  await t.left(7);
});

test("without a command: a login shell, which follows the window's size", async () => {
  const t = new Terminal(["exec", "box"]);
  t.type("echo $((6*7)); stty size\n");
  await t.see(/42\r\n33 91\r\n/);
  t.resize(100, 40);
  t.type("sleep 0.3; stty size\n");
  await t.see("40 100\r\n");
  t.type("exit 9\n");
  await t.left(9);
});

test("sh: a new sandbox that is kept, and with --rm one that is not", async () => {
  const kept = new Terminal(["sh", "--name", "shell"]);
  kept.type("echo mine > file; exit\n");
  await kept.left(0);
  assert.match(kept.screen, /shell is kept, running/);
  assert.equal((await cli(["exec", "shell", "--", "cat", "file"])).stdout, "mine\n");
  await cli(["rm", "shell"]);
  const gone = new Terminal(["sh", "--rm", "--name", "brief"]);
  gone.type("exit 4\n");
  await gone.left(4);
  assert.doesNotMatch((await cli(["ps", "-a"])).stdout, /brief/);
});

test("Ctrl-C ends the program in the foreground, Ctrl-Z and fg are job control", async () => {
  const t = new Terminal(["exec", "box"]);
  // A program that answers is in the foreground.
  t.type("sed -u s/o/0/; echo code=$?\nzero\n");
  await t.see(/zer0\r\n/);
  t.type("\x03");
  await t.see(/\^C[^]*\$ $/);
  t.type("echo alive\n");
  await t.see(/[\r\n]alive\r\n/);
  t.type("sed -u s/o/0/ | tee typed\none\n");
  await t.see(/0ne\r\n/);
  t.type("\x1a");
  await t.see(/Stopped/);
  t.type("fg\n");
  t.type("two\n");
  await t.see(/tw0\r\n/);
  t.type("\x04");
  t.type("wc -l typed\n");
  await t.see(/[\r\n]2 typed/);
  t.type("exit\n");
  await t.left(0);
});

test("an editor writes a file", async (t) => {
  if ((await cli(["exec", "box", "--", "sh", "-c", "command -v vi"])).code !== 0) return t.skip("the image has no vi");
  const vi = new Terminal(["exec", "-it", "box", "--", "vi", "note"]);
  await vi.see(/~/);
  vi.type("ihello from vi\x1b");
  await sleep(500);
  vi.type(":wq\r");
  await vi.left(0);
  assert.equal((await cli(["exec", "box", "--", "cat", "note"])).stdout, "hello from vi\n");
});

test("leave with Ctrl-P Ctrl-Q, attach again: the screen is drawn anew, others may watch", async () => {
  const program = `process.stdout.on("resize", () => console.log("size " + process.stdout.rows + " " + process.stdout.columns));
    require("readline").createInterface({ input: process.stdin }).on("line", (x) => { console.log("got", x); if (x === "end") process.exit(6); });
    console.log("ready");`;
  const t = new Terminal(["exec", "-it", "box", "--", "node", "-e", program]);
  await t.see("ready");
  t.type("first\n");
  await t.see("got first");
  t.type("\x10\x11");
  const [, id] = await t.see(/sandbar attach box (cmd_\w+)/);
  await t.left(0);
  const back = new Terminal(["attach", "box"], { cols: 70, rows: 20 });
  await back.see("got first");
  await back.see("size 20 69");
  await back.see("size 20 70");
  const watcher = new Terminal(["attach", "-n", "box", id], { cols: 70, rows: 20 });
  await watcher.see("got first");
  const same = new Terminal(["attach", "box", id], { cols: 70, rows: 20 });
  await same.see(/size 20 69[^]*size 20 70[^]*size 20 69[^]*size 20 70/);
  same.type("\x10\x11");
  await same.left(0);
  back.type("second\n");
  await back.see("got second");
  await watcher.see("got second");
  back.type("end\n");
  await back.left(6);
  await watcher.left(6);
  assert.match((await cli(["attach", "box"])).stderr, /no command runs in box\n\s+fix: \S*sandbar sh box/);
});

test("a key that may only read watches; attach -n says how to leave", async () => {
  const t = new Terminal(["exec", "-it", "box", "--", "sh", "-c", "echo ready; read x; echo got $x"]);
  await t.see("ready");
  const { secret } = JSON.parse((await cli(["key", "create", "reader", "--role", "viewer", "--project", "*", "--json"])).stdout);
  const viewer = new Terminal(["attach", "box"], { env: { SANDBAR_URL: server.url, SANDBAR_TOKEN: secret } });
  await viewer.see("ready");
  viewer.type("no");
  await viewer.see(/your key may only watch/);
  const watcher = new Terminal(["attach", "-n", "box"]);
  await watcher.see(/watching only; Ctrl-C leaves/);
  t.type("yes\n");
  await t.see("got yes");
  await t.left(0);
  await viewer.left(0);
  await watcher.left(0);
});

test("a signal restores the terminal; the command goes on", async () => {
  const t = new Terminal(["exec", "-it", "box", "--", "sh", "-c", "echo ready; sleep 1000"]);
  await t.see("ready");
  t.child.kill("SIGTERM");
  await t.see(/goes on in box/);
  await t.left(143);
  const list = (await cli(["logs", "box"])).stdout;
  assert.match(list, /running .*echo ready/);
});

test("the server is killed and restarted under a terminal", async () => {
  const t = new Terminal(["exec", "-it", "box", "--", "sh"]);
  t.type("echo $((40 + 2))\n");
  await t.see(/\n42\r\n/);
  await server.crash();
  t.type("echo typed $((50 + 5))\n");
  await sleep(300);
  await server.start();
  await t.see(/\ntyped 55\r\n/);
  t.type("exit 3\n");
  await t.left(3);
});

test("Ctrl-C without a terminal reaches the command first; the second one leaves", async () => {
  const start = (args) => {
    const child = spawn(binary, args, { env: environment(), stdio: ["ignore", "pipe", "pipe"] });
    const seen = { out: "", err: "" };
    child.stdout.on("data", (piece) => (seen.out += piece));
    child.stderr.on("data", (piece) => (seen.err += piece));
    return { child, seen, ended: new Promise((done) => child.once("close", done)) };
  };
  const polite = start(["exec", "box", "--", "sh", "-c", "trap 'echo cleaned; exit 8' INT; echo up; while :; do sleep 0.1; done"]);
  await until(() => polite.seen.out.includes("up"), "it runs");
  polite.child.kill("SIGINT");
  assert.equal(await polite.ended, 8);
  assert.match(polite.seen.out, /cleaned/);
  const deaf = start(["exec", "box", "--", "sh", "-c", "trap 'echo heard' INT; echo up; while :; do sleep 0.1; done"]);
  await until(() => deaf.seen.out.includes("up"), "it runs");
  deaf.child.kill("SIGINT");
  await until(() => deaf.seen.out.includes("heard"), "it was told");
  deaf.child.kill("SIGINT");
  assert.equal(await deaf.ended, 130);
  assert.match(deaf.seen.err, /goes on in box; its output: \S*sandbar logs -f box cmd_/);
});
