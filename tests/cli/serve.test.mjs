// Starting and stopping servers: what is refused is refused at once and leaves nothing, options are never ignored, and
// a restart keeps the sandboxes.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { binary, engine, freePort, startServer, until } from "../support/server.mjs";

let scratch;
before(async () => {
  scratch = await mkdtemp(join(tmpdir(), "sandbar-serve-"));
  await chmod(scratch, 0o755);
});
after(() => rm(scratch, { recursive: true, force: true }));

const cli = (args, { program = binary, env = {}, input, ...options } = {}) =>
  new Promise((done) => {
    const clean = { ...process.env, ...env };
    for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN", "SANDBAR_CALLED"]) if (!(name in env)) delete clean[name];
    const child = execFile(program, args, { env: clean, maxBuffer: 1 << 26, ...options }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, stdout, stderr }));
    child.stdin.on("error", () => {}).end(input);
  });
// The processes whose command line names this directory.
const using = async (dir) => {
  const pids = [];
  for (const pid of (await readdir("/proc")).filter((n) => /^\d+$/.test(n))) {
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (line.split("\0").some((word) => word === dir) && line.includes("sandbar")) pids.push(Number(pid));
  }
  return pids;
};

test("a data directory that the server's user cannot reach: said at once, nothing is left running", async () => {
  const closed = join(scratch, "closed"), data = join(closed, "below/data");
  await mkdir(join(closed, "below"), { recursive: true });
  await chmod(closed, 0o700);
  for (const words of [["serve", "--listen", "127.0.0.1:0"], ["up", "--listen", "127.0.0.1:0"]]) {
    const got = await cli([...words, "--data", data]);
    assert.equal(got.code, words[0] === "serve" ? 2 : 125, got.stderr);
    assert.match(got.stderr, new RegExp(`cannot enter ${closed}, and it has to reach the data directory ${data}`));
    assert.match(got.stderr, new RegExp(`fix: .*chmod o\\+x ${closed}`));
    assert.deepEqual(await using(data), []);
  }
});

test("directories that are made for a data directory let the server's user through", async () => {
  const data = join(scratch, "new/parents/data");
  const got = await cli(["-c", `umask 077; '${binary}' up --listen 127.0.0.1:0 --data '${data}'`], { program: "sh" });
  assert.equal(got.code, 0, got.stderr);
  assert.equal((await cli(["down", "--data", data])).code, 0);
  assert.deepEqual(await using(data), []);
});

test("a spawner whose data directory is gone and that has no machines ends by itself", async () => {
  const data = join(scratch, "gone");
  assert.equal((await cli(["up", "--listen", "127.0.0.1:0", "--data", data])).code, 0);
  const { pid } = JSON.parse(await readFile(join(data, "endpoint.json"), "utf8"));
  process.kill(pid, "SIGKILL");
  await until(async () => (await using(data)).length === 1, "only the spawner is left");
  await rm(data, { recursive: true, force: true });
  await until(async () => (await using(data)).length === 0, "the spawner has ended");
});

test("up with options while a server runs: in force, or refused with the way to apply them; restart keeps sandboxes", async () => {
  const data = join(scratch, "opts"), port = await freePort(), other = await freePort();
  const config = join(scratch, "opts.toml");
  await writeFile(config, `isolation = "${engine}"\n[limits]\nmax_running = 50\n`);
  const on = (verb, ...words) => [verb, "--data", data, ...words];
  const up = (...words) => cli(on("up", ...words));
  const first = await up("--listen", `127.0.0.1:${port}`, "--config", config);
  assert.equal(first.code, 0, first.stderr);
  after(() => cli(on("down")));
  assert.equal((await up()).code, 0, "without options: it runs");
  assert.equal((await up("--config", config, "--listen", `127.0.0.1:${port}`)).code, 0, "these are in force");

  const broken = join(scratch, "broken.toml");
  await writeFile(broken, "[limits]\nmax_vcpu = 1\n");
  const wrong = await up("--config", broken);
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /did you mean `max_vcpus`/);
  assert.equal((await cli(on("restart", "--config", broken))).code, 2);

  await writeFile(config, `isolation = "${engine}"\n[limits]\nmax_running = 60\n`);
  const differs = await up("--config", config, "--listen", `127.0.0.1:${other}`);
  assert.equal(differs.code, 125);
  assert.match(differs.stderr, /limits\.max_running: 50 \(asked: 60\)/);
  assert.match(differs.stderr, new RegExp(`server\\.listen: 127\\.0\\.0\\.1:${port} \\(asked: 127\\.0\\.0\\.1:${other}\\)`));
  assert.match(differs.stderr, new RegExp(`fix: sudo ${binary} restart --data ${data} --listen 127.0.0.1:${other} --config ${config} `));

  assert.equal((await cli(on("run", "--keep", "--name", "stays", "--", "true"))).code, 0);
  const id = (await cli(on("exec", "-d", "stays", "--", "sh", "-c", "while ! [ -e /tmp/go ]; do sleep 0.1; done; echo went on"))).stdout.trim();
  const spawner = (await using(data)).length;
  const again = await cli(on("restart", "--listen", `127.0.0.1:${other}`));
  assert.equal(again.code, 0, again.stderr);
  assert.match(again.stderr, new RegExp(`restarted at http://127.0.0.1:${other}; sandboxes go on`));
  assert.equal((await using(data)).length, spawner);
  assert.equal((await up("--config", config)).code, 0, "the file that it was started with is in force, as it is now");
  assert.equal((await cli(on("exec", "stays", "--", "touch", "/tmp/go"))).code, 0);
  assert.equal((await cli(on("logs", "-f", "stays", id))).stdout, "went on\n");

  await writeFile(config, `isolation = "${engine}"\n[limits]\nmax_running = 60\nhost_share = 70\n`);
  assert.match((await up("--config", config)).stderr, /host_share: the default \(asked: 70\)[\s\S]*fix: sudo \S+ down .*&& sudo \S+ up/);
  assert.match((await cli(on("restart"))).stderr, /limits\.host_share stays as it was \(the default\) until: .*down .*&& .*up/);
  assert.equal((await cli(on("exec", "stays", "--", "true"))).code, 0);
});

