// What the suites of llm/ and evals/ share: the program, and a look at what is left.
import { execFile, spawn } from "node:child_process";
import { binary } from "../support/server.mjs";

const environment = (server, env) => {
  const clean = { ...process.env, SANDBAR_DATA: server.data, ...env };
  for (const name of ["SANDBAR_URL", "SANDBAR_TOKEN", "SANDBAR_MODEL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"])
    if (!(name in env)) delete clean[name];
  return clean;
};

// Runs it to its end: {code, signal, stdout, stderr, last}, the last being the last line of stderr.
export const sandbar = (server, args, { env = {}, cwd } = {}) =>
  new Promise((done) => {
    const child = execFile(binary, args, { env: environment(server, env), cwd, maxBuffer: 1 << 26 }, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, signal: error?.signal, stdout, stderr, last: stderr.trimEnd().split("\n").at(-1) }));
    child.stdin.end();
  });

export function start(server, args, { env = {}, cwd } = {}) {
  const child = spawn(binary, args, { env: environment(server, env), cwd, stdio: ["ignore", "pipe", "pipe"] });
  child.text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (child.text += piece));
  child.gone = new Promise((done) => child.once("exit", (code, signal) => done({ code, signal })));
  return child;
}

export const left = async (server) => JSON.parse((await sandbar(server, ["ps", "-a", "--json"])).stdout).sandboxes;
export const snapshots = async (server) =>
  (await server.call("GET", "/v2/sandboxes/snapshots?project=prj_sandbar&limit=50")).snapshots.filter((s) => s.status !== "deleted");
export const random = (low, high) => low + Math.floor(Math.random() * (high - low + 1));
export const lines = (text) => text.trim().split("\n").map((l) => JSON.parse(l));
