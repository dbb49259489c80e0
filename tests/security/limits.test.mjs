// A sandbox that wants everything gets its share and no more; the server and the neighbours do not notice.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { readFile, rm, writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { after, before, test } from "node:test";
import { engine, hasMemory, startServer, until } from "../support/server.mjs";
import { processesOf } from "../support/host.mjs";

const HOUR = 3_600_000; // nothing here is about time
let server, neighbour;
before(async () => {
  // The sanitizer's quarantine of freed memory would drown what is measured.
  const env = { ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ""}:quarantine_size_mb=8:thread_local_quarantine_size_kb=64` };
  server = await startServer({ config: "[limits]\nmax_running = 64\ndisk_mb = 256\npids = 200\n", env });
  neighbour = await server.create({ runtime: "node24", timeout: HOUR });
});
after(() => server?.stop());

const machine = (fields) => server.create({ runtime: "node24", resources: { vcpus: 1 }, timeout: HOUR, ...fields });
const neighbourIsFine = async () => assert.equal((await server.exec(neighbour.session.id, "echo", ["fine"])).stdout, "fine\n");
const daemonRss = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${server.pid}/status`, "utf8"))[1]);
const start = (session, command, args, sudo = false) =>
  server.call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, { body: { command, args, env: {}, sudo } });
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);

for (const sudo of [false, true]) {
  const who = sudo ? "root" : "the user";

  test(`fork bomb as ${who}: contained, and the sandbox still stops`, async () => {
    const { session } = await machine();
    await start(session, "bash", ["-c", "f() { f | f & }; f; sleep 60"], sudo);
    await neighbourIsFine();
    assert.ok((await processesOf(server)).length < 1000, "the host is not full of processes");
    assert.equal((await stop(session)).session.status, "stopped");
  });

  test(`disk filler as ${who}: an error inside, none outside`, async () => {
    const { session } = await machine();
    const script = "dd if=/dev/zero of=/var/tmp/x bs=1M count=2000; stat -c %s /var/tmp/x";
    const r = await server.exec(session.id, "sh", ["-c", script], { sudo });
    assert.match(r.stderr, /No space left on device|Disk quota exceeded/);
    assert.ok(Number(r.stdout) <= 256 << 20, `${r.stdout} bytes were written`);
    await neighbourIsFine();
    const again = await server.exec(session.id, "sh", ["-c", "rm /var/tmp/x && echo again > /var/tmp/y && cat /var/tmp/y"], { sudo });
    assert.equal(again.stdout, "again\n");
    await stop(session);
  });
}

// A kernel of its own really takes the memory that it was given: only so many are filled at once as the host has room for.
const bombers = engine === "namespaces" ? 20 : 5;
test(`${bombers} memory bombs at once are killed and reported as OOM; one sandbox more is fine`, async () => {
  const bombs = await Promise.all(Array.from({ length: bombers }, () => machine()));
  const bomb = "const a=[];for(;;){const b=Buffer.alloc(64<<20,1);a.push(b)}";
  const results = await Promise.all(bombs.map(({ session }) => server.exec(session.id, "node", ["-e", bomb])));
  for (const r of results) {
    assert.equal(r.exitCode, 137, r.stderr);
    assert.match(r.stderr, /out of memory/);
  }
  await neighbourIsFine();
  for (const { session } of bombs) {
    if (engine === "gvisor") {
      // Its kernel is one process of the host and ends as a whole.
      const now = (await server.call("GET", `/v2/sandboxes/sessions/${session.id}`)).session;
      assert.equal(now.status, "failed");
      assert.match(now.stopReason, /out of memory/);
      continue;
    }
    assert.equal((await server.exec(session.id, "echo", ["still here"])).stdout, "still here\n", "the agent survives its commands");
    await stop(session);
  }
});

test("the sandbox sees its own size", async () => {
  const { session } = await machine();
  const script = "const os=require('os');console.log(os.cpus().length, os.availableParallelism(), Math.round(os.totalmem()/1048576))";
  const [cpus, parallel, mib] = (await server.exec(session.id, "node", ["-e", script])).stdout.split(" ").map(Number);
  assert.deepEqual([cpus, parallel], [1, 1]);
  assert.ok(hasMemory(mib, 2048), `${mib} MiB`);
  assert.equal((await server.exec(session.id, "nproc")).stdout, "1\n");
  const free = (await server.exec(session.id, "free", ["-m"])).stdout;
  assert.ok(hasMemory(Number(/Mem:\s+(\d+)/.exec(free)[1]), 2048), free);
  await stop(session);
});

