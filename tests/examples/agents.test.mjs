// The examples with a model: its next reply depends on what really came back, and every number is new in every run.
import assert from "node:assert/strict";
import { after, afterEach, test } from "node:test";
import { startServer } from "../support/server.mjs";
import { scriptedModel } from "./model.mjs";
import { environment, example, hostSecret, nothingRuns, number } from "./run.mjs";

const server = await startServer({ config: "[limits]\nmax_running = 32\n" });
after(() => server.stop());
afterEach(() => nothingRuns(server));

function passed(run, model) {
  assert.deepEqual(model.failures, []);
  assert.equal(run.code, 0, run.stdout + run.stderr);
}

test("AI SDK tool: computed in a sandbox, the exit code and both streams come back", async () => {
  const [a, b] = [number(), number()];
  const code = `console.log(${a} * ${b}); console.error("done", typeof process.env.HOST_SECRET); process.exitCode = 4;`;
  const model = await scriptedModel(({ prompt, results, last, tools }) => {
    assert.deepEqual(tools, ["runCode"]);
    assert.equal(prompt, `${a} times ${b}?`);
    if (results.length === 0) return { calls: [{ name: "runCode", input: { code } }] };
    const { exitCode, stdout, stderr } = JSON.parse(last);
    return { text: `exit ${exitCode}, ${stdout.trim()}, ${stderr.trim()}` };
  });
  const run = await example("ai-sdk-tool.mjs", [`${a} times ${b}?`], environment(server, model));
  passed(run, model);
  assert.equal(run.stdout, `exit 4, ${a * b}, done undefined\n`);
});

test("AI SDK tool: a model that never answers is an error, and the sandboxes are gone", async () => {
  const model = await scriptedModel(() => ({ calls: [{ name: "runCode", input: { code: "console.log(1)" } }] }));
  const run = await example("ai-sdk-tool.mjs", ["loop"], environment(server, model));
  assert.notEqual(run.code, 0);
  assert.match(run.stderr, /no answer after 10 steps/);
});

const stats = (list) => {
  const sorted = [...list].sort((x, y) => x - y);
  return { median: sorted[Math.ceil(sorted.length * 0.5) - 1], p95: sorted[Math.ceil(sorted.length * 0.95) - 1] };
};
const program = (groups, guard) => `
  const groups = ${JSON.stringify(groups)};
  const rank = (list, share) => list.sort((x, y) => x - y)[Math.ceil(list.length * share) - 1];
  for (const group of groups) {${guard ? "\n    if (group.length === 0) continue;" : ""}
    const first = group.find(() => true).toFixed(0);
    console.log(JSON.stringify({ median: rank(group, 0.5), p95: rank(group, 0.95) }));
  }`;

// First attempt: throws on an empty list. The script reads the real stderr before it repairs the program.
test("AI SDK agent: reads its own TypeError, repairs the program, answers with what it printed", async () => {
  const data = Array.from({ length: 21 }, () => number(1000));
  const model = await scriptedModel(({ results, last }) => {
    switch (results.length) {
      case 0: return { calls: [{ name: "writeFile", input: { path: "main.js", content: program([[], data], false) } }] };
      case 1: return { calls: [{ name: "run", input: { command: "node main.js" } }] };
      case 2: {
        const { exitCode, stderr } = JSON.parse(last);
        assert.equal(exitCode, 1);
        assert.match(stderr, /TypeError: Cannot read properties of undefined \(reading 'toFixed'\)[\s\S]*main\.js:5/);
        return { text: "An empty list; adding a guard.", calls: [{ name: "writeFile", input: { path: "main.js", content: program([[], data], true) } }] };
      }
      case 3: return { calls: [{ name: "run", input: { command: "node main.js" } }] };
      default: {
        const { exitCode, stdout } = JSON.parse(last);
        assert.equal(exitCode, 0);
        return { text: `answer ${stdout.trim()}` };
      }
    }
  });
  const run = await example("ai-sdk-agent.mjs", ["median and p95"], environment(server, model));
  passed(run, model);
  assert.equal(run.stdout, `answer ${JSON.stringify(stats(data))}\n`);
  assert.match(run.stderr, /exit code 1\n[\s\S]*exit code 0\n/);
});

test("AI SDK agent: the step limit is loud", async () => {
  const model = await scriptedModel(() => ({ calls: [{ name: "run", input: { command: "true" } }] }));
  const run = await example("ai-sdk-agent.mjs", ["loop"], environment(server, model));
  assert.equal(run.code, 3);
  assert.match(run.stderr, /step limit reached: 12 steps/);
  assert.equal(run.stdout, "");
});

