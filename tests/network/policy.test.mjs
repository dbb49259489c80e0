// Custom policies from the SDK to the wire: what is allowed works, what is not says why, secrets stay out of the machine
// and of the disk, and a crash changes nothing.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { apiError, load, sh, useSdk } from "../clients/sdk.mjs";
import { binary, startServer } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";

const world = await makeWorld();
const echo = (request, response) => {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ host: request.headers.host, auth: request.headers.authorization, path: request.url }));
};
const tls = await world.https(echo);
const plain = await world.http(echo);
const { sandbox, server } = await useSdk({ config: world.config() });
const canary = "canary-7f3a9c";
const ruled = { allow: { "api.test": [{ transform: [{ headers: { authorization: `Bearer ${canary}` } }] }], "open.test": [] } };

const cli = (...args) => new Promise((done) => execFile(binary, args, { env: { ...process.env, SANDBAR_DATA: server.data, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token } },
  (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr })));
const get = (box, url, options = "") => sh(box, `curl -sS -m 20 ${options} ${url}`);

test("a domain that is allowed works, another is refused with a reason", async () => {
  const box = await sandbox({ networkPolicy: { allow: ["open.test", "*.deep.test"] } });
  assert.deepEqual(box.networkPolicy, { allow: ["open.test", "*.deep.test"] });
  assert.equal(JSON.parse((await get(box, `https://open.test:${tls}/a`)).stdout).path, "/a");
  assert.equal(JSON.parse((await get(box, `http://x.deep.test:${plain}/b`)).stdout).path, "/b");
  const denied = await get(box, `https://api.test:${tls}/`);
  assert.notEqual(denied.exitCode, 0);
  assert.ok(!world.asked.includes("api.test"), "a denied name never leaves the host");
  const log = await server.call("GET", `/x/v1/sessions/${box.currentSession().sessionId}/network/log`);
  const row = log.denials.find((d) => d.host === "api.test");
  assert.ok(row && row.hint && row.rule, JSON.stringify(log.denials));
});

test("a header is put in on the way, and never seen inside", async () => {
  const box = await sandbox({ networkPolicy: ruled, env: { MY_SECRET: "canary-env-55aa" } });
  assert.deepEqual(box.networkPolicy.allow["api.test"], [{ transform: [{ headers: { authorization: "<redacted>" } }] }]);
  const clients = {
    curl: `curl -sS -m 20 -H 'authorization: Bearer mine' https://api.test:${tls}/v`,
    node: `node -e 'fetch("https://api.test:${tls}/v").then((r) => r.text()).then(console.log, (e) => { console.error(e); process.exit(1); })'`,
  };
  for (const [name, script] of Object.entries(clients)) {
    const got = await sh(box, script);
    assert.equal(got.exitCode, 0, `${name}: ${got.stderr}`);
    assert.equal(JSON.parse(got.stdout).auth, `Bearer ${canary}`, name);
  }
  assert.equal(JSON.parse((await get(box, `https://open.test:${tls}/`)).stdout).auth, undefined);
  const everywhere = await sh(box, `env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -rl ${canary.slice(0, 10)} /etc /usr/local/share /tmp $HOME /run 2>/dev/null`);
  assert.ok(!everywhere.stdout.includes(canary));
  const anchor = await sh(box, "cat /usr/local/share/ca-certificates/vercel-proxy-ca.pem; tail -n 3 /etc/ssl/certs/ca-certificates.crt");
  assert.match(anchor.stdout, /BEGIN CERTIFICATE/);

  // Neither in answers nor on the disk nor in the server's output.
  const answers = JSON.stringify([await server.call("GET", `/v2/sandboxes/${box.name}?teamId=team_test&projectId=prj_test`), await server.call("GET", `/x/v1/sessions/${box.currentSession().sessionId}/network/log`)]);
  assert.ok(!answers.includes(canary) && !answers.includes("canary-env"));
  assert.ok(!server.output.includes("canary"));
  for (const name of await readdir(server.data, { recursive: true })) {
    const path = join(server.data, name);
    // Machines' files and what their commands printed are theirs.
    if (/^(store|logs)/.test(name) || !(await stat(path)).isFile()) continue;
    const bytes = await readFile(path);
    assert.ok(!bytes.includes("canary-7f3a9c") && !bytes.includes("canary-env-55aa"), path);
  }
  assert.equal((await stat(join(server.data, "secrets.key"))).mode & 0o777, 0o600);
  assert.equal((await stat(join(server.data, "forward.key"))).mode & 0o777, 0o600);
});

