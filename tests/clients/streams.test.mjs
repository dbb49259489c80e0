// Standard input, output byte for byte, and terminals: the native API, and the WebSocket of the protocol with `ws`, the
// package that the official CLI uses.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
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

// A terminal of the protocol: everything that was printed, and how it ended.
async function terminal(start, options = {}, key = server.token) {
  const { url, token } = await server.call("POST", `/v2/sandboxes/sessions/${session}/interactive`, { body: {}, token: key });
  const ws = new WebSocket(`${url}?token=${encodeURIComponent(token)}`, options);
  const seen = { ws, text: "", url, token };
  seen.closed = once(ws, "close");
  ws.on("message", (data, binary) => {
    if (binary) return (seen.text += data);
    try {
      seen.exit = JSON.parse(data).code;
    } catch {
      seen.said = String(data);
    }
  });
  await once(ws, "open");
  if (start) ws.send(JSON.stringify({ type: "start", command: "sh", args: [], env: ["TERM=xterm-256color", "PS1=> "], cols: 90, rows: 20, ...start }));
  seen.shows = (what) => until(() => what.test(seen.text), `${what} in ${JSON.stringify(seen.text)}`);
  return seen;
}

test("a terminal: size, resize, job control, signals, UTF-8, exit code", async () => {
  const t = await terminal({ command: "bash", args: ["--norc"] });
  await t.shows(/> $/);
  t.ws.send(Buffer.from("stty size; tty; echo $TERM; printf '\\303\\274\\n'\n"));
  await t.shows(/20 90\r\n\/dev\/pts\/\d+\r\nxterm-256color\r\nü\r\n/);
  t.ws.send(JSON.stringify({ type: "resize", cols: 120, rows: 40 }));
  await until(async () => {
    t.ws.send(Buffer.from("stty size\n"));
    return /40 120/.test(t.text);
  }, "the new size");
  // A program that answers is in the foreground.
  t.ws.send(Buffer.from("echo $((40+3)) reads; sed -u s/o/0/\n"));
  await t.shows(/43 reads\r\n/);
  t.ws.send(Buffer.from("one\n"));
  await t.shows(/0ne\r\n/);
  t.ws.send(Buffer.from("\x1a")); // Ctrl-Z
  await t.shows(/Stopped +sed/);
  t.ws.send(Buffer.from("fg\n"));
  await t.shows(/> fg\r\n/);
  t.ws.send(Buffer.from("two\n"));
  await t.shows(/tw0\r\n/);
  t.ws.send(Buffer.from("\x03")); // Ctrl-C; a terminal forgets what was typed before it, and gVisor's shows no ^C
  await t.shows(/tw0\r\n[^]*> $/);
  t.ws.send(Buffer.from("echo after $?; exit 7\n"));
  await t.closed;
  assert.match(t.text, /after 130/);
  assert.equal(t.exit, 7);
});

