// The endpoint byte by byte: JSON-RPC and HTTP rules, versions, who may call. And stdio without a client library.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { binary, startServer } from "../support/server.mjs";

let server;
before(async () => (server = await startServer()));
after(async () => server?.stop());

const rpc = (method, params, id = 1) => ({ jsonrpc: "2.0", id, method, ...(params && { params }) });
const META = "io.modelcontextprotocol/";
const modern = (extra = {}) => ({
  _meta: { [META + "protocolVersion"]: "2026-07-28", [META + "clientInfo"]: { name: "t", version: "1" }, [META + "clientCapabilities"]: {} },
  ...extra,
});
async function post(body, headers = {}, path = "/mcp/s/raw", options = {}) {
  const response = await server.request("POST", path, { body, headers: { accept: "application/json, text/event-stream", ...headers }, ...options });
  const text = await response.text();
  return { status: response.status, type: response.headers.get("content-type"), text, json: text && /json/.test(response.headers.get("content-type")) ? JSON.parse(text) : undefined };
}

test("initialize answers with the client's version when it is spoken here, else with the newest of that era", async () => {
  for (const [asked, got] of [["2025-11-25", "2025-11-25"], ["2025-06-18", "2025-06-18"], ["2025-03-26", "2025-03-26"], ["1999-01-01", "2025-11-25"], ["2026-07-28", "2025-11-25"]]) {
    const { status, json } = await post(rpc("initialize", { protocolVersion: asked, capabilities: {}, clientInfo: { name: "t", version: "1" } }));
    assert.equal(status, 200);
    assert.equal(json.result.protocolVersion, got);
    assert.equal(json.result.serverInfo.name, "sandbar");
    assert.ok(json.result.capabilities.tools);
    assert.equal(json.result.resultType, undefined);
  }
});

test("the new era: discover, results say what they are, headers have to agree with the message", async () => {
  const discovered = await post(rpc("server/discover", modern()), { "mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover" });
  assert.equal(discovered.status, 200);
  assert.equal(discovered.json.result.resultType, "complete");
  assert.ok(discovered.json.result.supportedVersions.includes("2026-07-28"));
  assert.equal(discovered.json.result._meta[META + "serverInfo"].name, "sandbar");
  const list = await post(rpc("tools/list", modern()), { "mcp-protocol-version": "2026-07-28" });
  assert.equal(list.json.result.resultType, "complete");
  assert.equal(typeof list.json.result.ttlMs, "number");

  const cases = [
    [modern(), { "mcp-protocol-version": "2025-11-25" }, -32020],
    [modern(), { "mcp-method": "tools/call" }, -32020],
    [undefined, { "mcp-protocol-version": "2026-07-28" }, -32602],
    [{ _meta: { [META + "protocolVersion"]: "2031-01-01" } }, {}, -32022],
    [undefined, { "mcp-protocol-version": "2031-01-01" }, -32022],
  ];
  for (const [params, headers, code] of cases) {
    const refused = await post(rpc("tools/list", params, "x"), headers);
    assert.equal(refused.status, 400, JSON.stringify([params, headers]));
    assert.equal(refused.json.error.code, code);
    assert.equal(refused.json.id, "x");
    if (code === -32022) assert.ok(refused.json.error.data.supported.includes("2025-11-25"));
  }
  const named = await post(rpc("tools/call", modern({ name: "list_files", arguments: {} })), { "mcp-protocol-version": "2026-07-28", "mcp-name": "run_command" });
  assert.equal(named.json.error.code, -32020);
  const unknown = await post(rpc("no/such", modern()), { "mcp-protocol-version": "2026-07-28" });
  assert.deepEqual([unknown.status, unknown.json.error.code], [404, -32601]);
});

