// `sandbar claude-worker` against managed agents on loopback; the official worker against the same shows that they are
// what it expects.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { binary, startServer, until } from "../support/server.mjs";
import { managedAgents, use } from "./managed.mjs";
import { examples, hostSecret, node, number } from "./run.mjs";

const server = await startServer({ config: "[limits]\nmax_running = 32\n" });
const children = [];
after(async () => {
  for (const child of children) child.kill("SIGKILL");
  await server.stop();
});

function worker(claude, args = ["--once"], env = {}, origin = ["--runtime", "python3.13"]) {
  const child = spawn(binary, ["claude-worker", "--environment", "env_1", "--max-idle", "500ms", ...origin, ...args], {
    env: { ...process.env, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token, ANTHROPIC_BASE_URL: claude.url, ANTHROPIC_ENVIRONMENT_KEY: claude.key, HOST_SECRET: hostSecret, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.push(child);
  child.output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (d) => (child.output += d));
  child.done = new Promise((done) => child.on("close", (code) => done(code)));
  return child;
}

async function finished(child, claude, code = 0) {
  assert.equal(await child.done, code, child.output);
  assert.deepEqual(claude.failures, []);
  assert.ok(!child.output.includes(claude.key) && !claude.work.some((w) => w.token && child.output.includes(w.token)), "no key in what it says");
}

const sandboxes = async () => (await server.call("GET", "/v2/sandboxes?limit=50")).sandboxes;
const sandboxOf = async (session) => (await sandboxes()).find((s) => s.name === `claude-${session.id}`);

test("the fake is what the official worker expects", async () => {
  const claude = await managedAgents();
  const n = number();
  const session = claude.session(({ results }) => (results.length === 0 ? use("bash", { command: `echo $((${n} + 1))` }) : "terminate"));
  const item = claude.queue(session);
  const code = `import Anthropic from "@anthropic-ai/sdk";
    const client = new Anthropic({ apiKey: "unused" });
    const bash = { type: "custom", name: "bash", input_schema: { type: "object" }, parse: (x) => x, run: async ({ command }) => "ran " + command };
    const stop = new AbortController();
    const done = client.beta.environments.work.worker({ environmentId: "env_1", environmentKey: process.env.KEY, tools: [bash], workdir: process.cwd() }).run(stop.signal);
    process.on("SIGTERM", () => stop.abort());
    await done.catch((e) => { if (!stop.signal.aborted) throw e; });`;
  const child = spawn(node, ["--input-type=module", "-e", code], { cwd: examples, env: { PATH: process.env.PATH, HOME: "/nonexistent", KEY: claude.key, ANTHROPIC_BASE_URL: claude.url }, stdio: ["ignore", "ignore", "pipe"] });
  let err = "";
  child.stderr.on("data", (d) => (err += d));
  await until(() => item.state === "stopped", () => `the official worker serves the item ${err}`);
  child.kill("SIGTERM");
  await new Promise((done) => child.on("close", done));
  assert.deepEqual(claude.failures, [], err);
  assert.deepEqual(session.results.map((r) => [r.isError, r.text]), [[false, `ran echo $((${n} + 1))`]]);
});

test("without an image: the server's default", async () => {
  const claude = await managedAgents();
  const session = claude.session(({ results }) => (results.length === 0 ? use("bash", { command: "node -p 6*7; python3 -c 'print(6*7)'" }) : "terminate"));
  claude.queue(session);
  const child = worker(claude, ["--once"], {}, []);
  await finished(child, claude);
  assert.deepEqual(session.results.map((r) => r.text), ["42\n42\n"]);
  assert.match(child.output, /vercel\/sandbox\/universal, class/);
});

test("six tools: the agent repairs its program, the shell keeps its state", async () => {
  const claude = await managedAgents();
  const [a, b] = [number(), number()];
  const steps = [
    () => use("write", { file_path: "src/main.py", content: `values = []\nprint(values[0] + ${a} + ${b})\n` }),
    ({ text }) => (assert.match(text, /src\/main\.py/), use("bash", { command: "cd src && export WHO=me && python3 main.py" })),
    ({ text, isError }) => {
      assert.equal(isError, true);
      assert.match(text, /IndexError: list index out of range[\s\S]*\[exit code 1\]/);
      return use("edit", { file_path: "src/main.py", old_string: "values = []", new_string: "values = [1]" });
    },
    () => use("bash", { command: "pwd; echo $WHO; python3 main.py | tee out.txt" }),
    ({ text, isError }) => {
      assert.deepEqual([isError, text], [false, `/vercel/sandbox/src\nme\n${a + b + 1}\n`]);
      return use("read", { file_path: "src/main.py", view_range: [1, 1] });
    },
    ({ text }) => (assert.equal(text, "values = [1]\n"), use("glob", { pattern: "**/*.txt" })),
    ({ text }) => (assert.equal(text, "src/out.txt\n"), use("grep", { pattern: "^[0-9]+$" })),
    ({ text }) => (assert.match(text, new RegExp(`src/out\\.txt:1:${a + b + 1}\n`)), use("read", { file_path: "none.txt" })),
    ({ isError, text }) => (assert.equal(isError, true), assert.match(text, /none\.txt/), use("edit", { file_path: "src/main.py", old_string: "e", new_string: "E" })),
    ({ isError, text }) => (assert.equal(isError, true), assert.match(text, /more than once/), use("bash", { restart: true })),
    () => use("bash", { command: "echo ${WHO-gone}; pwd" }),
    ({ text }) => (assert.equal(text, "gone\n/vercel/sandbox\n"), use("bash", { command: "sleep 1000", timeout_ms: 300 })),
    ({ isError, text }) => (assert.equal(isError, true), assert.match(text, /timed out after 300 ms/), use("bash", { command: "env" })),
    ({ text }) => (assert.ok(!text.includes(hostSecret) && !text.includes(claude.key)), "end"),
  ];
  const session = claude.session(({ results }) => {
    try {
      return steps[results.length](results.at(-1) ?? {});
    } catch (error) {
      claude.failures.push(error);
      return "terminate";
    }
  });
  const item = claude.queue(session);
  await finished(worker(claude), claude);
  assert.equal(session.results.length, steps.length - 1);
  assert.equal(item.state, "stopped");
  assert.equal((await sandboxOf(session)).status, "stopped", "idle: stopped, its files kept");
});

test("a session that comes back finds its files; one that is over leaves nothing", async () => {
  const claude = await managedAgents();
  const text = String(number());
  const session = claude.session(({ results }) => (results.length === 0 ? use("write", { file_path: "kept.txt", content: text }) : "end"));
  claude.queue(session);
  await finished(worker(claude), claude);
  session.script = ({ results }) => (results.length === 1 ? use("read", { file_path: "kept.txt" }) : "terminate");
  claude.queue(session, { token: "" });
  await finished(worker(claude), claude);
  assert.equal(session.results.at(-1).text, text);
  assert.equal(await sandboxOf(session), undefined);
});

test("confirmations: only an explicit allow runs a call", async () => {
  const claude = await managedAgents();
  const answers = ["allow", "deny", "perhaps"];
  const session = claude.session((s) => {
    if (s.results.length > 0) return "end";
    return "wait";
  });
  session.advance = function () {
    if (this.calls) return;
    this.calls = answers.map((word) => this.emit({ type: "agent.tool_use", name: "bash", input: { command: `echo ${word} >> ran.txt; cat ran.txt` }, evaluated_permission: "ask" }));
    this.calls.push(this.emit({ type: "agent.tool_use", name: "bash", input: { command: "echo never >> ran.txt" }, evaluated_permission: "deny" }));
    this.calls.push(this.emit({ type: "agent.custom_tool_use", name: "bash", input: { command: "echo foreign >> ran.txt" } }));
    this.calls.push(this.emit({ type: "agent.tool_use", name: "web_search", input: {} }));
    this.emit({ type: "session.status_idle", stop_reason: { type: "requires_action" } });
  };
  claude.queue(session);
  const child = worker(claude);
  await until(() => (child.output.match(/waits for a confirmation/g) ?? []).length === 3, "three calls wait");
  assert.deepEqual(session.results, []);
  answers.forEach((word, i) => session.emit({ type: "user.tool_confirmation", tool_use_id: session.calls[i].id, result: word }));
  await until(() => session.results.length === 1, "the allowed one ran");
  session.emit({ type: "session.status_idle", stop_reason: { type: "end_turn" } });
  await finished(child, claude);
  assert.deepEqual(session.results.map((r) => [r.id, r.text]), [[session.calls[0].id, "allow\n"]]);
});

test("cut streams and failing calls: tried again, and nothing runs twice", async () => {
  let refused = 0;
  const claude = await managedAgents({
    cut: () => true,
    fail: (call) => ((/poll$/.test(call) || /^POST .*events$/.test(call) || /stream$/.test(call)) && refused++ % 2 === 0 ? 503 : undefined),
  });
  const session = claude.session(({ results }) => (results.length < 5 ? use("bash", { command: "echo x >> count.txt; wc -l < count.txt" }) : "terminate"));
  claude.queue(session);
  await finished(worker(claude), claude);
  assert.deepEqual(session.results.map((r) => r.text.trim()), ["1", "2", "3", "4", "5"]);
  assert.ok(refused > 10);
});

test("the lease: lost, the item is left to others; stopping, the item is given back", async () => {
  const lost = await managedAgents({ ttl: 2 });
  const one = lost.session(() => use("bash", { command: "sleep 1000", timeout_ms: 500_000 }));
  const item = lost.queue(one);
  const child = worker(lost);
  await until(() => item.last, "the first heartbeat");
  item.lost = true;
  await finished(child, lost);
  assert.ok(!lost.log.some((call) => call.endsWith("/stop")), "not ours to stop");
  assert.equal((await sandboxOf(one))?.status ?? "stopped", "stopped");

  const over = await managedAgents({ ttl: 2 });
  const two = over.session(() => use("bash", { command: "sleep 1000", timeout_ms: 500_000 }));
  const other = over.queue(two);
  const second = worker(over);
  await until(() => other.last, "the first heartbeat");
  other.stopping = true;
  await finished(second, over);
  assert.equal(other.state, "stopped");
});

test("SIGTERM: the machine ends and the item is given back", async () => {
  const claude = await managedAgents();
  const session = claude.session(() => use("bash", { command: "sleep 1000", timeout_ms: 500_000 }));
  const item = claude.queue(session);
  const child = worker(claude, []);
  await until(async () => (await sandboxOf(session))?.status === "running" && session.calls?.length, "it runs");
  child.kill("SIGTERM");
  await finished(child, claude);
  assert.equal(item.state, "stopped");
  assert.equal((await sandboxOf(session)).status, "stopped");
});

test("settings that are wrong are told, without the key", async () => {
  const claude = await managedAgents();
  for (const [env, code, message] of [
    [{ ANTHROPIC_ENVIRONMENT_KEY: "" }, 2, /ANTHROPIC_ENVIRONMENT_KEY/],
    [{ ANTHROPIC_BASE_URL: "nonsense" }, 2, /ANTHROPIC_BASE_URL/],
    [{ ANTHROPIC_ENVIRONMENT_KEY: "another-key-that-is-wrong" }, 1, /401/],
  ]) {
    const child = worker(claude, ["--once"], env);
    assert.equal(await child.done, code, child.output);
    assert.match(child.output, message);
    assert.ok(!child.output.includes("another-key-that-is-wrong"), "the service echoes the key; it is cut out");
  }
});
