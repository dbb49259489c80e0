// df in a sandbox is about the sandbox: statfs shows its own limit and what is left of it, never the store that all share.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { engine, sleep, startServer, until } from "../support/server.mjs";
import { spawnerPid } from "../support/host.mjs";

const MB = 1 << 20;
const LIMIT = 1000 * MB; // no other filesystem has this size
const DRIVE = 64 * MB;
const SCOPE = "projectId=prj_df";
const skip = engine !== "namespaces" && "of class 1";
let server, session, python;

const create = (fields) =>
  server.create({ projectId: "prj_df", runtime: "node24", resources: { vcpus: 1 }, timeout: 3_600_000, persistent: false, ...fields });
const sh = async (script, fields) => {
  const r = await server.exec((fields?.session ?? session).id, "sh", ["-c", script], { sudo: fields?.sudo ?? false });
  assert.equal(r.exitCode, 0, `${script}: ${r.stdout}${r.stderr}`);
  return r.stdout.trim();
};
// {size, free, available} in bytes.
const figures = async (path = "/", fields = {}) => {
  const [block, size, free, available] = (await sh(`stat -f -c '%S %b %f %a' ${path}`, fields)).split(" ").map(Number);
  return { size: size * block, free: free * block, available: available * block };
};
const near = (value, expected, by, why) => assert.ok(Math.abs(value - expected) <= by, `${why ?? ""} ${value}, expected ${expected}`);
// The spawner measures four times a second at most.
const comesNear = (path, expected, by, why) => until(async () => Math.abs((await figures(path)).available - expected) <= by, why);
const runPython = (script, sudo = true) => sh(`cat > /tmp/s$$.py <<'E'\n${script.replace(/^ {4}/gm, "")}\nE\npython3 /tmp/s$$.py`, { session: python, sudo });
// In a shell of the machine: the number of the process that answers.
const answerer = '$(for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = sandbar-statfs ] && basename $p; done)';
const took = async (what) => {
  const began = performance.now();
  await what();
  return performance.now() - began;
};

before(async () => {
  server = await startServer({ config: "[limits]\nmax_running = 16\ndisk_mb = 1000\n" });
  if (skip) return;
  await server.call("POST", "/v2/sandboxes/drives/df", { body: { projectId: "prj_df", maxSizeBytes: DRIVE } });
  ({ session: python } = await create({ runtime: "python3.13" }));
  ({ session } = await create({ name: "df", persistent: true, mounts: { "/data": { drive: "df", mode: "read-write" } } }));
});
after(() => server?.stop());

test("every way to ask shows the limit and what is left of it", { skip }, async () => {
  const before = await figures();
  assert.equal(before.size, LIMIT);
  near(before.available, LIMIT, 64 * MB, "an empty disk:");
  const df = (await sh("df -kP / | tail -1")).split(/\s+/);
  assert.equal(Number(df[1]), LIMIT / 1024);
  near(Number(df[3]), before.available / 1024, 1024, "df:");
  const node = `const s = require("fs").statfsSync("/"); console.log(s.blocks * s.bsize, s.type === 0x794c7630)`;
  assert.equal(await sh(`node -e '${node}'`), `${LIMIT} true`);
  // A relative path, a path through a symbolic link, the working directory, a descriptor, this process's own names.
  assert.equal((await figures(".")).size, LIMIT);
  assert.equal((await figures("../../../../usr/bin/env")).size, LIMIT);
  assert.equal(await sh("cd /var/tmp && ln -sfn ../lib link && stat -f -c %b link/ && stat -f -c %b /proc/self/cwd"), `${LIMIT / 4096}\n${LIMIT / 4096}`);
  const script = "import os; print(os.statvfs('/').f_blocks, os.fstatvfs(os.open('/tmp', os.O_RDONLY)).f_blocks, os.fstatvfs(os.pipe()[0]).f_blocks)";
  assert.equal(await sh(`python3 -c "${script}"`, { session: python }), `${LIMIT / 4096} ${LIMIT / 4096} 0`);
  await sh("dd if=/dev/zero of=/var/tmp/f bs=1M count=100 2>/dev/null");
  await comesNear("/", before.available - 100 * MB, 8 * MB, "100 MB fewer are free");
  await sh("rm /var/tmp/f");
  await comesNear("/", before.available, 8 * MB, "the bytes are free again");
});

