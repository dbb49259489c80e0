// Keys on the real server: which key may make which others, what each role may do, and when a key and its streams end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, createHmac } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { binary, startServer, until } from "../support/server.mjs";

const run = promisify(execFile);
let server;
before(async () => (server = await startServer()));
after(() => server?.stop());

const make = (fields, token) => server.call("POST", "/x/v1/keys", { body: { name: "ci", ...fields }, token });
const ask = async (method, path, options) => {
  const response = await server.request(method, path, options);
  return { status: response.status, text: await response.text() };
};
const cli = (words, env = {}) => run(binary, [...words, "--data", server.data], { env: { PATH: process.env.PATH, ...env } });
const lines = (text) => text.split("\n").filter(Boolean).map((l) => JSON.parse(l));
const envToken = async (token) => /VERCEL_OIDC_TOKEN='([^']+)'/.exec((await ask("GET", "/sdk/env.sh", { token })).text)[1];
const started = async () => {
  const { sandbox, session } = await server.create({ runtime: "node24", projectId: "prj_sandbar" });
  const cmd = `/v2/sandboxes/sessions/${session.id}/cmd`;
  const listen = "require('net').createServer(() => {}).listen(8080, () => console.log('listens'))";
  const { command } = await server.call("POST", cmd, { body: { command: "node", args: ["-e", listen], env: {}, sudo: false } });
  return { sandbox, session, logs: `${cmd}/${command.id}/logs` };
};

test("a key is made, listed and revoked; its secret is shown once and is nowhere on disk", async () => {
  const { key, secret } = await make({ role: "operator", expiresIn: 3_600_000 });
  assert.match(key.id, /^key_\w{24}$/);
  assert.match(secret, /^sbk_\w{48}$/);
  assert.equal(key.role, "operator");
  assert.equal(key.state, "active");
  assert.ok(key.expiresAt > Date.now());
  assert.equal((await ask("GET", "/v2/sandboxes", { token: secret })).status, 200);
  const { keys } = await server.call("GET", "/x/v1/keys");
  const first = keys.at(-1);
  assert.equal(first.madeBy, "server");
  assert.equal(first.role, "admin");
  assert.equal(keys.find((k) => k.id === key.id).madeBy, first.id);
  assert.ok(keys.find((k) => k.id === key.id).lastUsedAt <= Date.now());
  const hash = createHash("sha256").update(secret).digest("hex");
  const listed = JSON.stringify(keys);
  assert.ok(!listed.includes(secret) && !listed.includes(hash) && !listed.includes(server.token), listed);
  assert.ok(!server.output.includes(secret) && !server.output.includes(server.token), server.output);
  for (const file of ["sandbar.db", "sandbar.db-wal"])
    assert.ok(!(await readFile(join(server.data, file)).catch(() => Buffer.alloc(0))).includes(secret), file);
  for (const file of ["token", "token.id"]) assert.equal((await stat(join(server.data, file))).mode & 0o777, 0o600, file);

  const revoked = await server.call("DELETE", `/x/v1/keys/${key.id}`);
  assert.equal(revoked.key.state, "revoked");
  assert.deepEqual(await server.call("DELETE", `/x/v1/keys/${key.id}`), revoked, "again: the same");
  const refused = await ask("GET", "/v2/sandboxes", { token: secret });
  assert.equal(refused.status, 401);
  assert.match(refused.text, /revoked/);
  assert.ok(!(await server.call("GET", "/x/v1/keys")).keys.some((k) => k.id === key.id));
  assert.ok((await server.call("GET", "/x/v1/keys?all=true")).keys.some((k) => k.id === key.id));
  assert.equal((await ask("DELETE", "/x/v1/keys/key_none")).status, 404);
});

