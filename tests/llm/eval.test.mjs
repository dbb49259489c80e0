// `sandbar eval` on the real programs: verdicts that a checker in the sandbox gives, trials, reports, self-test.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { repo, startServer, until } from "../support/server.mjs";
import { startModels } from "./models.mjs";
import { left, lines, random, sandbar, snapshots, start } from "./world.mjs";

let server, scratch;
const services = [];
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-eval-"));
  await chmod(scratch, 0o755);
});
after(async () => {
  for (const service of services) await service.stop();
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});

// A suite of its own per test: files by name; what is not text is written as JSON, which is YAML.
let suites = 0;
async function suite(files) {
  const dir = join(scratch, `suite-${++suites}`);
  await mkdir(dir);
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    await writeFile(join(dir, name), typeof content === "string" ? content : JSON.stringify(content));
  }
  return dir;
}
const evaluate = (dir, args = [], options) => sandbar(server, ["eval", dir, ...args], options);
async function json(dir, args = [], options) {
  const got = await evaluate(dir, ["--json", ...args], options);
  assert.ok(got.stdout, got.stderr);
  return { ...got, report: JSON.parse(got.stdout) };
}
const nothingLeft = async () => {
  assert.deepEqual(await left(server), []);
  assert.deepEqual(await snapshots(server), []);
};

// The median of a random even list, computed by the sandbox; the checker computes it in its own way.
function median({ checker = "v === want", tags = ["math"] } = {}) {
  const list = Array.from({ length: 8 }, () => random(1, 99));
  const sorted = [...list].sort((a, b) => a - b);
  const want = (sorted[3] + sorted[4]) / 2;
  const program = "const a = JSON.parse(require('fs').readFileSync('data.json')).sort((x, y) => x - y); const m = (a[3] + a[4]) / 2; require('fs').writeFileSync('out.txt', m + '\\n'); console.log('median', m)";
  return {
    want,
    body: {
      name: "median of an even list", tags, outputs: ["out.txt"],
      input: `What is the median of ${JSON.stringify(list)}?`,
      setup: { files: { "data.json": JSON.stringify(list) }, commands: ["test -s data.json", "mkdir prepared"] },
      script: [
        { tool: "write_file", input: { path: "m.js", content: program } },
        { tool: "execute_command", input: { command: "test -d prepared && node m.js" } },
        { if: "median ([\\d.]+)", text: "The median is {{1}}." },
      ],
      checks: [
        { includes: String(want) },
        { toolOrder: ["write_file", "run_command"] },
        { noFailedActions: true },
        { file: { path: "out.txt", equals: `${want}\n` } },
        { checker: { command: "node /tmp/check.js", files: { "/tmp/check.js": `const v = Number(require("fs").readFileSync("out.txt", "utf8")); const want = ${want}; if (!(${checker})) { console.error("got", v); process.exit(1); }` } } },
      ],
    },
  };
}

test("the article's case: 3.5, judged by a program in the sandbox; red when the checker is sabotaged", async () => {
  const body = (expected) => ({
    input: "What's the median of [3, 1, 4, 1, 5, 9, 2, 6]?", outputs: ["out.txt"],
    script: [
      { tool: "run_command", input: { command: "node -e 'const a=[3,1,4,1,5,9,2,6].sort((x,y)=>x-y);console.log(\"m\",(a[3]+a[4])/2)' | tee out.txt" } },
      { if: "m ([\\d.]+)", text: "{{1}}" },
    ],
    checks: [{ checker: { command: `grep -qx 'm ${expected}' out.txt` } }],
  });
  const good = await evaluate(await suite({ "median.yaml": body("3.5") }));
  assert.equal(good.code, 0, good.stderr + good.stdout);
  const bad = await evaluate(await suite({ "median.yaml": body("4") }));
  assert.equal(bad.code, 1);
  assert.match(bad.stdout, /FAIL {2}median[^]*checker grep/);
  await nothingLeft();
});

test("random numbers, every kind of check, forks of one prepared sandbox; nothing is left", async () => {
  const m = median();
  const dir = await suite({ "math/median.yaml": m.body });
  const { code, report, stderr } = await json(dir, ["--trials", "3"]);
  assert.equal(code, 0, stderr + JSON.stringify(report));
  const [only] = report.cases;
  assert.equal(only.id, "math/median");
  assert.equal(only.trials.length, 3);
  for (const trial of only.trials) {
    assert.equal(trial.run.answer, `The median is ${m.want}.`);
    assert.deepEqual(trial.checks.map((c) => c.passed), [true, true, true, true, true, true]);
  }
  const sabotaged = median({ checker: "v === want + 1" });
  const red = await json(await suite({ "median.yaml": sabotaged.body }));
  assert.equal(red.code, 1);
  const failed = red.report.cases[0].trials[0].checks.filter((c) => !c.passed);
  assert.equal(failed.length, 1);
  assert.match(failed[0].message, new RegExp(`exit code 1: got ${sabotaged.want}`));
  await nothingLeft();
});