test("sudo bash in a terminal: the superuser has job control too", async () => {
  const t = await terminal({ command: "sudo", args: ["bash", "--norc"] });
  await t.shows(/[#>] $/);
  t.ws.send(Buffer.from("id -u; tty; stty size; set -o | grep monitor\n"));
  await t.shows(/\b0\r\n\/dev\/pts\/\d+\r\n20 90\r\nmonitor\s+on\r\n[^]*[#>] $/);
  t.ws.send(Buffer.from("sh -c 'echo $((40+2)) reads; exec cat'\n"));
  await t.shows(/42 reads\r\n/);
  t.ws.send(Buffer.from("seen\n"));
  await t.shows(/seen\r\nseen\r\n/);
  t.ws.send(Buffer.from("\x03"));
  await t.shows(/seen\r\nseen\r\n[^]*[#>] $/);
  t.ws.send(Buffer.from("exit 5\n"));
  await t.closed;
  assert.equal(t.exit, 5);
});

test("a terminal ends with the key that opened it, and says so; the program goes on", async () => {
  const { key, secret } = await server.call("POST", "/x/v1/keys", { body: { name: "typist", project: "*" } });
  const t = await terminal({ args: ["-c", "echo here; exec sleep 1000"] }, {}, secret);
  await t.shows(/here/);
  const late = await server.call("POST", `/v2/sandboxes/sessions/${session}/interactive`, { body: {}, token: secret });
  await server.call("DELETE", `/x/v1/keys/${key.id}`);
  const [code] = await t.closed;
  assert.equal(code, 1008);
  assert.match(t.said, /the key that opened this was revoked/);
  const refused = new Promise((done) => {
    const ws = new WebSocket(`${late.url}?token=${late.token}`);
    ws.on("unexpected-response", (_, response) => done(response.statusCode));
    ws.on("error", () => {});
  });
  assert.equal(await refused, 401, "its tickets end with it too");
  const { commands: all } = await server.call("GET", `/v2/sandboxes/sessions/${session}/cmd`);
  const left = all.filter((c) => c.terminal && c.exitCode === null);
  assert.equal(left.length, 1);
  await server.call("POST", `/v2/sandboxes/sessions/${session}/cmd/${left[0].id}/kill`, { body: { signal: 9 } });
  await server.call("GET", `/v2/sandboxes/sessions/${session}/cmd/${left[0].id}?wait=true`);
});

test("a program that cannot be started is told, and ends with 127", async () => {
  const t = await terminal({ command: "no-such-program" });
  await t.closed;
  assert.match(t.said, /executable file not found/);
  assert.equal(t.exit, 127);
});

test("tickets work once, for their session only; foreign pages get none", async () => {
  const t = await terminal({});
  await t.shows(/> $/);
  const status = (url, options) => new Promise((done) => {
    const ws = new WebSocket(url, options);
    ws.on("unexpected-response", (_, response) => done(response.statusCode));
    ws.on("open", () => (ws.terminate(), done(101)));
    ws.on("error", () => {});
  });
  assert.equal(await status(`${t.url}?token=${t.token}`), 401);
  assert.equal(await status(`${t.url}?token=nonsense`), 401);
  assert.equal(await status(t.url), 401);
  const next = await server.call("POST", `/v2/sandboxes/sessions/${session}/interactive`, { body: {} });
  assert.equal(await status(`${next.url}?token=${next.token}`, { origin: "http://evil.example" }), 403);
  t.ws.send(Buffer.from("exit\n"));
  await t.closed;
  assert.equal((await server.request("GET", "/x/v1/terminal?token=x")).status, 400);
});

test("a client that leaves does not end the command; input of megabytes and floods of sizes do no harm", async () => {
  const t = await terminal({});
  await t.shows(/> $/);
  for (let i = 0; i < 2000; ++i) t.ws.send(JSON.stringify({ type: "resize", cols: 10 + (i % 200), rows: 10 }));
  t.ws.send(JSON.stringify({ type: "resize", cols: -5, rows: 1e9 }));
  t.ws.send(JSON.stringify({ type: "unknown" }));
  t.ws.send("no json");
  t.ws.send(Buffer.from("touch /tmp/here; sleep 1000\n"));
  await until(async () => (await server.exec(session, "test", ["-e", "/tmp/here"])).exitCode === 0, "the terminal works");
  for (let i = 0; i < 8; ++i) t.ws.send(Buffer.alloc(512 << 10, "x"));
  t.ws.terminate();
  await t.closed;
  const all = (await server.call("GET", `/v2/sandboxes/sessions/${session}/cmd`)).commands;
  const left = all.filter((c) => c.terminal && c.exitCode === null);
  assert.equal(left.length, 1);
  await server.call("POST", `/v2/sandboxes/sessions/${session}/cmd/${left[0].id}/kill`, { body: { signal: 9 } });
  await server.call("GET", `/v2/sandboxes/sessions/${session}/cmd/${left[0].id}?wait=true`);
});