test("a drive has its own limit", { skip }, async () => {
  const before = await figures("/data");
  assert.equal(before.size, DRIVE);
  await sh("dd if=/dev/zero of=/data/f bs=1M count=20 2>/dev/null", { sudo: true });
  await comesNear("/data/f", before.available - 20 * MB, 2 * MB, "20 MB fewer are free");
  assert.equal((await figures()).size, LIMIT);
});

test("other filesystems and errors are the kernel's", { skip }, async () => {
  assert.equal(await sh("stat -f -c %T / /proc /dev/shm /dev/pts | tr '\\n' ' '"), "overlayfs proc tmpfs devpts");
  const shm = await figures("/dev/shm");
  assert.ok(shm.size >= 16 * MB && shm.size !== LIMIT, `${shm.size}`);
  assert.equal((await figures("/tmp")).size, LIMIT);
  const errors = `
    const fs = require("fs");
    const code = (path) => { try { fs.statfsSync(path); return "none"; } catch (e) { return e.code; } };
    console.log(code("/none"), code("/etc/passwd/x"), code("/selinux"), code("/sys/fs/selinux"), code("/" + "x".repeat(5000)), code("/" + "x".repeat(300)), code("/root/closed/f"));`;
  await sh("mkdir -p /root/closed && touch /root/closed/f && chmod 700 /root/closed /root", { sudo: true });
  assert.equal(await sh(`node -e '${errors}'`), "ENOENT ENOTDIR ENOENT ENOENT ENAMETOOLONG ENAMETOOLONG EACCES");
  // Who may not look there does not learn what is there, root does.
  assert.equal(await sh(`node -e 'try { require("fs").statfsSync("/root/closed/none") } catch (e) { console.log(e.code) }'`), "EACCES");
  assert.equal((await figures("/root/closed/f", { sudo: true })).size, LIMIT);
});

test("filesystems that machines share show no figures", { skip }, async () => {
  // Also through names that lead the process that answers to itself: its executable is the spawner's.
  const out = await runPython(`
    import ctypes, glob, json, os
    libc = ctypes.CDLL(None, use_errno=True)
    def figures(path):
        b = (ctypes.c_long * 16)()
        return [b[1] * b[2], b[3], b[4], b[5], b[6]] if libc.statfs(path.encode(), b) == 0 else ctypes.get_errno()
    figures("/")
    os.chdir("/")
    seen = {m.split()[4]: figures(m.split()[4]) for m in open("/proc/self/mountinfo")}
    pid = [p for p in glob.glob("/proc/[0-9]*") if open(p + "/comm").read() == "sandbar-statfs\\n"][0]
    own = [pid + "/exe", "proc/self/exe", "//proc/self/exe"] + [f"proc/self/fd/{n}" for n in range(16)]
    print(json.dumps([seen, {path: figures(path) for path in own}]))`);
  const [mounts, own] = JSON.parse(out);
  assert.ok(Object.keys(mounts).length > 20, out);
  for (const [path, found] of Object.entries(mounts)) {
    if (path === "/") assert.equal(found[0], LIMIT);
    else if (path === "/dev" || path === "/dev/shm") assert.ok(found[0] > 0, path);
    else assert.deepEqual(found, [0, 0, 0, 0, 0], path);
  }
  const known = [LIMIT, 0, mounts["/dev"][0]];
  for (const [path, found] of Object.entries(own)) assert.ok(known.includes(Array.isArray(found) ? found[0] : 0), `${path}: ${found}`);
});

