// Programs as people find them in articles, run as people run them: compiled as they are, with the environment that
// `sandbar env` prints, and with stand-ins on loopback for every host of the outside.
//
//   const world = await articleWorld();                     // a server under test, a package registry, a model gateway
//   const done = await world.run("python/agent.ts", ["6 times 7?"], { AI_GATEWAY_API_KEY: "k" });
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import http from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { binary, repo, startServer } from "../support/server.mjs";
import { makeWorld, outside } from "../support/world.mjs";
import { scriptedModel } from "../examples/model.mjs";
import { node, number } from "../examples/run.mjs";

const exec = promisify(execFile);
const programs = fileURLToPath(new URL("programs", import.meta.url));
const esbuild = createRequire(join(repo, "tests/previews/package.json"))("esbuild");
export const hosts = new URL("hosts.mjs", import.meta.url).href;

// A registry with one package, whose answer is new in every run. At an address that a machine with the default network
// does not take for its own.
export async function tinyRegistry(world, dir) {
  const factor = number();
  await mkdir(join(dir, "package"), { recursive: true });
  await writeFile(join(dir, "package/package.json"), JSON.stringify({ name: "tiny-times", version: "1.0.0", main: "index.js" }));
  await writeFile(join(dir, "package/index.js"), `module.exports = (n) => n * ${factor};\n`);
  await exec("tar", ["-czf", "p.tgz", "package"], { cwd: dir });
  const tarball = await readFile(join(dir, "p.tgz"));
  const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`;
  world.answers.set("registry.test", (type) => (type === 1 && outside ? [Buffer.from(outside.split(".").map(Number))] : []));
  const serve = (request, response) => {
    if (request.url === "/p.tgz") return response.end(tarball);
    if (request.url !== "/tiny-times") return response.writeHead(404, { "content-type": "application/json" }).end("{}");
    const dist = { tarball: `http://registry.test:${port}/p.tgz`, integrity };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ name: "tiny-times", "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": { name: "tiny-times", version: "1.0.0", main: "index.js", dist } } }));
  };
  const port = await world.listen(http.createServer(serve), outside);
  return { factor, url: `http://registry.test:${port}` };
}

export const needsNetwork = { skip: !outside && "this host has no address besides loopback's" };

// What `sandbar env` sets, asked of a shell.
export async function sandbarEnv(server, ...options) {
  const { stdout } = await exec("sh", ["-ec", 'eval "$("$@")"; env -0', "sh", binary, "env", "--data", server.data, ...options], { env: { PATH: process.env.PATH } });
  return Object.fromEntries(stdout.split("\0").filter(Boolean).map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
}

export async function articleWorld() {
  const world = await makeWorld();
  const dir = await mkdtemp(join(tmpdir(), "sandbar-article-"));
  after(() => rm(dir, { recursive: true, force: true }));
  const server = await startServer({ config: world.config("", "[limits]\nmax_running = 32\n") });
  after(() => server.stop());
  const registry = await tinyRegistry(world, dir);
  // The packages of examples/, and a `dotenv` that does what that package does.
  await mkdir(join(dir, "node_modules/dotenv"), { recursive: true });
  for (const name of await readdir(join(repo, "examples/node_modules")))
    if (!name.startsWith(".")) await symlink(join(repo, "examples/node_modules", name), join(dir, "node_modules", name));
  await writeFile(join(dir, "node_modules/dotenv/index.js"), `exports.config = () => { for (const line of require("fs").readFileSync(".env", "utf8").split("\\n")) {
    const [, name, value] = /^(\\w+)="(.*)"$/.exec(line) ?? []; if (name && !(name in process.env)) process.env[name] = value; } };`);
  await writeFile(join(dir, "package.json"), '{"type":"module"}');
  const script = { now: undefined };
  const model = await scriptedModel((conversation) => script.now(conversation), { tls: world.tls });
  const base = await sandbarEnv(server);

  // Compiles a program beside the packages and runs it to its end.
  async function run(file, args = [], more = {}, reply = undefined) {
    script.now = reply;
    const out = join(dir, `${file.replace(/\W/g, "_")}.mjs`);
    await esbuild.build({ entryPoints: [join(programs, file)], outfile: out, bundle: true, packages: "external", platform: "node", format: "esm", target: "node24", logLevel: "error",
      alias: { "@/run-python": join(programs, "python/run-python.ts") } });
    const env = {
      ...base, HOME: dir, NODE_OPTIONS: `--import=${hosts} ${base.NODE_OPTIONS}`, NODE_TLS_REJECT_UNAUTHORIZED: "0", NODE_NO_WARNINGS: "1", HOST_SECRET: "a-secret-of-this-machine",
      SANDBAR_TEST_HOSTS: JSON.stringify({ "ai-gateway.vercel.sh:443": model.port, "api.anthropic.com:443": model.port }), ...more,
    };
    const child = spawn(node, [out, ...args], { env, cwd: dir, stdio: ["ignore", "pipe", "pipe"] });
    const done = { stdout: "", stderr: "" };
    child.stdout.on("data", (d) => (done.stdout += d));
    child.stderr.on("data", (d) => (done.stderr += d));
    done.code = await new Promise((ended) => child.on("close", ended));
    return done;
  }
  return { dir, server, model, registry, run, base, world, write: (name, text) => writeFile(join(dir, name), text), at: (name) => join(dirname(join(dir, name)), name) };
}
