// Sandboxes that start from a git repository or an archive, fetched by the machine itself from real servers.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { apiError, sh, useSdk } from "../clients/sdk.mjs";
import { makeWorld } from "../support/world.mjs";

const world = await makeWorld();
const backend = join(execFileSync("git", ["--exec-path"], { encoding: "utf8" }).trim(), "git-http-backend");
const password = "canary-git-91bc";
const projects = join(world.dir, "projects");

// A repository with two commits, a branch and a tag.
const git = (...args) => execFileSync("git", args, { cwd: join(world.dir, "work"), encoding: "utf8", stdio: ["ignore", "pipe", "ignore"],
  env: { ...process.env, GIT_AUTHOR_NAME: "t", GIT_AUTHOR_EMAIL: "t@x.test", GIT_COMMITTER_NAME: "t", GIT_COMMITTER_EMAIL: "t@x.test", GIT_CONFIG_GLOBAL: "/dev/null" } }).trim();
await mkdir(join(world.dir, "work"), { recursive: true });
git("init", "-q", "-b", "main");
const commit = async (text) => {
  await writeFile(join(world.dir, "work/file.txt"), text);
  git("add", ".");
  git("commit", "-q", "-m", text);
  return git("rev-parse", "HEAD");
};
const first = await commit("one");
git("tag", "v1");
const second = await commit("two");
git("branch", "side", first);
git("clone", "-q", "--bare", ".", join(projects, "repo.git"));
git("-C", join(projects, "repo.git"), "config", "uploadpack.allowAnySHA1InWant", "true");