test("nothing to run is exit 2, and so is what cannot be meant", async () => {
  const empty = await suite({ "readme.md": "no case", "_off/a.yaml": median().body, "x.script.yaml": [] });
  for (const [args, expected] of [
    [[empty], /no case found/],
    [[join(scratch, "not-there")], /neither a directory/],
    [[await suite({ "a.yaml": median().body }), "--tag", "other"], /no case found/],
    [[await suite({ "a.yaml": median().body }), "--model", "nonsense"], /names no model/],
    [[await suite({ "a.yaml": median().body }), "--compare", join(scratch, "none.json")], /No such file/],
    [[await suite({ "a.yaml": median().body }), "--trials", "0"], /trials/],
  ]) {
    const got = await sandbar(server, ["eval", ...args]);
    assert.equal(got.code, 2, got.stderr);
    assert.match(got.stderr, expected);
  }
});

test("a case that errors is failed, never skipped", async () => {
  const dir = await suite({
    "good.yaml": median().body,
    "broken.yaml": "input: [",
    "unknown-key.yaml": { input: "x", chekcs: [], checks: [{ includes: "a" }] },
    "no-outputs.yaml": { input: "x", tags: ["math"], script: [{ text: "a" }], checks: [{ checker: { command: "true" } }] },
    "outside.yaml": { input: "x", tags: ["math"], outputs: ["../x"], script: [{ text: "a" }], checks: [{ checker: { command: "true" } }] },
    "toothless.yaml": { input: "x", script: [{ text: "a" }] },
    "no-model.yaml": { input: "x", checks: [{ includes: "a" }] },
    "bad-setup.yaml": { ...median().body, setup: { commands: ["echo oh no >&2; exit 3"] } },
    "no-image.yaml": { ...median().body, setup: { image: "no/such-image" } },
    "script-ends.yaml": { input: "x", script: [{ tool: "run_command", input: { command: "true" } }], checks: [{ calledTool: "run_command" }] },
    "throws.mjs": "throw new Error('cannot load');",
    "no-default.mjs": "export const x = 1;",
  });
  const { code, report } = await json(dir, ["--tag", "math"]);
  assert.equal(code, 1);
  const states = Object.fromEntries(report.cases.map((c) => [c.id, c.ok]));
  // A case whose tags cannot be read is not filtered away.
  assert.deepEqual(states, { good: true, broken: false, "unknown-key": false, "no-outputs": false, outside: false, toothless: false, "bad-setup": false, "no-image": false, throws: false, "no-default": false });
  const errors = Object.fromEntries(report.cases.map((c) => [c.id, c.trials[0].error]));
  assert.match(errors.broken, /line/);
  assert.match(errors["unknown-key"], /did you mean `checks`/);
  assert.match(errors["no-outputs"], /`outputs`: is required by a case with a `checker`[^]*\[out\.txt\]/);
  assert.match(errors.outside, /`outputs`: '\.\.\/x' must be the path of a file/);
  assert.match(errors.toothless, /could not fail/);
  assert.match(errors["bad-setup"], /ended with 3: oh no/);
  assert.match(errors.throws, /cannot load/);
  assert.match(errors["no-default"], /export default defineEval/);
  const rest = await json(dir);
  assert.equal(rest.code, 1);
  const all = Object.fromEntries(rest.report.cases.map((c) => [c.id, c.ok]));
  assert.equal(all["no-model"], false);
  assert.equal(all["script-ends"], false);
  await nothingLeft();
});

test("a flaky case: pass@k, pass^k and the flake rate", async () => {
  const flaky = { input: "x", script: [{ trials: [2, 3], text: "bad" }, { text: "good" }], checks: [{ includes: "good" }] };
  const dir = await suite({ "flaky.yaml": flaky, "lenient.yaml": { ...flaky, passRate: 0.5 }, "never.yaml": { ...flaky, script: [{ text: "bad" }] }, "always.yaml": { ...flaky, script: [{ text: "good" }] } });
  const { code, report } = await json(dir, ["--trials", "4"]);
  assert.equal(code, 1);
  const of = (id) => { const { passes, passAtK, passHatK, flaky: f, ok } = report.cases.find((c) => c.id === id); return [passes, passAtK, passHatK, f, ok]; };
  assert.deepEqual(of("flaky"), [2, 1, 0, true, false]);
  assert.deepEqual(of("lenient"), [2, 1, 0, true, true]);
  assert.deepEqual(of("never"), [0, 0, 0, false, false]);
  assert.deepEqual(of("always"), [4, 1, 1, false, true]);
  assert.deepEqual([report.summary.passAt1, report.summary.passAtK, report.summary.passHatK, report.summary.flakeRate], [0.5, 0.75, 0.25, 0.5]);
});

