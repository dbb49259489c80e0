// The protocol's own command line, unmodified, against this server.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, repo, startServer, until } from "../support/server.mjs";

let server, environment;
before(async () => {
  server = await startServer();
  const lines = await new Promise((done, fail) =>
    execFile(binary, ["env", "--json", "--data", server.data], (error, stdout) => (error ? fail(error) : done(JSON.parse(stdout)))));
  environment = {
    PATH: process.env.PATH, HOME: "/nonexistent", CI: "1", NO_COLOR: "1", VERCEL_TELEMETRY_DISABLED: "1",
    SANDBAR_URL: lines.SANDBAR_URL, VERCEL_OIDC_TOKEN: lines.VERCEL_OIDC_TOKEN, NODE_OPTIONS: `--import=file://${lines.register}`,
  };
});
after(() => server?.stop());

const cli = join(repo, "tests/clients/node_modules/sandbox/bin/sandbox.mjs");
const sandbox = (...args) =>
  new Promise((done) => {
    const child = execFile(process.execPath, [cli, ...args],
      { env: environment }, (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });
const list = async () => (await server.call("GET", "/v2/sandboxes?project=prj_sandbar&limit=50")).sandboxes;

test("create, exec, remove work; nothing but their answers names a port for shells", async () => {
  const made = await sandbox("create", "--name", "made", "--timeout", "5m");
  assert.equal(made.code, 0, made.stderr);
  const ran = await sandbox("exec", "made", "--", "echo", "hi");
  assert.equal(ran.stdout, "hi\n", ran.stderr);
  const { session } = await server.call("GET", "/v2/sandboxes/made?project=prj_sandbar");
  assert.equal("interactivePort" in session, false);
});

// The same in a real terminal of 99 columns and 33 rows. `steps`: [what the screen shows, what is typed then].
async function inTerminal(args, steps) {
  const child = spawn("python3", [join(repo, "tests/support/pseudo_terminal.py"), "99", "33", process.execPath, cli, ...args],
    { env: { ...environment, CI: "", TERM: "xterm", SANDBOX_SKIP_VERSION_CHECK: "1" }, stdio: ["pipe", "pipe", "pipe", "pipe"] });
  const seen = { text: "" };
  child.stdout.on("data", (data) => (seen.text += data));
  child.stderr.resume();
  const gone = new Promise((done) => child.on("close", done));
  for (const [shown, typed] of steps) {
    await until(() => shown.test(seen.text), `${args}: ${shown}`).catch((e) => assert.fail(`${e.message}\n${seen.text}`));
    child.stdin.write(typed);
  }
  seen.code = await gone;
  return seen;
}

test("sh: a terminal of the right size, and the exit code of the shell", async () => {
  const sh = await inTerminal(["sh", "--name", "shell", "--timeout", "5m"],
    [[/vercel\/? ?[^\n]*$/, "stty size\n"], [/33 99/, "echo $((40+2))\n"], [/\n42\s/, "exit 7\n"]]);
  assert.equal(sh.code, 7, sh.text);
  assert.equal((await list()).find((s) => s.name === "shell").status, "running");
});

test("connect and exec -i: Ctrl-C ends the program, not the shell; sudo works", async () => {
  const connect = await inTerminal(["connect", "shell"],
    [[/vercel\/? ?[^\n]*$/, "cat\n"], [/cat\s/, "seen\n"], [/seen\s+seen\s/, "\x03"], [/\^C[^]*vercel[^\n]*$/, "echo still $((40+2))\n"], [/still 42/, "exit 3\n"]]);
  assert.equal(connect.code, 3, connect.text);
  const exec = await inTerminal(["exec", "-i", "--sudo", "shell", "--", "sh", "-c", "id -u; tty; exit 9"], []);
  assert.match(exec.text, /\b0\s+\/dev\/pts\/\d+/);
  assert.equal(exec.code, 9, exec.text);
});

test("create --connect: a new sandbox and a shell in it", async () => {
  const made = await inTerminal(["create", "--name", "joined", "--timeout", "5m", "--connect"],
    [[/vercel\/? ?[^\n]*$/, "echo in $((40+2))\n"], [/in 42/, "exit 4\n"]]);
  assert.equal(made.code, 4, made.text);
  assert.equal((await sandbox("rm", "joined")).code, 0);
});

test("a shell that cannot start: told, and the sandbox that was made for it does not go on", async () => {
  const made = await inTerminal(["run", "-i", "--timeout", "5m", "--", "no-such-program"], []);
  assert.notEqual(made.code, 0);
  assert.match(made.text, /executable file not found/);
  assert.deepEqual((await list()).filter((s) => s.status === "running").map((s) => s.name).sort(), ["made", "shell"]);
  assert.equal((await sandbox("rm", "made", "shell")).code, 0);
});

test("a name that is undefined gets a hint", async () => {
  const got = await server.request("GET", "/v2/sandboxes/undefined");
  assert.equal(got.status, 404);
  const { error, message } = await got.json();
  assert.match(error.message, /undefined.*the word "undefined" as the name/);
  assert.equal(message, error.message);
});
