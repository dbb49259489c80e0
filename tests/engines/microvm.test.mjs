// Class 3 through the unmodified SDK: what works in class 1 works in a virtual machine, its monitor is locked in, and
// nothing stays when it ends. Without KVM the machine is emulated: the same code, slower.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { release } from "node:os";
import { after, test } from "node:test";
import { apiError, sh, useSdk } from "../clients/sdk.mjs";
import { startServer, until } from "../support/server.mjs";
import { inventory, machinePids, spawnerPid } from "../support/host.mjs";
import { makeWorld } from "../support/world.mjs";
import { everyday } from "./everyday.mjs";

const probe = await startServer({ config: 'isolation = "namespaces"\n' });
const { engines } = await probe.call("GET", "/x/v1/info");
await probe.stop();
const engine = engines.find((e) => e.name.startsWith("microvm") && e.usable);
assert.ok(engine, `no usable microVM: ${engines.map((e) => e.whyNot).join("; ")}`);

const world = await makeWorld();
const echo = (request, response) => response.end(JSON.stringify({ auth: request.headers.authorization, path: request.url }));
const tls = await world.https(echo);
const { Drive, Sandbox, sandbox, credentials, server } = await useSdk({ config: `isolation = "${engine.name}"\n${world.config()}` });
const read = async (box, path) => (await box.readFileToBuffer({ path }))?.toString() ?? null;
const unique = () => `v-${Math.random().toString(36).slice(2, 10)}`;
const session = async (box) => server.call("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}`);

everyday({ sandbox, tls });

// Runs `make` and gives what it made with the pid of the machine that came with it.
async function withPid(make) {
  const spawner = await spawnerPid(server.data);
  const earlier = new Set(await machinePids(spawner));
  const made = await make();
  const [pid] = (await machinePids(spawner)).filter((p) => !earlier.has(p));
  return [made, pid];
}

test("the kernel is another one, and of the host nothing is seen", async () => {
  const box = await sandbox({ resources: { vcpus: 1 } });
  const seen = await sh(box, "uname -r; cat /proc/version; cat /proc/cmdline; echo /proc/[0-9]*; nproc; grep MemTotal /proc/meminfo; ls /sys/class/net", { sudo: true });
  assert.equal(seen.exitCode, 0, seen.stderr);
  assert.ok(!seen.stdout.includes(release()), seen.stdout);
  assert.ok(!seen.stdout.includes(readFileSync("/proc/version", "utf8").trim()));
  assert.ok(!seen.stdout.includes(readFileSync("/proc/cmdline", "utf8").trim()));
  assert.ok(!seen.stdout.includes(`/proc/${process.pid}`) && !seen.stdout.includes(`/proc/${server.pid}`));
  assert.match(seen.stdout, /\n1\nMemTotal: +(19|20)\d{5} kB\neth0\nlo\n(sit0\n)?$/);
  const model = (await sh(box, "grep -m1 'model name' /proc/cpuinfo")).stdout;
  if (engine.name === "microvm-emulated") assert.ok(!readFileSync("/proc/cpuinfo", "utf8").includes(model.trim()), model);
  const info = await server.call("GET", "/x/v1/info");
  assert.equal(info.engine, engine.name);
});

// The first of a size boots, and a template is made meanwhile; a later one finds it ready.
const small = { resources: { vcpus: 1 }, persistent: false };
let ready = false;
async function template() {
  if (!ready) await (await sandbox(small)).delete();
  ready = await until(async () => (await server.spawnerLog()).includes("template of 2048 MiB: ready"), "the template is ready");
}

test("two machines from one template share nothing that should be their own", async () => {
  await template();
  const script = `head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id /etc/machine-id /sys/class/net/eth0/address
    openssl genpkey -algorithm ed25519 | tail -2 | head -1; node -p 'crypto.randomUUID()'; mktemp -u`;
  const boxes = await Promise.all([sandbox(small), sandbox(small)]);
  const [x, y] = await Promise.all(boxes.map(async (box) => (await sh(box, script)).stdout.trim().split("\n")));
  // Where the agent has its stack and the kernel's page, and where a program that it started has them.
  const maps = await Promise.all(boxes.map((box) => sh(box, "sudo grep -E 'stack|vdso' /proc/1/maps | cut -d' ' -f1; grep -E 'stack|vdso' /proc/self/maps | cut -d' ' -f1")));
  const [p, q] = maps.map((m) => m.stdout.trim().split("\n"));
  assert.equal(p.length, 4, maps[0].stdout + maps[0].stderr);
  p.forEach((range, i) => assert.notEqual(range, q[i], "addresses of user space"));
  assert.equal(x.length, 8, x.join("\n"));
  x.forEach((line, i) => assert.notEqual(line, y[i]));
  assert.match(x[3], /^[0-9a-f]{32}$/);
  assert.match(x[4], /^02:/);
  for (const box of boxes) {
    const [clock, host] = (await sh(box, "date +%s; hostname")).stdout.split("\n");
    assert.ok(Math.abs(Number(clock) - Date.now() / 1000) < 60, "the clock is the host's");
    assert.equal(host, "sandbox");
  }
});

test("where machines are to boot, no two kernels have the same layout", async () => {
  const booting = await startServer({ config: `isolation = "${engine.name}"\n[microvm]\nstart = "boot"\n` });
  try {
    const seen = [];
    for (let i = 0; i < 3; i++) {
      const { sandbox: made, session: its } = await booting.create({ runtime: "node24", ...small });
      const look = "sysctl -qw kernel.kptr_restrict=0; grep -m1 ' T schedule$' /proc/kallsyms";
      seen.push((await booting.exec(its.id, "sh", ["-c", look], { sudo: true })).stdout);
      await booting.call("DELETE", `/v2/sandboxes/${made.name}?projectId=prj_test`);
    }
    assert.match(seen[0], /^ffffffff[0-9a-f]{8} T schedule\n$/);
    // There are some hundred places for a kernel: two may be alike by chance.
    assert.ok(new Set(seen).size > 1, seen.join(""));
    assert.ok(!(await booting.spawnerLog()).includes("template of"), "none was made");
  } finally {
    await booting.stop();
  }
});

test("twenty at once from one template", async () => {
  await template();
  const boxes = await Promise.all(Array.from({ length: 20 }, () => sandbox(small)));
  const seen = await Promise.all(boxes.map((box) => sh(box, "cat /proc/sys/kernel/random/boot_id; echo $$ > mine; cat mine | wc -l")));
  assert.equal(new Set(seen.map((r) => r.stdout.split("\n")[0])).size, 20, JSON.stringify(seen));
  for (const r of seen) assert.match(r.stdout, /\n1\n$/);
  await Promise.all(boxes.map((box) => box.delete()));
});

// A machine with these drives that runs the script: what that said, and whether it came from a template.
async function withDrives(mounts, script) {
  const spawner = await spawnerPid(server.data);
  const earlier = new Set(await machinePids(spawner));
  const box = await sandbox({ ...small, mounts });
  const last = `serial=drive${Object.keys(mounts).length - 1}\0`;
  const words = (await machinePids(spawner)).filter((p) => !earlier.has(p)).map((p) => readFileSync(`/proc/${p}/cmdline`, "utf8"));
  const own = words.find((w) => w.includes(last));
  assert.ok(own, `no machine with ${last}`);
  const done = await sh(box, script);
  assert.equal(done.exitCode, 0, done.stderr);
  return { box, said: done.stdout, restored: own.includes("-incoming") };
}

test("machines with drives come from templates of their own, each with its own drives", async () => {
  const drive = (mib) => Drive.getOrCreate({ name: unique(), maxSize: mib * 2 ** 20, ...credentials });
  const [a, b, c] = await Promise.all([drive(64), drive(96), drive(128)]);
  const ready = (n) => until(async () => (await server.spawnerLog()).includes(`template of 2048 MiB with ${n} drives: ready`), "the template is ready");
  const first = await withDrives({ "/data": a }, "echo first > /data/f; cat /data/f");
  assert.deepEqual([first.said, first.restored], ["first\n", false], "the first one boots");
  await first.box.stop();
  await ready(1);
  const look = "cat /proc/sys/kernel/random/boot_id; cat /data/f; ls /sys/block | grep -c vd; grep -c ' /data ext4 rw,nosuid,nodev' /proc/mounts; df -m --output=size /data | tail -1";
  const two = [await withDrives({ "/data": a }, look), await withDrives({ "/data": b }, `echo other > /data/f; ${look}`)];
  const [x, y] = two.map((t) => t.said.split("\n"));
  assert.deepEqual([...x.slice(1, 4), ...y.slice(1, 4)], ["first", "3", "1", "other", "3", "1"]);
  assert.notEqual(x[0], y[0]);
  assert.ok(Number(x[4]) > 40 && Number(x[4]) < 64 && Number(y[4]) > 64 && Number(y[4]) < 96, "as large as each drive is");
  assert.deepEqual(two.map((t) => t.restored), [true, true]);
  assert.equal((await sh(two[0].box, "echo again > /data/f; sync")).exitCode, 0);
  assert.equal(await read(two[1].box, "/data/f"), "other\n");
  for (const t of two) await t.box.stop();
  const reader = await withDrives({ "/data": a.snapshot() }, "cat /data/f; echo x 2>/dev/null > /data/f || echo refused");
  assert.deepEqual([reader.said, reader.restored], ["again\nrefused\n", true]);
  // Three at once, and each at the place that it was asked for.
  const mounts = { "/z": b, "/y": c, "/x": a.snapshot() };
  const three = await withDrives(mounts, "echo new > /y/f; cat /z/f /y/f /x/f");
  await three.box.stop();
  await ready(3);
  const after = await withDrives(mounts, "cat /z/f /y/f /x/f");
  assert.deepEqual([three.said, three.restored, after.said, after.restored], ["other\nnew\nagain\n", false, "other\nnew\nagain\n", true]);
});

test("stop keeps the files, resume has them; snapshot, fork", async () => {
  const box = await sandbox({ name: unique() });
  await sh(box, "mkdir d && echo one > d/a && ln -s a d/l && chmod 750 d && echo t > /tmp/t");
  await sh(box, "echo root > /etc/mine && rm /etc/debian_version", { sudo: true });
  await box.stop();
  const again = await Sandbox.get({ name: box.name, ...credentials });
  assert.equal((await sh(again, "cat d/l /tmp/t /etc/mine; find d -maxdepth 0 -printf '%m %u\\n'; ls /etc/debian_version")).stdout, "one\nt\nroot\n750 vercel-sandbox\n");
  const { snapshotId } = await again.snapshot();
  const copy = await sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId } });
  assert.equal(await read(copy, "d/a"), "one\n");
  const fork = await Sandbox.fork({ sourceSandbox: box.name, ...credentials });
  after(() => fork.delete());
  assert.equal((await sh(fork, "echo two > d/a && mv d e")).exitCode, 0);
  assert.equal(await read(fork, "e/a"), "two\n");
  assert.equal(await read(copy, "d/a"), "one\n");
});

