// Starts a real `sandbar serve` with its own data directory for a test file, and takes everything down again.
//
//   const server = await startServer({ config: "[limits]\nmax_running = 50\n" });
//   await server.call("GET", "/v2/sandboxes");       // authenticated fetch, parsed JSON, throws on non-2xx
//   await server.stop();                              // machines, spawner and data directory are gone afterwards
//
// SANDBAR_BIN names the binary (default: the sanitized build). SANDBAR_TEST_ISOLATION names the engine that the
// sandboxes get (default: namespaces, also where the server would choose another): so every suite can be run on every
// engine (make test-engines).
import { execFile, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtemp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
export const repo = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
export const binary = process.env.SANDBAR_BIN ?? join(repo, "build/asan/bin/sandbar");
export const engine = process.env.SANDBAR_TEST_ISOLATION ?? "namespaces";
// A kernel of its own counts out what it needs for itself.
export const hasMemory = (mib, limit) => (engine.startsWith("microvm") ? mib <= limit && mib > 0.95 * limit : mib === limit);
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A port for a server. Below the range that the kernel gives to outgoing connections: suites run side by side, some of them
// open thousands of connections, and a server that is killed and started again must find its port free.
export async function freePort() {
  for (;;) {
    const port = randomInt(12_000, 32_000);
    const free = await new Promise((done) => {
      const probe = createServer().once("error", () => done(false));
      probe.listen(port, "127.0.0.1", () => probe.close(() => done(true)));
    });
    if (free) return port;
  }
}

// Polls until `what()` is truthy, often at first, then ten times a second; gives up after a generous time (`tries` tenths
// of a second, not counting what `what` takes) so that a hang has a name.
export async function until(what, why, tries = 600) {
  for (let waited = 0, pause = 10; waited < tries * 100; waited += pause, pause = Math.min(100, 1.5 * pause)) {
    const value = await what();
    if (value) return value;
    await sleep(pause);
  }
  throw new Error(`never happened: ${why}`);
}

export class Server {
  constructor(fields) {
    Object.assign(this, { binary }, fields);
    this.output = "";
  }

  async start() {
    this.exited = null;
    const args = ["serve", "--listen", `127.0.0.1:${this.port}`, "--data", this.data, "--config", this.configFile, ...this.args];
    this.process = spawn(this.binary, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...this.env } });
    this.pid = this.process.pid;
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on("data", (d) => (this.output += d));
    this.gone = new Promise((done) => this.process.once("exit", (code, signal) => done((this.exited = { code, signal }))));
    await until(async () => {
      if (this.exited) throw new Error(`sandbar serve ended: ${JSON.stringify(this.exited)}\n${this.output}`);
      return fetch(`${this.url}/health`).then((r) => r.ok, () => false);
    }, `${this.url}/health answers\n${this.output}`);
    this.token = (await run(this.binary, ["token", "--data", this.data])).stdout.trim();
    return this;
  }

  // kill -9 of the daemon only: the spawner and the machines live on.
  async crash() {
    this.process.kill("SIGKILL");
    await this.gone;
  }

  async spawnerLog() {
    return readFile(join(this.data, "log/spawner.log"), "utf8").catch(() => "");
  }

  async request(method, path, { body, headers, signal, token = this.token } = {}) {
    const auth = token === null ? {} : { authorization: `Bearer ${token}` };
    return fetch(this.url + path, {
      method, signal,
      headers: { ...auth, ...(body !== undefined && { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
    });
  }

  async call(method, path, options) {
    const response = await this.request(method, path, options);
    const text = await response.text();
    if (!response.ok) throw Object.assign(new Error(`${method} ${path}: ${response.status} ${text}`), { status: response.status, text });
    return text ? JSON.parse(text) : {};
  }

  create(fields = {}) {
    return this.call("POST", "/v2/sandboxes", { body: { projectId: "prj_test", ports: [], networkPolicy: { mode: "deny-all" }, ...fields } });
  }

  // Runs a command to its end: {exitCode, stdout, stderr, command}.
  async exec(session, command, args = [], fields = {}) {
    const response = await this.request("POST", `/v2/sandboxes/sessions/${session}/cmd`, {
      body: { command, args, env: {}, sudo: false, wait: true, logs: true, ...fields },
    });
    const text = await response.text();
    if (!response.ok) throw Object.assign(new Error(`${command}: ${response.status} ${text}`), { status: response.status, text });
    const out = { stdout: "", stderr: "" };
    for (const line of text.split("\n").filter(Boolean).map((l) => JSON.parse(l))) {
      if (line.command) out.command = line.command;
      else if (line.stream === "error") throw new Error(`stream error: ${JSON.stringify(line.data)}`);
      else out[line.stream] += line.data;
    }
    return { ...out, exitCode: out.command.exitCode };
  }

  async stop({ keepData = false } = {}) {
    if (!this.exited) {
      this.process.kill("SIGTERM");
      await this.gone;
    }
    await run(this.binary, ["down", "--data", this.data]).catch((e) => (this.output += `\ndown: ${e.stderr ?? e}`));
    if (!keepData) await rm(this.data, { recursive: true, force: true });
    await rm(this.configFile, { force: true });
  }
}

export async function startServer({ config = "", args = [], env = {}, data, program = binary } = {}) {
  data ??= await mkdtemp(join(tmpdir(), "sandbar-test-"));
  await mkdir(data, { recursive: true });
  const configFile = `${data}.toml`;
  await writeFile(configFile, /^isolation\b/m.test(config) ? config : `isolation = "${engine}"\n${config}`);
  const port = await freePort();
  return new Server({ binary: program, data, configFile, port, args, env, url: `http://127.0.0.1:${port}` }).start();
}
