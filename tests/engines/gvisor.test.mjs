// Class 2 through the unmodified SDK: what works in class 1 works on gVisor's kernel, and nothing stays when it ends.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { release } from "node:os";
import { after, test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { until } from "../support/server.mjs";
import { inventory, machinePids, spawnerPid } from "../support/host.mjs";
import { makeWorld } from "../support/world.mjs";
import { everyday } from "./everyday.mjs";

const world = await makeWorld();
const echo = (request, response) => response.end(JSON.stringify({ auth: request.headers.authorization, path: request.url }));
const tls = await world.https(echo);
const { Sandbox, Drive, sandbox, credentials, server } = await useSdk({ config: `isolation = "gvisor"\n${world.config()}` });
const read = async (box, path) => (await box.readFileToBuffer({ path }))?.toString() ?? null;
const unique = () => `g-${Math.random().toString(36).slice(2, 10)}`;
const session = async (box) => server.call("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}`);

everyday({ sandbox, tls });

// The process with a machine's kernel, by the machine's first process.
function kernelOf(pid) {
  const family = [pid];
  for (let i = 0; i < family.length; i++) {
    const words = readFileSync(`/proc/${family[i]}/cmdline`, "utf8").split("\0");
    if (words.includes("boot")) return family[i];
    family.push(...readFileSync(`/proc/${family[i]}/task/${family[i]}/children`, "utf8").split(" ").filter(Boolean).map(Number));
  }
  throw new Error(`no kernel below ${pid}`);
}

test("the kernel is gVisor's, and of the host nothing is seen", async () => {
  const box = await sandbox({ resources: { vcpus: 1 } });
  const seen = await sh(box, "uname -r; cat /proc/version; dmesg; cat /proc/cmdline; echo /proc/[0-9]*; nproc; grep MemTotal /proc/meminfo", { sudo: true });
  assert.equal(seen.exitCode, 0, seen.stderr);
  assert.ok(!seen.stdout.includes(release()), seen.stdout);
  assert.match(seen.stdout, /gVisor/);
  assert.ok(!seen.stdout.includes(readFileSync("/proc/cmdline", "utf8").trim()));
  assert.ok(!seen.stdout.includes(`/proc/${process.pid}`) && !seen.stdout.includes(`/proc/${server.pid}`));
  assert.match(seen.stdout, /\n1\nMemTotal: +2097152 kB\n$/);
  const info = await server.call("GET", "/x/v1/info");
  assert.deepEqual([info.engine, info.isolationClass], ["gvisor", 2]);
});

test("sudo in a script: the image's own, with environment, directory and input of whoever calls it", async () => {
  const box = await sandbox();
  const script = `cd /usr/lib; umask 027
    MINE=kept sudo sh -c 'echo $(id -u) $SUDO_USER $MINE $PWD $(umask); exit 7'; echo $?
    echo piped | sudo tee /etc/mine; sudo cat /etc/mine
    sudo -u nobody id -un; sudo A=5 -- sh -c 'echo $A'; sudo -i pwd
    sudo sh -c 'kill -9 $$'; echo $?
    sudo sh -c 'sudo -u vercel-sandbox sudo id -un'
    sudo sleep 0.1 & wait $!; echo $?
    mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone; sudo id -u`;
  const { stdout, stderr } = await sh(box, script);
  assert.equal(stdout, `0 vercel-sandbox kept /usr/lib 0027\n7\npiped\npiped\nnobody\n5\n/root\n137\nroot\n0\n0\n`, stderr);
  const own = await box.runCommand("sudo", ["sh", "-c", "echo $(id -u) $SUDO_USER"]);
  assert.equal(await own.stdout(), "0 vercel-sandbox\n", "as a command of its own");
});

test("sudo: the image's sudoers decide", async () => {
  const box = await sandbox();
  await sh(box, `groupadd ops; useradd -G ops carol; useradd bob
    echo '%ops ALL=(root) NOPASSWD: /usr/bin/id' > /etc/sudoers.d/ops`, { sudo: true });
  const as = (user, script) => sh(box, `sudo -u ${user} sh -c '${script}'`);
  assert.equal((await as("carol", "sudo -n id -u")).stdout, "0\n");
  for (const [user, script] of [["carol", "sudo -n cat /etc/shadow"], ["bob", "sudo -n id -u"], ["carol", "sudo --sandbar-caller=0 id -u"],
    ["bob", "bash -c \"exec -a sandbar-elevate /tmp/.sandbar/agent /dev/.sandbar-sudo sudo --sandbar-caller=0 id -u\""]]) {
    const refused = await as(user, script);
    assert.notEqual(refused.exitCode, 0, `${user}: ${script}: ${refused.stdout}`);
    assert.equal(refused.stdout, "", `${user}: ${script}`);
  }
  // Without the library nobody is root by mistake.
  await sh(box, "rm /etc/ld.so.preload", { sudo: true });
  const bare = await box.runCommand("sudo", ["id", "-u"]);
  assert.deepEqual([bare.exitCode, await bare.stdout()], [1, ""]);
});

for (const signal of ["SIGKILL", "SIGTERM"]) {
  test(`${signal} for a command reaches what sudo started in it`, async () => {
    const box = await sandbox();
    const command = await box.runCommand({ cmd: "sh", args: ["-c", "sudo sh -c 'sleep 1000; true'; true"], detached: true });
    const sleeps = async () => (await sh(box, "pgrep -cx sleep")).stdout.trim();
    await until(async () => (await sleeps()) === "1", "it runs");
    await command.kill(signal);
    assert.equal((await command.wait()).exitCode, signal === "SIGKILL" ? 137 : 143);
    await until(async () => (await sleeps()) === "0", "it has ended");
  });
}

test("stop keeps the files, resume has them; snapshot, fork", async () => {
  const box = await sandbox({ name: unique() });
  await sh(box, "mkdir d && echo one > d/a && ln -s a d/l && chmod 750 d && echo t > /tmp/t");
  await sh(box, "echo root > /etc/mine", { sudo: true });
  await box.stop();
  const again = await Sandbox.get({ name: box.name, ...credentials });
  assert.equal((await sh(again, "cat d/l /tmp/t /etc/mine; find d -maxdepth 0 -printf '%m %u\\n'")).stdout, "one\nt\nroot\n750 vercel-sandbox\n");
  const { snapshotId } = await again.snapshot();
  const copy = await sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId } });
  assert.equal(await read(copy, "d/a"), "one\n");
  const shared = await sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId }, __isolation: "namespaces" });
  assert.equal((await session(shared)).session.isolation.class, 1);
  assert.equal((await sh(shared, "cat d/l /tmp/t /etc/mine; ls /tmp/.sandbar /etc/ld.so.preload 2>/dev/null")).stdout, "one\nt\nroot\n");
  const fork = await Sandbox.fork({ sourceSandbox: box.name, ...credentials });
  after(() => fork.delete());
  assert.equal((await sh(fork, "echo two > d/a && mv d e")).exitCode, 0);
  assert.equal(await read(fork, "e/a"), "two\n");
  assert.equal(await read(copy, "d/a"), "one\n");
});

