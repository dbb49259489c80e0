// /openapi.json is true: every operation in it is called on a real server, and what goes in and comes out is valid by its
// schemas, which forbid what they do not name. An operation that nobody calls here fails the last test.
import assert from "node:assert/strict";
import http from "node:http";
import { execFile } from "node:child_process";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import Ajv from "ajv/dist/2020.js";
import { binary, startServer } from "../support/server.mjs";

const server = await startServer({ config: "allow_nesting_on_class1 = true\n[limits]\nmax_running = 64\n" });
after(() => server.stop());
const document = await (await server.request("GET", "/openapi.json", { token: null })).json();
const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addFormat("binary", true);
ajv.addSchema(document, "doc");
const escape = (part) => encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1"));
const asked = new Set();

// The value must be what the place in the document says: place(["paths", …]).
function check(value, place, what) {
  const validate = ajv.compile({ $ref: `doc#/${place.map(escape).join("/")}` });
  assert.ok(validate(value), `${what}\n${ajv.errorsText(validate.errors)}\n${JSON.stringify(value).slice(0, 2000)}`);
}

const mediaOf = (response) => (response.headers.get("content-type") ?? "").split(";")[0];

// Calls "METHOD /path/{with}/{parameters}" and gives the parsed answer (NDJSON: the list of its lines).
async function ask(operation, { path = {}, query, body, media = "application/json", status, headers, token } = {}) {
  const [method, template] = operation.split(" ");
  const what = document.paths[template]?.[method.toLowerCase()];
  assert.ok(what, `${operation} is not in the document`);
  const place = ["paths", template, method.toLowerCase()];
  if (body !== undefined && media === "application/json") check(body, [...place, "requestBody", "content", media, "schema"], `request of ${operation}`);
  for (const name of Object.keys(query ?? {})) assert.ok(what.parameters.some((p) => p.in === "query" && p.name === name), `${operation}: ${name}`);
  const target = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(path[name] ?? assert.fail(`${operation}: no ${name}`)));
  const response = await server.request(method, target + (query ? `?${new URLSearchParams(query)}` : ""),
    { body: body === undefined || body instanceof Uint8Array ? body : JSON.stringify(body), headers: { ...(body !== undefined && { "content-type": media }), ...headers }, token });
  asked.add(operation);
  const expected = status ?? Number(Object.keys(what.responses).find((s) => s !== "default"));
  const text = await response.text();
  assert.equal(response.status, expected, `${operation}: ${text}`);
  if (!what.responses[response.status]) {
    const error = what.responses.default.content ? [...place, "responses", "default", "content", "application/json", "schema"] : ["components", "schemas", "Error"];
    check(JSON.parse(text), error, `error of ${operation}`);
    return JSON.parse(text);
  }
  const content = what.responses[response.status].content;
  if (!content) return undefined;
  const kind = mediaOf(response);
  assert.ok(content[kind], `${operation} answers ${kind}`);
  const schema = [...place, "responses", String(response.status), "content", kind, "schema"];
  if (kind === "application/x-ndjson") {
    const lines = text.split("\n").filter((l) => l.trim()).map((l) => JSON.parse(l));
    for (const line of lines) check(line, schema, `line of ${operation}`);
    return lines;
  }
  const value = kind === "application/json" ? JSON.parse(text) : text;
  check(value, schema, `answer of ${operation}`);
  return value;
}

// A tar with one small file.
function tarball(name, content) {
  const block = Buffer.alloc(1024 + 512);
  block.write(name, 0);
  block.write("0000644\0", 100);
  block.write("0000000\0", 108);
  block.write("0000000\0", 116);
  block.write(content.length.toString(8).padStart(11, "0") + " ", 124);
  block.write("00000000000 ", 136);
  block.write("        ", 148);
  block.write("0", 156);
  block.write("ustar\0" + "00", 257);
  let sum = 0;
  for (let i = 0; i < 512; i++) sum += block[i];
  block.write(sum.toString(8).padStart(6, "0") + "\0 ", 148);
  block.write(content, 512);
  return gzipSync(block);
}

