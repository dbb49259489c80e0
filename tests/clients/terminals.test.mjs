// Many terminals at once: one that floods, one that nobody reads, and two hundred people who type beside them.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { startServer, until } from "../support/server.mjs";

let server, session;
before(async () => {
  // Memory is measured: the sanitizer must not keep what was freed.
  server = await startServer({ env: { ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ""}:quarantine_size_mb=1` } });
  session = (await server.create({ name: "many", timeout: 1_800_000, resources: { vcpus: 2, memory: 4096 } })).session.id;
});
after(() => server?.stop());

const daemonMiB = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${server.pid}/status`, "utf8"))[1]) / 1024;

async function open(command, args = []) {
  const { url, token } = await server.call("POST", `/v2/sandboxes/sessions/${session}/interactive`, { body: {} });
  const ws = new WebSocket(`${url}?token=${token}`);
  const t = { ws, text: "", bytes: 0 };
  ws.on("message", (data, binary) => {
    t.bytes += data.length;
    if (binary) t.text = (t.text + data).slice(-2000);
    else t.exit = JSON.parse(data).code;
  });
  t.closed = once(ws, "close");
  await once(ws, "open");
  ws.send(JSON.stringify({ type: "start", command, args, env: ["PS1=> "], cols: 80, rows: 24 }));
  return t;
}
const type = async (t, line, shows) => {
  const begin = performance.now();
  t.ws.send(Buffer.from(line));
  await until(() => shows.test(t.text), `${shows} in ${JSON.stringify(t.text)}`);
  return performance.now() - begin;
};
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

test("200 terminals, one floods and one is not read: the others answer, and the server's memory is bounded", async () => {
  const people = [];
  for (let i = 0; i < 198; ++i) {
    const t = await open("sh");
    people.push(t);
  }
  for (const t of people) await until(() => t.text.includes("> "), "a prompt");
  const before = await daemonMiB();
  const flood = await open("sh", ["-c", "yes the same line again and again"]);
  const stuck = await open("sh", ["-c", "yes nobody reads this; exit 1"]);
  await until(() => stuck.bytes > 0, "the second flood begins");
  stuck.ws._socket.pause();
  await until(() => flood.bytes > 20e6, "the flood flows");

  // Each says something of its own, all at once.
  const took = await Promise.all(people.map((t, i) => type(t, `echo $((${i}+1000))ok\n`, new RegExp(`\\n${i + 1000}ok\\r`))));
  const flowed = flood.bytes;
  await until(() => flood.bytes > flowed + 5e6, "the flood flows on beside them");
  console.log(`# 198 answers under a flood: median ${median(took).toFixed(0)} ms, worst ${Math.max(...took).toFixed(0)} ms; daemon ${before.toFixed(0)} -> ${(await daemonMiB()).toFixed(0)} MiB`);
  // A reader that stands still costs what the queues hold, not what the program writes.
  assert.ok((await daemonMiB()) - before < 64, `${before} -> ${await daemonMiB()} MiB`);
  stuck.ws._socket.resume();
  await until(() => stuck.bytes > 1e6, "whoever reads again gets more");

  // They end with their session, all of them.
  await server.call("POST", `/v2/sandboxes/sessions/${session}/stop`, { body: {} });
  await Promise.all([...people, flood, stuck].map((t) => t.closed));
});
