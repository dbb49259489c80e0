// `sandbox login` and `logout` of the official CLI, unmodified, in a real terminal: OAuth's device flow on this server.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { binary, repo, startServer, until } from "../support/server.mjs";

const run = promisify(execFile);
const cli = join(repo, "tests/clients/node_modules/sandbox/bin/sandbox.mjs");
let server, home, environment;
before(async () => {
  server = await startServer();
  home = await mkdtemp(join(tmpdir(), "sandbar-test-login-"));
  // No token: only where the server is.
  environment = {
    PATH: process.env.PATH, HOME: home, NO_COLOR: "1", TERM: "xterm", VERCEL_TELEMETRY_DISABLED: "1",
    SANDBOX_SKIP_VERSION_CHECK: "1", SANDBAR_URL: server.url, NODE_OPTIONS: `--import=file://${join(repo, "sdk/register.mjs")}`,
  };
});
after(async () => {
  await server?.stop();
  if (home) await rm(home, { recursive: true });
});

const ours = (...words) => run(binary, [...words, "--data", server.data], { env: { PATH: process.env.PATH } });
const official = (...words) =>
  new Promise((done) => {
    const child = execFile(process.execPath, [cli, ...words], { env: { ...environment, CI: "1" } },
      (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });
// The auth file of the official tools; nothing when there is none.
const stored = () => readFile(join(home, ".local/share/com.vercel.cli/auth.json"), "utf8").then((text) => JSON.parse(text).token, () => undefined);
const keys = async () => (await server.call("GET", "/x/v1/keys?all=true")).keys.filter((k) => k.name.startsWith("login: "));
const form = (path, fields) => server.request("POST", path, { token: null, body: new URLSearchParams(fields).toString(), headers: { "content-type": "application/x-www-form-urlencoded" } });
const poll = async (device_code) => {
  const response = await form("/x/v1/oauth/token", { grant_type: "urn:ietf:params:oauth:grant-type:device_code", device_code });
  return { status: response.status, ...(await response.json()) };
};
const start = async () => (await form("/x/v1/oauth/device", { client_id: "x" })).json();

// `sandbox login` in a terminal; `decide` gets the code that it shows.
async function login(decide) {
  const child = spawn("python3", [join(repo, "tests/support/pseudo_terminal.py"), "120", "40", process.execPath, cli, "login"],
    { env: environment, stdio: ["pipe", "pipe", "pipe", "pipe"] });
  let text = "";
  // Without colours and links.
  child.stdout.on("data", (data) => (text += String(data).replaceAll(/\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;;[^\x07\x1b]*(\x07|\x1b\\)/g, "")));
  child.stderr.resume();
  const gone = new Promise((done) => child.on("close", done));
  const code = await until(() => /enter ([A-Z]{4}-[A-Z]{4})/.exec(text)?.[1], "a code").catch((e) => assert.fail(`${e.message}\n${text}`));
  await decide(code, text);
  return { code: await gone, text };
}

test("login: approved by its code; the CLI finds team and project itself; logout ends the key", async () => {
  const { text } = await login(async (code, shown) => {
    assert.ok(shown.includes("/login"), "it names the page");
    const { stderr } = await ours("login", "approve", code.toLowerCase());
    assert.match(stderr, /approved the login of .* at 127\.0\.0\.1: it gets the key key_\w+ \(operator, project prj_sandbar\)/);
  });
  assert.match(text, /You are now signed in/);
  assert.match(text, /team: .*team_sandbar/, "the scope is inferred");
  const token = await stored();
  assert.match(token, /^sbk_/);
  const [key] = await keys();
  assert.equal(key.role, "operator");
  assert.ok(key.expiresAt > Date.now() + 29 * 86_400_000 && key.expiresAt <= Date.now() + 30 * 86_400_000);
  assert.ok(!server.output.includes(token), "the log has no secret");

  const made = await official("create", "--name", "mine", "--timeout", "5m");
  assert.equal(made.code, 0, made.stderr);
  const ran = await official("exec", "mine", "--", "echo", "hi");
  assert.equal(ran.stdout, "hi\n", ran.stderr);
  assert.match((await official("ls")).stdout, /mine/);
  assert.equal((await official("rm", "mine")).code, 0);

  const out = await official("logout");
  assert.match(out.stdout + out.stderr, /Logged out/);
  assert.equal(await stored(), undefined);
  assert.equal((await keys())[0].state, "revoked");
  assert.equal((await server.request("GET", "/v2/user", { token })).status, 401);
});

test("login: a denied one is told so, and leaves no key", async () => {
  const before = (await keys()).length;
  const denied = await login((code) => ours("login", "deny", code));
  assert.equal(denied.code, 1, denied.text);
  assert.match(denied.text, /access_denied/);
  assert.equal(await stored(), undefined);
  assert.equal((await keys()).length, before);
});

test("a login has no more role, scope or life than its approver's key, and ends with it", async () => {
  const approver = await server.call("POST", "/x/v1/keys", { body: { name: "person", role: "operator", project: "prj_a", expiresIn: 3_600_000 } });
  const approve = (code, body, token = approver.secret) => server.request("POST", `/x/v1/logins/${code}/approve`, { token, body: JSON.stringify(body) });
  const { user_code, device_code } = await start();
  for (const body of [{ role: "admin" }, { project: "*" }, { project: "prj_b" }, { expiresIn: 7_200_000 }])
    assert.equal((await approve(user_code, body)).status, 403, JSON.stringify(body));
  assert.equal((await approve(user_code, { role: "king" })).status, 400);
  assert.equal((await poll(device_code)).error, "authorization_pending", "nothing was decided by the refusals");
  const viewer = await server.call("POST", "/x/v1/keys", { body: { name: "reader", role: "viewer" } });
  assert.equal((await approve(user_code, {}, viewer.secret)).status, 403, "a viewer approves nothing");

  const { key } = await (await approve(user_code, {})).json();
  assert.equal(key.projectId, "prj_a");
  assert.ok(key.expiresAt <= approver.key.expiresAt);
  assert.equal((await approve(user_code, {})).status, 404, "decided once");
  const got = await poll(device_code);
  assert.equal(got.token_type, "Bearer");
  assert.ok(got.expires_in <= 3600 && got.expires_in > 3500, String(got.expires_in));
  assert.equal((await poll(device_code)).error, "expired_token", "handed out once");
  const list = () => server.request("GET", "/v2/sandboxes?project=prj_a", { token: got.access_token });
  assert.equal((await list()).status, 200);
  assert.equal((await server.request("GET", "/v2/sandboxes?project=prj_b", { token: got.access_token })).status, 403);

  await server.call("DELETE", `/x/v1/keys/${approver.key.id}`);
  assert.equal((await list()).status, 401, "revoked with its approver");
  await server.crash();
  await server.start();
  assert.equal((await list()).status, 401, "also after a restart");
  assert.equal((await keys()).find((k) => k.id === key.id).state, "revoked");
});

test("what is wrong with a login is told as OAuth tells it; guesses and floods are stopped", async () => {
  const { user_code, device_code } = await start();
  assert.equal((await poll(device_code)).error, "authorization_pending");
  assert.equal((await poll(device_code)).error, "slow_down");
  assert.equal((await poll("sbd_no")).error, "expired_token");
  assert.equal((await (await form("/x/v1/oauth/token", { grant_type: "password" })).json()).error, "unsupported_grant_type");
  assert.equal((await (await form("/x/v1/oauth/token", { grant_type: "refresh_token", refresh_token: "x" })).json()).error, "invalid_grant");

  const guesser = await server.call("POST", "/x/v1/keys", { body: { name: "guesser", role: "operator" } });
  const statuses = [];
  for (let i = 0; i < 12; ++i) statuses.push((await server.request("POST", `/x/v1/logins/BBBB-BBB${"BCDFGHJKLMNP"[i]}/approve`, { token: guesser.secret })).status);
  assert.deepEqual(statuses, [...Array(10).fill(404), 429, 429]);
  assert.equal((await server.request("GET", `/x/v1/logins/${user_code}`, { token: guesser.secret })).status, 429);
  assert.equal((await server.request("GET", `/x/v1/logins/${user_code}`)).status, 200, "other keys go on");

  let refused;
  for (let i = 0; i < 30 && !refused; ++i) {
    const response = await form("/x/v1/oauth/device", { client_id: "x" });
    if (response.status !== 200) refused = { status: response.status, ...(await response.json()) };
  }
  assert.equal(refused.status, 429);
  assert.equal(refused.error, "slow_down");
});

test("the page names the command; a code in its address is no way in for markup", async () => {
  const page = async (query) => (await server.request("GET", `/login${query}`, { token: null })).text();
  assert.match(await page("?code=BCDF-GHJK"), /sandbar login approve BCDF-GHJK/);
  assert.ok(!(await page(`?code=${encodeURIComponent("<script>alert(1)</script>")}`)).includes("script"));
});

test("logout ends keys of logins only", async () => {
  const { key, secret } = await server.call("POST", "/x/v1/keys", { body: { name: "ci" } });
  for (const token of [secret, "sbk_unknown", server.token]) assert.equal((await form("/x/v1/oauth/revoke", { token })).status, 200);
  assert.equal((await server.call("GET", "/x/v1/keys")).keys.find((k) => k.id === key.id).state, "active");
  const active = async (token) => (await (await form("/x/v1/oauth/introspect", { token })).json()).active;
  assert.deepEqual([await active(secret), await active("sbk_unknown")], [true, false]);
});
