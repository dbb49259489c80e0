// Snapshots and drives from one kind of engine to the other and back: files in a directory (classes 1 and 2), block
// devices (class 3). Nothing is lost on the way, and what a guest's kernel wrote is read by a guest's kernel only.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { apiError, sh, useSdk } from "../clients/sdk.mjs";
import { binary, until } from "../support/server.mjs";
import { machinePids, spawnerPid } from "../support/host.mjs";

const run = promisify(execFile);
const { Drive, sandbox, credentials, server } = await useSdk({ config: 'isolation = "namespaces"\n' });
const { engines } = await server.call("GET", "/x/v1/info");
const vm = engines.find((e) => e.name.startsWith("microvm") && e.usable)?.name;
assert.ok(vm, `no usable microVM: ${engines.map((e) => e.whyNot).join("; ")}`);
const plain = "namespaces";

let counter = 0;
const unique = (prefix) => `${prefix}-${++counter}`;
const on = (engine, params = {}) => sandbox({ persistent: false, __isolation: engine, ...params });
const from = (engine, snapshotId) => on(engine, { runtime: undefined, source: { type: "snapshot", snapshotId } });
const drive = (params = {}) => Drive.getOrCreate({ name: unique("drive"), ...credentials, ...params });
const engineOf = async (box) => (await server.call("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}`)).session.isolation.engine;
const ok = async (box, script, params) => {
  const done = await sh(box, script, params);
  assert.equal(done.exitCode, 0, `${script}: ${done.stderr}`);
  return done.stdout;
};
const cli = (...args) => run(binary, args, { env: { ...process.env, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token } });

// Everything that a file can be, and what can become of an image's files: changed, deleted, replaced, moved.
const write = `set -e
rm /etc/debian_version; rm -r /usr/share/doc; mkdir /usr/share/doc; echo mine > /usr/share/doc/own
mv /usr/share/zoneinfo /usr/share/moved; rm -r /var/log; echo a file > /var/log
mkdir -p /work/deep; cd /work; echo one > f; chown 1234:2345 f; chmod 4750 f; ln f deep/hard; ln -s ../f deep/soft
ln -s /nowhere broken; mkfifo pipe; chmod 1777 deep; touch -d 2001-02-03T04:05:06.789Z old deep
truncate -s 40M sparse; echo end >> sparse; printf 'x%.0s' $(seq 200) > "$(printf 'n%.0s' $(seq 200)) name"
perl -e '($f, $n, $v) = ("f", "user.note", "kept"); syscall(188, $f, $n, $v, 4, 0) == 0 or die $!'`;
const look = `ls /etc/debian_version /usr/share/zoneinfo 2>&1 | sort; ls /usr/share/doc; ls /usr/share/moved | wc -l; cat /var/log
cd /work; stat -c '%n %a %u %g %F %Y' f deep deep/* broken pipe old sparse n*; readlink deep/soft broken; du -k sparse | cut -f1 | sed 's/^..\\?$/small/'
md5sum sparse f n*; stat -c %h f; perl -e '($f, $n, $b) = ("f", "user.note", "-" x 9); syscall(191, $f, $n, $b, 9); print "$b\\n"'; stat -c '%i' f deep/hard | uniq | wc -l`;

test("a snapshot goes from directory to block device and back, and nothing is lost", async () => {
  const first = await on(plain, { name: unique("origin") });
  await ok(first, write, { sudo: true });
  const seen = await ok(first, look, { sudo: true });
  assert.match(seen, /cannot access '\/etc\/debian_version'[^]*\nf 4750 1234 2345 regular file[^]*\nkept-----\n1\n$/);
  const { snapshotId } = await first.snapshot();

  const machine = await from(vm, snapshotId);
  assert.equal(await engineOf(machine), vm);
  assert.equal(await ok(machine, look, { sudo: true }), seen);
  await ok(machine, "cd /work && echo one > g && echo two > f && rm broken && rm -r /usr/share/moved && mkdir -p /opt/more && echo new > /opt/more/x && rm /var/log", { sudo: true });
  const block = await machine.snapshot();
  const row = (await server.call("GET", `/v2/sandboxes/snapshots/${block.snapshotId}`)).snapshot;
  assert.equal(row.format, "block");

  const back = await from(plain, block.snapshotId);
  assert.equal(await engineOf(back), plain);
  assert.equal(await ok(back, "cat /work/f /work/deep/hard /opt/more/x; ls -d /work/broken /usr/share/moved /var/log /work/old 2>/dev/null; true", { sudo: true }), "two\ntwo\nnew\n/work/old\n");
  // The originals are as they were, and what was converted once is there.
  assert.equal(await ok(await from(plain, snapshotId), look, { sudo: true }), seen);
  const again = await from(vm, snapshotId);
  assert.equal(await ok(again, "cat /work/f", { sudo: true }), "one\n");

  const changes = (await server.call("GET", `/x/v1/diff?a=${snapshotId}&b=${block.snapshotId}`)).changes;
  assert.deepEqual(changes.map((c) => `${c.change} ${c.path}`).sort(), ["added /opt/more", "added /opt/more/x", "added /work/g", "changed /work/deep/hard",
    "changed /work/f", "deleted /usr/share/moved", "deleted /var/log", "deleted /work/broken"], "that and nothing else");
});

test("export of a microVM's sandbox, and import", async () => {
  const dir = mkdtempSync(join(tmpdir(), "sandbar-formats-"));
  after(() => rmSync(dir, { recursive: true, force: true }));
  const name = unique("exported"), copy = unique("imported");
  const script = "rm /etc/debian_version; mkdir /srv/d; echo root > /srv/d/f; chown 1001 /srv/d/f";
  await cli("run", "--persistent", "--name", name, "--isolation", vm, "--sudo", "--", "sh", "-c", script);
  await cli("export", name, join(dir, "box.tar.zst"));
  await cli("import", join(dir, "box.tar.zst"), "--name", copy);
  const { sandbox: made } = await server.call("GET", `/x/v1/sandboxes/${copy}`);
  assert.deepEqual(made.isolation.demand, vm === "microvm" ? { minClass: 3 } : undefined, "what it demands goes with it, as a class");
  const seen = (await cli("exec", "--sudo", copy, "--", "sh", "-c", "stat -c '%u %a' /srv/d/f; cat /srv/d/f; ls /etc/debian_version 2>&1; true")).stdout;
  assert.match(seen, /^1001 644\nroot\n.*No such file/);
  assert.match((await cli("diff", copy, "--json")).stdout, /debian_version/);
  await cli("rm", copy, name);
});

test("a drive from engine to engine", async () => {
  const d = await drive({ maxSize: 256 * 2 ** 20 });
  const use = async (engine, mounts, script) => {
    const box = await on(engine, { mounts });
    const out = await ok(box, `cd /data && ${script}`);
    await box.stop();
    return out;
  };
  const size = "df -m --output=size . | tail -1 | tr -d ' ' | sed 's/^2[0-9][0-9]$/limited/'";
  assert.equal(await use(vm, { "/data": d }, `echo one > a && mkdir s && ln -s ../a s/l && chmod 700 s && ${size}`), "limited\n");
  // Its newest snapshot as files, then the drive itself, and both as devices again.
  const refused = "echo x 2>/dev/null > a || echo refused";
  assert.equal(await use(plain, { "/data": d.snapshot() }, `cat s/l; stat -c '%a %U' s; ${refused}`), "one\n700 vercel-sandbox\nrefused\n");
  assert.equal(await use(plain, { "/data": d }, "cat s/l; echo two > b; ls -A | tr '\\n' ' '"), "one\na b s ");
  const mounts = { "/data": d, "/state": d.snapshot(), "/same": d.snapshot() };
  assert.equal(await use(vm, mounts, `rm a; cat b /state/a /same/b; stat -c '%a %U' s; ls -A; cd /state; ${refused}`), "two\none\ntwo\n700 vercel-sandbox\nb\ns\nrefused\n");
  assert.equal(await use(vm, { "/data": d.snapshot() }, "ls -A"), "b\ns\n");
});

test("a microVM has room for three drives", async () => {
  const drives = await Promise.all([1, 2, 3, 4].map(() => drive({ maxSize: 64 * 2 ** 20 })));
  const mounts = Object.fromEntries(drives.map((d, i) => [`/d${i}`, d]));
  const refused = await apiError(on(vm, { mounts }));
  assert.equal(refused.status, 400);
  assert.match(refused.message, /at most 3.*8 virtio slots/);
  delete mounts["/d3"];
  const box = await on(vm, { mounts });
  assert.equal(await ok(box, "for i in 0 1 2; do echo $i > /d$i/f; done; cat /d?/f; grep -c ' /d[012] ext4 rw,nosuid,nodev' /proc/mounts"), "0\n1\n2\n3\n");
});

test("a disk that its guest has ruined harms nothing but what is asked of it", async () => {
  const name = unique("ruined");
  const box = await on(vm, { name });
  const script = "sync; d=$(grep -l '^disk$' /sys/block/*/serial | cut -d/ -f4); dd if=/dev/urandom of=/dev/$d bs=1M count=64 conv=notrunc status=none; echo done";
  assert.equal(await ok(box, script, { sudo: true }), "done\n");
  const { snapshotId } = await box.snapshot();
  for (const attempt of [() => from(plain, snapshotId), () => server.call("GET", `/x/v1/diff?a=${snapshotId}`)]) {
    const refused = await apiError(attempt()).catch((e) => e);
    const text = refused.message + (refused.error?.text ?? "");
    assert.match(text, /"?block\\?".*"?dir\\?".*did not start/, text);
  }
  const resumed = await apiError(from(vm, snapshotId));
  assert.equal(resumed.status, 503);
  assert.match(resumed.message, /mount \/disk/);
  assert.equal(await ok(await on(vm), "echo fine"), "fine\n");
});

test("kill -9 of the server while it converts: nothing is left, and the next attempt has it", async () => {
  const box = await on(vm, { name: unique("crashed") });
  await ok(box, "echo here > /tmp/f");
  const { snapshotId } = await box.snapshot();
  const machines = async () => (await machinePids(await spawnerPid(server.data))).length;
  const before = await machines();
  // Not by the SDK, which would try again.
  const lost = server.create({ source: { type: "snapshot", snapshotId }, isolation: { engine: plain } }).catch(() => null);
  await until(async () => /machine c-/.test((await server.spawnerLog()).slice(-400)), "machines carry its files");
  await server.crash();
  await server.start();
  await lost;
  await until(async () => (await machines()) <= before, "they are gone");
  assert.equal(await ok(await from(plain, snapshotId), "cat /tmp/f"), "here\n");
});