const policy = { allow: { "a.example": [{ match: { path: { startsWith: "/v1" }, method: ["GET"] }, transform: [{ headers: { "x-key": "k" } }] },
                                        { response: { statusCode: 418, body: "no", contentType: "text/plain" } }], "b.example": [{ forwardURL: "https://proxy.example/in" }] },
                 subnets: { allow: ["192.0.2.0/24"], deny: ["192.0.2.7/32"] } };

test("the schemas can say no", () => {
  const place = ["paths", "/health", "get", "responses", "200", "content", "application/json", "schema"];
  check({ status: "ok", version: "1" }, place, "good");
  assert.throws(() => check({ status: "ok", version: "1", more: 1 }, place, "bad"), /additional properties/);
  assert.throws(() => check({ status: "ok" }, place, "bad"), /required property 'version'/);
});

test("the document is as the route table is", async () => {
  const { routes } = await ask("GET /x/v1/routes");
  const served = routes.map((r) => `${r.method} ${r.pattern}`).sort();
  const said = Object.entries(document.paths).flatMap(([path, item]) => Object.keys(item).map((m) => `${m.toUpperCase()} ${path}`)).sort();
  assert.deepEqual(said, served);
  for (const { method, pattern, auth } of routes)
    assert.equal(document.paths[pattern][method.toLowerCase()].security?.length === 0, !auth, `${method} ${pattern}`);
  assert.equal(document.info.version, (await ask("GET /health", { token: null })).version);
});

test("open documents", async () => {
  await ask("HEAD /health", { token: null });
  for (const path of ["/.well-known/jwks", "/sdk/register.mjs", "/sdk/sandbar.py", "/openapi.json"]) await ask(`GET ${path}`, { token: null });
  const guide = await ask("GET /llms.txt", { token: null });
  assert.ok(guide.includes(`${server.url}/openapi.json`) && !guide.includes("{{"));
  const { stdout } = await promisify(execFile)(binary, ["skill", "--data", server.data], { env: { PATH: process.env.PATH } });
  assert.equal(stdout, guide, "`sandbar skill` prints the same, with the same address");
  assert.match(await ask("GET /sdk/env.sh"), /SANDBAR_URL/);
  assert.equal((await ask("GET /sdk/env.sh", { token: null, status: 401 })).error.code, "unauthorized");
});

test("keys", async () => {
  const { key, secret } = await ask("POST /x/v1/keys", { body: { name: "ci", role: "viewer", project: "*", expiresIn: 3_600_000 } });
  await ask("GET /x/v1/info", { token: secret });
  assert.ok((await ask("GET /x/v1/keys", { query: { all: "true" } })).keys.some((k) => k.id === key.id));
  assert.equal((await ask("GET /x/v1/keys", { token: secret, status: 403 })).error.code, "forbidden");
  const next = await ask("POST /x/v1/keys/{key}/rotate", { path: { key: key.id } });
  assert.equal((await ask("DELETE /x/v1/keys/{key}", { path: { key: next.key.id } })).key.state, "revoked");
});

test("logins", async () => {
  await ask("GET /.well-known/openid-configuration", { token: null });
  await ask("GET /login", { query: { code: "BCDF-GHJK" }, token: null });
  const media = "application/x-www-form-urlencoded";
  const form = (operation, fields, status) => ask(operation, { body: Buffer.from(new URLSearchParams(fields).toString()), media, status, token: null });
  const start = () => form("POST /x/v1/oauth/device", { client_id: "x", scope: "openid" });
  const poll = (login, status) => form("POST /x/v1/oauth/token", { grant_type: "urn:ietf:params:oauth:grant-type:device_code", device_code: login.device_code }, status);
  const denied = await start();
  assert.equal((await poll(denied, 400)).error, "authorization_pending");
  await ask("GET /x/v1/logins/{code}", { path: { code: denied.user_code } });
  await ask("POST /x/v1/logins/{code}/deny", { path: { code: denied.user_code } });
  assert.equal((await ask("GET /x/v1/logins/{code}", { path: { code: denied.user_code }, status: 404 })).error.code, "not_found");
  const approved = await start();
  const { key } = await ask("POST /x/v1/logins/{code}/approve", { path: { code: approved.user_code }, body: { role: "viewer", expiresIn: 60_000 } });
  assert.equal(key.role, "viewer");
  const { access_token: token } = await poll(approved);
  assert.equal((await form("POST /x/v1/oauth/introspect", { token })).active, true);
  await form("POST /x/v1/oauth/revoke", { token });
  assert.equal((await form("POST /x/v1/oauth/introspect", { token })).active, false);
});