test("1 GB of output and a reader that never reads: the daemon's memory stays bounded", async () => {
  const { session } = await machine();
  const before_ = await daemonRss();
  const abort = new AbortController();
  const stuck = await server.request("POST", `/v2/sandboxes/sessions/${session.id}/cmd`, {
    signal: abort.signal,
    body: { command: "sh", args: ["-c", "head -c 1000000000 /dev/zero"], env: {}, sudo: false, wait: true, logs: true },
  });
  assert.equal(stuck.status, 200);
  // Nobody reads `stuck`. A second command floods with no reader at all and must run to its end.
  const { command } = await start(session, "sh", ["-c", "head -c 1000000000 /dev/zero | tr '\\0' y"]);
  const done = await server.call("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${command.id}?wait=true`);
  assert.equal(done.command.exitCode, 0);
  const grown = (await daemonRss()) - before_;
  assert.ok(grown < 200_000, `the daemon grew by ${grown} kB`);
  abort.abort();
  // The late reader gets the beginning, the end, and is told what is missing.
  const text = await (await server.request("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${command.id}/logs`)).text();
  assert.ok(text.length < 120_000_000);
  assert.match(text, /"stream":"stderr","data":"[^"]*(omitted|missing|dropped)/);
  await neighbourIsFine();
  await stop(session);
});

test("what the kernel counts per user is each machine's own: one cannot take it from the others", async () => {
  const { session } = await machine();
  // inotify_init until it fails, in one process; then hold what it got.
  const taken = "my $n = 0; $n++ while syscall(253) >= 0; $| = 1; print \"$n\\n\"; sleep 60";
  const { command } = await start(session, "perl", ["-e", taken]);
  const logs = await server.request("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${command.id}/logs`);
  const first = new TextDecoder().decode((await logs.body.getReader().read()).value);
  assert.ok(Number(JSON.parse(first.split("\n").find(Boolean)).data) > 50, first);
  const other = await server.exec(neighbour.session.id, "perl", ["-e", "print syscall(253) >= 0 ? \"mine\" : \"none left: $!\""]);
  assert.equal(other.stdout, "mine");
  await stop(session);
});

test("socket buffers count: a machine cannot hold more of the host's memory in them than its own limit allows", async () => {
  const { session } = await machine();
  const flood = `use Socket; $| = 1; my @keep; my $data = "x" x 60000;
    for my $i (1 .. 4000) { socket(my $s, AF_INET, SOCK_DGRAM, 0) or last; bind($s, sockaddr_in(0, INADDR_LOOPBACK)) or last;
      my $me = getsockname($s); send($s, $data, 0, $me) for 1 .. 6; push @keep, $s; }
    print "done\\n"; sleep 60`;
  const pages = async () => Number(/^UDP: .*mem (\d+)/m.exec(await readFile("/proc/net/sockstat", "utf8"))[1]);
  const before_ = await pages();
  const { command } = await start(session, "perl", ["-e", flood.replaceAll("\\\\n", "\\n")]);
  const logs = await server.request("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${command.id}/logs`);
  await logs.body.getReader().read(); // "done", or the end of a command that was killed for it
  const held = ((await pages()) - before_) * 4096;
  assert.ok(held < 400 << 20, `${held >> 20} MiB of the host's memory are in a 2 GiB sandbox's sockets (limit 256 MiB)`);
  await stop(session);
});

const own = engine !== "namespaces" && "the guest's kernel is its own";
test("native AIO and a host-wide sync are not for guests", { skip: own }, async () => {
  const script = "perl -e 'my $c = 0; my $b = pack(\"Q\", 0); print syscall(206, 1000, $b), \" \", $! + 0, \" \", syscall(162), \"\\n\"'";
  const r = await server.exec(neighbour.session.id, "sh", ["-c", script]);
  assert.equal(r.stdout, "-1 38 0\n", r.stderr);
});

test("a sandbox sees nothing of the host: canary file, variable, process", async () => {
  const canary = `canary-${Math.random().toString(36).slice(2)}`;
  await writeFile(`/tmp/${canary}`, canary);
  try {
    const { session } = await machine();
    // The name is not in the script: it would find itself in the list of processes.
    const script = `cat /tmp/canary-* 2>/dev/null; env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/1/cmdline /proc/cmdline /proc/mounts
      /proc/self/mountinfo /proc/self/cgroup; ls /proc; ps ax; hostname`.replace("\n", " ");
    for (const sudo of [false, true]) {
      const r = await server.exec(session.id, "sh", ["-c", script], { sudo });
      assert.ok(!r.stdout.includes(canary));
      assert.ok(!r.stdout.includes(server.data), "no path of the host in mount tables or arguments");
      assert.ok(!r.stdout.includes(server.token));
      assert.ok(!/sandbar-spawner/.test(r.stdout));
      assert.match(r.stdout, /sandbox$/m);
    }
    await stop(session);
  } finally {
    await rm(`/tmp/${canary}`);
  }
});

test("neither a neighbour, nor the daemon's port, nor a service of the host can be reached, in any mode", async () => {
  const service = createServer((_, res) => res.end("host service")).listen(0, "0.0.0.0");
  await until(() => service.listening, "the host's service listens");
  const port = service.address().port;
  try {
    const open = await machine({ networkPolicy: { mode: "allow-all" } });
    const shut = await machine();
    await start(neighbour.session, "node", ["-e", "require('http').createServer((q,s)=>s.end('neighbour')).listen(4321,'0.0.0.0')"]);
    const targets = [`127.0.0.1:${port}`, `127.0.0.1:${server.port}`, "127.0.0.1:4321", `0.0.0.0:${port}`, `[::1]:${port}`,
      `2130706433:${port}`, `localhost:${port}`, "169.254.169.254:80", `10.0.0.1:${port}`, `192.168.0.1:${port}`, "192.0.2.53:1",
      "127.0.0.1:1", `[::ffff:127.0.0.1]:${port}`];
    for (const list of Object.values(networkInterfaces())) {
      for (const a of list) if (a.family === "IPv4") targets.push(`${a.address}:${port}`, `${a.address}:${server.port}`);
    }
    for (const { session } of [open, shut]) {
      for (const target of targets) {
        const r = await server.exec(session.id, "curl", ["-s", "-m", "10", `http://${target}/health`]);
        assert.ok(!/host service|neighbour|"status":"ok"/.test(r.stdout), `${target}: ${r.stdout}`);
      }
    }
    const denials = JSON.stringify(await server.call("GET", `/x/v1/sessions/${open.session.id}/denials`));
    assert.ok(denials.includes("169.254.169.254"), denials);
    await stop(open.session);
    await stop(shut.session);
  } finally {
    service.close();
  }
});
