// Containers in a sandbox of class 1, which is class 0 then: who gets that, and that root inside, with all that it was
// given for this, still reaches nothing of the host. What works in such a sandbox is tests/containers.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { test } from "node:test";
import { promisify } from "node:util";
import { apiError, sh, useSdk } from "../clients/sdk.mjs";
import { startServer, until } from "../support/server.mjs";
import { inventory, machinePids, spawnerPid } from "../support/host.mjs";
import { makeWorld } from "../support/world.mjs";
import { inside, must, refused, root, withImage } from "../containers/podman.mjs";

const run = promisify(execFile);
const world = await makeWorld();
const echo = (request, response) => response.end(JSON.stringify({ auth: request.headers.authorization, path: request.url }));
const tls = await world.https(echo);
const { Sandbox, sandbox, credentials, server } = await useSdk({
  config: `isolation = "namespaces"\nallow_nesting_on_class1 = true\n${world.config()}`,
});
const nested = (fields) => sandbox({ runtime: undefined, image: "sandbar/podman:latest", __nesting: true, resources: { vcpus: 1 }, ...fields });
const session = async (box) => (await server.call("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}`)).session;
const unique = () => `n-${Math.random().toString(36).slice(2, 10)}`;

const attack = await withImage(await nested({ persistent: false, networkPolicy: "deny-all" }));

test("it says what it is: class 0, so nothing that demands a class gets it", async () => {
  const { sandbox: row } = await server.call("GET", `/v2/sandboxes/${attack.name}?teamId=team_test&projectId=prj_test`);
  assert.deepEqual([row.nesting, row.isolation.engine, row.isolation.class], [true, "namespaces", 0]);
  assert.deepEqual([(await session(attack)).nesting, (await session(attack)).isolation.class], [true, 0]);
  for (const __isolation of [1, { engine: "namespaces", minClass: 1 }, "gvisor"]) {
    const refused = await apiError(nested({ __isolation }));
    assert.equal(refused.status, 422, JSON.stringify(__isolation));
    assert.match(refused.message, /nesting/);
  }
  // getOrCreate gets what it asked for, or nothing.
  const plain = await sandbox({ name: unique() });
  const other = await apiError(Sandbox.get({ name: plain.name, __nesting: true, ...credentials }));
  assert.equal(other.status, 409);
  const raised = await server.request("PATCH", `/v2/sandboxes/${plain.name}?teamId=team_test&projectId=prj_test`, { body: { nesting: true } });
  assert.equal(raised.status, 409);
  assert.equal((await session(plain)).nesting, undefined);
});

test("a server whose operator did not allow it refuses, and says what to do", async () => {
  const strict = await startServer({ config: 'isolation = "namespaces"\n' });
  try {
    const refused = await strict.request("POST", "/v2/sandboxes", { body: { projectId: "prj_test", nesting: true } });
    assert.equal(refused.status, 422);
    assert.match(await refused.text(), /allow_nesting_on_class1/);
  } finally {
    await strict.stop();
  }
});

test("namespaces: its own where it may do as it likes, the host's for the rest", async () => {
  const spawner = await spawnerPid(server.data);
  const pids = await machinePids(spawner);
  const host = (kind) => readlinkSync(`/proc/self/ns/${kind}`);
  for (const pid of pids) for (const kind of ["mnt", "net", "pid", "user", "ipc", "uts", "cgroup"]) assert.notEqual(readlinkSync(`/proc/${pid}/ns/${kind}`), host(kind));
  // NS_GET_USERNS of each: the only one with nesting has two of its own.
  const owner = "import fcntl, os, sys\nprint(os.fstat(fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0xb701)).st_ino)";
  const ownerOf = async (pid, kind) => (await run("python3", ["-c", owner, `/proc/${pid}/ns/${kind}`])).stdout.trim();
  const inode = (link) => link.match(/\[(\d+)\]/)[1];
  const own = [];
  for (const pid of pids) {
    const user = inode(readlinkSync(`/proc/${pid}/ns/user`));
    const its = [];
    for (const kind of ["mnt", "net", "pid", "ipc", "uts", "cgroup"]) {
      const by = await ownerOf(pid, kind);
      assert.ok([user, inode(host("user"))].includes(by), kind);
      if (by === user) its.push(kind);
    }
    own.push(its.join());
  }
  assert.deepEqual([...new Set(own)].sort(), ["", "mnt,net"]);
  // The agent is not to be traced or entered, so neither are the namespaces that it came from.
  const seen = await root(attack, "readlink /proc/1/ns/net; nsenter -t 1 -m true; nsenter -t 1 -n true; cat /proc/1/environ; ls /proc/1/fd; ls /proc/1/root/");
  assert.equal(seen.stdout, "", seen.stdout);
  assert.equal(await must(attack, "cat /proc/[0-9]*/comm | grep -e spawner -e systemd -e node; unshare -pf --mount-proc sh -c 'echo /proc/[0-9]*'"), "/proc/1\n");
});

test("covers and read-only mounts stay, in every mount namespace that it can make", async () => {
  const tries = ["umount /proc/cpuinfo", "umount -l /proc/sys", "umount /sys", "umount -l /sys", "umount /sys/fs/cgroup", "umount -l /var/lib/containers",
    "mount -o remount,bind,rw /proc/sys", "mount -o remount,bind,rw /sys", "mount -o remount,bind,rw /dev", "mount -o remount,bind,dev,suid,exec /proc",
    "mount -o remount,bind,dev /", "mount --bind / /tmp/m", "mount --bind /sys /tmp/m", "mount --bind /var/lib /tmp/m", "mount --move /sys /tmp/m",
    "mount --move /proc/cpuinfo /tmp/m", "echo 1 > /proc/sys/kernel/panic", "ls /sys/proc"];
  await must(attack, "mkdir -p /tmp/m");
  for (const how of ["sh", "unshare -m sh", "unshare -Urm sh"]) await refused(attack, tries, how);
});

test("a /proc of its own gives nothing that belongs to the host", async () => {
  const tries = ["echo 1 > /proc/sys/kernel/panic", "echo x > /proc/sys/kernel/core_pattern", "echo x > /proc/sys/kernel/modprobe", "echo 1 > /proc/sys/vm/drop_caches",
    "echo b > /proc/sysrq-trigger", "head -c 1 /proc/kcore", "head -c 1 /proc/kmsg", "echo f > /proc/irq/default_smp_affinity", "dmesg", "echo -1000 > /proc/self/oom_score_adj"];
  await refused(attack, tries, "unshare -pf --mount-proc sh");
});

test("no devices, no modules, no filesystem of the host", async () => {
  const disks = readdirSync("/sys/block");
  const tries = ["mknod /tmp/d b 7 0", "mknod /var/lib/containers/d b 7 1", "mount -t tmpfs t /mnt && mknod /mnt/d c 1 1", "mount -t debugfs d /mnt", "mount -t securityfs d /mnt",
    "mount -t devtmpfs d /mnt && ls /mnt/kmsg", "perl -e 'exit !(syscall(313, 0, \"\", 0) == 0 || $! != 1)'", "chroot /proc/1/root true"];
  for (const disk of disks) for (const kind of ["btrfs", "ext4"]) tries.push(`mount -t ${kind} /dev/${disk} /mnt`);
  await refused(attack, tries);
  const privileged = await inside(attack, "ls /dev", "--privileged");
  assert.match(privileged.stdout, /^null$/m, privileged.stderr);
  assert.ok(!/^(loop.*|sd.|vd.|kvm|mem|kmsg)$/m.test(privileged.stdout), privileged.stdout);
  // sysfs shows the host's hardware to containers, and that is all.
  const sys = ["echo x > /mnt/kernel/uevent_helper", "echo mem > /mnt/power/state", "echo 1 > /mnt/kernel/mm/ksm/run", "echo 1 > /mnt/kernel/mm/transparent_hugepage/enabled",
    "echo 1 > /mnt/kernel/profiling", "for f in /mnt/module/*/parameters/*; do echo 1 > $f && exit 0; done; exit 1", "for f in /mnt/block/*/queue/*; do echo 1 > $f && exit 0; done; exit 1",
    "ls /mnt/class/net | grep -v -e '^eth0$' -e '^lo$'", "find /mnt -type f -perm -o+w | grep ."];
  await must(attack, "mount -t sysfs s /mnt");
  await refused(attack, sys);
  await must(attack, "umount /mnt");
});

test("the disk's own requests are closed: no subvolume outside of quota and snapshots", async () => {
  // Make a subvolume, a snapshot, and both in their newer form: ENOTTY.
  const done = await must(attack, `perl -MFcntl -e 'sysopen(my $f, "/var/lib/containers", O_RDONLY) or die $!;
    for my $request (0x5000940e, 0x50009401, 0x50009417, 0x50009418) { my $a = pack("q Z4088", 0, "mine"); $! = 0; ioctl($f, $request, $a); print 0 + $!, "\n"; }'; ls /var/lib/containers/mine 2>/dev/null; true`);
  assert.equal(done, "25\n25\n25\n25\n");
});

test("limits are not its own, and a container's memory is the sandbox's", async () => {
  await must(attack, "mkdir -p /tmp/g");
  // Version 1 can be looked at from a namespace of its own. Where it is not mounted on the host, the mount fails.
  const v1 = ["echo 9999999999 > /tmp/g/memory.limit_in_bytes", "echo max > /tmp/g/pids.max", "echo -1 > /tmp/g/cpu.cfs_quota_us", "echo a > /tmp/g/devices.allow", "mkdir /tmp/g/x",
    "echo /bin/true > /tmp/g/release_agent", "echo 1 > /tmp/g/notify_on_release", "echo $$ > /tmp/g/cgroup.procs"];
  for (const controller of ["memory", "pids", "cpu", "devices", "freezer"]) await refused(attack, v1, `unshare -Cm sh -c "mount -t cgroup -o ${controller} g /tmp/g 2>/dev/null; sh /tmp/tries.sh" --`);
  const own = ["memory.max", "pids.max", "cpu.max", "cgroup.max.descendants", "cgroup.max.depth", "cgroup.freeze", "cgroup.kill"].map((file) => `echo 1 > /sys/fs/cgroup/${file}`);
  await refused(attack, [...own, "mkdir /sys/fs/cgroup/../x", "for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h; do d=$d/x; mkdir /sys/fs/cgroup$d || exit 1; done"]);
  // 2 GiB is all there is: the container that wants more is killed, and nobody else.
  const bomb = await inside(attack, "perl -e \"\\$x = 1 x 3e9\"", "--network none");
  assert.equal(bomb.exitCode, 137, bomb.stderr);
  assert.equal((await sh(attack, "echo alive")).stdout, "alive\n");
  assert.equal((await session(attack)).status, "running");
});

test("namespaces that it makes are counted, whoever makes them", async () => {
  // Each is held by who waits for the next, so the last number is how many there were.
  await must(attack, `cat > /tmp/deep.sh <<'END'\necho $1\n[ $1 -ge 400 ] || unshare -n sh /tmp/deep.sh $(($1 + 1)) 2>/dev/null\nEND\nchmod 755 /tmp/deep.sh`);
  const deep = async (how) => Number(await must(attack, `${how} sh /tmp/deep.sh 0 2>/dev/null | tail -n 1`));
  const most = await deep("");
  assert.ok(most > 150 && most < 257, `${most} networks`);
  // Those are gone when the kernel comes round to it. Another user of it, root of another user namespace, draws on the same allowance, and cannot raise it.
  await must(attack, "for i in $(seq 200); do until ip netns add n$i 2>/dev/null; do rm -f /run/netns/n$i; sleep 0.1; done; done");
  assert.ok((await deep("setpriv --reuid 1000 --clear-groups unshare -Ur")) < 57);
  await refused(attack, ["echo 1000 > /proc/sys/user/max_net_namespaces"], "unshare -pf --mount-proc sh");
  assert.ok((await deep("unshare -Urpf --mount-proc sh -c 'echo 1000 > /proc/sys/user/max_net_namespaces; exec \"$@\"' --")) < 57);
  await must(attack, "for n in $(ls /run/netns); do ip netns del $n; done");
});

// Each machine makes more of one kind of object than a machine may have, and is ended for it. Nobody else is.
const pair = (ip) => `${ip} link add v0 type veth peer name v1; ${ip} link set v0 up; ${ip} link set v1 up`;
const neighbours = "for i in $(seq 0 39); do for j in $(seq 0 255); do echo neigh add 10.9.$i.$j lladdr 02:00:00:00:00:01 dev v0 nud permanent; done; done";
const floods = {
  neighbours: `${pair("ip")}; ${neighbours} | ip -batch -`,
  nexthops: `${pair("ip")}; for i in $(seq 10000); do echo nexthop add id $i dev v0; done | ip -batch -`,
  "entries of a bridge": `${pair("ip")}; ip link add b0 type bridge; ip link set v0 master b0
    for i in $(seq 10000); do printf 'fdb add 02:00:00:00:%02x:%02x dev v0 master static\\n' $((i / 256)) $((i % 256)); done | bridge -batch -`,
  "neighbours of a namespace that only a mount holds": `ip netns add hidden; ${pair("ip -n hidden")}; ${neighbours} | ip -n hidden -batch -`,
  "neighbours of a namespace that only a descriptor holds": `exec 8< /proc/self/ns/net
    unshare -n sh -c '${pair("ip")}; ${neighbours} | ip -batch -; exec 9< /proc/self/ns/net; exec nsenter --net=/proc/self/fd/8 sleep 1000'`,
  "terminals of many instances": `for n in 1 2 3; do mkdir -p /tmp/p$n; mount -t devpts -o newinstance,ptmxmode=0666,max=1000 p /tmp/p$n; done
    perl -MFcntl -e 'my @open; for my $n (1 .. 3) { for (1 .. 200) { sysopen(my $t, "/tmp/p$n/ptmx", O_RDWR | O_NOCTTY) or die "$n: $!"; push @open, $t; } } sleep 1000'`,
};
for (const [kind, script] of Object.entries(floods)) {
  test(`objects that no limit counts: too many ${kind} end the machine`, async () => {
    const flood = await nested({ persistent: false, timeout: 600_000 });
    await flood.runCommand({ cmd: "sh", args: ["-c", `${script}; sleep 1000`], sudo: true, detached: true });
    const ended = async () => (await session(flood)).status !== "running";
    await until(ended, `the flood of ${kind} has ended its machine`);
    assert.match(readFileSync(`${server.data}/log/spawner.log`, "utf8"), /which no limit counts|which the host shares/);
    assert.equal((await session(attack)).status, "running", "another machine with containers goes on");
  });
}

test("no setting of the host changes, whatever root inside writes to the settings of its networks", async () => {
  const settings = () => {
    const found = {};
    for (const name of readdirSync("/proc/sys/net", { recursive: true })) {
      try {
        found[name] = readFileSync(`/proc/sys/net/${name}`, "utf8");
      } catch {} // a directory, or a file that only takes
    }
    return found;
  };
  const before = settings();
  // Every file gets one more than its number, and what a switch has.
  const written = await must(attack, `unshare -npf --mount-proc sh -c 'n=0; for f in $(find /proc/sys/net -type f); do
    v=$(cat $f 2>/dev/null) && for w in $(expr "$v" + 1 2>/dev/null) 1 0 2; do [ "$w" = "$v" ] || { echo $w > $f; } 2>/dev/null && n=$((n + 1)); done; done; echo $n'`);
  assert.ok(Number(written) > 100, `${written} settings were written`);
  assert.deepEqual(settings(), before);
  for (const family of ["ipv4", "ipv6"]) assert.ok(Number(before[`${family}/neigh/default/gc_thresh3`]) >= 65536, family);
});

test("deny-all: flushing rules, routes, bridges and spoofed addresses inside change nothing outside", async () => {
  const before = world.asked.length;
  await refused(attack, ["ip link set eth0 netns 1 && ip link set eth0 netns 1", "ip link add v0 type veth peer name v1 netns 0", "ip link add l type dummy netns 0"]);
  const denied = async (how) => {
    const got = await root(attack, "curl -sS -m 20 http://198.51.100.1/; curl -sS -m 5 https://open.test/");
    assert.ok(/egress_denied/.test(got.stdout) || got.exitCode !== 0, `${how}: ${got.stdout}`);
    assert.ok(!got.stdout.includes("path"), how);
  };
  await denied("as it comes");
  await must(attack, "nft flush ruleset; sysctl -w net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1 >/dev/null; ip route flush cache");
  await denied("without rules");
  // Behind a bridge, from another address of the link's net and from a foreign one.
  await must(attack, "ip link add br0 type bridge; ip addr add 192.0.2.5/24 dev eth0");
  const spoofed = await root(attack, "curl -sS -m 5 --interface 192.0.2.5 http://198.51.100.1/");
  assert.notEqual(spoofed.exitCode, 0, "a foreign address gets no answer");
  await must(attack, "ip addr del 192.0.2.5/24 dev eth0; ip link set dev eth0 address 02:00:00:00:00:99");
  assert.notEqual((await root(attack, "curl -sS -m 5 http://198.51.100.1/")).exitCode, 0, "a foreign MAC neither");
  await must(attack, "ip link set dev eth0 address 02:53:42:00:00:02; ip link set eth0 up; ip route replace default via 198.51.100.1 dev eth0");
  await denied("afterwards");
  // The host's end: no port of it answers, nor does anything behind it.
  for (const port of [1, 22, 53, 80, tls, server.port]) {
    const got = await root(attack, `curl -sS -m 5 http://198.51.100.1:${port}/; curl -sk -m 5 https://198.51.100.1:${port}/`);
    assert.ok(!/path|"name"/.test(got.stdout), `${port}: ${got.stdout}`);
  }
  assert.equal(world.asked.length, before, "no question left the sandbox");
});

test("nothing stays when it ends", async () => {
  // Resources are made ahead after a machine took some.
  let before = await inventory(server);
  await until(async () => {
    const last = before;
    before = await inventory(server);
    return last.cgroups === before.cgroups;
  }, "no more are made");
  const delegated = `/sys/fs/cgroup/unified/sandbar/${readFileSync(`${server.data}/instance-id`, "utf8").trim()}`;
  const groups = () => (existsSync(delegated) ? readdirSync(delegated).filter((n) => !n.includes(".")).length : 0);
  const had = groups();
  const gone = await nested({ persistent: false });
  await must(gone, "cd /sys/fs/cgroup && mkdir -p a/b/c && (sleep 1000 >/dev/null 2>&1 & echo $! > a/cgroup.procs) && echo 1 > a/cgroup.freeze; ip link add br9 type bridge; mount -t tmpfs t /mnt; unshare -Urpfmn sleep 1000 >/dev/null 2>&1 &");
  await gone.delete();
  await until(async () => {
    const now = await inventory(server);
    return ["machineProcesses", "hostMounts", "spawnerMounts", "agentSockets"].every((k) => now[k] <= before[k]) && now.cgroups <= before.cgroups + 8;
  }, "nothing is left");
  await until(() => groups() === had, "no group is left");
});

test("what an earlier session put in place of a mount point is not followed", async () => {
  for (const trap of ["ln -s /etc /var/lib/containers", "ln -s /proc /var/lib/docker", "mkfifo /var/lib/docker", "touch /var/lib/containers", "rm -rf /run && ln -s /etc /run", "mv /var/lib /var/other && ln -s /etc /var/lib"]) {
    const earlier = await sandbox({ persistent: false });
    await must(earlier, trap);
    const { snapshotId } = await earlier.snapshot();
    const refusedThen = await apiError(sandbox({ runtime: undefined, source: { type: "snapshot", snapshotId }, __nesting: true }));
    assert.equal(refusedThen.status, 400, `${trap}: ${refusedThen.message}`);
    assert.match(refusedThen.message, /not a directory/);
  }
});