test("account and native", async () => {
  for (const path of ["/v2/user", "/v2/teams", "/x/v1/info", "/x/v1/images"]) await ask(`GET ${path}`);
  await ask("GET /v2/teams/{team}", { path: { team: "team_a" } });
  await ask("GET /v2/projects/{project}", { path: { project: "prj_a" } });
  await ask("POST /v11/projects", { body: { name: "prj_b" } });
});

const V = "/v2/sandboxes";
const S = `${V}/sessions/{session}`;
let box, session;

test("sandboxes", async () => {
  const full = {
    name: "doc-box", projectId: "prj_sandbar", runtime: "node24", ports: [3000], timeout: 600_000, resources: { vcpus: 1, memory: 2048 }, persistent: true,
    networkPolicy: policy, env: { A: "b" }, tags: { t: "u" }, snapshotExpiration: 86_400_000, region: "iad1", failoverRegions: ["fra1"],
    keepLastSnapshots: { count: 2, expiration: 86_400_000, deleteEvicted: true },
  };
  box = await ask(`POST ${V}`, { body: full });
  session = box.session.id;
  assert.equal((await ask(`POST ${V}`, { body: { name: "Not A Name" }, status: 400 })).error.code, "bad_request");
  await ask(`GET ${V}`, { query: { limit: "5", sortOrder: "desc", namePrefix: "doc-" , sortBy: "name" } });
  await ask(`GET ${V}/{name}`, { path: { name: "doc-box" } });
  await ask(`PATCH ${V}/{name}`, { path: { name: "doc-box" }, body: { tags: { t: "v" }, ports: [3000, 3001], keepLastSnapshots: null } });
  await ask(`GET ${V}/{name}`, { path: { name: "nobody" }, status: 404 });
});

test("sessions, commands, files", async () => {
  const path = { session };
  await ask(`GET ${V}/sessions`, { query: { name: "doc-box" } });
  await ask(`GET ${S}`, { path });
  await ask(`POST ${S}/extend-timeout`, { path, body: { duration: 1000 } });
  const run = { command: "sh", args: ["-c", "echo out; echo err >&2; exit 3"], cwd: "/tmp", env: { A: "b" }, sudo: true, timeout: 60_000 };
  const lines = await ask(`POST ${S}/cmd`, { path, body: { ...run, wait: true, logs: true } });
  assert.equal(lines.at(-1).command.exitCode, 3);
  assert.ok(lines.some((l) => l.stream === "stderr"));
  const { command } = await ask(`POST ${S}/cmd`, { path, body: { command: "sleep", args: ["1000"] } });
  const at = { session, command: command.id };
  await ask(`GET ${S}/cmd/{command}`, { path: at });
  await ask(`POST ${S}/cmd/{command}/kill`, { path: at, body: { signal: 9 } });
  assert.equal((await ask(`GET ${S}/cmd/{command}`, { path: at, query: { wait: "true" } })).command.exitCode, 137);
  await ask(`GET ${S}/cmd/{command}/logs`, { path: { session, command: lines[0].command.id } });
  await ask(`GET ${S}/cmd`, { path });
  await ask(`POST ${S}/cmd`, { path, body: { command: "no-such-program" }, status: 400 });
  await ask(`POST ${S}/fs/write`, { path, body: tarball("vercel/sandbox/f.txt", "text"), media: "application/gzip", headers: { "x-cwd": "/" } });
  await ask(`POST ${S}/fs/mkdir`, { path, body: { path: "d/e", recursive: true } });
  assert.equal(await ask(`POST ${S}/fs/read`, { path, body: { path: "f.txt" } }), "text");
  await ask(`POST ${S}/fs/read`, { path, body: { path: "none" }, status: 404 });
  await ask(`POST ${S}/interactive`, { path, body: {} });
});

