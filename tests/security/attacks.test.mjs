// Hostile programs inside a real machine, as the default user and as root: every attack must fail.
// The attacks are tests/security/attacks/*.c, one line of verdict each.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { engine, repo, startServer } from "../support/server.mjs";

let server, scratch, archive;
before(async () => {
  scratch = await mkdtemp(join(tmpdir(), "sandbar-attacks-"));
  execFileSync("sh", [join(repo, "tests/security/attacks/build.sh"), join(scratch, "attacks")], { env: { CC: "clang-19", ...process.env } });
  archive = execFileSync("tar", ["-czf", "-", "-C", scratch, "attacks"], { maxBuffer: 64 << 20 });
  server = await startServer();
});
after(async () => {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

const upload = (session, bytes, cwd = "/tmp") =>
  server.request("POST", `/v2/sandboxes/sessions/${session}/fs/write`, { body: bytes, headers: { "content-type": "application/gzip", "x-cwd": cwd } });

// Where the guest's kernel is its own, its root may do with it what it likes, and what it sends to the outside is dropped
// there. What remains an attack is what reaches beyond that kernel.
const shared = engine === "namespaces";
const GROUPS = shared ? ["all"] : engine === "gvisor" ? ["files", "host", "inherited", "sockets"] : ["host", "inherited", "sockets"];
const WITHIN = shared ? /^$/ : new RegExp(
  "^FAIL (sockets[.](families|raw|protocols|netlink|change-network|bind-listener|other-udp|ipv6-outside|urgent-data|upper-layers)|" +
  "files[.]foreign-owner|inherited[.](terminal|signals)|host[.]interfaces):");

for (const sudo of [false, true]) {
  test(`no attack succeeds as ${sudo ? "root" : "the default user"}`, async () => {
    const canary = `canary-${Math.random().toString(36).slice(2)}`;
    const file = `/tmp/${canary}`;
    await writeFile(file, canary);
    try {
      const { session } = await server.create({ runtime: "node24" });
      assert.equal((await upload(session.id, archive)).status, 200);
      // What the host.* attacks look for: a file, paths, processes and services that only the host has.
      const env = {
        ATTACK_CANARY: canary, ATTACK_HOST_PATHS: `${file}:${server.data}`, ATTACK_HOST_PIDS: `${process.pid},${server.pid}`,
        ATTACK_HOST_SERVICES: `127.0.0.1:${server.port}`,
      };
      const script = GROUPS.map((group) => `/tmp/attacks ${group}`).join("; ");
      const r = await server.exec(session.id, "sh", ["-c", script], { sudo, env });
      const lines = r.stdout.split("\n").filter(Boolean);
      assert.deepEqual(lines.filter((l) => l.startsWith("FAIL") && !WITHIN.test(l)), [], r.stderr);
      assert.ok(lines.filter((l) => l.startsWith("PASS")).length > (shared ? 60 : 11), `${r.stdout}\n${r.stderr}`);
      assert.equal((await server.exec(session.id, "echo", ["alive"])).stdout, "alive\n");
      await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
    } finally {
      await rm(file, { force: true });
    }
  });
}

// A tar entry by hand: what tools refuse to write.
function entry(name, { type = "0", data = "", link = "" } = {}) {
  const head = Buffer.alloc(512);
  head.write(name, 0);
  head.write("0000644\0", 100);
  head.write("0000000\0", 108);
  head.write("0000000\0", 116);
  head.write(data.length.toString(8).padStart(11, "0") + "\0", 124);
  head.write("00000000000\0", 136);
  head.write("        ", 148);
  head.write(type, 156);
  head.write(link, 157);
  head.write("ustar\0" + "00", 257);
  const sum = head.reduce((a, b) => a + b, 0);
  head.write(sum.toString(8).padStart(6, "0") + "\0 ", 148);
  const body = Buffer.alloc(Math.ceil(data.length / 512) * 512);
  body.write(data);
  return Buffer.concat([head, body]);
}

test("hostile archives are refused and change nothing", async () => {
  const { gzipSync } = await import("node:zlib");
  const { session } = await server.create({ runtime: "node24" });
  const tar = (...entries) => gzipSync(Buffer.concat([...entries, Buffer.alloc(1024)]));
  const bad = {
    "dot dot": tar(entry("../../escape", { data: "x" })),
    "dot dot inside": tar(entry("a/../../escape", { data: "x" })),
    absolute: tar(entry("/etc/escape", { data: "x" })),
    symlink: tar(entry("link", { type: "2", link: "/etc" }), entry("link/escape", { data: "x" })),
    hardlink: tar(entry("hard", { type: "1", link: "/etc/passwd" })),
    "character device": tar(entry("dev", { type: "3" })),
    fifo: tar(entry("pipe", { type: "6" })),
    "cut short": tar(entry("cut", { data: "x".repeat(5000) })).subarray(0, 40),
    "not gzip": Buffer.from("this is not an archive"),
    "size lies": gzipSync(entry("lie", { data: "y" }).fill("7", 124, 135)),
  };
  for (const [name, bytes] of Object.entries(bad)) {
    const response = await upload(session.id, bytes, "/tmp/in");
    const { error } = await response.json();
    assert.ok(response.status >= 400 && response.status < 500, `${name}: ${response.status}`);
    assert.ok(error.message.length > 10, name);
  }
  const r = await server.exec(session.id, "sh", ["-c", "ls -d /escape /tmp/escape /etc/escape /tmp/in/dev /tmp/in/pipe /tmp/in/hard; true"]);
  assert.equal(r.stdout, "");
  assert.equal((await upload(session.id, tar(entry("ok.txt", { data: "fine" })), "/tmp/in")).status, 200);
  assert.equal((await server.exec(session.id, "cat", ["/tmp/in/ok.txt"])).stdout, "fine");
});

test("reads of FIFOs, devices and directories answer at once; odd working directories are refused", async () => {
  const { session } = await server.create({ runtime: "node24" });
  await server.exec(session.id, "sh", ["-c", "mkfifo /tmp/p; ln -s /dev/zero /tmp/z; ln -s /proc/self/fd /tmp/f"]);
  for (const path of ["/tmp/p", "/dev/zero", "/tmp/z", "/tmp", "/dev/tty", "/proc/1/mem", "/tmp/missing"]) {
    const response = await server.request("POST", `/v2/sandboxes/sessions/${session.id}/fs/read`, { body: { path } });
    assert.ok(response.status >= 400 && response.status < 500, `${path}: ${response.status}`);
  }
  if (engine === "namespaces") {
    // Masked by an empty file: readable, and nothing in it.
    const masked = await server.request("POST", `/v2/sandboxes/sessions/${session.id}/fs/read`, { body: { path: "/proc/kmsg" } });
    assert.equal(await masked.text(), "");
  }
  for (const cwd of ["/proc/self/fd/3", "/proc/self/fd/4", "/proc/1/root", "/proc/1/cwd", "/tmp/f/3"]) {
    const r = await server.exec(session.id, "sh", ["-c", "pwd -P; ls | head -3"], { cwd }).catch((e) => e);
    const text = r.text ?? r.stdout;
    assert.ok(!/var\/lib|run\/sandbar|store/.test(text), `${cwd}: ${text}`);
  }
});

test("a setuid file left by a guest is useless on the host", async () => {
  const { session } = await server.create({ runtime: "node24" });
  const r = await server.exec(session.id, "sh", ["-c", "cp /bin/sh /tmp/suid && chmod 4755 /tmp/suid && stat -c %a /tmp/suid"], { sudo: true });
  assert.equal(r.stdout, "4755\n");
  // The store is mounted in the spawner's own mount namespace only: the host sees nothing of it.
  const seen = execFileSync("sh", ["-c", "grep -c store /proc/self/mountinfo || true"]).toString();
  assert.equal(seen.trim(), "0");
});
