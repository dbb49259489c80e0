// A sandbox as one file: out of one server, into another.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { binary, engine, startServer } from "../clients/server.mjs";

const run = promisify(execFile);
const scope = "projectId=prj_sandbar&teamId=team_sandbar";
const server = await startServer();
const work = await mkdtemp(join(tmpdir(), "sandbar-archive-"));
after(async () => {
  await server.stop();
  await rm(work, { recursive: true, force: true });
});

const cli = async (...words) => {
  const done = await run(binary, [...words, "--data", server.data], { env: { ...process.env, SANDBAR_URL: "", SANDBAR_TOKEN: "" } })
    .catch((e) => e);
  return { code: done.code ?? 0, stdout: done.stdout, stderr: done.stderr };
};
const view = (name, resume) => server.call("GET", `/v2/sandboxes/${name}?${scope}&resume=${resume}`);
const names = async () => (await server.call("GET", `/v2/sandboxes?project=prj_sandbar&teamId=team_sandbar&limit=50`)).sandboxes.map((s) => s.name).sort();

// Everything that somebody inside can see of what was done below.
const look = "cd /vercel/sandbox; find . /etc/mine /opt/tool -printf '%p %y %m %U:%G %s %T@ %l\\n' | grep -v '^\\. ' | sort; " +
  "cat a.txt 'sub dir/b'; ls /etc/debian_version 2>&1; stat -c %h a.txt; echo env: $SECRET";

test("export and import keep the files and leave the secrets", async () => {
  const { session } = await server.call("POST", `/v2/sandboxes?${scope}`, { body: {
    projectId: "prj_sandbar", name: "original", runtime: "node24", env: { SECRET: "hidden-value" }, tags: { team: "red" }, ports: [3000],
    networkPolicy: { mode: "custom", allowedDomains: ["example.com"] },
  } });
  const script = "cd /vercel/sandbox; echo one > a.txt; mkdir 'sub dir'; echo two > 'sub dir/b'; ln a.txt hard; ln -s a.txt soft; chmod 640 a.txt; " +
    `${engine === "gvisor" ? "" : "mkfifo pipe; "}truncate -s 1G sparse; printf x | dd of=sparse seek=500000000 bs=1 conv=notrunc status=none; touch -d @1000000000 a.txt; ` +
    "sudo sh -c 'rm /etc/debian_version; echo root > /etc/mine; mkdir /opt/tool; chmod 711 /opt/tool'";
  assert.equal((await server.exec(session.id, "sh", ["-ec", script])).exitCode, 0);
  const running = await cli("export", "original", join(work, "x.tar.zst"));
  assert.equal(running.code, 1, "a running one is refused");
  const before = (await server.exec(session.id, "sh", ["-c", look])).stdout;
  assert.match(before, /env: hidden-value/);
  await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop?${scope}`);

  const file = join(work, "box.tar.zst");
  const exported = await cli("export", "original", file);
  assert.equal(exported.code, 0, exported.stderr);
  const { stdout } = await run("sh", ["-c", `zstd -dcq ${file} | strings | grep -c hidden-value || true`]);
  assert.equal(stdout.trim(), "0", "no variable is in it");
  assert.deepEqual(await names(), ["original"], "nothing is left of the export");

  const imported = await cli("import", file, "--name", "copy");
  assert.equal(imported.code, 0, imported.stderr);
  const copy = await view("copy", true);
  assert.equal(copy.sandbox.tags.team, "red");
  assert.equal(copy.sandbox.networkPolicy.mode, "deny-all", "rules are not exported; nothing is allowed until somebody says so");
  assert.deepEqual(copy.routes.map((r) => r.port), [3000]);
  const seen = (await server.exec(copy.session.id, "sh", ["-c", look])).stdout;
  assert.equal(seen, before.replace(" hidden-value", ""));
});

test("what is no archive is refused and leaves nothing", async () => {
  const before = await names();
  await writeFile(join(work, "junk"), "junk");
  assert.equal((await cli("import", join(work, "junk"))).code, 1);
  await run("sh", ["-c", `cd ${work}; echo x > other; tar -cf - other | zstd -q > other.tar.zst; head -c 300 box.tar.zst > cut.tar.zst`]);
  const other = await cli("import", join(work, "other.tar.zst"));
  assert.equal(other.code, 1);
  assert.match(other.stderr, /not an archive of sandbar/);
  assert.equal((await cli("import", join(work, "cut.tar.zst"))).code, 1);
  assert.deepEqual(await names(), before);
});

test("a failing export leaves the earlier archive alone", async () => {
  const { session } = await server.call("POST", `/v2/sandboxes?${scope}`, { body: { projectId: "prj_sandbar", name: "liar", runtime: "node24" } });
  const spoil = "printf '#!/bin/sh\\nexit 3\\n' > $(command -v tar)";
  assert.equal((await server.exec(session.id, "sudo", ["sh", "-c", spoil])).exitCode, 0);
  await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop?${scope}`);
  const file = join(work, "precious.tar.zst");
  await writeFile(file, "precious");
  assert.equal((await cli("export", "liar", file)).code, 1);
  assert.equal(await readFile(file, "utf8"), "precious");
  assert.deepEqual((await readdir(work)).filter((n) => n.includes("part-")), []);
});

test("programs of an archive do not run while it is imported", async () => {
  const at = join(work, "trojan");
  await run("sh", ["-ec", `mkdir -p ${at}/root/usr/bin; cd ${at}; zstd -dcq ../box.tar.zst | tar -xf -; ` +
    "printf '#!/bin/sh\\ntouch /ran\\n' > root/usr/bin/rm; chmod 755 root/usr/bin/rm; cp root/usr/bin/rm root/usr/bin/true; " +
    "tar -C root -cf files.tar ./usr/bin/rm ./usr/bin/true; tar -cf - sandbar.json deleted files.tar | zstd -q > ../trojan.tar.zst"]);
  const imported = await cli("import", join(work, "trojan.tar.zst"), "--name", "trojan");
  assert.equal(imported.code, 0, imported.stderr);
  const copy = await view("trojan", true);
  assert.equal(copy.sandbox.networkPolicy.mode, "deny-all");
  const looked = await server.exec(copy.session.id, "sh", ["-c", "cat /usr/bin/rm; ls /ran /tmp/.sandbar-transfer"]);
  assert.match(looked.stdout, /touch/);
  assert.doesNotMatch(looked.stdout, /^\/ran|sandbar-transfer/m);
});