test("root of the machine cannot look into the process that answers", { skip }, async () => {
  const out = await runPython(`
    import ctypes, glob, os
    libc = ctypes.CDLL(None, use_errno=True)
    os.statvfs("/")
    pid = [int(p[6:]) for p in glob.glob("/proc/[0-9]*") if open(p + "/comm").read() == "sandbar-statfs\\n"][0]
    for target in (1, pid):
        for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
            print(libc.ptrace(request, target, 0, 0))
        for name in ("mem", "maps", "syscall", "stack", "environ", "auxv", "fd/3", "exe", "root/etc"):
            try: print(open(f"/proc/{target}/{name}", "rb").read(1))
            except OSError: print(-1)
    caps = [line.split() for line in open("/proc/self/status") if line.startswith("Cap")]
    print([name for name, bits in caps if int(bits, 16) >> 19 & 1] or -1)  # CAP_SYS_PTRACE
    `);
  assert.deepEqual(out.split("\n"), Array(23).fill("-1"));
});

test("a caller in a chroot, and one whose memory is closed", { skip }, async () => {
  const jail = `
    set -e; j=/var/tmp/jail; mkdir -p $j/bin $j/in; cp $(command -v stat) $j/bin/
    for l in $(ldd $(command -v stat) | grep -o '/[^ ]*'); do mkdir -p $j$(dirname $l); cp -L $l $j$l; done
    ln -sfn /in $j/link
    chroot $j /bin/stat -f -c %b / /bin /link ../../.. .; chroot $j /bin/stat -f -c %b /data 2>&1 || true`;
  const out = (await sh(jail, { sudo: true })).split("\n");
  assert.deepEqual(out.slice(0, 5), Array(5).fill(`${LIMIT / 4096}`));
  assert.match(out[5], /No such file/, "its / is not the machine's");
  // A program that its user may execute and not read: nobody in the machine can trace it.
  await sh("cp $(command -v stat) /usr/local/bin/closed && chmod 711 /usr/local/bin/closed", { sudo: true });
  assert.equal(await sh("/usr/local/bin/closed -f -c %b /"), `${LIMIT / 4096}`);
  await sh("chmod 4755 /usr/local/bin/closed", { sudo: true });
  assert.equal(await sh("/usr/local/bin/closed -f -c %b /"), `${LIMIT / 4096}`);
});

test("a caller that changes its path under way learns nothing of the store", { skip }, async () => {
  const out = await runPython(`
    import ctypes, threading, time
    libc = ctypes.CDLL(None, use_errno=True)
    path = ctypes.create_string_buffer(b"/proc/", 16); end = False
    def swap():
        while not end: path.raw = b"/".ljust(16, b"\\0"); path.raw = b"/proc/".ljust(16, b"\\0")
    t = threading.Thread(target=swap); t.start()
    seen = set(); buf = (ctypes.c_long * 16)()
    began = time.monotonic()
    while time.monotonic() < began + (2 if len(seen) > 1 else 30):
        if libc.statfs(path, buf) == 0: seen.add(buf[2] * buf[1])
    end = True; t.join(); print(sorted(seen))`, false);
  assert.deepEqual(JSON.parse(out), [0, LIMIT]);
});

test("the figures are right after a stop and a resume", { skip }, async () => {
  const empty = await figures();
  await sh("dd if=/dev/zero of=/var/tmp/kept bs=1M count=200 2>/dev/null; sync");
  await comesNear("/", empty.available - 200 * MB, 8 * MB, "200 MB fewer are free");
  const before = await figures();
  await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  ({ session } = await server.call("GET", `/v2/sandboxes/df?${SCOPE}&resume=true`));
  const resumed = await figures();
  assert.equal(resumed.size, LIMIT);
  near(resumed.available, before.available, 32 * MB, "after a resume:");
  near(resumed.size - resumed.free, 200 * MB, 64 * MB, "used:");
  assert.equal((await figures("/data")).size, DRIVE);
});