test("soft scores count only with --strict; a checker can give a score", async () => {
  const dir = await suite({ "soft.yaml": {
    input: "x", outputs: [], script: [{ text: "one two" }],
    checks: [{ includes: "one" }, { includes: ["one", "two", "three", "four"], soft: true, threshold: 0.75 }, { checker: { command: "echo 0.6", score: true }, threshold: 0.5 }],
  } });
  const normal = await json(dir);
  assert.equal(normal.code, 0);
  assert.deepEqual(normal.report.cases[0].trials[0].checks.map((c) => c.score), [1, 1, 0.5, 0.6]);
  assert.equal((await json(dir, ["--strict"])).code, 1);
});

test("--self-test: a case that cannot fail is found", async () => {
  const good = median();
  const sound = await evaluate(await suite({ "median.yaml": good.body, "article.mjs": article() }), ["--self-test", "--strict"]);
  assert.equal(sound.code, 0, sound.stdout);
  const blind = await suite({
    "blind.yaml": { input: "x", outputs: [], script: [{ text: "a" }], checks: [{ checker: { command: "true" } }] },
    "vacuous.yaml": { input: "x", script: [{ text: "a" }], checks: [{ excludes: "sorry" }] },
    "half.yaml": { input: "x", outputs: [], script: [{ text: "a" }], checks: [{ includes: "a" }, { checker: { command: "true" } }] },
  });
  const found = await json(blind, ["--self-test"]);
  assert.equal(found.code, 1);
  assert.deepEqual(Object.fromEntries(found.report.cases.map((c) => [c.id, c.ok])), { blind: false, half: true, vacuous: false });
  const strict = await evaluate(blind, ["--self-test", "--strict"]);
  assert.match(strict.stdout, /FAIL {2}half[^]*blind: checker true/);
  await nothingLeft();
});

// The case as the article has it, with a script in place of a model.
const article = (expected = "3.5") => `import { defineEval } from "eve/evals";
console.log("printing is fine");
export default defineEval({
  name: "code-interpreter",
  outputs: ["seen.txt"],
  input: "What's the median of [3, 1, 4, 1, 5, 9, 2, 6]?",
  script: [{ tool: "run_command", input: { command: "node -p '(3+4)/2' | tee seen.txt" } }, { if: "stdout:\\\\s+([\\\\d.]+)", text: "it is {{1}}" }],
  assert: async ({ output, toolCalls, sandbox }) =>
    output.includes("${expected}") && toolCalls[0].exitCode === 0 &&
    (await sandbox.readFile("seen.txt")).trim() === "${expected}" && (await sandbox.run("cat seen.txt; exit 3")).exitCode === 3,
});
`;

test("JavaScript cases: the assert sees the answer, the calls and the sandbox", async () => {
  const dir = await suite({
    "good.mjs": article(), "bad.mjs": article("4"),
    "throws.mjs": article().replace(/assert: [^]*,\n\}\);/, 'assert: () => { throw new Error("wrong: <" + 1 + ">"); },\n});'),
    "own.mjs": article().replace("eve/evals", "sandbar/eval"),
    "unnamed.mjs": article().replace('  outputs: ["seen.txt"],\n', ""),
  });
  const { code, report, stderr } = await json(dir);
  assert.equal(code, 1, stderr);
  assert.deepEqual(Object.fromEntries(report.cases.map((c) => [c.id, c.ok])), { bad: false, good: true, own: true, throws: false, unnamed: false });
  assert.match(report.cases.find((c) => c.id === "unnamed").trials[0].checks.at(-1).message, /the case has no `outputs`/);
  assert.match(report.cases.find((c) => c.id === "throws").trials[0].checks.at(-1).message, /wrong: <1>/);
  await nothingLeft();
});

