// The protocol's own command line, unmodified, against this server.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { binary, repo, startServer } from "../support/server.mjs";

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

const sandbox = (...args) =>
  new Promise((done) => {
    const child = execFile(process.execPath, [join(repo, "tests/clients/node_modules/sandbox/bin/sandbox.mjs"), ...args],
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

test("sh: refused with the reason, and no sandbox is left running", async () => {
  const sh = await sandbox("sh", "--name", "shell", "--timeout", "5m");
  assert.notEqual(sh.code, 0);
  assert.match(sh.stderr + sh.stdout, /interactive shells are not available/);
  assert.equal((await list()).find((s) => s.name === "shell").status, "stopped");
  const gone = await sandbox("sh", "--rm", "--timeout", "5m");
  assert.match(gone.stderr + gone.stdout, /interactive shells are not available/);
  assert.deepEqual((await list()).map((s) => s.name).sort(), ["made", "shell"]);
});

test("connect to a sandbox that is in use: refused, and it goes on", async () => {
  const connect = await sandbox("connect", "made");
  assert.notEqual(connect.code, 0);
  assert.match(connect.stderr + connect.stdout, /interactive shells are not available/);
  assert.equal((await list()).find((s) => s.name === "made").status, "running");
  assert.equal((await sandbox("rm", "made")).code, 0);
});

test("a name that is undefined gets a hint", async () => {
  const got = await server.request("GET", "/v2/sandboxes/undefined");
  assert.equal(got.status, 404);
  const { error, message } = await got.json();
  assert.match(error.message, /undefined.*the word "undefined" as the name/);
  assert.equal(message, error.message);
});