test("every route refuses every key that has less than its role, and every key that has ended", async () => {
  const { routes } = await server.call("GET", "/x/v1/routes");
  const rank = { viewer: 0, operator: 1, admin: 2 };
  const [viewer, operator, revoked, expired] = await Promise.all([
    make({ name: "matrix", role: "viewer" }), make({ name: "matrix", role: "operator" }), make({ role: "admin" }), make({ role: "admin", expiresIn: 2000 }),
  ]);
  const tokens = {
    viewer: [viewer.secret, await envToken(viewer.secret)],
    operator: [operator.secret, await envToken(operator.secret), await envToken(server.token)],
    ended: [revoked.secret, await envToken(revoked.secret), expired.secret, await envToken(expired.secret)],
  };
  await server.call("DELETE", `/x/v1/keys/${revoked.key.id}`);
  await until(async () => (await ask("GET", "/v2/sandboxes", { token: expired.secret })).status === 401, "the key has expired");
  const counted = { viewer: 0, operator: 0, ended: 0 };
  for (const { method, pattern, auth, role } of routes) {
    assert.equal(auth, role !== undefined, pattern);
    if (!auth) continue;
    const path = pattern.replace(/\{[^}]+\}/g, "nothing-has-this-name");
    const body = method === "GET" || method === "DELETE" ? undefined : {};
    for (const [kind, list] of Object.entries(tokens)) {
      for (const token of list) {
        const { status, text } = await ask(method, path, { token, body });
        const said = `${method} ${pattern} by ${kind}: ${status} ${text.slice(0, 200)}`;
        if (kind === "ended") assert.equal(status, 401, said);
        else if (rank[kind] < rank[role]) {
          assert.equal(status, 403, said);
          assert.match(JSON.parse(text).error.message, new RegExp(`; this call needs ${role}$`), said);
        } else {
          assert.ok(status !== 401 && status !== 403 && status < 500, said);
          continue;
        }
        counted[kind]++;
      }
    }
  }
  assert.ok(counted.viewer > 100 && counted.operator >= 12 && counted.ended > 300, JSON.stringify(counted));
});

test("a viewer reads and does nothing else", async () => {
  const { secret: token } = await make({ name: "dashboard", role: "viewer" });
  const { sandbox, session, logs } = await started();
  assert.equal((await ask("GET", "/v2/sandboxes", { token })).status, 200);
  const read = await ask("POST", `/v2/sandboxes/sessions/${session.id}/fs/read`, { token, body: { path: "/etc/hostname" } });
  assert.equal(read.status, 200, read.text);
  const log = await server.request("GET", logs, { token });
  assert.equal(log.status, 200);
  await log.body.cancel();
  const refused = [
    ["POST", "/v2/sandboxes", { projectId: "prj_sandbar" }],
    ["GET", `/v2/sandboxes/${sandbox.name}?resume=true`],
    ["POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { command: "true", args: [], env: {}, sudo: false }],
    ["POST", `/v2/sandboxes/sessions/${session.id}/stop`, {}],
    ["GET", `/x/v1/sessions/${session.id}/ports/8080`],
    ["POST", "/x/v1/keys", { name: "more", role: "viewer" }],
    ["GET", "/x/v1/keys"],
  ];
  for (const [method, path, body] of refused) {
    const { status, text } = await ask(method, path, { token, body });
    assert.equal(status, 403, `${method} ${path}: ${text}`);
    assert.match(JSON.parse(text).error.message, /^the key dashboard may only read; this call needs (operator|admin)$/);
  }
  const jwt = await envToken(token);
  assert.equal((await ask("GET", "/v2/sandboxes", { token: jwt })).status, 200);
  assert.equal((await ask("POST", "/v2/sandboxes", { token: jwt, body: { projectId: "prj_sandbar" } })).status, 403);
  assert.deepEqual((await server.call("GET", "/x/v1/info", { token })).key.role, "viewer");

  // The tools of MCP have roles of their own.
  const rpc = async (method, params = {}) => {
    const { status, text } = await ask("POST", `/mcp/s/${sandbox.name}`, { token, body: { jsonrpc: "2.0", id: 1, method, params } });
    return { status, ...JSON.parse(text) };
  };
  const tools = (await rpc("tools/list")).result.tools.map((tool) => tool.name);
  assert.deepEqual(tools.sort(), ["read_file", "read_output"]);
  const hosts = await rpc("tools/call", { name: "read_file", arguments: { path: "/etc/hosts" } });
  assert.match(hosts.result.content[0].text, /localhost/);
  const command = await rpc("tools/call", { name: "run_command", arguments: { command: "touch /tmp/x" } });
  assert.equal(command.status, 403);
  assert.match(command.error.message, /^the key dashboard may only read; this call needs operator$/);
  const kill = await rpc("tools/call", { name: "read_output", arguments: { handle: logs.split("/").at(-2), kill: true } });
  assert.ok(kill.result.isError && /needs operator/.test(kill.result.content[0].text), JSON.stringify(kill));
  // Its call makes no sandbox.
  const missing = await ask("POST", "/mcp/s/not-there", { token, body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "read_file", arguments: { path: "/x" } } } });
  assert.match(missing.text, /not found/);
  assert.equal((await ask("GET", "/v2/sandboxes/not-there")).status, 404);
});