// git's own CGI program behind a small server; what it was asked with is kept.
const requests = [];
function serveGit(request, response) {
  const url = new URL(request.url, "https://git.test");
  requests.push({ host: request.headers.host, path: url.pathname, auth: request.headers.authorization });
  if (url.pathname.startsWith("/moved/")) return response.writeHead(302, { location: `https://elsewhere.test:${port}${request.url.slice(6)}` }).end();
  if (url.pathname.startsWith("/private/") && request.headers.authorization !== `Basic ${Buffer.from(`robot:${password}`).toString("base64")}`) {
    return response.writeHead(401, { "www-authenticate": "Basic realm=git" }).end();
  }
  const cgi = spawn(backend, { env: { PATH: process.env.PATH, GIT_PROJECT_ROOT: projects, GIT_HTTP_EXPORT_ALL: "1", GIT_CONFIG_COUNT: "1",
    GIT_CONFIG_KEY_0: "safe.directory", GIT_CONFIG_VALUE_0: "*", PATH_INFO: url.pathname.replace(/^\/private/, ""), QUERY_STRING: url.search.slice(1),
    REQUEST_METHOD: request.method, CONTENT_TYPE: request.headers["content-type"] ?? "", CONTENT_LENGTH: request.headers["content-length"] ?? "",
    HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "", GIT_PROTOCOL: request.headers["git-protocol"] ?? "" } });
  request.pipe(cgi.stdin);
  cgi.stdin.on("error", () => {});
  let head = Buffer.alloc(0);
  cgi.stdout.on("data", (bytes) => {
    if (response.headersSent) return response.write(bytes);
    head = Buffer.concat([head, bytes]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    const headers = Object.fromEntries(head.subarray(0, end).toString().split("\r\n").map((l) => l.split(/: /, 2)));
    response.writeHead(Number.parseInt(headers.Status ?? "200", 10), headers);
    response.write(head.subarray(end + 4));
  });
  cgi.on("close", () => response.end());
}
const port = await world.https(serveGit);

// Archives of the same directory in every form.
await mkdir(join(world.dir, "archive/inner"), { recursive: true });
await writeFile(join(world.dir, "archive/inner/deep.txt"), "deep");
execFileSync("tar", ["-C", join(world.dir, "archive"), "-cf", join(world.dir, "plain.tar"), "inner"]);
execFileSync("tar", ["-C", join(world.dir, "archive"), "-czf", join(world.dir, "packed.tgz"), "inner"]);
// What zstd made of the plain one.
await writeFile(join(world.dir, "packed.tar.zst"), Buffer.from("KLUv/WQAJ+UCAFLDCxGg7YBJ5fMNqrr9UhsajKoZU1clY3dLxwYtJfRmzD3TnX7w57ySokLPbPTBpbVUESBQKyysNvjjsPSzAFa9gOmucBxMHmCI51EYB0D2/zPh8QEHDBpgOq0tj3FhtA==", "base64"));
const files = await world.https(async (request, response) => {
  if (request.url === "/bomb") {
    response.on("error", () => {});
    const block = Buffer.alloc(1 << 20);
    const more = () => { while (response.writable && response.write(block)); };
    response.on("drain", more);
    return more();
  }
  const bytes = await readFile(join(world.dir, request.url.slice(1))).catch(() => undefined);
  response.writeHead(bytes ? 200 : 404).end(bytes);
});

const { sandbox, server } = await useSdk({ config: world.config("", "[limits]\nmax_running = 64\ndisk_mb = 64\n") });
const repo = `https://git.test:${port}/repo.git`;
const left = async () => (await server.call("GET", "/v2/sandboxes?limit=50&teamId=team_test&project=prj_test")).sandboxes.map((s) => s.name);

test("a repository lies in a directory of its own, and the caller's policy is in force", async () => {
  const box = await sandbox({ source: { type: "git", url: repo } });
  const got = await sh(box, "cd repo && cat file.txt && git rev-parse HEAD && git status --porcelain && git remote get-url origin && stat -c %U file.txt");
  assert.equal(got.stdout, `two${second}\n${repo}\n${(await sh(box, "id -un")).stdout}`, got.stderr);
  assert.equal(box.networkPolicy, "deny-all");
  assert.notEqual((await sh(box, `curl -sS -m 20 https://git.test:${port}/`)).exitCode, 0, "the set-up's policy is gone");
});

test("branch, tag and commit, with and without depth", async () => {
  for (const [fields, want, commits] of [
    [{ revision: "side" }, first, 1], [{ revision: "v1", depth: 1 }, first, 1], [{ revision: first }, first, 1],
    [{ revision: first.slice(0, 10) }, first, 1], [{ revision: second, depth: 1 }, second, 1], [{ depth: 1 }, second, 1], [{}, second, 2]]) {
    const box = await sandbox({ source: { type: "git", url: repo, ...fields } });
    const got = await sh(box, "cd repo && git rev-parse HEAD && git rev-list --count HEAD");
    assert.equal(got.stdout, `${want}\n${commits}\n`, `${JSON.stringify(fields)} ${got.stderr}`);
    await box.delete();
  }
});

test("a password is used and never enters the machine", async () => {
  requests.length = 0;
  const source = { type: "git", url: `https://git.test:${port}/private/repo.git`, username: "robot", password };
  const box = await sandbox({ source });
  assert.equal((await sh(box, "cat repo/file.txt")).stdout, "two");
  assert.ok(requests.some((r) => r.auth?.startsWith("Basic ")));
  const encoded = Buffer.from(`robot:${password}`).toString("base64");
  const search = await sh(box, `grep -rlE 'canary-git|${encoded.slice(0, 16)}' repo /etc /tmp $HOME 2>/dev/null; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; git -C repo config --list`);
  assert.ok(!search.stdout.includes(password) && !search.stdout.includes(encoded), search.stdout);
  assert.ok(!server.output.includes("canary-git"));
  const wrong = await apiError(sandbox({ source: { ...source, password: "wrong" } }));
  assert.equal(wrong.status, 400);
  assert.match(wrong.message, /Authentication failed|could not read/);
});

test("what cannot be fetched is git's own message, and nothing stays", async () => {
  const logs = () => readdir(join(server.data, "logs"));
  const before = [await left(), await logs()];
  assert.ok(before[0].length > 0);
  const missing = await apiError(sandbox({ source: { type: "git", url: `https://git.test:${port}/missing.git` } }));
  assert.equal(missing.status, 400);
  assert.match(missing.message, /not found/);
  assert.match((await apiError(sandbox({ source: { type: "git", url: repo, revision: "nowhere" } }))).message, /nowhere/);
  // Only the source's own host may be reached, also after a redirect.
  const moved = await apiError(sandbox({ source: { type: "git", url: `https://git.test:${port}/moved/repo.git` } }));
  assert.equal(moved.status, 400);
  assert.match(moved.message, /elsewhere\.test/);
  assert.ok(!requests.some((r) => r.host.startsWith("elsewhere.test")));
  for (const url of ["file:///etc", "--upload-pack=touch", "ssh://git.test/r", "http://169.254.169.254/latest/repo"]) {
    assert.equal((await apiError(sandbox({ source: { type: "git", url } }))).status, 400, url);
  }
  assert.deepEqual([await left(), await logs()], before);
});

test("archives are unpacked into the working directory", async () => {
  for (const form of ["plain.tar", "packed.tgz", "packed.tar.zst"]) {
    const box = await sandbox({ source: { type: "tarball", url: `https://files.test:${files}/${form}` } });
    assert.equal((await sh(box, "cat inner/deep.txt")).stdout, "deep", form);
    await box.delete();
  }
  const missing = await apiError(sandbox({ source: { type: "tarball", url: `https://files.test:${files}/none.tgz` } }));
  assert.equal(missing.status, 400);
  assert.match(missing.message, /404/);
});

test("an archive without an end is held by the sandbox's disk", async () => {
  const bomb = await apiError(sandbox({ source: { type: "tarball", url: `https://files.test:${files}/bomb` } }));
  assert.equal(bomb.status, 400);
  assert.match(bomb.message, /source: the download failed/);
});
