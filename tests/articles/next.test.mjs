// A Next.js app as `create-next-app` leaves it, without a configuration: the client ends up in a bundle. Its route lets an
// agent run code, with a model that is named by a text.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { freePort, repo, startServer, until } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";
import { scriptedModel } from "../examples/model.mjs";
import { node, nothingRuns, number } from "../examples/run.mjs";
import { hosts, needsNetwork, sandbarEnv, tinyRegistry } from "./run.mjs";

const exec = promisify(execFile);
const world = await makeWorld();
const server = await startServer({ config: world.config("", "[limits]\nmax_running = 32\n") });
const app = await mkdtemp(join(tmpdir(), "sandbar-next-"));
const registry = await tinyRegistry(world, join(app, "registry"));
const scripts = new Map(); // by prompt
const model = await scriptedModel((conversation) => scripts.get(conversation.prompt)(conversation), { tls: world.tls });
let url, started, log = "";

const route = `
import { after } from "next/server";
import { Sandbox } from "@vercel/sandbox";
import { Experimental_Agent as Agent, stepCountIs, tool } from "ai";
import { z } from "zod";

export async function POST(req) {
  let machine = null;
  const body = await req.json();
  const parsed = z.object({ prompt: z.string().min(1).max(10_000) }).safeParse(body);
  if (!parsed.success) return Response.json({ error: "a prompt is wanted" }, { status: 400 });
  const { prompt } = parsed.data;
  machine = await Sandbox.create({ runtime: "node22", timeout: 30_000, ...(prompt.startsWith("offline") && { network: { allow: [] } }) });
  console.log("[route] machine " + machine.sandboxId);
  const agent = new Agent({
    model: "openai/gpt-5-nano",
    system: "You write JavaScript and run it.",
    tools: {
      runJs: tool({
        description: "Runs JavaScript in a machine of its own",
        inputSchema: z.object({ code: z.string(), packages: z.array(z.string()).nullable().default([]) }),
        execute: async ({ code, packages }) => {
          if (packages && packages.length > 0) {
            const install = await machine.runCommand({ cmd: "npm", args: ["install", ...packages], env: { npm_config_registry: process.env.PACKAGES } });
            const said = await install.stdout();
            if (install.exitCode !== 0) return { output: said, exitCode: install.exitCode };
          }
          const done = await machine.runCommand({ cmd: "node", args: ["-e", code] });
          return { output: await done.stdout(), exitCode: done.exitCode };
        },
      }),
    },
    stopWhen: stepCountIs(10),
  });
  const result = await agent.generate({ prompt });
  after(async () => {
    await machine.stop();
  });
  return Response.json({ text: result.text });
}
`;

before(async () => {
  await mkdir(join(app, "app/api/agent"), { recursive: true });
  await writeFile(join(app, "app/api/agent/route.js"), route);
  await writeFile(join(app, "app/layout.js"), "export default function Layout({ children }) { return <html><body>{children}</body></html>; }\n");
  await writeFile(join(app, "app/page.js"), "export default function Page() { return <p>here</p>; }\n");
  await writeFile(join(app, "package.json"), '{"private":true,"dependencies":{"next":"*","react":"*","react-dom":"*"}}');
  const packages = join(repo, "examples/next-app/node_modules");
  await exec("cp", ["-al", packages, join(app, "node_modules")]).catch(() => exec("cp", ["-a", packages, app]));
  const base = await sandbarEnv(server);
  const env = {
    ...base, HOME: app, NEXT_TELEMETRY_DISABLED: "1", NODE_ENV: "production", PATH: `${dirname(node)}:${process.env.PATH}`, PACKAGES: registry.url, AI_GATEWAY_API_KEY: "gateway-key",
    NODE_OPTIONS: `--import=${hosts} ${base.NODE_OPTIONS}`, NODE_TLS_REJECT_UNAUTHORIZED: "0", NODE_NO_WARNINGS: "1", HOST_SECRET: "a-secret-of-this-machine",
    SANDBAR_TEST_HOSTS: JSON.stringify({ "ai-gateway.vercel.sh:443": model.port }),
  };
  const next = join(app, "node_modules/next/dist/bin/next");
  await exec(node, [next, "build"], { cwd: app, env, maxBuffer: 64 << 20 }).catch((error) => assert.fail(error.stdout + error.stderr));
  const port = await freePort();
  started = spawn(node, [next, "start", "-H", "127.0.0.1", "-p", String(port)], { cwd: app, env, stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [started.stdout, started.stderr]) stream.on("data", (d) => (log += d));
  url = `http://127.0.0.1:${port}`;
  await until(() => fetch(url).then((r) => r.ok, () => { assert.equal(started.exitCode, null, log); return false; }), "next answers");
});
after(async () => {
  if (started) {
    started.kill("SIGTERM");
    await new Promise((done) => (started.exitCode !== null || started.signalCode ? done() : started.once("exit", done)));
  }
  await server.stop();
  await rm(app, { recursive: true, force: true });
});

async function ask(prompt, script) {
  scripts.set(prompt, script);
  const response = await fetch(`${url}/api/agent`, { method: "POST", body: JSON.stringify({ prompt }) });
  const answer = await response.json().catch(() => ({}));
  assert.deepEqual(model.failures, []);
  assert.equal(response.status, 200, JSON.stringify(answer) + log);
  await until(() => nothingRuns(server).then(() => true, () => false), "after() stops the machine");
  return answer.text;
}
const call = (code, packages) => ({ calls: [{ name: "runJs", input: { code, packages: packages ?? [] } }] });

test("computes, with a package from the registry", needsNetwork, async () => {
  const n = number(1000);
  const text = await ask(`times of ${n}`, ({ results, last }) => {
    if (results.length === 0) return call(`console.log(require("tiny-times")(${n}), process.env.HOST_SECRET)`, ["tiny-times"]);
    assert.equal(JSON.parse(last).exitCode, 0, last);
    return { text: JSON.parse(last).output.trim() };
  });
  assert.equal(text, `${n * registry.factor} undefined`);
  assert.match(log, /\[route\] machine \S+/, "sandboxId is known in the bundle");
  assert.doesNotMatch(log, /machine undefined/);
});

test("an option that the official client drops keeps the machine offline, in the bundle too", needsNetwork, async () => {
  const code = `fetch(${JSON.stringify(registry.url)} + "/tiny-times").then((r) => console.log(r.status), () => console.log("no way"))`;
  const text = await ask("offline please", ({ results, last }) => (results.length === 0 ? call(code) : { text: JSON.parse(last).output.trim() }));
  assert.match(text, /^(403|no way)$/);
  const online = await ask("not so", ({ results, last }) => (results.length === 0 ? call(code) : { text: JSON.parse(last).output.trim() }));
  assert.equal(online, "200", "the same machine without the option reaches it");
});