test("no key makes another with more role, scope or life", async () => {
  const { key, secret: token } = await make({ role: "admin", project: "prj_a", expiresIn: 600_000 });
  const { secret: operator } = await make({ role: "operator" });
  assert.equal((await ask("POST", "/x/v1/keys", { token: operator, body: { name: "x", role: "viewer" } })).status, 403);
  const refused = [
    [{ project: "*" }, /`project`/],
    [{ project: "prj_b" }, /`project`/],
    [{ expiresIn: 3_600_000 }, /`expiresIn`/],
  ];
  for (const [fields, message] of refused) {
    const { status, text } = await ask("POST", "/x/v1/keys", { token, body: { name: "x", ...fields } });
    assert.equal(status, 403, text);
    assert.match(JSON.parse(text).error.message, message);
  }
  assert.ok((await make({}, token)).key.expiresAt <= key.expiresAt);
  // An admin's short-lived token is for programs: it manages no keys.
  const jwt = await envToken(token);
  assert.equal((await ask("GET", "/x/v1/keys", { token: jwt })).status, 403);
  // Keys of others are unknown to it.
  const all = (await server.call("GET", "/x/v1/keys")).keys;
  const own = JSON.parse((await ask("GET", "/x/v1/keys", { token })).text).keys;
  assert.ok(own.every((k) => k.projectId === "prj_a") && own.length < all.length);
  assert.equal((await ask("DELETE", `/x/v1/keys/${all.at(-1).id}`, { token })).status, 404);
  for (const [body, field] of [[{}, "name"], [{ name: "a", role: "root" }, "role"], [{ name: "a", expiresIn: -1 }, "expiresIn"], [{ name: "a", project: "a/b" }, "project"]]) {
    const { status, text } = await ask("POST", "/x/v1/keys", { body });
    assert.equal(status, 400, text);
    assert.ok(text.includes(`\`${field}\``), text);
  }
});

test("a revoked key ends what it and its tokens opened, within seconds", async () => {
  const { key, secret } = await make({ name: "leaked" });
  const { session, logs } = await started();
  const jwt = await envToken(secret);
  const [own, minted] = await Promise.all([secret, jwt].map((token) => server.request("GET", logs, { token })));
  assert.equal(own.status, 200);
  assert.equal(minted.status, 200);
  const socket = await until(() => new Promise((done, fail) => {
    const headers = { authorization: `Bearer ${secret}`, connection: "Upgrade", upgrade: "sandbar-tcp" };
    const q = request(`${server.url}/x/v1/sessions/${session.id}/ports/8080`, { headers }, (r) => r.resume() && done(null));
    q.on("upgrade", (_, upgraded) => done(upgraded)).on("error", fail).end();
  }), "the port is forwarded");
  const gone = new Promise((done) => socket.on("error", () => {}).once("close", done).resume());
  const before = Date.now();
  await server.call("DELETE", `/x/v1/keys/${key.id}`);
  for (const response of [own, minted]) {
    const seen = lines(await response.text()); // returns only because the key has ended
    assert.equal(seen.at(-1).data.code, "unauthorized");
    assert.match(seen.at(-1).data.message, /key that opened this was revoked/);
  }
  await gone;
  assert.ok(Date.now() - before < 10_000, `${Date.now() - before} ms`);
  assert.equal((await ask("GET", "/v2/sandboxes", { token: jwt })).status, 401);
  assert.equal((await server.call("GET", `/v2/sandboxes/sessions/${session.id}`)).session.status, "running");
});

