// Standard input, and output byte for byte: the native API.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";

let server, session;
before(async () => {
  server = await startServer();
  session = (await server.create({ name: "streams", timeout: 1_800_000 })).session.id;
});
after(() => server?.stop());

const commands = () => `/x/v1/sessions/${session}/commands`;
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

// Reads the frames of a stream: {started, command, stdout, stderr, gap}. `each` is called after every frame.
async function frames(response, each = () => {}) {
  const out = { stdout: [], stderr: [], gap: 0 };
  let rest = Buffer.alloc(0);
  const take = (kind, payload) => {
    if (kind === 1) out.stdout.push(payload);
    if (kind === 2) out.stderr.push(payload);
    if (kind === 3) out.gap += Number(payload.readBigUInt64BE());
    if (kind === 4) out.started ? (out.command = JSON.parse(payload)) : (out.started = JSON.parse(payload));
    if (kind === 5) throw new Error(String(payload));
  };
  assert.equal(response.headers.get("content-type"), "application/vnd.sandbar.output");
  for await (const piece of response.body) {
    rest = Buffer.concat([rest, piece]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      take(rest[0], rest.subarray(5, end));
      rest = rest.subarray(end);
      if ((await each(out)) === false) return out;
    }
  }
  assert.equal(rest.length, 0);
  return { ...out, stdout: Buffer.concat(out.stdout), stderr: Buffer.concat(out.stderr) };
}
const begin = (body) => server.request("POST", commands(), { body });
const detached = async (body) => (await server.call("POST", commands(), { body: { ...body, detached: true } })).command;
const write = (command, offset, bytes, more = "") =>
  server.request("POST", `${commands()}/${command}/stdin?offset=${offset}${more}`, { body: Buffer.from(bytes), headers: { "content-type": "application/octet-stream" } });
const state = (command) => server.call("GET", `${commands()}/${command}/stdin`);
const output = async (command, query = "") => frames(await server.request("GET", `${commands()}/${command}/output${query}`));

test("input reaches the command, its end too; output is byte for byte on both streams", async () => {
  const bytes = randomBytes(3 << 20);
  const { id } = await detached({ command: "sh", args: ["-c", "cat > /tmp/in && cat /tmp/in && cat /tmp/in >&2"], stdin: true });
  for (let at = 0; at < bytes.length; at += 1 << 20) {
    const sent = await (await write(id, at, bytes.subarray(at, at + (1 << 20)))).json();
    assert.equal(sent.accepted, at + (1 << 20));
  }
  const last = await (await write(id, bytes.length, "", "&end=true")).json();
  assert.equal(last.accepted, bytes.length);
  const got = await output(id, "?hold=true");
  assert.equal(got.command.exitCode, 0);
  assert.equal(sha(got.stdout), sha(bytes));
  assert.equal(sha(got.stderr), sha(bytes));
  // Any part of it, again.
  const part = await output(id, `?since=${bytes.length * 2 - 10}`);
  assert.equal(part.stdout.length + part.stderr.length, 10);
  assert.equal((await server.request("GET", `${commands()}/${id}/output?since=${bytes.length * 2 + 1}`)).status, 400);
  // It has ended: nobody reads.
  assert.deepEqual(await state(id), { accepted: 0, taken: 0, ended: true, closed: true });
});

test("every byte of a large output reaches a slow reader of the start", async () => {
  const got = await frames(await begin({ command: "sh", args: ["-c", "head -c 200000000 /dev/zero | tr '\\0' x; exit 7"] }));
  assert.equal(got.command.exitCode, 7);
  assert.equal(got.stdout.length, 200_000_000);
  assert.equal(got.gap, 0);
});

