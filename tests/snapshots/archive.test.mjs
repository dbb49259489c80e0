// A sandbox as one file: out of one server, into another.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { binary, engine, startServer } from "../support/server.mjs";

const run = promisify(execFile);
const scope = "projectId=prj_sandbar&teamId=team_sandbar";
// With containers allowed, so that an archive could have them if it only had to ask.
const server = await startServer({ config: engine === "namespaces" ? "allow_nesting_on_class1 = true\n" : "" });
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
  assert.equal(running.code, 125, "a running one is refused");
  const before = (await server.exec(session.id, "sh", ["-c", look])).stdout;
  assert.match(before, /env: hidden-value/);
  await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop?${scope}`);

  const file = join(work, "box.tar.zst");
  const exported = await cli("export", "original", file);
  assert.equal(exported.code, 0, exported.stderr);
  const { stdout } = await run("sh", ["-c", `zstd -dcq ${file} | strings | grep -c hidden-value || true`]);
  assert.equal(stdout.trim(), "0", "no variable is in it");
  assert.deepEqual(await names(), ["original"], "nothing is left of the export");

  const imported = await cli("import", file, "--name", "copy", "--publish", "4000");
  assert.equal(imported.code, 0, imported.stderr);
  assert.match(imported.stderr, /class \d \(\S+\), network deny-all, published ports: 4000/);
  const copy = await view("copy", true);
  assert.equal(copy.sandbox.tags.team, "red");
  assert.equal(copy.sandbox.networkPolicy.mode, "deny-all", "rules are not exported; nothing is allowed until somebody says so");
  assert.deepEqual(copy.routes.map((r) => r.port), [4000], "ports are the importer's");
  const seen = (await server.exec(copy.session.id, "sh", ["-c", look])).stdout;
  assert.equal(seen, before.replace(" hidden-value", ""));
});

test("what is no archive is refused and leaves nothing", async () => {
  const before = await names();
  await writeFile(join(work, "junk"), "junk");
  assert.equal((await cli("import", join(work, "junk"))).code, 125);
  await run("sh", ["-c", `cd ${work}; echo x > other; tar -cf - other | zstd -q > other.tar.zst; head -c 300 box.tar.zst > cut.tar.zst`]);
  const other = await cli("import", join(work, "other.tar.zst"));
  assert.equal(other.code, 125);
  assert.match(other.stderr, /not an archive of sandbar/);
  assert.equal((await cli("import", join(work, "cut.tar.zst"))).code, 125);
  assert.deepEqual(await names(), before);
});

test("a failing export leaves the earlier archive alone", async () => {
  const { session } = await server.call("POST", `/v2/sandboxes?${scope}`, { body: { projectId: "prj_sandbar", name: "liar", runtime: "node24" } });
  const spoil = "printf '#!/bin/sh\\nexit 3\\n' > $(command -v tar)";
  assert.equal((await server.exec(session.id, "sudo", ["sh", "-c", spoil])).exitCode, 0);
  await server.call("POST", `/v2/sandboxes/sessions/${session.id}/stop?${scope}`);
  const file = join(work, "precious.tar.zst");
  await writeFile(file, "precious");
  assert.equal((await cli("export", "liar", file)).code, 125);
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

// An archive that somebody else made: box.tar.zst with other settings.
async function forge(name, settings, files = "") {
  const at = join(work, name);
  await run("sh", ["-ec", `mkdir -p ${at}/root; cd ${at}; zstd -dcq ../box.tar.zst | tar -xf -; ${files}`]);
  const own = JSON.parse(await readFile(join(at, "sandbar.json"), "utf8"));
  await writeFile(join(at, "sandbar.json"), JSON.stringify({ ...own, ...settings }));
  await run("sh", ["-ec", `cd ${at}; tar -cf - sandbar.json deleted files.tar | zstd -q -f > ../${name}.tar.zst`]);
  return `${at}.tar.zst`;
}

test("an archive grants itself nothing, and what it asks for is said", async () => {
  const file = await forge("greedy", { nesting: true, ports: [3000, 8080], vcpus: 32, timeout: 5 * 3600 * 1000, env: { A: "1" }, snapshotExpiration: 0,
    networkPolicy: { mode: "allow-all" }, tags: { team: "red", "sandbar.disposable": "1", "sandbar:other": "x" } }, "tar -C root -cf files.tar .");
  const imported = await cli("import", file, "--name", "greedy", "--json");
  assert.equal(imported.code, 0, imported.stderr);
  const report = JSON.parse(imported.stdout);
  assert.deepEqual(report.ports, []);
  assert.ok(report.class >= 1);
  assert.match(imported.stderr, /published ports: none\n.*does not get: .*ports 3000, 8080 \(--publish\).*containers inside \(--nesting\).*32 vCPUs \(--vcpus\)/);
  const { sandbox, session, routes } = await view("greedy", true);
  assert.deepEqual(sandbox.tags, { team: "red" });
  assert.deepEqual(routes, []);
  assert.equal(sandbox.nesting ?? false, false);
  assert.ok(sandbox.vcpus < 32 && sandbox.timeout <= 3600 * 1000, JSON.stringify(sandbox));
  assert.equal(sandbox.networkPolicy.mode, "deny-all");
  assert.ok(session.isolation.class >= 1);
  const { stdout } = await server.exec(session.id, "sh", ["-c", "echo $A"]);
  assert.equal(stdout, "\n");
});

test("a bomb is refused before its files are written", async () => {
  // Files of 6 GiB in a few kilobytes. The head of it is enough for the verdict, so that the rest is left out.
  const file = join(work, "bomb.tar.zst"), place = join(work, "tmp");
  const head = `import tarfile, sys