test("the disk is as large as its limit says", async () => {
  const box = await sandbox({ persistent: false });
  const size = Number((await sh(box, "df -B1 --output=size / | tail -1")).stdout);
  assert.ok(size > 6 * 2 ** 30 && size < 64 * 2 ** 30, String(size));
});

test("the monitor is locked in", async () => {
  const [, pid] = await withPid(() => sandbox({ persistent: false }));
  const status = Object.fromEntries(readFileSync(`/proc/${pid}/status`, "utf8").split("\n").map((l) => l.split(":\t")));
  assert.match(readFileSync(`/proc/${pid}/comm`, "utf8"), /^qemu-system/);
  const uids = new Set(status.Uid.split("\t")), gids = new Set(status.Gid.split("\t"));
  assert.equal(uids.size + gids.size, 2);
  assert.ok(Number([...uids][0]) > 65536, "a user id of its own");
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) assert.equal(Number(`0x${status[set]}`), 0, set);
  assert.equal(status.NoNewPrivs, "1");
  assert.equal(status.Seccomp, "2");
  assert.ok(Number(status.Seccomp_filters) >= 2, "its own filter and ours");
  assert.equal(status.Groups.trim(), "");
  for (const ns of ["mnt", "pid", "net", "ipc", "uts"])
    assert.notEqual(readlinkSync(`/proc/${pid}/ns/${ns}`), readlinkSync(`/proc/self/ns/${ns}`), ns);
  const devices = readFileSync(`/proc/${pid}/net/dev`, "utf8").split("\n").slice(2).filter(Boolean).map((l) => l.split(":")[0].trim());
  assert.deepEqual(devices.filter((d) => d !== "lo"), [], "no network");
  // Its libraries and firmware, read-only, and nothing else.
  for (const line of readFileSync(`/proc/${pid}/mountinfo`, "utf8").trim().split("\n")) {
    const [, , , , at, options] = line.split(" ");
    assert.match(at, /^(\/|\/proc|\/usr\/lib\/x86_64-linux-gnu|\/usr\/lib64|\/usr\/share\/(qemu|seabios))$/);
    assert.match(options, /^ro,nosuid/);
  }
  const root = readdirSync(`/proc/${pid}/root`).sort();
  assert.deepEqual(root, ["dev", "lib", "lib64", "proc", "usr", "vm"]);
  const files = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  for (const file of files)
    assert.match(file, /^(socket:|anon_inode:|\/dev\/net\/tun$|.*null$|\/memfd:|.*\/merged\/.*\.erofs$|.*\/upper\/disk\.img$|\/dev\/kvm$)/);
  const words = readFileSync(`/proc/${pid}/cmdline`, "utf8");
  assert.ok(words.includes("-monitor\0none") && !words.includes("-qmp") && words.includes("-sandbox\0on,"));
});