test("streams", async () => {
  const C = "/x/v1/sessions/{session}/commands";
  const path = { session };
  const shown = await ask(`POST ${C}`, { path, body: { command: "echo", args: ["hi"], timeout: 60000 } });
  assert.match(shown, /\x01\0\0\0\x03hi\n/);
  const { command } = await ask(`POST ${C}`, { path, body: { command: "cat", terminal: { cols: 100, rows: 30 }, detached: true, stdin: true } });
  assert.equal(command.terminal, true);
  const at = { session, command: command.id };
  await ask(`POST ${C}/{command}/resize`, { path: at, body: { cols: 80, rows: 24 } });
  const bytes = { path: at, query: { offset: "0", end: "true" }, body: new TextEncoder().encode("hi\n"), media: "application/octet-stream" };
  await ask(`POST ${C}/{command}/stdin`, bytes);
  assert.match(await ask(`GET ${C}/{command}/output`, { path: at, query: { since: "0", hold: "true" } }), /hi\r\n[^]*hi\r\n/); // in one frame or in two
  await ask(`GET ${C}/{command}/stdin`, { path: at });
  // A ticket that nobody gave out. clients/streams.test.mjs has the real ones.
  await ask("GET /x/v1/terminal", { query: { token: "none" }, status: 400 });
});

test("single files", async () => {
  const F = "/x/v1/sessions/{session}/files";
  const at = (query) => ({ path: { session }, query });
  const bytes = { body: new TextEncoder().encode("hello"), media: "application/octet-stream" };
  await ask(`POST ${F}/mkdir`, at({ path: "d/e", parents: "true", mode: "0755" }));
  assert.deepEqual(await ask(`PUT ${F}/content`, { ...at({ path: "d/f", mode: "0600", exclusive: "true" }), ...bytes }), { written: 5 });
  await ask(`PUT ${F}/content`, { ...at({ path: "d/f", offset: "5" }), ...bytes });
  assert.equal(await ask(`GET ${F}/content`, at({ path: "d/f", offset: "3", length: "4" })), "lohe");
  await ask(`POST ${F}/attributes`, { ...at({ path: "d/f", follow: "true" }), body: { mode: "0644", size: 7, modifiedAt: 1_000_000_000_000 } });
  await ask(`POST ${F}/link`, at({ path: "d/l", target: "f" }));
  await ask(`POST ${F}/rename`, at({ path: "d/f", to: "d/g" }));
  const listed = await ask(`GET ${F}/list`, at({ path: "d", limit: "10" }));
  assert.deepEqual(listed.entries.map((e) => e.name), ["e", "g", "l"]);
  assert.equal((await ask(`GET ${F}/stat`, at({ path: "d/l", follow: "false" }))).file.target, "f");
  assert.equal((await ask(`POST ${F}/remove`, { ...at({ path: "d" }), status: 400 })).error.reason, "not_empty");
  await ask(`POST ${F}/remove`, at({ path: "d", recursive: "true" }));
});

test("network and ports", async () => {
  const path = { session };
  const probe = { command: "node", args: ["-e", "fetch('http://denied.example/').catch(() => 0).finally(() => process.exit())"], wait: true, logs: true };
  await ask(`POST ${S}/cmd`, { path, body: probe });
  const { denials } = await ask("GET /x/v1/sessions/{session}/denials", { path });
  assert.ok(denials.length > 0);
  const log = await ask("GET /x/v1/sessions/{session}/network/log", { path });
  assert.ok(log.attempts.length > 0 && log.denials.length > 0);
  await ask("GET /x/v1/sessions/{session}/network/suggest", { path });
  const changes = await ask("POST /x/v1/sessions/{session}/network/test", { path, body: { policy: { mode: "allow-all" } } });
  assert.ok(changes.changes.length > 0);
  await ask(`POST ${S}/network-policy`, { path, body: policy });
  const old = { mode: "custom", allowedDomains: ["c.example"], injectionRules: [{ domain: "c.example", headers: { a: "b" } }], forwardRules: [{ domain: "d.example", forwardURL: "https://p.example/" }] };
  await ask(`POST ${S}/network-policy`, { path, body: old });
  await ask(`POST ${S}/network-policy`, { path, body: { mode: "deny-all" } });
  await ask("POST /x/v1/sandboxes/{name}/routes/{port}/token", { path: { name: "doc-box", port: 3000 } });
  await ask("DELETE /x/v1/sandboxes/{name}/routes/{port}/token", { path: { name: "doc-box", port: 3000 } });
  await ask("GET /x/v1/sandboxes/{name}", { path: { name: "doc-box" } });
});

