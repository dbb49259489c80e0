// One disk for all: what a sandbox has written, and what the host still has to do about it, is nobody else's business.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { engine, startServer } from "../support/server.mjs";

const HOUR = 3_600_000; // nothing here is about time
let server;
before(async () => {
  server = await startServer({ config: "[limits]\nmax_running = 32\ndisk_mb = 4096\n" });
});
after(() => server?.stop());

const create = (projectId, fields) =>
  server.create({ projectId, runtime: "node24", resources: { vcpus: 1 }, timeout: HOUR, persistent: false, ...fields });
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);

test("programs that copy files do so without sharing blocks", async () => {
  const { session } = await create("prj_quiet");
  const script = `
    set -e; cd /tmp; head -c 3000000 /dev/urandom > a; sum=$(sha256sum < a)
    same() { test "$(sha256sum < $1)" = "$sum" || { echo "$1 differs"; exit 1; }; }
    cp a b; same b; cp --sparse=always a c; same c
    node -e 'const fs = require("fs"); fs.copyFileSync("a", "d"); fs.copyFileSync("a", "e", fs.constants.COPYFILE_FICLONE); fs.cpSync("a", "f")'
    same d; same e; same f
    mkdir t; tar -cf - a | tar -xf - -C t; same t/a; install a g; same g; mv a /dev/shm/a; mv /dev/shm/a a; same a
    if command -v python3 >/dev/null; then python3 -c 'import shutil; shutil.copyfile("a", "h"); shutil.copytree("t", "u")'; same h; same u/a; fi
    if command -v git >/dev/null; then git init -q r; cp a r/a; git -C r add a; git -C r -c user.name=x -c user.email=x@x commit -qm x; git clone -q r s; same s/a; fi
    if cp --reflink=always a z 2>/dev/null; then echo shared; fi
    if chattr +c z 2>/dev/null; then echo flags; fi
    echo done`;
  const r = await server.exec(session.id, "sh", ["-c", script]);
  assert.equal(r.stdout, "done\n", r.stderr);
  await stop(session);
});

test("fsync works, and the whole store cannot be flushed", { skip: engine !== "namespaces" && "the guest's kernel is its own" }, async () => {
  const { session } = await create("prj_quiet");
  const script = "import os\nf = os.open('/tmp/f', os.O_CREAT | os.O_WRONLY)\nos.write(f, b'x')\nos.fsync(f)\nos.fdatasync(f)\nos.sync()\nprint('synced')";
  const python = await server.exec(session.id, "sh", ["-c", `command -v python3 >/dev/null && python3 -c "${script}" || echo synced`]);
  assert.equal(python.stdout, "synced\n", python.stderr);
  const whole = await server.exec(session.id, "sync", ["-f", "/tmp"]);
  assert.notEqual(whole.exitCode, 0);
  assert.match(whole.stderr, /Function not implemented/);
  await stop(session);
});

test("old files can be rewritten and replaced below the limit, and no number of sessions goes beyond it", { skip: engine === "microvm" && "its disk is a device with a size" }, async () => {
  const small = await startServer({ config: "[limits]\nmax_running = 8\ndisk_mb = 1024\n" });
  try {
    const scope = "projectId=prj_full";
    let { session } = await small.create({ projectId: "prj_full", name: "full", runtime: "node24", resources: { vcpus: 1 }, timeout: HOUR });
    const run = async (script) => (await small.exec(session.id, "sh", ["-c", script], { sudo: true })).exitCode;
    const again = async () => {
      await small.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
      ({ session } = await small.call("GET", `/v2/sandboxes/full?${scope}&resume=true`));
    };
    // 65 files of ten mebibytes. Whoever is faster than the server's watch is refused at first, and tries again.
    const write = (options) => `n=0; for i in $(seq 65); do until dd if=/dev/zero of=/var/tmp/f$i bs=1M count=10 ${options} 2>/dev/null; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.1; done; done; echo refused $n >> /var/tmp/log`;
    assert.equal(await run(write("")), 0);
    await again();
    assert.equal(await run(write("conv=notrunc")), 0, "in place");
    await again();
    assert.equal(await run(`rm /var/tmp/f*; ${write("")}`), 0, "deleted and written again");
    console.log((await small.exec(session.id, "cat", ["/var/tmp/log"])).stdout.replaceAll("\n", ", "));
    for (let i = 0; i < 3; i++) {
      await again();
      await run(`dd if=/dev/zero of=/var/tmp/more${i} bs=1M count=200`);
      const { stdout } = await small.exec(session.id, "sh", ["-c", "du -sm /var/tmp | cut -f1"], { sudo: true });
      assert.ok(Number(stdout) <= 1024 + 8, `${stdout.trim()} MiB in a limit of 1024`);
    }
    assert.notEqual(await run("fallocate -l 100M /var/tmp/last"), 0);
    assert.equal(await run("rm /var/tmp/f1 /var/tmp/f2 /var/tmp/f3; n=0; until dd if=/dev/zero of=/var/tmp/last bs=1M count=15 2>/dev/null; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.1; done"), 0, "room after deleting");
  } finally {
    await small.stop();
  }
});