test("a rotated key is replaced: the former one and its tokens end", async () => {
  const { key, secret } = await make({ name: "nightly", role: "viewer", project: "prj_n", expiresIn: 3_600_000 });
  const jwt = await envToken(secret);
  const next = await server.call("POST", `/x/v1/keys/${key.id}/rotate`);
  assert.notEqual(next.key.id, key.id);
  for (const field of ["name", "role", "projectId", "teamId", "expiresAt"]) assert.equal(next.key[field], key[field], field);
  assert.equal((await ask("GET", "/v2/sandboxes", { token: next.secret })).status, 200);
  for (const token of [secret, jwt]) assert.equal((await ask("GET", "/v2/sandboxes", { token })).status, 401);
  assert.equal((await ask("POST", `/x/v1/keys/${key.id}/rotate`)).status, 409);
  assert.equal((await ask("POST", "/x/v1/keys/key_none/rotate")).status, 404);
  // The secret of a key that lives longer would be more life for the caller.
  const { secret: short } = await make({ role: "admin", project: "prj_n", expiresIn: 60_000 });
  assert.equal((await ask("POST", `/x/v1/keys/${next.key.id}/rotate`, { token: short })).status, 403);
  assert.equal((await ask("GET", "/v2/sandboxes", { token: next.secret })).status, 200);
});

test("an expired key is refused, and so are its tokens and streams", async () => {
  const { logs } = await started(); // first: the key's time is for the two calls with it
  const { secret } = await make({ name: "short", expiresIn: 8000 });
  const jwt = await envToken(secret);
  const response = await server.request("GET", logs, { token: secret });
  assert.equal(response.status, 200);
  assert.match(lines(await response.text()).at(-1).data.message, /has expired/);
  await until(async () => (await ask("GET", "/v2/sandboxes", { token: secret })).status === 401, "the key has expired");
  assert.equal((await ask("GET", "/v2/sandboxes", { token: jwt })).status, 401, "without the leeway of a JWT");
});

test("the command line", async () => {
  const made = await cli(["key", "create", "from the cli", "--role", "viewer", "--expires", "30d"]);
  const secret = made.stdout.trim();
  assert.match(secret, /^sbk_\w+$/);
  assert.match(made.stderr, /shown only now/);
  assert.match((await cli(["key", "ls"])).stdout, /from the cli +viewer +prj_sandbar +active/);
  const other = { SANDBAR_URL: server.url, SANDBAR_TOKEN: secret };
  const ps = await run(binary, ["ps"], { env: { PATH: process.env.PATH, ...other } });
  assert.match(ps.stdout, /NAME/);
  await assert.rejects(run(binary, ["key", "ls"], { env: { PATH: process.env.PATH, ...other } }), /may only read; this call needs admin/);
  await cli(["key", "revoke", "from the cli"]);
  await assert.rejects(run(binary, ["ps"], { env: { PATH: process.env.PATH, ...other } }), /revoked/);
  const json = JSON.parse((await cli(["key", "create", "j", "--json"])).stdout);
  assert.equal(json.key.role, "operator");
  const again = JSON.parse((await cli(["key", "create", "j", "--json"])).stdout);
  await assert.rejects(cli(["key", "revoke", "j"]), /2 keys have the name j/);
  await cli(["key", "revoke", json.key.id, again.key.id]);
  assert.doesNotMatch((await cli(["key", "ls"])).stdout, / j /);
  assert.match((await cli(["key", "ls", "-a"])).stdout, / j +operator +prj_sandbar +revoked/);
  assert.equal((await cli(["token"])).stdout.trim(), server.token);
  await cli(["key", "create", "turning"]);
  const turned = await cli(["key", "rotate", "turning"]);
  assert.match(turned.stdout.trim(), /^sbk_\w+$/);
  assert.match((await cli(["key", "ls", "-a"])).stdout, / turning .* revoked/);
  const local = /VERCEL_OIDC_TOKEN='([^']+)'/.exec((await cli(["env"])).stdout)[1];
  const claims = JSON.parse(Buffer.from(local.split(".")[1], "base64url"));
  assert.equal(claims.key, (await readFile(join(server.data, "token.id"), "utf8")).trim());
  assert.equal(claims.role, "operator");
  assert.equal((await ask("GET", "/v2/sandboxes", { token: local })).status, 200);
});