test("without standard input there is nothing to read and nothing to write to", async () => {
  const got = await frames(await begin({ command: "cat" }));
  assert.equal(got.command.exitCode, 0);
  const { id } = await detached({ command: "sleep", args: ["1000"] });
  const refused = await write(id, 0, "x");
  assert.equal(refused.status, 409);
  assert.match((await refused.json()).error.message, /without standard input/);
  assert.equal((await server.request("POST", `${commands()}/${id}/resize`, { body: { cols: 1, rows: 1 } })).status, 409);
  await server.call("POST", `/v2/sandboxes/sessions/${session}/cmd/${id}/kill`, { body: { signal: 9 } });
});

test("bad requests are refused by name, and lose nothing", async () => {
  const { id } = await detached({ command: "cat", stdin: true });
  for (const [query, match] of [["?offset=x", /`offset`: must be a whole number/], ["", /`offset`: is required/], ["?offset=5", /gap/]]) {
    const answer = await server.request("POST", `${commands()}/${id}/stdin${query}`, { body: "hello", headers: { "content-type": "application/octet-stream" } });
    assert.equal(answer.status, 400, query);
    assert.match((await answer.json()).error.message, match);
  }
  assert.equal((await write(id, 0, Buffer.alloc((1 << 20) + 1))).status, 413);
  const bad = await begin({ command: "cat", terminal: { cols: 70000, rows: 1 } });
  assert.equal(bad.status, 400);
  assert.match((await bad.json()).error.message, /cols/);
  assert.equal((await write(id, 0, "kept", "&end=true")).status, 200);
  assert.equal(String((await output(id)).stdout), "kept");
  assert.equal((await write("cmd_none", 0, "x")).status, 404);
});

test("a command that does not read holds its writer back; another writer gets 409; a writer that leaves makes room", async () => {
  const { id } = await detached({ command: "sh", args: ["-c", "until test -e /tmp/go; do sleep 0.05; done; wc -c"], stdin: true });
  const leave = new AbortController();
  const waiting = server.request("POST", `${commands()}/${id}/stdin?offset=0`, { body: Buffer.alloc(1 << 20), headers: { "content-type": "application/octet-stream" }, signal: leave.signal });
  await until(async () => (await state(id)).accepted >= 128 << 10, "the window is full");
  assert.equal((await write(id, 0, "x")).status, 409);
  leave.abort();
  await assert.rejects(waiting);
  const accepted = await until(async () => {
    const { accepted } = await state(id);
    return (await write(id, accepted, "")).status === 200 && accepted;
  }, "the writer is gone");
  await server.exec(session, "touch", ["/tmp/go"]);
  assert.equal((await write(id, accepted, Buffer.alloc(1 << 20), "&end=true")).status, 200);
  const got = await output(id);
  assert.equal(Number(got.stdout), accepted + (1 << 20));
});

test("a server that is killed in the middle of an upload and of a terminal: both go on", async () => {
  const bytes = randomBytes(1 << 20);
  const upload = await detached({ command: "sha256sum", stdin: true });
  const terminal = await detached({ command: "sh", terminal: { cols: 100, rows: 30 }, env: { PS1: "$ " } });
  await write(upload.id, 0, bytes.subarray(0, 300_000));
  await write(terminal.id, 0, "x=41\n");
  await server.crash();
  await server.start();
  const { accepted } = await state(upload.id);
  assert.ok(accepted <= 300_000, String(accepted));
  assert.equal((await write(upload.id, accepted, bytes.subarray(accepted), "&end=true")).status, 200);
  assert.equal(String((await output(upload.id)).stdout).split(" ")[0], sha(bytes));
  // What was under way when the server died may not have reached the machine: it is sent again.
  const typed = "x=41\necho $((x+1)); stty size; exit 9\n";
  const at = (await state(terminal.id)).accepted;
  assert.equal((await write(terminal.id, at, typed.slice(at))).status, 200);
  const got = await output(terminal.id);
  assert.match(String(got.stdout), /\r\n42\r\n30 100\r\n/);
  assert.equal(got.command.exitCode, 9);
  assert.equal(got.command.terminal, true);
});
