// The same programs in every kind of shell: login or not, sh or bash, as the user, as root, as others, with and without
// an environment. Debian's own /etc/profile would drop the image's directories from PATH.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sh, useSdk } from "./sdk.mjs";

const { sandbox } = await useSdk();

// Every way to a shell. `X` is a word that reads a script: `sudo -i` would expand the script's own variables too early.
const ways = {
  "sh -c": "sh -c X",
  "bash -c": "bash -c X",
  "sh -lc": "sh -lc X",
  "bash -lc": "bash -lc X",
  "bash --login -c": "bash --login -c X",
  "sudo sh -lc": "sudo sh -lc X",
  "sudo bash -lc": "sudo bash -lc X",
  "sudo bash -c": "sudo bash -c X",
  "sudo -i": "sudo -i sh -c X",
  "su -": "sudo su - -c X",
  "su - to the user": "sudo su - $(id -un) -c X",
  "su - to another": "sudo su - other -c X",
  "sudo -iu another": "sudo -iu other sh -c X",
  "sudo -u another bash -lc": "sudo -u other bash -lc X",
  "sudo -u another sh -lc": "sudo -u other sh -lc X",
  "env -i bash -lc": "env -i bash -lc X",
  "env -i sh -lc": "env -i sh -lc X",
  "env -i HOME=… bash -lc": "env -i HOME=$HOME bash -lc X",
};
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

for (const [what, params, programs] of [
  ["node24", { runtime: "node24" }, ["node", "npm", "npx", "pnpm"]],
  ["node22", { runtime: "node22" }, ["node", "npm", "npx", "pnpm"]],
  ["bun", { runtime: "bun" }, ["bun", "bunx", "node", "npm"]],
  ["python3.13", { runtime: "python3.13" }, ["python3", "python", "pip"]],
  ["universal", { runtime: undefined, image: "vercel/sandbox/universal" }, ["node", "npm", "pnpm", "bun", "python3", "python", "pip", "gcc"]],
  ["node:24", { runtime: undefined, image: "vercel/sandbox/node:24" }, ["node", "npm"]],
]) {
  test(`${what}: every shell finds ${programs.join(", ")}`, async () => {
    const box = await sandbox(params);
    assert.equal((await sh(box, "sudo useradd -m -s /bin/bash other")).exitCode, 0);
    // Without a HOME, Debian's ~/.profile puts /bin first, which is /usr/bin.
    const where = `for p in ${programs.join(" ")}; do command -v $p || echo no $p; done | sed 's#^/bin/#/usr/bin/#'`;
    const want = (await sh(box, where)).stdout;
    assert.ok(!/^no /m.test(want), want);
    await box.writeFiles([{ path: "/tmp/look", content: where, mode: 0o644 },
      { path: "/tmp/run", content: programs.filter((p) => /^(node|bun|python3)$/.test(p)).map((p) => `${p} --version >/dev/null`).join(" && "), mode: 0o644 }]);
    for (const [way, line] of Object.entries(ways)) {
      const got = await sh(box, line.replace("X", quoted(". /tmp/look")));
      assert.equal(got.stdout, want, `${way}: ${got.stderr}`);
      const ran = await sh(box, line.replace("X", quoted(". /tmp/run")));
      assert.equal(ran.exitCode, 0, `${way}: they run, too: ${ran.stderr}`);
    }
    // As the clients' own ways to another user, and to root.
    const alice = await box.createUser("alice");
    for (const user of [alice, box.asUser("root")]) {
      for (const shell of ["bash", "sh"]) {
        const got = await user.runCommand(shell, ["-lc", where]);
        assert.equal(await got.stdout(), want, `${user.username} ${shell} -lc`);
      }
    }
    const root = await box.runCommand({ cmd: "bash", args: ["-lc", where], sudo: true });
    assert.equal(await root.stdout(), want, "sudo: true");
  });
}

test("a login shell keeps the PATH and the variables that it was given", async () => {
  const box = await sandbox();
  const path = (await sh(box, "echo $PATH")).stdout.trim();
  for (const shell of ["bash", "sh"]) {
    const login = async (env, line = "echo $PATH") => (await sh(box, `${shell} -lc ${quoted(line)}`, { env })).stdout.trim().split(":");
    assert.deepEqual(await login({}), path.split(":"), "nothing is added to a PATH that has it all");
    const first = await login({ PATH: `/opt/mine:${path}` });
    assert.deepEqual(first, ["/opt/mine", ...path.split(":")]);
    const own = await login({ PATH: "/opt/mine:/usr/bin:/bin" });
    assert.deepEqual(own.slice(0, 3), ["/opt/mine", "/usr/bin", "/bin"], "a chosen order stays");
    assert.ok(own.includes("/vercel/runtimes/node24/bin"));
    assert.deepEqual(await login({ GREETING: "a:b" }, "echo $GREETING"), ["a", "b"]);
    assert.deepEqual(await login({}, "set | grep -c ^sandbar_ || true"), ["0"], "nothing of its own is left behind");
  }
});

test("scripts in /etc/profile.d are read", async () => {
  const box = await sandbox();
  const made = await sh(box, "echo 'export FROM_PROFILE=yes' | sudo tee /etc/profile.d/mine.sh >/dev/null; bash -lc 'echo $FROM_PROFILE'; sh -lc 'echo $FROM_PROFILE'");
  assert.equal(made.stdout, "yes\nyes\n");
});

test("dnf says what to use instead", async () => {
  const box = await sandbox();
  for (const sudo of [false, true]) {
    const got = await box.runCommand({ cmd: "dnf", args: ["install", "-y", "golang"], sudo });
    assert.equal(got.exitCode, 1);
    assert.match(await got.stderr(), /apt-get install/);
  }
});
