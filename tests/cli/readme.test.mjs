// README.md as a newcomer reads it: every command of its shell blocks, in order, in a copy of this checkout, and
// afterwards the copy is as clean as before. A command that this test does not know fails it, and so does a known one
// that README has no more. What a reader replaces (an address, an id, a host on the internet) is replaced here by
// something on loopback. `./sandbar` is the program of this build: what the launcher does before is launcher.test.mjs's.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { chmod, mkdtemp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import https from "node:https";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { startModels } from "../llm/models.mjs";
import { binary, engine, freePort, repo, until } from "../support/server.mjs";
import { makeWorld, outside } from "../support/world.mjs";

const run = (file, args, options = {}) =>
  new Promise((done) => {
    const child = execFile(file, args, { maxBuffer: 1 << 26, ...options }, (error, stdout, stderr) =>
      done({ code: error ? error.code ?? error.signal : 0, stdout, stderr }));
    child.stdin.end();
  });

// The commands of README's shell blocks: [[line, …], …], without the remarks behind them.
export function shellBlocks(markdown) {
  const blocks = [...markdown.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map((m) => m[1]);
  return blocks.map((b) => b.split("\n").map((l) => l.replace(/\s+# .*$/, "").trimEnd()).filter(Boolean));
}

const world = await makeWorld();
const scratch = await mkdtemp(join(tmpdir(), "sandbar-readme-"));
await chmod(scratch, 0o755);
const checkout = join(scratch, "sandbar");
const data = join(scratch, "data");
const port = await freePort();
const url = `http://127.0.0.1:${port}`;
const state = join(scratch, "state.sh");
let models, secure;

// A registry with one package, and a page for every other path.
async function serve(request, response) {
  const { host } = request.headers;
  if (request.url === "/is-number") {
    const dist = { tarball: `https://${host}/is-number/-/is-number-1.0.0.tgz` };
    const versions = { "1.0.0": { name: "is-number", version: "1.0.0", dist } };
    return response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ name: "is-number", "dist-tags": { latest: "1.0.0" }, versions }));
  }
  if (request.url.endsWith(".tgz")) return response.end(await readFile(join(scratch, "package.tgz")));
  response.end(`page of ${host}\n`);
}

before(async () => {
  secure = await world.https(serve);
  if (outside) {
    await world.listen(https.createServer(world.tls, serve), outside, secure);
    world.answers.set("registry.test", (type) => (type === 1 ? [Buffer.from(outside.split(".").map(Number))] : []));
  }
  models = await startModels((turn) => turn.results.length === 0 ? { tool: "run_command", input: { command: "echo $((6*7))" } } : { text: turn.results.at(-1) });
  await mkdir(join(scratch, "package"));
  await writeFile(join(scratch, "package/package.json"), JSON.stringify({ name: "is-number", version: "1.0.0", main: "index.js" }));
  await writeFile(join(scratch, "package/index.js"), "module.exports = 42;\n");
  await run("tar", ["-czf", "package.tgz", "package"], { cwd: scratch });
  await writeFile(join(scratch, "server.toml"), `isolation = "${engine}"\n${world.config()}`);
  // A copy without what is built or installed, as a fresh clone has it.
  await mkdir(checkout);
  const copied = await run("sh", ["-c", `tar -C '${repo}' --exclude=node_modules --exclude=./build --exclude=./.git --exclude='./*.log' -cf - . | tar -C '${checkout}' -xf -`]);
  assert.equal(copied.code, 0, copied.stderr);
  await writeFile(join(checkout, "sandbar"), `#!/bin/bash
case $1 in
  up) shift; set -- up --listen 127.0.0.1:${port} --config '${scratch}/server.toml' "$@" ;;
esac
exec '${binary}' "$@"
`);
  const claude = join(scratch, "bin/claude");
  await mkdir(dirname(claude));
  // Stands for the real one: starts what it was told to add, and asks it who it is.
  await writeFile(claude, `#!/bin/bash
[ "$1 $2 $3 $4" = "mcp add sandbar --" ] || exit 9
shift 4
printf '%s\\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}' | "$@"
`);
  await chmod(claude, 0o755);
  for (const words of [["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@x.test", "commit", "-q", "-m", "one"]]) {
    const done = await run("git", words, { cwd: checkout });
    assert.equal(done.code, 0, done.stderr);
  }
  await writeFile(state, "");
});
after(async () => {
  await run(binary, ["down", "--data", data]);
  await models?.stop();
  await rm(scratch, { recursive: true, force: true });
});

const environment = () => {
  const clean = { ...process.env, SANDBAR_DATA: data, PATH: `${join(scratch, "bin")}:${process.env.PATH}`,
    SANDBAR_KERNEL: join(scratch, "cache/kernel"), ANTHROPIC_BASE_URL: models.url, ANTHROPIC_API_KEY: "sk-test" };
  for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN", "NODE_OPTIONS"]) delete clean[name];
  return clean;
};
// One line of a reader's shell: what it exports is there for the next one.
const shell = (line, file = state) =>
  run("bash", ["-c", `. '${file}'\n${line}\nstatus=$?\nexport -p > '${file}'\nexit $status`], { cwd: checkout, env: environment() });

const seen = {};  // what earlier lines printed
const stronger = /nothing of class|cannot keep the memory/;

// How each line is run. `as`: with what a reader fills in; `prints`: on stdout; `refused`: what may be said instead,
// where the host lacks what the line asks for; `ends`: it goes on until somebody stops it.
const known = new Map(Object.entries({
  "./sandbar run -- node -e 'console.log(6*7)'": { prints: /^42$/m },
  "make test": { skip: "it is what runs this" },
  "./sandbar up": {},
  'eval "$(./sandbar env)"': {},
  "npm install --no-save @vercel/sandbox": { prints: /added \d+ packages/ },
  "node examples/hello.mjs": { prints: /6 x 7 = 42/ },
  "export SANDBAR_URL=https://sandbox.example.org SANDBAR_TOKEN=…": {
    as: () => `export SANDBAR_URL=${url} SANDBAR_TOKEN=$('${binary}' token --data '${data}')` },
  'eval "$(curl -fsS -H "Authorization: Bearer $SANDBAR_TOKEN" $SANDBAR_URL/sdk/env.sh)"': {},
  "./sandbar run --net allow-all -- sh -c 'npm install is-number && ls'": {
    as: () => `./sandbar run --net allow-all -e npm_config_registry=https://registry.test:${secure}/ -- sh -c 'npm install is-number && ls'`,
    prints: /^node_modules$/m, skip: !outside && "this host has no network interface" },
  "./sandbar run -- python3 -c 'print(6*7)'": { prints: /^42$/m },
  "./sandbar run --runtime python3.13 -- python3 -c 'print(1)'": { prints: /^1$/m },
  "API_KEY=secret ./sandbar run -e API_KEY -- printenv API_KEY": { prints: /^secret$/m },
  "./sandbar run --keep --name box -- true": {},
  "./sandbar exec box -- ls -la": { prints: /^total/m },
  "./sandbar cp examples/hello.mjs box:": {},
  "./sandbar logs box": { prints: /ls/ },
  "./sandbar forward box 3000": { ends: async () => {
    const server = "require('http').createServer((q, r) => r.end('inside')).listen(3000, '127.0.0.1', () => console.log('up'))";
    assert.equal((await shell(`./sandbar exec -d box -- node -e "${server}"`)).code, 0);
    const local = await freePort();
    const child = spawn("bash", ["-c", `. '${state}'; exec ./sandbar forward box 3000:${local}`], { cwd: checkout, env: environment(), stdio: "ignore" });
    const ended = new Promise((done) => child.once("exit", done));
    await until(() => fetch(`http://127.0.0.1:${local}/`).then(async (r) => (await r.text()) === "inside", () => false), "the forwarded port answers");
    child.kill("SIGINT");
    await ended;
  } },
  "./sandbar run --persistent --name dev -- npm init -y": { prints: /"name"/ },
  "./sandbar snapshot dev": { prints: /^snap_\w+\n$/, remember: "snapshot" },
  "./sandbar run --from snap_… -- ls": { as: () => `./sandbar run --from ${seen.snapshot.trim()} -- ls`, prints: /^package\.json$/m },
  "./sandbar fork dev dev2": { prints: /^dev2$/m },
  "./sandbar promote dev2": {},
  "./sandbar rm dev2": {},
  "./sandbar usage": { prints: /prj_sandbar/ },
  "./sandbar ps -a": { prints: /^box +running[\s\S]*^dev +stopped|^dev +stopped[\s\S]*^box +running/m },
  "./sandbar stop box": {},
  "./sandbar diff box": { prints: /hello\.mjs/ },
  "./sandbar race box -n 4 --score 'ops: (\\d+)' -- bash -c 'echo ops: $RANDOM'": {},
  "./sandbar export box /tmp/box.tar.zst": { as: () => `./sandbar export box '${scratch}/box.tar.zst' && ./sandbar import '${scratch}/box.tar.zst' --name imported` },
  "./sandbar restart": {},
  "./sandbar image ls": { prints: /^vercel\/sandbox\/universal:latest/m },
  "./sandbar image build data": {},
  "./sandbar doctor": { codes: [0, 1] },
  "./sandbar kernel cloud": {},
  "./sandbar run --min-class 2 -- node -p 6*7": { prints: /^42$/m, refused: stronger },
  "./sandbar resume box": { prints: /^box$/m },
  "./sandbar fork --live box": { refused: stronger },
  "./sandbar image build podman": {},
  "./sandbar run --nesting --image sandbar/podman -- sudo podman info": { refused: stronger },
  "./sandbar code box --lang python -c 'x = 6 * 7; x'": { prints: /^42$/m },
  'claude mcp add sandbar -- "$PWD/sandbar" mcp': { prints: /"serverInfo"/ },
  './sandbar agent --model anthropic:ID "…"': { as: () => './sandbar agent --model anthropic:test "How much is six times seven?"', prints: /42/ },
  "./sandbar eval examples/evals": {},
  "./sandbar skill": { prints: /npm install @vercel\/sandbox/ },
  './sandbar run --allow example.com --allow "*.example.com" -- curl https://example.com/': {
    as: () => `./sandbar run --allow open.test --allow "*.open.test" -- curl -sS https://open.test:${secure}/`, prints: /^page of open\.test/m },
  "./sandbar net log box": {},
  "./sandbar net suggest box > /tmp/policy.json": { as: () => `./sandbar net suggest box > '${scratch}/policy.json'` },
  "./sandbar net test box /tmp/policy.json": { as: () => `./sandbar net test box '${scratch}/policy.json'` },
  "./sandbar net set box /tmp/policy.json": { as: () => `./sandbar net set box '${scratch}/policy.json'` },
  "./sandbar down": {},
}));

const blocks = shellBlocks(await readFile(join(repo, "README.md"), "utf8"));
const used = new Set();
let broken;
for (const lines of blocks) {
  // Another machine has a shell of its own.
  const elsewhere = lines[0].startsWith("export SANDBAR_URL=") && join(scratch, "elsewhere.sh");
  for (const line of lines) {
    const how = known.get(line);
    used.add(line);
    test(`README: ${line}`, { skip: how?.skip }, async () => {
      assert.ok(how, "README has a command that this test does not know: add it to `known`");
      assert.equal(broken, undefined, "an earlier command failed");
      broken = line;
      if (elsewhere) await writeFile(elsewhere, "", { flag: "a" });
      if (how.ends) {
        await how.ends();
      } else {
        const got = await shell(how.as ? how.as() : line, elsewhere || state);
        const refused = how.refused && got.code !== 0 && how.refused.test(got.stderr);
        const codes = how.codes ?? [0];
        assert.ok(refused || codes.includes(got.code), `exit code ${got.code}\n${got.stdout}\n${got.stderr}`);
        if (how.prints && !refused) assert.match(got.stdout, how.prints, got.stderr);
        if (how.remember) seen[how.remember] = got.stdout;
      }
      broken = undefined;
    });
  }
}

test("README: every command that this test knows is there, and the checkout is as clean as before", async () => {
  assert.deepEqual([...known.keys()].filter((line) => !used.has(line)), []);
  const status = await run("git", ["status", "--porcelain"], { cwd: checkout });
  assert.equal(status.stdout, "");
});

test("docs/sdk.md: the package of a fresh checkout is installed with what it needs", async () => {
  const [command] = /npm install [^`]*\.\/sdk/.exec(await readFile(join(repo, "docs/sdk.md"), "utf8")) ?? [];
  assert.ok(command, "docs/sdk.md says how to install sdk/");
  const project = join(scratch, "project");
  await mkdir(project);
  await writeFile(join(project, "package.json"), "{}");
  const installed = await run("bash", ["-c", command.replace("./sdk", join(checkout, "sdk"))], { cwd: project, env: environment() });
  assert.equal(installed.code, 0, installed.stderr);
  const used = await run("node", ["-e", 'import("sandbar").then((m) => console.log(typeof m.Sandbox.create))'], { cwd: project, env: environment() });
  assert.equal(used.stdout, "function\n", used.stderr);
  assert.deepEqual(await readdir(join(checkout, "sdk/node_modules")).catch(() => []), [], "nothing was put into the checkout");
});

test("llms.txt teaches no package that is not ours", async () => {
  const guide = await readFile(join(repo, "sdk/llms.txt"), "utf8");
  const taught = [...guide.matchAll(/npm install ([^`\n]*)/g)].map((m) => m[1].split(/[`,]/)[0].trim());
  assert.ok(taught.length > 0);
  for (const what of taught) assert.match(what, /^(@vercel\/sandbox|--install-links \/path\/to\/sandbar\/sdk)$/);
});