test("kill -9 of the daemon: sandbox, processes and output go on", async () => {
  const box = await sandbox();
  const command = await box.runCommand({ cmd: "sh", args: ["-c", "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done"], detached: true });
  assert.equal((await sh(box, "true")).exitCode, 0);
  await server.crash();
  await server.start();
  const logs = await server.request("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}/cmd/${command.cmdId}/logs`);
  const lines = (await logs.text()).split("\n").filter(Boolean).map((l) => JSON.parse(l).data).join("");
  assert.equal(lines, Array.from({ length: 60 }, (_, i) => `line ${i}\n`).join(""));
  assert.equal((await sh(box, "echo on")).stdout, "on\n");
});

test("kill -9 of QEMU: failed with a reason, and everything is freed", async () => {
  const before = await inventory(server);
  const [box, pid] = await withPid(() => sandbox({ persistent: false }));
  assert.equal((await sh(box, "echo up")).stdout, "up\n");
  process.kill(pid, "SIGKILL");
  const failed = await until(async () => {
    const { session: row } = await session(box);
    return row.status === "failed" && row;
  }, "the session has failed");
  assert.equal(failed.status, "failed");
  await box.delete();
  await until(async () => {
    const now = await inventory(server);
    return ["machineProcesses", "hostMounts", "spawnerMounts", "agentSockets"].every((k) => now[k] <= before[k]) && now.cgroups <= before.cgroups + 8;
  }, "nothing is left");
});

test("machines of the pool were restored, configured and connected before anybody asked", async () => {
  const pooled = await startServer({ config: `isolation = "${engine.name}"\n[pool]\nnode24 = 1\n` });
  try {
    const machines = async () => machinePids(await spawnerPid(pooled.data));
    const words = (pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8");
    const create = () => pooled.create({ runtime: "node24", persistent: false });
    const remove = ({ sandbox: { name } }) => pooled.call("DELETE", `/v2/sandboxes/${name}?projectId=prj_test`);
    // The first boots, and meanwhile the template of its size is made; then one that was restored stands by, and is the one
    // that goes when a sandbox was made and deleted.
    await until(async () => {
      const spare = (await machines()).find((pid) => words(pid).includes("-incoming"));
      const box = await create();
      assert.equal((await pooled.exec(box.session.id, "true")).exitCode, 0);
      await remove(box);
      return spare && !(await machines()).includes(spare);
    }, "a sandbox got the machine that stood by");
  } finally {
    await pooled.stop();
  }
});

test("minClass 3 is refused where the machine is only emulated", { skip: engine.name === "microvm" && "KVM works here" }, async () => {
  const refused = await apiError(sandbox({ __isolation: { minClass: 3 } }));
  assert.equal(refused.status, 422, refused.message);
  assert.match(refused.message, /KVM/);
});
