// What a short-lived token has opened ends with it. The tokens here are signed with the server's own key, so that they
// have a few seconds left when they are shown.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startServer } from "../support/server.mjs";

const LEEWAY = 60; // s, for which a token is taken after its end
let server, session;
before(async () => {
  server = await startServer();
  ({ session } = await server.create({ runtime: "node24", timeout: 3_600_000 }));
});
after(() => server?.stop());

async function lastingFor(seconds) {
  const key = (await readFile(join(server.data, "jwt.key"), "utf8")).trim();
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Math.floor(Date.now() / 1000);
  const claims = { aud: "sandbar", owner_id: "team_sandbar", project_id: "prj_test", iat: now - 3600, exp: now - LEEWAY + seconds };
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${text}.${createHmac("sha256", key).update(text).digest("base64url")}`;
}
const lines = async (response) => (await response.text()).split("\n").filter(Boolean).map((l) => JSON.parse(l));
const cmd = (path) => `/v2/sandboxes/sessions/${session.id}/cmd${path}`;

test("a log that is followed ends with the token, and the command and other readers go on", async () => {
  const body = { command: "sh", args: ["-c", "echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo last"], env: {}, sudo: false };
  const { command } = await server.call("POST", cmd(""), { body });
  const lasting = server.request("GET", cmd(`/${command.id}/logs`)).then(lines);
  const token = await lastingFor(10);
  const response = await server.request("GET", cmd(`/${command.id}/logs`), { token });
  assert.equal(response.status, 200);
  const seen = await lines(response); // returns only because the token ends
  assert.equal(seen[0].data, "first\n");
  assert.equal(seen.at(-1).stream, "error");
  assert.equal(seen.at(-1).data.code, "unauthorized");
  assert.match(seen.at(-1).data.message, /token that opened this has expired/);
  assert.equal((await server.request("GET", cmd(`/${command.id}/logs`), { token })).status, 401);
  await server.exec(session.id, "touch", ["/tmp/go"]);
  assert.deepEqual((await lasting).map((l) => l.data), ["first\n", "last\n"]);
});

test("so do a wait, and a command that was started to be waited for", async () => {
  const token = await lastingFor(10);
  const body = { command: "sleep", args: ["3600"], env: {}, sudo: false, wait: true, logs: true };
  const waited = await server.request("POST", cmd(""), { token, body });
  const seen = await lines(waited);
  assert.equal(seen.at(-1).data.code, "unauthorized");
  const id = seen[0].command.id;
  const wait = await server.request("GET", cmd(`/${id}?wait=true`), { token: await lastingFor(10) });
  await assert.rejects(wait.text(), "one JSON value has no place for an error: it is cut");
  assert.equal((await server.call("GET", cmd(`/${id}`))).command.exitCode, null, "the command runs on");
});

test("an MCP stream says so in the words of its protocol", async () => {
  const call = { jsonrpc: "2.0", id: 5, method: "tools/call",
    params: { name: "run_command", arguments: { command: "sleep 3600" }, _meta: { progressToken: "p" } } };
  const response = await server.request("POST", "/mcp/s/spoken", {
    token: await lastingFor(15), body: call, headers: { accept: "application/json, text/event-stream" },
  });
  assert.match(response.headers.get("content-type"), /event-stream/);
  const last = JSON.parse((await response.text()).trim().split("data: ").at(-1));
  assert.equal(last.id, 5);
  assert.match(last.error.message, /expired/);
});