test("a raw stream to a port", async () => {
  const path = { session };
  await ask(`POST ${S}/cmd`, { path, body: { command: "node", args: ["-e", "require('net').createServer((s) => s.end('hello')).listen(4000, () => require('fs').writeFileSync('listens', ''))"] } });
  await ask(`POST ${S}/cmd`, { path, body: { command: "sh", args: ["-c", "until [ -e listens ]; do sleep 0.05; done"], wait: true } });
  const got = await new Promise((done, failed) => {
    const request = http.request(`${server.url}/x/v1/sessions/${session}/ports/4000`, { headers: { authorization: `Bearer ${server.token}`, connection: "upgrade", upgrade: "sandbar-tcp" } });
    request.on("upgrade", (response, socket, head) => {
      let text = head.toString();
      socket.on("data", (d) => (text += d)).on("end", () => socket.end()).on("close", () => done({ status: response.statusCode, text }));
    });
    request.on("response", (r) => failed(new Error(`answered ${r.statusCode}`))).on("error", failed).end();
  });
  assert.deepEqual(got, { status: 101, text: "hello" });
  assert.ok(document.paths["/x/v1/sessions/{session}/ports/{port}"].get.responses["101"]);
  asked.add("GET /x/v1/sessions/{session}/ports/{port}");
});

test("cells and contexts", async () => {
  const path = { name: "doc-box" };
  const X = "/x/v1/sandboxes/{name}";
  const shown = await ask(`POST ${X}/code`, { path, body: { language: "javascript", code: "require('fs').writeFileSync('a.txt', 'b'); console.log('out'); console.error('err'); 6 * 7", timeoutMs: 60_000, env: { A: "b" } } });
  for (const type of ["started", "stdout", "stderr", "result", "artifact", "end"]) assert.ok(shown.some((e) => e.type === type), type);
  assert.equal(shown.at(-1).status, "ok");
  const thrown = await ask(`POST ${X}/code`, { path, body: { language: "javascript", code: "null.x" } });
  assert.ok(thrown.some((e) => e.type === "error") && thrown.at(-1).status === "error");
  const long = await ask(`POST ${X}/code`, { path, body: { language: "bash", code: "head -c 3000000 /dev/zero | tr '\\0' x; exit 3" } });
  assert.equal(long.at(-1).type, "end");
  const { context } = await ask(`POST ${X}/contexts`, { path, body: { language: "bash", env: { A: "b" }, cwd: "/tmp" } });
  const at = { ...path, context: context.id };
  await ask(`POST ${X}/code`, { path, body: { context: context.id, code: "pwd" } });
  await ask(`GET ${X}/contexts`, { path });
  for (const verb of ["interrupt", "restart"]) await ask(`POST ${X}/contexts/{context}/${verb}`, { path: at });
  await ask(`DELETE ${X}/contexts/{context}`, { path: at });
  await ask(`POST ${X}/code`, { path, body: { language: "bash", context: "none-such", code: "true" }, status: 404 });
});

test("MCP", async () => {
  const rpc = (method, params, id = 1) => ({ jsonrpc: "2.0", id, method, params });
  const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  const accept = { accept: "application/json, text/event-stream" };
  for (const [operation, path] of [["POST /mcp", {}], ["POST /mcp/s/{name}", { name: "doc-box" }]]) {
    assert.ok((await ask(operation, { path, headers: accept, body: rpc("initialize", hello) })).result.serverInfo);
    assert.ok((await ask(operation, { path, headers: accept, body: rpc("tools/list", {}, "two") })).result.tools.length > 0);
    assert.ok((await ask(operation, { path, headers: accept, body: rpc("no/such", {}) })).error.code);
  }
  const ran = await ask("POST /mcp/s/{name}", { path: { name: "doc-box" }, headers: accept, body: rpc("tools/call", { name: "run_command", arguments: { command: "echo $((6 * 7))" } }) });
  assert.match(ran.result.content[0].text, /42/);
});

