// Time to the first output through the real SDK: create a sandbox, run `node -v` in it, read its output.
// One after the other, a hundred at once, and 25 commands in one sandbox; next to the same calls answered at once by a
// server that does nothing (what the client itself costs).
//
//   SANDBAR_URL=… SANDBAR_TOKEN=… node bench/sdk.mjs [--sequential 20] [--burst 100] [--execs 25]
import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { pathToFileURL } from "node:url";

const { values } = parseArgs({
  options: { sequential: { type: "string", default: "20" }, burst: { type: "string", default: "100" }, execs: { type: "string", default: "25" } },
});
const [sequential, burst, execs] = [values.sequential, values.burst, values.execs].map(Number);
const require = createRequire(new URL("../tests/clients/package.json", import.meta.url));
const { Sandbox } = await import(pathToFileURL(require.resolve("@vercel/sandbox")).href);

const at = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const summary = (ms) => {
  const s = [...ms].sort((a, b) => a - b);
  return { n: s.length, median: at(s, 0.5), p90: at(s, 0.9), p99: at(s, 0.99), max: s.at(-1) };
};
const timed = async (f) => {
  const start = performance.now();
  const value = await f();
  return [performance.now() - start, value];
};
const to = (base) => (url, init) => fetch(String(url).replace("https://vercel.com", base), init);
const params = (base, token) => ({ runtime: "node24", networkPolicy: "deny-all", token, teamId: "team_bench", projectId: "prj_bench", fetch: to(base) });

async function firstOutput(options) {
  const box = await Sandbox.create(options);
  const run = await box.runCommand("node", ["-v"]);
  if (!/^v\d+/.test(await run.stdout())) throw new Error("no version printed");
  return box;
}

// Answers every call of the loop with the least that the client accepts.
async function idleServer() {
  const session = { id: "sbx_x", memory: 4096, vcpus: 2, region: "iad1", timeout: 300000, status: "running", requestedAt: 1, createdAt: 1, updatedAt: 1, cwd: "/vercel/sandbox", runtime: "node24" };
  const sandbox = { name: "x", persistent: true, createdAt: 1, updatedAt: 1, currentSessionId: "sbx_x", status: "running" };
  const command = { id: "cmd_x", name: "node", args: ["-v"], cwd: "/vercel/sandbox", sessionId: "sbx_x", startedAt: 1, exitCode: null };
  const lines = [{ command }, { stream: "stdout", data: "v24.0.0\n" }, { command: { ...command, exitCode: 0 } }];
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      const isCommand = request.url.includes("/cmd");
      response.setHeader("content-type", isCommand ? "application/x-ndjson" : "application/json");
      response.end(isCommand ? lines.map((l) => JSON.stringify(l) + "\n").join("") : JSON.stringify({ sandbox, session, routes: [] }));
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return server;
}

async function loop(options) {
  await (await firstOutput(options)).delete(); // warms both sides
  const times = [];
  for (let i = 0; i < sequential; i++) {
    const [ms, box] = await timed(() => firstOutput(options));
    times.push(ms);
    await box.delete();
  }
  return summary(times);
}

const idle = await idleServer();
const floor = await loop(params(`http://127.0.0.1:${idle.address().port}`, "none"));
idle.close();
idle.closeAllConnections();
const hostNode = summary(Array.from({ length: 10 }, () => {
  const start = performance.now();
  execFileSync("node", ["-v"]);
  return performance.now() - start;
}));

const real = params(process.env.SANDBAR_URL, process.env.SANDBAR_TOKEN);
const one = await loop(real);

const results = await Promise.allSettled(Array.from({ length: burst }, () => timed(() => firstOutput(real))));
const good = results.filter((r) => r.status === "fulfilled").map((r) => r.value);
const failed = results.filter((r) => r.status === "rejected");
await Promise.all(good.map(([, box]) => box.delete()));
const many = summary(good.map(([ms]) => ms));

const box = await Sandbox.create(real);
const commands = [];
for (let i = 0; i < execs; i++) {
  const [ms, run] = await timed(() => box.runCommand("true"));
  if (run.exitCode !== 0) throw new Error("true failed");
  commands.push(ms);
}
await box.delete();

const row = (name, s) => console.log(name.padEnd(44), ...[s.median, s.p90, s.p99, s.max].map((v) => v.toFixed(1).padStart(9)));
console.log("through the SDK, ms".padEnd(44), ...["median", "p90", "p99", "max"].map((t) => t.padStart(9)));
row("the client alone (server does nothing)", floor);
row("node -v on the host", hostNode);
row(`create to first node -v, ${sequential} in turn`, one);
row(`create to first node -v, ${burst} at once`, many);
row(`${execs} x runCommand("true") in turn`, summary(commands));
const verdict = (name, value, budget, unit, ok) => console.log(name.padEnd(44), value.padStart(9), `  budget ${budget}${unit}`, ok ? "ok" : "OVER");
console.log();
const above = one.median - floor.median - hostNode.median;
verdict("in turn, above client and node -v", above.toFixed(1), "<= 20", " ms", above <= 20);
verdict("burst: succeeded", `${good.length}/${burst}`, "all", "", failed.length === 0);
if (good.length > 0) verdict("burst: p99 / median", (many.p99 / many.median).toFixed(2), "<= 4", "", many.p99 <= 4 * many.median);
for (const f of failed.slice(0, 3)) console.error(`failed: ${f.reason?.message ?? f.reason}`);
process.exitCode = failed.length ? 1 : 0;