test("policies change live: rules come, everything goes", async () => {
  const box = await sandbox({ networkPolicy: { allow: ["api.test"] } });
  assert.equal(JSON.parse((await get(box, `https://api.test:${tls}/`)).stdout).auth, undefined);
  await box.updateNetworkPolicy(ruled);
  assert.equal(JSON.parse((await get(box, `https://api.test:${tls}/`)).stdout).auth, `Bearer ${canary}`);
  await box.updateNetworkPolicy({ allow: { "api.test": [{ match: { path: { startsWith: "/v2" } }, transform: [{ headers: { authorization: "second" } }] }] } });
  assert.equal(JSON.parse((await get(box, `https://api.test:${tls}/v2/x`)).stdout).auth, "second");
  assert.equal(JSON.parse((await get(box, `https://api.test:${tls}/v1/x`)).stdout).auth, undefined);
  assert.equal((await sh(box, "grep -c BEGIN /usr/local/share/ca-certificates/vercel-proxy-ca.pem")).stdout, "1\n");
  await box.updateNetworkPolicy("deny-all");
  assert.notEqual((await get(box, `https://api.test:${tls}/`)).exitCode, 0);
});

test("the last policy is back after a crash, with the same authority", async () => {
  const box = await sandbox({ networkPolicy: ruled });
  const before = (await get(box, `https://api.test:${tls}/`)).stdout;
  assert.equal(JSON.parse(before).auth, `Bearer ${canary}`);
  await server.crash();
  await server.start();
  const after = await get(box, `https://api.test:${tls}/`);
  assert.equal(after.stdout, before, after.stderr);
  assert.notEqual((await get(box, `https://closed.test:${tls}/`)).exitCode, 0);
});

test("answers that a rule makes up, and forwards", async () => {
  const seen = [];
  const proxy = await world.https((request, response) => {
    seen.push(request.headers);
    response.end("forwarded");
  });
  const box = await sandbox({ networkPolicy: { allow: { "api.test": [
    { match: { path: { exact: "/made-up" } }, response: { statusCode: 418, body: "short and stout", contentType: "text/plain" } },
    { forwardURL: `https://proxy.test:${proxy}/in` }] } } });
  const made = await get(box, `https://api.test:${tls}/made-up`, "-w '%{http_code}'");
  assert.equal(made.stdout, "short and stout418");
  assert.equal((await get(box, `https://api.test:${tls}/other`)).stdout, "forwarded");
  const token = seen[0]["vercel-sandbox-oidc-token"];
  const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
  assert.equal(claims.iss, "https://oidc.vercel.com");
  assert.equal(claims.sandbox_name, box.name);
  const keys = await (await server.request("GET", "/.well-known/jwks", { token: null })).json();
  assert.equal(keys.keys[0].kty, "RSA");
});

test("wrong policies are refused by name", async () => {
  for (const [policy, field] of [[{ allow: ["a*b.test"] }, "whole label"], [{ subnets: { allow: ["10.0.0.0/64"] } }, "subnets.allow"],
    [{ allow: { "x.test": [{ match: { path: { regex: "(" } }, transform: [{ headers: {} }] }] } }, "regular expression"]]) {
    const error = await apiError(sandbox({ networkPolicy: policy }));
    assert.equal(error.status, 400);
    assert.ok(error.message.includes(field), error.message);
  }
  const response = await server.request("POST", "/v2/sandboxes", { body: { projectId: "prj_test", networkPolicy: { alow: ["x.test"] } } });
  assert.equal(response.status, 400);
  assert.match(await response.text(), /did you mean `allow`/);
});