test("the first key is rotated with its file", async () => {
  const own = await startServer();
  try {
    const before = own.token;
    const { keys } = await own.call("GET", "/x/v1/keys");
    const next = await own.call("POST", `/x/v1/keys/${keys[0].id}/rotate`);
    assert.equal((await own.request("GET", "/v2/sandboxes")).status, 401);
    const { stdout } = await run(binary, ["token", "--data", own.data], { env: { PATH: process.env.PATH } });
    assert.equal(stdout.trim(), next.secret);
    await own.stop({ keepData: true });
    const again = await startServer({ data: own.data });
    try {
      assert.equal(again.token, next.secret);
      assert.equal((await again.request("GET", "/v2/sandboxes")).status, 200);
      assert.equal((await again.request("GET", "/v2/sandboxes", { token: before })).status, 401);
    } finally {
      await again.stop();
    }
  } finally {
    await own.stop();
  }
});

test("the data directory of the release before: its token and JWTs go on", async () => {
  const old = await startServer();
  try {
    const jwtKey = (await readFile(join(old.data, "jwt.key"), "utf8")).trim();
    await old.stop({ keepData: true });
    // The schema before keys had roles, with the token that it had.
    const downgrade = `import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/sandbar.db")
for column in ("role", "expires_at", "revoked_at", "made_by", "last_used_at", "ends_with"): db.execute("ALTER TABLE tokens DROP COLUMN " + column)
db.execute("UPDATE tokens SET id = 'tok_0123456789abcdef01234567'")
db.execute("PRAGMA user_version = 12")
db.commit()
os.remove(sys.argv[1] + "/token.id")`;
    await run("python3", ["-c", downgrade, old.data]);
    const upgraded = await startServer({ data: old.data });
    try {
      assert.equal(upgraded.token, old.token);
      const { keys } = await upgraded.call("GET", "/x/v1/keys");
      assert.deepEqual(keys.map((k) => [k.id, k.role, k.teamId, k.projectId]), [["tok_0123456789abcdef01234567", "admin", "*", "*"]]);
      const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
      const exp = Math.floor(Date.now() / 1000) + 600;
      const text = `${part({ alg: "HS256", typ: "JWT" })}.${part({ aud: "sandbar", owner_id: "team_sandbar", project_id: "prj_x", exp })}`;
      const token = `${text}.${createHmac("sha256", jwtKey).update(text).digest("base64url")}`;
      assert.equal((await upgraded.request("GET", "/v2/sandboxes", { token })).status, 200);
      assert.equal((await upgraded.request("GET", "/x/v1/keys", { token })).status, 403);
      // They were made for that one token, and end with it.
      await upgraded.call("DELETE", "/x/v1/keys/tok_0123456789abcdef01234567");
      assert.equal((await upgraded.request("GET", "/v2/sandboxes", { token })).status, 401);
    } finally {
      await upgraded.stop();
    }
  } finally {
    await old.stop();
  }
});