test("snapshots, fork, stop, delete", async () => {
  const { snapshot } = await ask(`POST ${S}/snapshot`, { path: { session }, body: { expiration: 86_400_000 } });
  const id = { snapshot: snapshot.id };
  await ask(`GET ${V}/snapshots`, { query: { limit: "5", name: "doc-box" } });
  await ask(`GET ${V}/snapshots/{snapshot}`, { path: id });
  await ask(`GET ${V}/snapshots/tree`, { query: { snapshotId: snapshot.id, limit: "3", sortOrder: "desc" } });
  const again = await ask(`GET ${V}/{name}`, { path: { name: "doc-box" }, query: { resume: "true" } });
  assert.equal(again.resumed, true);
  const stopped = await ask(`POST ${S}/stop`, { path: { session: again.session.id } });
  assert.ok(stopped.snapshot && stopped.session.duration >= 0);
  await ask(`POST ${S}/cmd`, { path: { session: again.session.id }, body: { command: "true" }, status: 410 });
  await ask("GET /x/v1/sandboxes/{name}", { path: { name: "doc-box" } });
  await ask(`POST ${V}/{name}/fork`, { path: { name: "doc-box" }, body: { name: "doc-fork", env: {}, networkPolicy: { mode: "deny-all" } } });
  const X = "/x/v1/sandboxes/{name}";
  await ask(`POST ${X}/fork`, { path: { name: "doc-fork" }, body: { name: "doc-live", live: true }, status: 422 });
  await ask(`POST ${X}/fork`, { path: { name: "doc-fork" }, body: { name: "doc-live" } });
  await ask(`POST ${X}/pause`, { path: { name: "doc-live" }, status: 422 });
  assert.equal((await ask(`POST ${X}/resume`, { path: { name: "doc-live" }, body: { from: "disk" } })).resumed, false);
  await ask(`DELETE ${V}/{name}`, { path: { name: "doc-live" } });
  const from = await ask("POST /v3/sandboxes", { body: { source: { type: "snapshot", snapshotId: snapshot.id } } });
  for (const name of ["doc-fork", "doc-box", from.sandbox.name]) await ask(`DELETE ${V}/{name}`, { path: { name }, query: { deleteOrphanSnapshots: "false" } });
  await ask(`DELETE ${V}/snapshots/{snapshot}`, { path: id });
});

test("nesting", async () => {
  const made = await ask(`POST ${V}`, { body: { name: "doc-nested", runtime: "node24", isolation: { engine: "namespaces" }, nesting: true, networkPolicy: { mode: "deny-all" } } });
  assert.deepEqual([made.sandbox.nesting, made.session.nesting, made.session.isolation.class], [true, true, 0]);
  await ask(`GET ${V}/{name}`, { path: { name: "doc-nested" }, query: { __nesting: "true" } });
  await ask(`POST ${V}`, { body: { name: "doc-strong", nesting: true, isolation: { engine: "namespaces", minClass: 1 } }, status: 422 });
  await ask(`DELETE ${V}/{name}`, { path: { name: "doc-nested" } });
});

test("drives", async () => {
  for (const drives of [`${V}/drives`, "/v1/drives"]) {
    await ask(`POST ${drives}/{drive}`, { path: { drive: "doc-drive" }, body: { projectId: "prj_sandbar", maxSizeBytes: 1 << 26 }, status: 201 });
    await ask(`POST ${drives}/{drive}`, { path: { drive: "doc-drive" }, body: {}, status: 200 });
    const mounted = await ask(`POST ${V}`, { body: { name: "doc-mounts", runtime: "node24", idleTimeoutMs: 600_000, isolation: { minClass: 1 }, mounts: { "/data": { drive: "doc-drive", mode: "read-write" } } } });
    assert.ok(mounted.sandbox.mounts["/data"]);
    const { drives: list } = await ask(`GET ${drives}`);
    assert.equal(list[0].currentSandboxName, "doc-mounts");
    await ask(`DELETE ${drives}/{drive}`, { path: { drive: "doc-drive" }, status: 409 });
    await ask(`DELETE ${V}/{name}`, { path: { name: "doc-mounts" } });
    await ask(`DELETE ${drives}/{drive}`, { path: { drive: "doc-drive" } });
  }
});