test("JSON-RPC: what is wrong is said with the right code", async () => {
  const wrong = [
    ["{nope", 400, -32700], ["42", 400, -32600], ["", 400, -32600], ["[]", 400, -32600],
    [{ id: 1, method: "ping" }, 400, -32600], [{ jsonrpc: "2.0", id: 1 }, 400, -32600], [{ jsonrpc: "2.0", id: 1, method: 5 }, 400, -32600],
    [{ jsonrpc: "2.0", id: null, method: "ping" }, 400, -32600], [{ jsonrpc: "2.0", id: {}, method: "ping" }, 400, -32600],
    [{ jsonrpc: "2.0", id: 1, method: "ping", params: [] }, 400, -32602],
    ["[".repeat(5000), 400, -32700],
    [rpc("no/such"), 200, -32601], [rpc("prompts/list"), 200, -32601],
    [rpc("resources/read", {}), 200, -32602], [rpc("resources/read", { uri: "file:///etc/passwd" }), 200, -32602],
    [rpc("resources/read", { uri: "sandbar://raw" }), 200, -32602], [rpc("resources/read", { uri: "sandbar://raw/%zz" }), 200, -32602],
    [rpc("tools/call", {}), 200, -32602], [rpc("tools/call", { name: "nope" }), 200, -32602],
    [rpc("tools/call", { name: "list_files", arguments: [] }), 200, -32602],
  ];
  for (const [body, status, code] of wrong) {
    const got = await post(body, body === "" ? { "content-type": "application/json" } : {});
    assert.deepEqual([got.status, got.json.error.code], [status, code], JSON.stringify(body).slice(0, 100));
    assert.equal(got.json.jsonrpc, "2.0");
  }
  const big = await post(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"${"x".repeat(5 << 20)}"}}`).catch((e) => e);
  assert.ok(big instanceof Error || big.status === 413);
  assert.deepEqual((await post(rpc("ping", undefined, "id ☃"))).json, { jsonrpc: "2.0", id: "id ☃", result: {} });
});

test("notifications and answers are accepted without a body; other methods are not there", async () => {
  for (const body of [{ jsonrpc: "2.0", method: "notifications/initialized" }, { jsonrpc: "2.0", method: "notifications/what" }, { jsonrpc: "2.0", id: 1, result: {} }]) {
    const got = await post(body);
    assert.deepEqual([got.status, got.text], [202, ""]);
  }
  for (const method of ["GET", "DELETE", "PUT"]) {
    const got = await server.request(method, "/mcp/s/raw");
    assert.equal(got.status, 405);
    assert.equal(got.headers.get("allow"), "POST");
    await got.text();
  }
});

test("batches: where the version has them", async () => {
  const batch = [rpc("ping", undefined, 1), { jsonrpc: "2.0", method: "notifications/initialized" }, rpc("no/such", undefined, 2), 7, rpc("initialize", {}, 3)];
  for (const headers of [{}, { "mcp-protocol-version": "2025-03-26" }]) {
    const got = await post(batch, headers);
    assert.equal(got.status, 200);
    assert.deepEqual(got.json.map((m) => [m.id, m.error?.code]), [[1, undefined], [2, -32601], [null, -32600], [3, -32600]]);
  }
  assert.equal((await post([{ jsonrpc: "2.0", method: "notifications/initialized" }])).status, 202);
  for (const headers of [{ "mcp-protocol-version": "2025-06-18" }, { "mcp-protocol-version": "2025-11-25" }, { "mcp-protocol-version": "2026-07-28" }]) {
    const got = await post(batch, headers);
    assert.deepEqual([got.status, got.json.error.code], [400, -32600]);
  }
  assert.equal((await post(Array.from({ length: 17 }, (_, i) => rpc("ping", undefined, i)))).json.error.code, -32600);
});

test("who may call: a token is needed, foreign pages and hosts are refused", async () => {
  for (const path of ["/mcp", "/mcp/s/raw"]) {
    for (const token of [null, "wrong"]) {
      const got = await post(rpc("tools/list"), {}, path, { token });
      assert.equal(got.status, 401);
    }
    assert.equal((await post(rpc("tools/list"), { origin: "http://evil.example" }, path)).status, 403);
    assert.equal((await post(rpc("tools/list"), { "sec-fetch-site": "cross-site" }, path)).status, 403);
    assert.equal((await post(rpc("tools/list"), {}, path)).status, 200);
  }
  assert.equal((await post(rpc("tools/call", { name: "run_command", arguments: { command: "true" } }), {}, "/mcp/s/sessions")).json.result.isError, true);
});

test("events only when the client asked for progress and takes them", async () => {
  const call = (meta) => rpc("tools/call", { name: "run_command", arguments: { command: "echo hi" }, ...(meta && { _meta: meta }) });
  const plain = await post(call());
  assert.match(plain.type, /application\/json/);
  const events = await post(call({ progressToken: "p1" }));
  assert.match(events.type, /text\/event-stream/);
  const messages = events.text.split("\n").filter((l) => l.startsWith("data: ")).map((l) => JSON.parse(l.slice(6)));
  assert.equal(messages[0].method, "notifications/progress");
  assert.equal(messages[0].params.progressToken, "p1");
  assert.match(messages.at(-1).result.content[0].text, /^exit code 0/);
  const deaf = await post(call({ progressToken: 1 }), { accept: "application/json" });
  assert.match(deaf.type, /application\/json/);
});

// Lines in, lines out; `ended` is the exit code.
function stdio(args, env) {
  const child = spawn(binary, ["mcp", ...args], { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, ...env } });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    child, say: (m) => child.stdin.write((typeof m === "string" ? m : JSON.stringify(m)) + "\n"),
    hear: async () => JSON.parse((await lines.next()).value),
    ended: new Promise((done) => child.once("exit", (code, signal) => done(code ?? signal))),
  };
}

test("stdio by hand: broken lines are answered, the end of input ends it after the last answer", async () => {
  const io = stdio([], { SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token });
  io.say("this is no JSON");
  assert.equal((await io.hear()).error.code, -32700);
  io.say("");
  io.say({ jsonrpc: "2.0", method: "notifications/initialized" });
  io.say(rpc("no/such", undefined, "a"));
  assert.deepEqual([(await io.hear()).error.code], [-32601]);
  io.say(rpc("tools/call", { name: "run_command", arguments: { command: "sleep 1; echo last" } }, "b"));
  io.child.stdin.end();
  const last = await io.hear();
  assert.equal(last.id, "b");
  assert.match(last.result.content[0].text, /last$/);
  assert.equal(await io.ended, 0);
});

test("stdio with a wrong token or no server says so in each answer", async () => {
  const denied = stdio([], { SANDBAR_URL: server.url, SANDBAR_TOKEN: "wrong" });
  denied.say(rpc("tools/list", undefined, 5));
  const answer = await denied.hear();
  assert.equal(answer.id, 5);
  assert.match(answer.error.message, /token/i);
  denied.child.stdin.end();
  assert.equal(await denied.ended, 0);
  const nowhere = stdio([], { SANDBAR_URL: "http://127.0.0.1:1", SANDBAR_TOKEN: "x" });
  nowhere.say(rpc("ping", undefined, 6));
  assert.equal((await nowhere.hear()).id, 6);
  nowhere.child.stdin.end();
  assert.equal(await nowhere.ended, 0);
});

test("stdio without a server has one of its own, gone afterwards", async () => {
  const io = stdio(["--data", `${server.data}-none`, "--net", "deny-all"], { SANDBAR_URL: "", SANDBAR_TOKEN: "" });
  io.say(rpc("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } }, 1));
  assert.equal((await io.hear()).result.serverInfo.name, "sandbar");
  io.say(rpc("tools/call", { name: "run_command", arguments: { command: "echo $((6*7))" } }, 2));
  assert.match((await io.hear()).result.content[0].text, /^exit code 0 · [^]*stdout:\n42$/);
  io.child.kill("SIGTERM");
  assert.equal(await io.ended, 0);
});