test("older clients read what they sent", async () => {
  for (const [name, module] of [["2", "sandbox-v2"], ["1", "sandbox-v1"]]) {
    const { Sandbox } = await load(module);
    const policy = { allow: { "api.test": [{ transform: [{ headers: { authorization: canary } }] }], "open.test": [] }, subnets: { deny: ["10.0.0.0/8"] } };
    const box = await Sandbox.create({ runtime: "node24", networkPolicy: policy, token: server.token, teamId: "team_test", projectId: "prj_test" });
    assert.deepEqual(box.networkPolicy, { allow: { "api.test": [{ transform: [{ headers: { authorization: "<redacted>" } }] }], "open.test": [] }, subnets: { deny: ["10.0.0.0/8"] } }, `SDK ${name}`);
    assert.deepEqual(await box.updateNetworkPolicy({ allow: ["open.test"] }), { allow: ["open.test"] }, `SDK ${name}`);
    await box.stop();
  }
});

test("the command line shows, suggests, tries out and sets", async () => {
  const box = await server.create({ name: "cli-box", projectId: "prj_sandbar", networkPolicy: { allow: ["open.test"] } });
  assert.equal((await server.exec(box.session.id, "curl", ["-sS", "-m", "20", `https://open.test:${tls}/`])).exitCode, 0);
  await server.exec(box.session.id, "curl", ["-sS", "-m", "20", `https://closed.test:${tls}/`]);
  const log = await cli("net", "log", "cli-box");
  assert.equal(log.code, 0, log.stderr);
  assert.match(log.stdout, /open\.test:\d+ +allowed/);
  assert.match(log.stdout, /closed\.test.* denied/);
  const suggested = await cli("net", "suggest", "cli-box");
  assert.deepEqual(JSON.parse(suggested.stdout).allow.sort(), ["closed.test", "open.test"]);
  const file = join(world.dir, "policy.json");
  await writeFile(file, suggested.stdout);
  const better = await cli("net", "test", "cli-box", file);
  assert.equal(better.code, 0, better.stderr);
  assert.match(better.stdout, /closed\.test.*denied +allowed/);
  assert.equal((await cli("net", "test", "cli-box", "deny-all")).code, 1);
  assert.equal((await cli("net", "set", "cli-box", file)).code, 0);
  assert.equal((await server.exec(box.session.id, "curl", ["-sS", "-m", "20", `https://closed.test:${tls}/`])).exitCode, 0);
  const run = await cli("run", "--allow", "open.test", "--", "sh", "-c", `curl -sS -m 20 https://open.test:${tls}/ && curl -sS -m 20 https://other.test:${tls}/`);
  assert.notEqual(run.code, 0);
  assert.match(run.stdout, /"path":"\/"/);
  assert.match(run.stderr, /denied other\.test/);
});

test("the strict switch: what no rule of its domain matches is denied", async () => {
  const strict = await startServer({ config: world.config("strict = true", "[pool]\nnode24 = 1\n") });
  try {
    const rule = { match: { path: { startsWith: "/v1" } }, transform: [{ headers: { authorization: "mine" } }] };
    const { session } = await strict.create({ networkPolicy: { allow: { "api.test": [rule], "open.test": [] } } });
    const ask = async (url) => JSON.parse((await strict.exec(session.id, "curl", ["-sS", "-m", "20", url])).stdout);
    assert.equal((await ask(`https://api.test:${tls}/v1/x`)).auth, "mine");
    assert.equal((await ask(`https://open.test:${tls}/any`)).path, "/any");
    const { error } = await ask(`https://api.test:${tls}/v2/x`);
    assert.equal(error.code, "egress_denied");
    assert.ok(error.host === "api.test" && error.hint && !JSON.stringify(error).includes("mine"));
  } finally {
    await strict.stop();
  }
});
