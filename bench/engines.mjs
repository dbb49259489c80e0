// Every engine that this machine can use beside the same thing without us: crun, runsc and QEMU on the same files, in one
// run and in turns, so that what else the host does hits all of them alike. Medians and ratios, no promises.
//
//   SANDBAR_URL=… SANDBAR_TOKEN=… node bench/engines.mjs --data DIR --rootfs DIR --work DIR --restore PROGRAM --bin DIR --kernel DIR
//                                                                                   ROUNDS=5 by default
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { machinePids, processes, spawnerPid } from "../tests/support/host.mjs";

const { values } = parseArgs({ options: Object.fromEntries(["data", "rootfs", "work", "restore", "bin", "kernel"].map((n) => [n, { type: "string" }])) });
const rounds = Number(process.env.ROUNDS ?? 5);
const { SANDBAR_URL: url, SANDBAR_TOKEN: token } = process.env;
const image = "vercel/sandbox/node:24";
const CHURN = "mkdir d && for i in $(seq 300); do echo $i > d/$i; done && rm -r d";
const WORK = [["true", ["true"]], ["node", ["node", "-e", "1"]], ["churn", ["sh", "-c", CHURN]]];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

async function timed(f) {
  const begin = performance.now();
  const value = await f();
  return [performance.now() - begin, value];
}
async function call(method, path, body) {
  const response = await fetch(url + path, { method, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text;
}

// The memory of processes that is their own, shared pages by their share (KiB), with all that they started.
async function pss(roots) {
  const all = await processes();
  const parents = new Map(all.map(({ pid }) => {
    try {
      return [pid, Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1).split(" ")[1])];
    } catch {
      return [pid, 0];
    }
  }));
  const under = (pid) => pid > 1 && (roots.includes(pid) || under(parents.get(pid) ?? 0));
  let sum = 0;
  for (const { pid } of all.filter((p) => under(p.pid))) {
    try {
      sum += Number(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8").match(/^Pss:\s+(\d+)/m)[1]);
    } catch {} // ended meanwhile
  }
  return sum;
}

// Each contender: {make() → box, exec(box, argv), pids(box), remove(box)}.
function engine(name) {
  return {
    name,
    async make() {
      const spawner = await spawnerPid(values.data);
      const before = new Set(await machinePids(spawner));
      const box = JSON.parse(await call("POST", "/v3/sandboxes", { projectId: "prj_bench", image, resources: { vcpus: 1 }, ports: [], timeout: 1_800_000,
        persistent: false, networkPolicy: { mode: "deny-all" }, isolation: { engine: name } }));
      return { ...box, machine: async () => (await machinePids(spawner)).filter((pid) => !before.has(pid)) };
    },
    async exec({ session }, argv) {
      const text = await call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { command: argv[0], args: argv.slice(1), cwd: "/tmp", env: {}, wait: true });
      if (!/"exitCode":0/.test(text)) throw new Error(`${name}: ${argv[0]}: ${text}`);
    },
    pids: (box) => box.machine(),
    remove: ({ sandbox }) => call("DELETE", `/v2/sandboxes/${sandbox.name}?projectId=prj_bench`),
  };
}

// An OCI runtime on the image's files with a writable layer of its own; what it runs stays until it is deleted.
function oci(name, words) {
  const bundle = join(values.work, `bundle-${name}`);
  mkdirSync(bundle, { recursive: true });
  execFileSync("runc", ["spec"], { cwd: bundle });
  const spec = JSON.parse(readFileSync(join(bundle, "config.json")));
  spec.process = { ...spec.process, terminal: false, args: ["sleep", "3600"], cwd: "/tmp", env: ["PATH=/vercel/runtimes/node24/bin:/usr/local/bin:/usr/bin:/bin"] };
  spec.root = { path: values.rootfs, readonly: false };
  writeFileSync(join(bundle, "config.json"), JSON.stringify(spec));
  // Without pipes: what stays in the background would hold them open.
  const tool = (...more) => new Promise((done, fail) =>
    spawn(words[0], [...words.slice(1), ...more], { stdio: "ignore" }).once("error", fail).once("exit", (code) =>
      (code === 0 ? done() : fail(new Error(`${name} ${more.join(" ")}: exit code ${code}`)))));
  let next = 0;
  return {
    name,
    async make() {
      const id = `bench-${name}-${next++}`;
      const pidFile = join(values.work, `${id}.pid`);
      await tool("run", "--detach", "--pid-file", pidFile, "--bundle", bundle, id);
      return { id, pid: Number(readFileSync(pidFile)) };
    },
    exec: ({ id }, argv) => tool("exec", "--cwd", "/tmp", id, ...argv),
    // gVisor's processes are the parents of the one in the file.
    pids: async ({ id, pid }) => [pid, ...(await processes()).filter((p) => p.cmdline[0].includes("runsc") && p.cmdline.includes(id)).map((p) => p.pid)],
    remove: ({ id }) => tool("delete", "--force", id),
  };
}