test("root of a machine that stops or kills the process that answers gets another one", { skip }, async () => {
  const { session: own } = await create({ name: "signals" });
  const at = { session: own, sudo: true };
  for (const signal of ["STOP", "KILL", "TERM"]) {
    await figures("/", at);
    await sh(`kill -${signal} ${answerer}`, at);
    assert.equal((await figures("/", at)).size, LIMIT, signal);
  }
  // While others ask all the time, a call may fail and none waits for ever.
  const ask = `const fs = require("fs"); let n = 0; while (n < 3000) { try { fs.statfsSync("/"); n++; } catch (e) { if (e.code !== "EINTR") throw e; } }`;
  const asked = sh(`for i in 1 2 3; do node -e '${ask}' & done; wait`, { session: own });
  await sh(`for i in $(seq 20); do kill -STOP ${answerer} 2>/dev/null; kill -KILL ${answerer} 2>/dev/null; done; true`, at);
  await asked;
  // A command cannot signal it without being root.
  assert.notEqual((await server.exec(own.id, "sh", ["-c", `stat -f / >/dev/null; kill -KILL ${answerer}`])).exitCode, 0);
  await sh(`stat -f / >/dev/null; kill -STOP ${answerer}; (setsid stat -f / >/dev/null 2>&1 &); true`, at);
  const ms = await took(() => server.call("POST", `/v2/sandboxes/sessions/${own.id}/stop`));
  assert.ok(ms < 5000, `the stop took ${ms} ms`);
  await server.call("DELETE", `/v2/sandboxes/signals?${SCOPE}`);
});

test("calls fail at once while the agent can start no process that answers", { skip }, async () => {
  const out = await runPython(`
    import glob, os, resource
    def ask():
        try: return os.statvfs("/").f_blocks * 4096
        except OSError as e: return e.strerror
    ask()
    for limit, least in ((resource.RLIMIT_NPROC, 0), (resource.RLIMIT_NOFILE, 4)):
        before = resource.prlimit(1, limit)
        resource.prlimit(1, limit, (least, before[1]))
        pid = [int(p[6:]) for p in glob.glob("/proc/[0-9]*") if open(p + "/comm").read() == "sandbar-statfs\\n"][0]
        os.kill(pid, 9)
        while os.path.exists(f"/proc/{pid}"): pass
        print(ask(), ask())
        resource.prlimit(1, limit, before)
        print(ask())`);
  const refused = "Cannot allocate memory";
  assert.equal(out, [`${refused} ${refused}`, LIMIT, `${refused} ${refused}`, LIMIT].join("\n"));
});

test("a flood of questions costs the spawner nothing, and no neighbour waits", { skip }, async () => {
  const { session: flooder } = await create({ name: "flooder" });
  const pid = await spawnerPid(server.data);
  const ticks = async () => {
    const stat = (await readFile(`/proc/${pid}/stat`, "utf8")).replace(/^.*\) /, "").split(" ");
    return Number(stat[11]) + Number(stat[12]);
  };
  const flood = `const fs = require("fs"); const end = Date.now() + 4000; let n = 0; while (Date.now() < end) { fs.statfsSync("/"); n++; } console.log(n)`;
  const before = await ticks();
  const flooded = sh(`for i in 1 2 3 4 5 6 7 8; do node -e '${flood}' & done; wait`, { session: flooder });
  const asked = [];
  for (let i = 0; i < 5; i++, await sleep(400)) asked.push(await took(() => figures()));
  const calls = (await flooded).split("\n").reduce((sum, n) => sum + Number(n), 0);
  // Hundredths of a second of processor time.
  const used = (await ticks()) - before;
  console.log(`${calls} calls, ${used * 10} ms of the spawner's time, the neighbour waited ${asked.map(Math.round)} ms`);
  assert.ok(calls > 1000, `${calls}`);
  assert.ok(used < 50, `${used * 10} ms`);
  assert.ok(Math.max(...asked) < 5000, `${asked}`);
});
