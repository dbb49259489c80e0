// Terminals: the WebSocket of the protocol, with `ws`, the package that the official CLI uses.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { startServer, until } from "../support/server.mjs";

let server, session;
before(async () => {
  server = await startServer();
  session = (await server.create({ name: "terminal", timeout: 1_800_000 })).session.id;
});
after(() => server?.stop());

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
  await t.shows(/Stopped +sed[^]*> $/);
  t.ws.send(Buffer.from("fg\n"));
  await t.shows(/> fg\r\n[^]*sed -u/);
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