test("record, replay without a model service, compare, JUnit", async () => {
  let asked = 0;
  const service = await startModels(({ results, prompt }) => {
    asked++;
    if (results.length === 0) return { tool: "run_command", input: { command: `printf '%s' '${prompt}' | tr a-z A-Z | tee out.txt` } };
    return { text: results[0].split("\n").at(-1) };
  });
  services.push(service);
  const word = `w${random(1e6, 9e6)}`;
  const dir = await suite({
    "up.yaml": { input: word, outputs: ["out.txt"], checks: [{ includes: word.toUpperCase() }, { checker: { command: `grep -q ${word.toUpperCase()} out.txt` } }] },
    "down.yaml": { input: word, checks: [{ includes: word, name: "stays <small> & \"quiet\"" }] },
  });
  const tapes = join(scratch, "tapes"), junit = join(scratch, "junit.xml"), before = join(scratch, "before.json");
  const first = await json(dir, ["--model", "anthropic:m", "--record", tapes, "--trials", "2"], { env: service.anthropic });
  assert.equal(first.code, 1);
  await writeFile(before, first.stdout);
  assert.deepEqual((await readdir(join(tapes, "up"))).sort(), ["1.jsonl", "2.jsonl"]);
  assert.equal(lines(await readFile(join(tapes, "up/1.jsonl"), "utf8")).at(-1).status, "answered");
  const calls = asked;
  const again = await json(dir, ["--replay", tapes, "--trials", "2", "--junit", junit]);
  assert.equal(asked, calls);
  const verdicts = (r) => r.cases.map((c) => [c.id, c.passes, c.trials.map((t) => t.checks.map((k) => k.passed))]);
  assert.deepEqual(verdicts(again.report), verdicts(first.report));
  // An independent reader takes the XML for what it is.
  const counted = execFileSync("python3", ["-c", `
import sys, xml.etree.ElementTree as t
r = t.parse(sys.argv[1]).getroot()
print(r.attrib["tests"], r.attrib["failures"], [c.attrib["name"] for c in r.iter("testcase")], [f.attrib["message"][:25] for f in r.iter("failure")])`, junit]).toString();
  assert.equal(counted.trim(), `4 2 ['down [trial 1]', 'down [trial 2]', 'up [trial 1]', 'up [trial 2]'] ['stays <small> & "quiet": ', 'stays <small> & "quiet": ']`);
  for (const [path, mode] of [[tapes, 0o700], [join(tapes, "up"), 0o700], [join(tapes, "up/1.jsonl"), 0o600], [junit, 0o600]])
    assert.equal((await stat(path)).mode & 0o777, mode, path);
  const table = await evaluate(dir, ["--replay", tapes, "--trials", "2", "--compare", before]);
  assert.match(table.stdout, /up +2\/2 +2\/2/);
  assert.match(table.stdout, /0 better, 0 worse/);
  const missing = await json(dir, ["--replay", tapes, "--trials", "3"]);
  assert.match(missing.report.cases[0].trials[2].error, /3\.jsonl/);
  await nothingLeft();
});

test("the example suite passes, and every case of it can fail", async () => {
  const dir = join(repo, "examples/evals");
  const { code, report, stderr } = await json(dir, ["--strict"]);
  assert.equal(code, 0, stderr + JSON.stringify(report.cases));
  assert.deepEqual(report.cases.map((c) => c.id), ["code/interpreter", "code/mends-its-code", "median"]);
  const sabotaged = await evaluate(dir, ["--self-test", "--strict"]);
  assert.equal(sabotaged.code, 0, sabotaged.stdout);
  await nothingLeft();
});

test("--list and --tag choose; concurrency keeps its limit; Ctrl-C removes everything", async () => {
  const sleeper = { tags: ["slow"], input: "x", script: [{ tool: "run_command", input: { command: "echo up; sleep 1000" } }, { text: "a" }], checks: [{ includes: "a" }] };
  const dir = await suite({ "a.yaml": sleeper, "b.yaml": sleeper, "c.yaml": sleeper, "m.yaml": median().body });
  const listed = JSON.parse((await evaluate(dir, ["--list", "--json", "--tag", "slow"])).stdout);
  assert.deepEqual(listed.cases.map((c) => c.id), ["a", "b", "c"]);
  const running = async () => (await left(server)).filter((s) => s.status === "running").length;
  const stopped = async (child) => {
    child.kill("SIGINT");
    assert.deepEqual(await child.gone, { code: 130, signal: null });
    assert.match(child.text, /interrupted/);
    await nothingLeft();
  };
  const trials = start(server, ["eval", dir, "--tag", "slow", "--max-concurrency", "2"]);
  await until(async () => (await running()) === 2, "two trials at work");
  assert.ok((await running()) <= 2);
  await stopped(trials);
  const slow = await suite({ "setup.yaml": { ...sleeper, setup: { commands: ["touch here && sleep 1000"] } } });
  const setup = start(server, ["eval", slow]);
  await until(async () => (await running()) === 1, "the setup at work");
  await stopped(setup);
});