const { engines } = JSON.parse(await call("GET", "/x/v1/info"));
const usable = engines.filter((e) => e.usable).map((e) => e.name);
const micro = usable.find((n) => n.startsWith("microvm"));
const contenders = [...usable.map(engine), oci("crun", ["crun", "--root", join(values.work, "state-crun")])];
if (usable.includes("gvisor"))
  contenders.push(oci("runsc", ["runsc", "--root", join(values.work, "state-runsc"), "--network=none", "--platform=ptrace", "--ignore-cgroups"]));

// A QEMU by hand measures itself; one line in, one out.
async function bare(merged) {
  const work = join(values.work, "qemu");
  mkdirSync(work);
  const child = spawn(values.restore, ["--kernel", values.kernel, "--guest", join(values.bin, "sandbar-guest"), "--image", merged, "--work", work,
    "--rounds", String(rounds), ...(micro === "microvm" ? ["--kvm"] : [])], { stdio: ["pipe", "pipe", "ignore"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    name: "QEMU, restored by hand",
    async measure(last) {
      child.stdin.write(last ? "idle\n" : "go\n");
      const { value, done } = await lines.next();
      if (done) throw new Error("the bare restore failed");
      return JSON.parse(value);
    },
  };
}

const results = new Map();
async function round(c, keep, last) {
  const times = {};
  if (c.measure) Object.assign(times, await c.measure(last));
  else {
    const [create, box] = await timed(() => c.make());
    times.create = create;
    try {
      if (last) await sleep(2000);
      times.idle = await pss(await c.pids(box));
      for (const [what, argv] of WORK) times[what] = (await timed(() => c.exec(box, argv)))[0];
    } finally {
      await c.remove(box);
    }
  }
  if (!keep) return;
  const all = results.get(c.name) ?? { create: [], true: [], node: [], churn: [] };
  for (const what of ["create", "true", "node", "churn"]) all[what].push(times[what]);
  results.set(c.name, { ...all, idle: times.idle });
}
// The first of each warms what stays warm: images, templates.
for (const c of contenders) await round(c, false, false);
if (micro) {
  // Its template was begun while the first one started.
  for (let i = 0; i < 300 && !readFileSync(join(values.data, "log/spawner.log"), "utf8").includes("template of 2048 MiB"); i++) await sleep(200);
  const box = await engine(micro).make();
  const files = (await box.machine()).flatMap((pid) => readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`)));
  await engine(micro).remove(box);
  contenders.push(await bare(files.find((file) => file.endsWith(".erofs"))));
}
for (let i = 0; i < rounds; i++) for (const c of contenders) await round(c, true, i === rounds - 1);

const column = (list) => `${median(list).toFixed(1)} (${Math.min(...list).toFixed(1)})`.padStart(18);
console.log(`engines: milliseconds, medians of ${rounds} and the best in brackets; an idle machine's own memory`);
console.log(" ".repeat(26), ["create", "true", "node -e 1", "300 files", "idle MiB"].map((h) => h.padStart(18)).join(""));
for (const [name, r] of results)
  console.log(name.padEnd(26), ["create", "true", "node", "churn"].map((k) => column(r[k])).join("") + (r.idle / 1024).toFixed(1).padStart(18));
const ratio = (ours, theirs, what, budget) => {
  if (!results.has(ours) || !results.has(theirs)) return;
  const value = median(results.get(ours)[what]) / median(results.get(theirs)[what]);
  console.log(`${what} of ${ours} / ${theirs}`.padEnd(52), value.toFixed(2) + (budget ? `   budget <= ${budget} ${value <= budget ? "ok" : "OVER"}` : ""));
};
console.log();
for (const what of ["create", "true", "node", "churn"]) ratio("namespaces", "crun", what);
for (const what of ["create", "true", "node", "churn"]) ratio("gvisor", "runsc", what);
for (const what of ["create", "true", "node", "churn"]) ratio(micro, "QEMU, restored by hand", what, what === "create" ? 1.5 : 0);