test("Claude's tools: write, run, read; a retry after 529; a failing tool is told as such", async () => {
  const [a, b] = [number(), number()];
  const model = await scriptedModel(({ results, last, tools, body }) => {
    assert.deepEqual(tools, ["write_file", "execute_command", "read_file"]);
    switch (results.length) {
      case 0: return { text: "First the program.", calls: [{ name: "write_file", input: { path: "src/add.py", content: `print(${a} + ${b})\n` } },
                                                          { name: "read_file", input: { path: "report.txt" } }] };
      case 2:
        assert.match(results[0], /^wrote \d+ bytes to src\/add\.py$/);
        assert.match(last, /no file report\.txt/);
        assert.equal(body.messages.at(-1).content[1].is_error, true);
        return { calls: [{ name: "execute_command", input: { command: "python src/add.py > report.txt; cat report.txt; env; no-such-command", timeoutMs: 60_000 } }] };
      case 3: {
        const { exitCode, stdout, stderr } = JSON.parse(last);
        assert.equal(exitCode, 127);
        assert.match(stderr, /no-such-command/);
        assert.ok(!stdout.includes(hostSecret));
        return { calls: [{ name: "execute_command", input: { command: `node -p '${a} + ${b}' > report.txt` } }] };
      }
      case 4: return { calls: [{ name: "read_file", input: { path: "report.txt" } }] };
      default: return { text: `the sum is ${last.trim()}` };
    }
  }, { failFirst: 529 });
  const run = await example("claude-tools.mjs", ["add"], environment(server, model));
  passed(run, model);
  assert.equal(run.stdout, `the sum is ${a + b}\n`);
  assert.ok(model.requests.every(({ headers }) => (headers["x-api-key"] ?? headers.authorization).includes(hostSecret)), "the key went to the model, and only there");
});

test("Claude's tools: the step limit is loud, never 'task completed'", async () => {
  const model = await scriptedModel(() => ({ calls: [{ name: "execute_command", input: { command: "true" } }] }));
  const run = await example("claude-tools.mjs", ["loop"], environment(server, model, { MAX_STEPS: "3" }));
  assert.equal(run.code, 3);
  assert.match(run.stderr, /step limit reached: 3 steps/);
  assert.equal(run.stdout, "");
});

test("a model that fails ends the program, and the sandbox with it", async () => {
  const model = await scriptedModel(() => { throw new Error("no such model"); });
  const run = await example("claude-tools.mjs", ["x"], environment(server, model));
  assert.notEqual(run.code, 0);
  assert.match(run.stderr, /no such model/);
});

test("notebook: two tools, variables live on, an error leaves them alone", async () => {
  const rows = Array.from({ length: 5 }, (_, i) => ({ city: `c${i}`, people: number() }));
  const largest = rows.reduce((a, b) => (b.people > a.people ? b : a));
  const csv = `city,people\n${rows.map((r) => `${r.city},${r.people}`).join("\n")}\n`;
  const cell = (code) => ({ calls: [{ name: "run_code", input: { code } }] });
  const model = await scriptedModel(({ results, last, tools }) => {
    assert.deepEqual(tools, ["write_file", "run_code"]);
    const got = results.length > 1 ? JSON.parse(last) : undefined;
    switch (results.length) {
      case 0: return { calls: [{ name: "write_file", input: { path: "cities.csv", content: csv } }] };
      case 1:
        assert.match(last, /saved cities\.csv/);
        return cell("import csv\nrows = list(csv.DictReader(open('cities.csv')))\nlen(rows)");
      case 2:
        assert.deepEqual([got.status, got.value], ["ok", "5"]);
        return cell("rows[9]['people']");
      case 3:
        assert.equal(got.status, "error");
        assert.match(got.error, /IndexError: list index out of range/);
        return cell("best = max(rows, key=lambda r: int(r['people']))\nopen('best.txt', 'w').write(best['city'])\nprint('looked at', len(rows))\nbest['city'] + ' ' + best['people']");
      default:
        assert.equal(got.stdout, "looked at 5\n");
        assert.ok(got.files.some((path) => path.endsWith("best.txt")), JSON.stringify(got));
        return { text: `cell ${got.cell}: ${got.value}` };
    }
  });
  const run = await example("notebook.mjs", ["largest?"], environment(server, model));
  passed(run, model);
  assert.equal(run.stdout, `cell 3: '${largest.city} ${largest.people}'\n`);
});