test("a drive is written by one sandbox and read by the next", async () => {
  const drive = await Drive.getOrCreate({ name: unique(), ...credentials });
  const writer = await sandbox({ mounts: { "/data": drive }, persistent: false });
  const wrote = await sh(writer, "echo kept > /data/f && mkdir /data/d && cat /data/f");
  assert.equal(wrote.stdout, "kept\n", wrote.stderr);
  await writer.stop();
  const reader = await sandbox({ mounts: { "/data": drive.readOnly?.() ?? drive }, persistent: false });
  assert.equal((await sh(reader, "cat /data/f")).stdout, "kept\n");
});

test("kill -9 of the daemon: sandbox, processes and output go on", async () => {
  const box = await sandbox();
  const command = await box.runCommand({ cmd: "sh", args: ["-c", "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done"], detached: true });
  await until(async () => (await sh(box, "true")).exitCode === 0, "it runs");
  await server.crash();
  await server.start();
  const logs = await server.request("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}/cmd/${command.cmdId}/logs`);
  const lines = (await logs.text()).split("\n").filter(Boolean).map((l) => JSON.parse(l).data).join("");
  assert.equal(lines, Array.from({ length: 60 }, (_, i) => `line ${i}\n`).join(""));
  assert.equal((await sh(box, "echo on")).stdout, "on\n");
});

test("a memory bomb ends the sandbox, and the session says so", async () => {
  const box = await sandbox({ persistent: false, resources: { vcpus: 1 } });
  await sh(box, "tail /dev/zero").catch(() => {}); // the answer ends with the machine
  const failed = await until(async () => {
    const { session: row } = await session(box);
    return row.status === "failed" && row;
  }, "the session has failed");
  assert.match(failed.stopReason, /out of memory/);
});

test("kill -9 of its kernel: failed with a reason, and everything is freed", async () => {
  const spawner = await spawnerPid(server.data);
  const earlier = new Set(await machinePids(spawner));
  const before = await inventory(server);
  const box = await sandbox({ persistent: false });
  assert.equal((await sh(box, "echo up")).stdout, "up\n");
  const machine = await until(async () => (await machinePids(spawner)).find((pid) => !earlier.has(pid)), "its first process is listed");
  process.kill(kernelOf(machine), "SIGKILL");
  const failed = await until(async () => {
    const { session: row } = await session(box);
    return row.status === "failed" && row;
  }, "the session has failed");
  assert.match(failed.stopReason, /machine lost/);
  await box.delete();
  await until(async () => {
    const now = await inventory(server);
    return ["machineProcesses", "hostMounts", "spawnerMounts", "agentSockets"].every((k) => now[k] <= before[k]) && now.cgroups <= before.cgroups + 8;
  }, "nothing is left");
});
