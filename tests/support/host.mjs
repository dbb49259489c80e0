// What of one server is visible on the host: for tests that say "as before". Other servers may run beside it.
import { readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { until } from "./server.mjs";

const list = (dir) => readdir(dir).catch(() => []);
const text = (file) => readFile(file, "utf8").catch(() => "");

export async function processes() {
  const all = [];
  for (const pid of (await list("/proc")).filter((n) => /^\d+$/.test(n))) {
    const cmdline = (await text(`/proc/${pid}/cmdline`)).split("\0");
    if (cmdline[0]) all.push({ pid: Number(pid), cmdline });
  }
  return all;
}

// The spawner that serves a data directory. Children of it that have not executed anything look the same.
export async function spawnerPid(data) {
  const alike = (await processes()).filter((p) => p.cmdline[0].endsWith("sandbar-spawner") && p.cmdline.includes(data)).map((p) => p.pid);
  for (const pid of alike) {
    const parent = Number(/^PPid:\s+(\d+)/m.exec(await text(`/proc/${pid}/status`))?.[1]);
    if (parent && !alike.includes(parent)) return pid;
  }
}

// Host pids of the machines that a spawner supervises, oldest first.
export async function machinePids(spawner) {
  const children = (await text(`/proc/${spawner}/task/${spawner}/children`)).split(" ").filter(Boolean).map(Number);
  // What reads snapshots in the background is no machine, nor is what waits for one, with the host's user namespace.
  const host = await readlink("/proc/self/ns/user");
  const machines = await Promise.all(children.map(async (pid) => {
    const name = await text(`/proc/${pid}/cmdline`);
    if (name.startsWith("sandbar-scanner")) return false;
    return !name.startsWith("sandbar-guest\0--enter\0") || (await readlink(`/proc/${pid}/ns/user`).catch(() => host)) !== host;
  }));
  return children.filter((_, i) => machines[i]);
}

async function cgroups(instance) {
  const found = [];
  for (const controller of await list("/sys/fs/cgroup")) {
    for (const dir of [join("/sys/fs/cgroup", controller, "sandbar", instance), join("/sys/fs/cgroup/sandbar", instance)]) {
      for (const name of await list(dir)) if (!/\./.test(name) && !["tasks", "notify_on_release"].includes(name)) found.push(`${dir}/${name}`);
    }
  }
  return [...new Set(found)];
}

const instanceOf = async (server) => (await text(join(server.data, "instance-id"))).trim();

// The processes of one server: daemon, spawner, what descends from them, and what is in a cgroup of its instance, which
// is where an orphan of a machine would be. Other servers on this host do not count.
export async function processesOf(server) {
  const instance = await instanceOf(server);
  const all = new Map();
  for (const { pid, cmdline } of await processes()) {
    const parent = Number(/^PPid:\s+(\d+)/m.exec(await text(`/proc/${pid}/status`))?.[1]);
    all.set(pid, { pid, cmdline, parent, inGroup: instance !== "" && (await text(`/proc/${pid}/cgroup`)).includes(instance) });
  }
  const roots = new Set([server.pid, await spawnerPid(server.data)]);
  const ours = (p) => p !== undefined && (p.inGroup || roots.has(p.pid) || ours(all.get(p.parent)));
  return [...all.values()].filter(ours);
}

async function namespaces(server) {
  const seen = new Set();
  for (const { pid } of await processesOf(server)) {
    for (const kind of ["mnt", "net", "pid", "user", "ipc", "uts"]) {
      const id = await readlink(`/proc/${pid}/ns/${kind}`).catch(() => null);
      if (id) seen.add(id);
    }
  }
  return seen.size;
}

const fds = async (pid) => (pid ? (await list(`/proc/${pid}/fd`)).length : 0);

// Everything a leak could grow. `server` is a Server of tests/support/server.mjs.
export async function inventory(server) {
  const instance = await instanceOf(server);
  const spawner = await spawnerPid(server.data);
  return {
    machineProcesses: (await machinePids(spawner)).length,
    cgroups: (await cgroups(instance)).length,
    namespaces: await namespaces(server),
    hostMounts: (await text("/proc/self/mountinfo")).split("\n").filter((line) => ["/run/sandbar", server.data, instance].some((ours) => line.includes(ours))).length,
    spawnerMounts: (await text(`/proc/${spawner}/mountinfo`)).split("\n").length,
    daemonFds: await fds(server.pid),
    spawnerFds: await fds(spawner),
    agentSockets: (await list(join(server.data, "run/agents"))).length,
  };
}

// The same when nothing changes any more: resources and processes are made ahead after a machine took some.
export async function settled(server, rest = () => true) {
  let last;
  return until(async () => {
    const now = await inventory(server);
    const same = JSON.stringify(now) === JSON.stringify(last);
    last = now;
    return same && rest(now) && now;
  }, "the host settles");
}
