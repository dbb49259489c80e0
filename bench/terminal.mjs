// Terminals: how long a key takes to its echo through HTTP, WebSocket, server and agent, against a pseudo-terminal of this
// machine that is read by the same program (budget: 1 ms more); and how fast `cat` of a large file comes out, against
// the same `cat` in a local pseudo-terminal.
//   SANDBAR_URL=… SANDBAR_TOKEN=… node bench/terminal.mjs        ROUNDS=50 by default
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";

const { WebSocket } = createRequire(new URL("../tests/clients/package.json", import.meta.url))("ws");
const { SANDBAR_URL: url, SANDBAR_TOKEN: token } = process.env;
const rounds = Number(process.env.ROUNDS ?? 50) * 4;
const size = 64e6;

async function call(method, path, body) {
  const response = await fetch(url + path, {
    method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text || "{}");
}
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
const ms = (n) => `${n.toFixed(3).padStart(8)} ms`;

// A program in a terminal: send() types, onData is called with what it shows.
async function remote(session, command, args) {
  const ticket = await call("POST", `/v2/sandboxes/sessions/${session}/interactive`, {});
  const ws = new WebSocket(`${ticket.url}?token=${ticket.token}`);
  await once(ws, "open");
  const t = { send: (text) => ws.send(Buffer.from(text)), onData: () => {}, ended: once(ws, "close") };
  ws.on("message", (data, binary) => binary && t.onData(data));
  ws.send(JSON.stringify({ type: "start", command, args, env: [], cols: 80, rows: 24 }));
  return t;
}
// The same on this machine, in a pseudo-terminal behind two pipes.
function local(command, args) {
  const helper = `import os, pty, sys, threading
pid, fd = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
def type_():
    while data := os.read(0, 65536): os.write(fd, data)
threading.Thread(target=type_, daemon=True).start()
try:
    while data := os.read(fd, 65536): os.write(1, data)
except OSError: pass
os._exit(0)`;
  const child = spawn("python3", ["-c", helper, command, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const t = { send: (text) => child.stdin.write(text), onData: () => {}, ended: once(child, "close") };
  child.stdout.on("data", (data) => t.onData(data));
  return t;
}

async function echo(t) {
  const seen = () => new Promise((done) => (t.onData = done));
  let first = seen();
  await first; // "ready"
  const times = [];
  for (let i = 0; i < rounds; i++) {
    const begin = performance.now();
    const shown = seen();
    t.send("x");
    await shown;
    times.push(performance.now() - begin);
  }
  t.send("\x04\x04");
  return median(times);
}
async function flow(t) {
  let bytes = 0, begin;
  t.onData = (data) => {
    begin ??= performance.now();
    bytes += data.length;
  };
  await t.ended;
  if (bytes < size) throw new Error(`${bytes} of ${size} bytes`);
  return bytes / 1e6 / ((performance.now() - begin) / 1000);
}

const typing = ["sh", ["-c", "echo ready; cat > /dev/null"]]; // the terminal itself echoes
const cat = ["sh", ["-c", `stty -opost; head -c ${size} /dev/zero | tr '\\0' x`]];
const { sandbox, session } = await call("POST", "/v3/sandboxes", { projectId: "prj_sandbar", runtime: "node24", networkPolicy: { mode: "deny-all" },
  persistent: false, timeout: 1_800_000 });
try {
  const [there, here] = [await echo(await remote(session.id, ...typing)), await echo(local(...typing))];
  const verdict = there - here < 1 ? "  within 1 ms more" : "  OVER the budget of 1 ms more";
  console.log(`key to echo, medians of ${rounds}: sandbox ${ms(there)}   local pty ${ms(here)}   = ${(there / here).toFixed(1)}×${verdict}`);
  const [far, near] = [[], []];
  for (let i = 0; i < 3; i++) {
    far.push(await flow(await remote(session.id, ...cat)));
    near.push(await flow(local(...cat)));
  }
  console.log(`cat of ${size / 1e6} MB through a terminal, median of 3: sandbox ${median(far).toFixed(0)} MB/s   local pty ${median(near).toFixed(0)} MB/s   = ${(median(far) / median(near)).toFixed(2)}×`);
} finally {
  await call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_sandbar`);
}