i = tarfile.TarInfo("files.tar"); i.size = 6 << 30
sys.stdout.buffer.write(i.tobuf(tarfile.PAX_FORMAT) + bytes(64 << 20))`;
  await run("sh", ["-ec", `mkdir -p ${work}/bomb ${place}; cd ${work}/bomb; zstd -dcq ../box.tar.zst | tar -xf - sandbar.json deleted; ` +
    `{ tar --format=ustar -b1 -cf - sandbar.json deleted | head -c -1024; python3 -c '${head}'; } | zstd -q > ${file}`]);
  const before = await names();
  const refused = await run(binary, ["import", file, "--name", "bomb", "--data", server.data], { env: { ...process.env, SANDBAR_URL: "", SANDBAR_TOKEN: "", TMPDIR: place } }).catch((e) => e);
  assert.equal(refused.code, 125);
  assert.match(refused.stderr, /nothing was unpacked[^]*--max-size 6442450944/);
  assert.deepEqual(await names(), before);
  assert.deepEqual(await readdir(place), []);
});

test("what a tar can do to its reader it does to the new sandbox alone", async () => {
  const canary = join(work, "canary");
  await writeFile(canary, "untouched");
  const python = `
import tarfile, io
t = tarfile.open("files.tar", "w", format=tarfile.GNU_FORMAT)
def add(name, type=tarfile.REGTYPE, data=b"x", link="", mode=0o4777):
    i = tarfile.TarInfo(name); i.type = type; i.linkname = link; i.mode = mode; i.size = len(data) if type == tarfile.REGTYPE else 0
    t.addfile(i, io.BytesIO(data) if i.size else None)
add("./../../../../../../${canary}")
add("${canary}")
add("./vercel/sandbox/out", tarfile.SYMTYPE, link="${work}")
add("./vercel/sandbox/out/canary")
add("./vercel/sandbox/hard", tarfile.LNKTYPE, link="../../../../${canary}")
add("./vercel/sandbox/" + "l" * 200 + "/" + "n" * 200)
add("./vercel/sandbox/suid")
add("./vercel/sandbox/suid", data=b"second")
t.close()`;
  const file = await forge("tricks", {}, `python3 - <<'EOF'
${python}
EOF`);
  const imported = await cli("import", file, "--name", "tricks");
  assert.equal(await readFile(canary, "utf8"), "untouched");
  // tar in the sandbox refuses the worst of it; then the sandbox is gone.
  if (imported.code !== 0) assert.ok(!(await names()).includes("tricks"), imported.stderr);
  assert.doesNotMatch(imported.stderr, /\x1b/);
  const devices = await forge("devices", {}, "mknod root/null c 1 3; tar -C root -cf files.tar ./null; rm root/null");
  const made = await cli("import", devices, "--name", "devices");
  if (made.code === 0) {
    const { session } = await view("devices", true);
    const opened = await server.exec(session.id, "sh", ["-c", "echo x > /null; test ! -c /null || ! echo x > /null"]);
    assert.equal(opened.exitCode, 0, "a device node of an archive opens nothing");
  } else {
    assert.ok(!(await names()).includes("devices"), made.stderr);
  }
});
