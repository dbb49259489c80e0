// The programs that articles about the client show, each in its own spelling, against a real server and a scripted model.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { nothingRuns, number } from "../examples/run.mjs";
import { articleWorld, needsNetwork } from "./run.mjs";

const { model, registry, run, server, write, base } = await articleWorld();
const key = `gateway-key-${number(1e12)}`;
const gateway = { AI_GATEWAY_API_KEY: key };
afterEach(async () => {
  assert.deepEqual(model.failures, []);
  for (const { headers } of model.requests) assert.ok(!JSON.stringify(headers).includes(base.VERCEL_OIDC_TOKEN), "the model's host never sees our token");
  await nothingRuns(server);
});
const passed = (done) => assert.equal(done.code, 0, done.stdout + done.stderr);

test("a file, a command, its exit code", async () => {
  const [a, b] = [number(), number()];
  const done = await run("loop/first.ts", [`console.log(${a} * ${b}); process.exitCode = 3`]);
  passed(done);
  assert.equal(done.stdout, `3 ${a * b}\n\n`);
});

test("a tool that boots a machine per call, and a model that mends its own crash", async () => {
  const numbers = Array.from({ length: 9 }, () => number(1000));
  const median = [...numbers].sort((x, y) => x - y)[4];
  const call = (code) => ({ calls: [{ name: "evaluate", input: { code } }] });
  const done = await run("loop/tool.ts", ["the median?"], gateway, ({ prompt, results, last, tools }) => {
    assert.deepEqual([prompt, tools], ["the median?", ["evaluate"]]);
    if (results.length === 0) return call("const groups = {}; groups.none.map((x) => x);");
    const { exitCode, stdout, stderr } = JSON.parse(last);
    if (results.length === 1) {
      assert.equal(exitCode, 1);
      assert.match(stderr, /TypeError: Cannot read properties of undefined \(reading 'map'\)/);
      return call(`console.log(${JSON.stringify(numbers)}.sort((x, y) => x - y)[4], process.env.HOST_SECRET)`);
    }
    assert.equal(exitCode, 0);
    return { text: `it is ${stdout.trim()}` };
  });
  passed(done);
  assert.equal(done.stdout, `it is ${median} undefined\n`);
  assert.equal(model.requests.at(-1).headers.authorization, `Bearer ${key}`);
});

test("without a key for the gateway: an error that says which, and nothing is sent", async () => {
  const before = model.requests.length;
  const done = await run("loop/tool.ts", ["anything"]);
  assert.notEqual(done.code, 0);
  assert.match(done.stderr, /AI_GATEWAY_API_KEY/);
  assert.equal(model.requests.length, before);
});

test("set up once, resumed afterwards", needsNetwork, async () => {
  const name = `warm-${number()}`;
  const env = { PACKAGES: registry.url };
  const first = await run("loop/warm.ts", [name], env);
  passed(first);
  assert.match(first.stdout, new RegExp(`^install 0\\n(resumed running\\n)+${2 * registry.factor}\\n$`));
  const second = await run("loop/warm.ts", [name], env);
  passed(second);
  assert.equal(second.stdout, `resumed running\n${2 * registry.factor}\n`);
});

test("Python in an offline machine, as a tool", async () => {
  const [a, b] = [number(), number()];
  const done = await run("python/agent.ts", [`${a} plus ${b}?`], gateway, ({ results, last, tools }) => {
    assert.deepEqual(tools, ["runPython"]);
    if (results.length === 0)
      return { calls: [{ name: "runPython", input: { code: `import urllib.request\nprint(${a} + ${b})\ntry:\n  urllib.request.urlopen("${registry.url}/tiny-times", timeout=5)\n  print("online")\nexcept Exception as e:\n  print("offline")` } }] };
    const { stdout, stderr, exitCode } = JSON.parse(last);
    assert.deepEqual([exitCode, stderr], [0, ""]);
    return { text: stdout.trim().split("\n").join(", ") };
  });
  passed(done);
  assert.equal(done.stdout, `${a + b}, offline\n`);
});

test("a machine that is kept between calls", async () => {
  const list = Array.from({ length: 5 }, () => number());
  const done = await run("python/session.ts", [list.join(" ")]);
  passed(done);
  assert.equal(done.stdout, `0 ${list.reduce((x, y) => x + y)}\n`);
});

test("Claude's own SDK with three tools, and keys in a .env file", async () => {
  const [a, b] = [number(), number()];
  await write(".env", 'ANTHROPIC_API_KEY="a-key-of-the-models"\nVERCEL_SANDBOX_API_KEY="your-key-here"\n');
  const done = await run("claude/index.ts", ["add them"], {}, ({ results, last, tools }) => {
    assert.deepEqual(tools, ["write_file", "execute_command", "read_file"]);
    switch (results.length) {
      case 0: return { calls: [{ name: "write_file", input: { path: "add.js", content: `require("fs").writeFileSync("report.txt", String(${a} + ${b}))` } }, { name: "read_file", input: { path: "report.txt" } }] };
      case 2:
        assert.match(results[1], /failed: .*report\.txt/);
        return { calls: [{ name: "execute_command", input: { command: "node add.js && ls *.js *.txt && echo problem >&2; exit 7", timeoutMs: 60_000 } }] };
      case 3: {
        const { exitCode, stdout, stderr } = JSON.parse(last);
        assert.deepEqual([exitCode, stdout, stderr], [7, "add.js\nreport.txt\n", "problem\n"]);
        return { calls: [{ name: "read_file", input: { path: "report.txt" } }] };
      }
      default: return { text: `together ${last}` };
    }
  });
  passed(done);
  assert.equal(done.stdout, `together ${a + b}\n`);
  assert.match(JSON.stringify(model.requests.at(-1).headers), /a-key-of-the-models/);
});

test("the client's whole tour", needsNetwork, async () => {
  const done = await run("tour/tour.ts", [registry.url, `${registry.url}/p.tgz`], { API_KEY: "k-1" });
  passed(done);
  assert.deepEqual(done.stdout.trim().split("\n").map((line) => JSON.parse(line)), [
    ["42 production\n"], [0, ""], ["stdout", "listening\n"], ["served /page"], [[1, 2, 3]], [[1, 2, 3]], [[1, 2, 3]], [true, "running"], [true], [true], [[1, 2, 3]],
    ["stopped", "number", ["egress", "ingress"]], [true],
  ]);
});
