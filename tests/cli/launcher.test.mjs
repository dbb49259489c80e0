// ./sandbar: what it refuses before any long work, and that a second call sets nothing up.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { repo } from "../support/server.mjs";

// Everything that set-up would call, replaced by a tattler.
const tools = ["apt-get", "cmake", "ninja", "clang++-19", "clang-19", "mmdebstrap", "mkfs.erofs", "npm", "useradd"];
let dir;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), "sandbar-launcher-"));
  for (const tool of tools) {
    await writeFile(join(dir, tool), `#!/bin/sh\necho ${tool} >> '${dir}/called'\nexit 1\n`);
    await chmod(join(dir, tool), 0o755);
  }
});
after(() => rm(dir, { recursive: true, force: true }));

const launch = (args, { env = {}, path } = {}) =>
  new Promise((done) => {
    const child = execFile(join(repo, "sandbar"), args,
      { env: { ...process.env, SANDBAR_DATA: join(dir, "none"), PATH: path ?? process.env.PATH, ...env } },
      (error, stdout, stderr) => done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.end();
  });

test("the second call runs no compiler, no apt, no recipe", async () => {
  const first = await launch(["run", "--", "node", "-e", "console.log(6*7)"]);
  assert.equal(first.stdout, "42\n", first.stderr);
  const second = await launch(["run", "--", "node", "-e", "console.log(6*7)"], { path: `${dir}:${process.env.PATH}` });
  assert.equal(second.stdout, "42\n", second.stderr);
  assert.equal(await readFile(join(dir, "called"), "utf8").catch(() => ""), "");
});

// A copy of the launcher that was never built, so that every precondition is looked at.
const fresh = async (setup, args, env = {}) => {
  const copy = await mkdtemp(join(dir, "copy-"));
  const script = `cp -r '${repo}/sandbar' '${repo}/tools' '${repo}/images' '${repo}/cmake' '${repo}'/CMake* '${copy}/' && mkdir -p '${copy}/src' '${copy}/sdk/python' && ` +
    `cp '${repo}'/sdk/llms.txt '${repo}'/sdk/openapi.json '${copy}/sdk/' && cp '${repo}/sdk/python/sandbar.py' '${copy}/sdk/python/' && ${setup}`;
  await new Promise((done, fail) => execFile("sh", ["-c", script.replaceAll("COPY", copy)], (e) => (e ? fail(e) : done())));
  return new Promise((done) => execFile(join(copy, "sandbar"), args, { env: { ...process.env, ...env, PATH: `${copy}/bin:${process.env.PATH}` } },
    (error, stdout, stderr) => done({ code: error ? error.code : 0, stderr })));
};
const fake = (name, body) => `mkdir -p COPY/bin && printf '#!/bin/sh\\n${body}\\n' > COPY/bin/${name} && chmod 755 COPY/bin/${name}`;

for (const [what, setup, pattern] of [
  ["not Linux", fake("uname", 'case "$1" in -s) echo Darwin ;; *) exec /usr/bin/uname "$@" ;; esac'), /not Linux/],
  ["an old kernel", fake("uname", 'case "$1" in -r) echo 5.10.0-8-amd64 ;; *) exec /usr/bin/uname "$@" ;; esac'), /too old[\s\S]*fix: apt-get/],
  ["not root", fake("id", "echo 1000"), /needs root[\s\S]*fix: sudo/],
  ["no rights", fake("unshare", "echo Operation not permitted >&2; exit 1"), /namespaces[\s\S]*fix: .*--privileged/],
  ["no space", fake("df", 'printf "Filesystem 1M Used Available\\\\n/dev/x 1 1 5\\\\n"'), /disk space[\s\S]*fix:/],
]) {
  test(`refused before long work: ${what}`, async () => {
    const got = await fresh(setup, ["run", "--", "true"]);
    assert.equal(got.code, 2, got.stderr);
    assert.match(got.stderr, pattern);
    assert.equal(got.stderr.trim().split("\n").length, 3, "one message: what, why, fix");
  });
}

// Recipes that only say what was asked of them.
const recipes = (answer) => `printf '#!/bin/sh\\necho "$@" >> ${dir}/recipes\\nexit ${answer}\\n' > COPY/images/build.sh && rm -f ${dir}/recipes`;
const asked = async () => (await readFile(join(dir, "recipes"), "utf8").catch(() => "")).trim().split("\n");
const all = "universal node24 node22 python3.13 bun";

test("a fresh machine gets the default image and every runtime", async () => {
  const got = await fresh(`${recipes(1)} && ${fake("cmake", "exit 1")}`, ["run", "--", "true"], { SANDBAR_CACHE: join(dir, "cache") });
  assert.notEqual(got.code, 0);
  assert.deepEqual(await asked(), [`--check ${all}`, all], got.stderr);
});

test("images of older recipes are built again, also when a command without a machine came first", async () => {
  const images = join(dir, "older");
  const built = `mkdir -p '${images}/manifests' COPY/build/release/bin && touch '${images}/manifests/universal.json' && ` +
    "printf '#!/bin/sh\\n' > COPY/build/release/bin/sandbar && chmod 755 COPY/build/release/bin/sandbar";
  const env = { SANDBAR_CACHE: join(dir, "cache"), SANDBAR_IMAGES: images };
  const ps = `SANDBAR_CACHE='${env.SANDBAR_CACHE}' SANDBAR_IMAGES='${images}' PATH=COPY/bin:$PATH COPY/sandbar ps && [ ! -e ${dir}/recipes ]`;
  const got = await fresh([recipes(0), built, fake("cmake", "exit 0"), fake("ninja", "exit 0"), ps].join(" && "), ["run", "--", "true"], env);
  assert.equal(got.code, 0, got.stderr);
  assert.deepEqual(await asked(), [`--check ${all}`]);
});