test("compare, race, promote, verify, usage, notices", async () => {
  const made = await ask(`POST ${V}`, { body: { name: "doc-base", runtime: "node24", networkPolicy: { mode: "deny-all" } } });
  await ask(`POST ${S}/cmd`, { path: { session: made.session.id }, body: { command: "sh", args: ["-c", "echo x > f; mkdir d; ln -s f l"], wait: true } });
  const { snapshot } = await ask(`POST ${S}/stop`, { path: { session: made.session.id } });
  assert.equal((await ask("POST /x/v1/snapshots/{snapshot}/verify", { path: { snapshot: snapshot.id } })).snapshot.verified, true);
  const { changes } = await ask("GET /x/v1/diff", { query: { a: "doc-base" } });
  assert.ok(changes.some((c) => c.path.endsWith("/f") && c.change === "added"));
  const race = await ask("POST /x/v1/race", { body: { source: "doc-base", command: "sh", args: ["-c", "echo score: $$; echo y > f"], count: 2, score: "score: ([0-9]+)", best: "lowest", keep: "fork" } });
  const fork = race.racers[race.winner].name;
  const { session: racing } = await ask(`GET ${V}/{name}`, { path: { name: fork } });
  if (racing.status === "running") await ask(`POST ${S}/stop`, { path: { session: racing.id } });
  assert.equal((await ask("POST /x/v1/sandboxes/{name}/promote", { path: { name: fork }, body: { into: "doc-base" } })).sandbox, "doc-base");
  await ask("GET /x/v1/notices", { query: { sandbox: "doc-base" } });
  assert.ok((await ask("GET /x/v1/usage")).projects.length > 0);
  for (const name of [fork, "doc-base"]) await ask(`DELETE ${V}/{name}`, { path: { name } });
});

test("version 1", async () => {
  const { sandbox } = await ask("POST /v1/sandboxes", { body: { runtime: "node24", networkPolicy: { mode: "deny-all" } } });
  const path = { session: sandbox.id };
  const O = "/v1/sandboxes/{session}";
  await ask("GET /v1/sandboxes", { query: { limit: "5" } });
  await ask(`GET ${O}`, { path });
  await ask(`POST ${O}/extend-timeout`, { path, body: { duration: 1000 } });
  await ask(`POST ${O}/network-policy`, { path, body: { mode: "deny-all" } });
  const { command } = await ask(`POST ${O}/cmd`, { path, body: { command: "sleep", args: ["1000"] } });
  const at = { ...path, command: command.id };
  await ask(`GET ${O}/cmd`, { path });
  await ask(`POST ${O}/{command}/kill`, { path: at, body: { signal: 9 } });
  await ask(`GET ${O}/cmd/{command}`, { path: at, query: { wait: "true" } });
  await ask(`POST ${O}/cmd`, { path, body: { command: "echo", args: ["x"], wait: true, logs: true } });
  await ask(`GET ${O}/cmd/{command}/logs`, { path: at });
  await ask(`POST ${O}/fs/mkdir`, { path, body: { path: "d" } });
  await ask(`POST ${O}/fs/write`, { path, body: tarball("vercel/sandbox/f", "v1"), media: "application/gzip", headers: { "x-cwd": "/" } });
  assert.equal(await ask(`POST ${O}/fs/read`, { path, body: { path: "f" } }), "v1");
  const { snapshot } = await ask(`POST ${O}/snapshot`, { path });
  await ask("GET /v1/sandboxes/snapshots");
  await ask("GET /v1/sandboxes/snapshots/{snapshot}", { path: { snapshot: snapshot.id } });
  await ask("DELETE /v1/sandboxes/snapshots/{snapshot}", { path: { snapshot: snapshot.id } });
  const other = await ask("POST /v1/sandboxes", { body: { runtime: "node24", networkPolicy: { mode: "deny-all" } } });
  await ask(`POST ${O}/stop`, { path: { session: other.sandbox.id } });
});

test("every operation was called; versions 3 and 4 say what version 2 says", () => {
  for (const [path, item] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const twin = document.paths[path.replace(/^\/v[34]\//, "/v2/")]?.[method];
      if (twin !== operation && /^\/v[34]\//.test(path)) {
        const { operationId, ...rest } = operation;
        const { operationId: other, ...same } = twin;
        assert.deepEqual(rest, same, path);
      } else {
        assert.ok(asked.has(`${method.toUpperCase()} ${path}`), `nothing here calls ${method.toUpperCase()} ${path}`);
      }
    }
  }
});