test("restart: without a server it starts one; one that `up` did not start is left alone", async () => {
  const data = join(scratch, "none");
  assert.equal((await cli(["restart", "--listen", "127.0.0.1:0", "--data", data])).code, 0);
  assert.equal((await cli(["down", "--data", data])).code, 0);
  const server = await startServer();
  try {
    const got = await cli(["restart", "--data", server.data]);
    assert.equal(got.code, 125);
    assert.match(got.stderr, /was not started by `up`/);
    assert.equal(server.exited, null);
  } finally {
    await server.stop();
  }
});

test("hints name the program as it was called", async () => {
  const data = ["--data", join(scratch, "nobody")];
  assert.match((await cli(["ps", ...data])).stderr, new RegExp(`fix: sudo ${binary} up`));
  assert.match((await cli(["./sandbar", "ps", ...data].slice(1), { program: "./sandbar", cwd: dirname(binary) })).stderr, /fix: sudo \.\/sandbar up/);
  assert.match((await cli(["ps", ...data], { program: "sandbar", env: { PATH: `${dirname(binary)}:${process.env.PATH}` } })).stderr, /fix: sudo sandbar up/);
  assert.match((await cli(["ps", ...data], { env: { SANDBAR_CALLED: "./sandbar" } })).stderr, /fix: sudo \.\/sandbar up/);
  assert.match(JSON.parse((await cli(["ps", "--json", ...data])).stderr).error.fix, new RegExp(`^sudo ${binary} up`));
});

test("logs are text: bytes that are none are replaced, and that is said once", async () => {
  const server = await startServer();
  const on = { env: { SANDBAR_DATA: server.data } };
  try {
    assert.equal((await cli(["run", "--keep", "--name", "io", "--", "true"], on)).code, 0);
    const changed = (got) => got.stderr.match(/not all UTF-8 text/g)?.length ?? 0;
    assert.equal(changed(await cli(["exec", "io", "--", "printf", "a\\377b\\n\\376"], on)), 0, "exec passes bytes on");
    const id = (await cli(["exec", "-d", "io", "--", "printf", "\\377"], on)).stdout.trim();
    assert.equal(changed(await cli(["logs", "-f", "io", id], on)), 1);
  } finally {
    await server.stop();
  }
});

test("more vCPUs than cores: accepted unless the operator says no; inspect says what there is", async () => {
  const server = await startServer({ config: "[limits]\nmax_memory_mb = 65536\n" });
  const { availableParallelism } = await import("node:os");
  try {
    const made = await server.create({ name: "wide", projectId: "prj_sandbar", resources: { vcpus: 8 } });
    assert.equal(made.session.vcpus, 8);
    const seen = JSON.parse((await cli(["inspect", "wide", "--data", server.data])).stdout);
    assert.equal(seen.cpu.vcpus, 8);
    assert.ok(seen.cpu.effectiveCores <= Math.min(8, availableParallelism()), JSON.stringify(seen.cpu));
  } finally {
    await server.stop();
  }
  const strict = await startServer({ config: "[limits]\nmax_memory_mb = 655360\ncpu_overcommit = false\n" });
  try {
    const cores = Math.max(2, availableParallelism());
    await assert.rejects(strict.create({ resources: { vcpus: 2 * cores } }), new RegExp(`limit of ${cores} `));
  } finally {
    await strict.stop();
  }
});
