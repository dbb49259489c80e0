// What idle sandboxes cost: makes many, lets them be, and says what one takes in the agent, the server, the spawner and
// on the whole host. Every one must still answer at the end.
//
//   SANDBAR_URL=… SANDBAR_TOKEN=… node bench/idle.mjs --data DIR --pid SERVER [--count 1000]
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { machinePids, spawnerPid } from "../tests/support/host.mjs";

const { values } = parseArgs({ options: { data: { type: "string" }, pid: { type: "string" }, count: { type: "string", default: "1000" } } });
const count = Number(values.count);
const base = process.env.SANDBAR_URL;
const headers = { authorization: `Bearer ${process.env.SANDBAR_TOKEN}`, "content-type": "application/json" };
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function call(method, path, body) {
  const response = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text;
}
// f for each of `items`, eight at a time.
async function each(items, f) {
  const left = items.entries();
  const out = [];
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (const [i, item] of left) out[i] = await f(item);
  }));
  return out;
}

const kib = (text, field) => Number(text.match(new RegExp(`^${field}:\\s+(\\d+)`, "m"))[1]);
const rss = async (pid) => kib(await readFile(`/proc/${pid}/status`, "utf8"), "VmRSS");
const pss = async (pid) => kib(await readFile(`/proc/${pid}/smaps_rollup`, "utf8"), "Pss");
const available = async () => kib(await readFile("/proc/meminfo", "utf8"), "MemAvailable");
// utime and stime, in hundredths of a second.
const ticks = async (pid) => (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ")[1].split(" ").slice(11, 13).reduce((a, b) => a + Number(b), 0);

const spawner = await spawnerPid(values.data);
const create = () => call("POST", "/v2/sandboxes", { projectId: "prj_bench", ports: [], runtime: "node24", timeout: 3600000, networkPolicy: { mode: "deny-all" } }).then(JSON.parse);
const remove = ({ sandbox }) => call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_bench`);
await remove(await create()); // warms both sides

const before = { server: await rss(values.pid), spawner: await rss(spawner), host: await available(), machines: await machinePids(spawner) };
const start = performance.now();
const boxes = await each(Array.from({ length: count }), create);
const made = performance.now() - start;
await sleep(5000); // what creating leaves to be done
const agents = (await machinePids(spawner)).filter((pid) => !before.machines.includes(pid));
const agent = { rss: 0, pss: 0 };
for (const pid of agents) {
  agent.rss += (await rss(pid)) / agents.length;
  agent.pss += (await pss(pid)) / agents.length;
}
const server = ((await rss(values.pid)) - before.server) / count;
const supervisor = ((await rss(spawner)) - before.spawner) / count;
const host = (before.host - (await available())) / count;
const cpu = [await ticks(values.pid), await ticks(spawner)];
await sleep(10000);
const busy = [(await ticks(values.pid)) - cpu[0], (await ticks(spawner)) - cpu[1]];

let answered = 0;
await each(boxes, async ({ session }) => {
  const text = await call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { command: "true", args: [], env: {}, wait: true });
  if (/"exitCode":0/.test(text)) answered++;
});
await each(boxes, remove);

const line = (name, value) => console.log(name.padEnd(52), value);
line(`${count} idle sandboxes: created in`, `${(made / 1000).toFixed(1)} s`);
line("agent: resident, of which its own (KiB)", `${agent.rss.toFixed(0)}, ${agent.pss.toFixed(0)}`);
line("server, spawner: growth for one (KiB)", `${server.toFixed(0)}, ${supervisor.toFixed(0)}`);
line("the host's available memory: less for one (KiB)", host.toFixed(0));
line("server, spawner: cpu while all are idle (%)", busy.map((t) => (t / 10).toFixed(1)).join(", "));
const total = (agent.rss + server + supervisor) / 1024;
line("agent and bookkeeping for one (MiB)", `${total.toFixed(2)}   budget <= 3 ${total <= 3 ? "ok" : "OVER"}`);
line("alive at the end", `${answered}/${count}   budget all ${answered === count ? "ok" : "OVER"}`);
process.exitCode = answered === count ? 0 : 1;
