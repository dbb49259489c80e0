// The behavioural suites on every engine that this machine can use, and a table of what came of it.
//
//   node tools/test_engines.mjs [--write] [--resume] [--if-usable] [--engine NAME]… [SUITE]…     SUITE: clients, network/policy, …
//
// With --write the table goes into docs/engines.md, and what came of each suite is kept in build/test-engines.json as it
// ends: all of them on an emulated machine take more than an hour. --resume goes on from there, runs only what is missing or failed,
// and puts what is there into the table too.
//
// Suites do not know about engines: they start their servers through tests/support/server.mjs, which takes the default
// engine from SANDBAR_TEST_ISOLATION. Exit code 1: something failed; 77: an engine cannot be used here, and that is all
// right (--if-usable).
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { repo, startServer } from "../tests/support/server.mjs";

const FOLDERS = ["clients", "network", "security", "previews", "snapshots", "code", "cli", "faults", "containers"];
const BEGIN = "<!-- table: make test-engines -->", END = "<!-- end of table -->";

const KEPT = join(repo, "build/test-engines.json");
const args = process.argv.slice(2);
const write = args.includes("--write");
const wanted = args.flatMap((a, i) => (args[i - 1] === "--engine" ? [a] : []));
const named = args.filter((a, i) => !a.startsWith("--") && args[i - 1] !== "--engine");

async function suites() {
  const all = [];
  for (const folder of FOLDERS) {
    const files = (await readdir(join(repo, "tests", folder))).filter((f) => f.endsWith(".test.mjs")).sort();
    all.push(...files.map((f) => `${folder}/${f.replace(".test.mjs", "")}`));
  }
  return named.length === 0 ? all : all.filter((s) => named.some((n) => s === n || s.startsWith(`${n}/`)));
}

async function host() {
  const server = await startServer({ config: 'isolation = "namespaces"\n' });
  try {
    return (await server.call("GET", "/x/v1/info")).engines;
  } finally {
    await server.stop();
  }
}

// {pass, fail, skip} of one suite, and what it printed.
function run(engine, suite) {
  return new Promise((done) => {
    const child = spawn(process.execPath, ["--test", "--test-reporter=tap", join(repo, "tests", `${suite}.test.mjs`)],
      { env: { ...process.env, SANDBAR_TEST_ISOLATION: engine }, stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    child.stdout.on("data", (piece) => (text += piece));
    child.once("close", (code) => {
      const count = (what) => Number(text.match(new RegExp(`^# ${what} (\\d+)$`, "m"))?.[1] ?? 0);
      const fail = count("fail") + count("cancelled");
      done({ pass: count("pass"), fail: code !== 0 && fail === 0 ? 1 : fail, skip: count("skipped"), text });
    });
  });
}

const cell = (r) => (r === undefined ? "" : `${r.pass}${r.fail ? ` (**${r.fail} failed**)` : ""}${r.skip ? ` (${r.skip} skipped)` : ""}`);

function table(names, results, engines) {
  const lines = [`| suite | ${names.join(" | ")} |`, `|---|${names.map(() => "---|").join("")}`];
  for (const [suite, row] of results) lines.push(`| ${suite} | ${names.map((n) => cell(row[n])).join(" | ")} |`);
  for (const e of engines.filter((x) => !x.usable)) lines.push("", `Not run here: \`${e.name}\`. ${e.whyNot}`);
  const kvm = existsSync("/dev/kvm") && engines.some((e) => e.name === "microvm" && e.usable);
  lines.push("", kvm ? "KVM was used." : "No result in this table was obtained on real KVM.");
  return lines.join("\n");
}

const engines = await host();
const names = engines.filter((e) => e.usable).map((e) => e.name).filter((n) => wanted.length === 0 || wanted.includes(n));
for (const n of wanted.filter((w) => !names.includes(w))) {
  console.error(`${n} cannot be used here: ${engines.find((e) => e.name === n)?.whyNot ?? "there is no such engine"}`);
  process.exitCode = args.includes("--if-usable") ? 77 : 1;
}
await mkdir(dirname(KEPT), { recursive: true });
const kept = args.includes("--resume") ? await readFile(KEPT, "utf8").catch(() => "{}") : "{}";
const results = new Map(Object.entries(JSON.parse(kept)));
for (const suite of await suites()) {
  const row = results.get(suite) ?? {};
  results.set(suite, row);
  for (const name of names) {
    if (row[name]?.fail === 0) continue;
    const { text, ...result } = await run(name, suite);
    row[name] = result;
    if (write) await writeFile(KEPT, JSON.stringify(Object.fromEntries(results), null, 1));
    console.error(`${name} ${suite}: ${cell(result)}`);
    if (result.fail === 0) continue;
    process.exitCode = 1;
    console.error(text);
  }
}
const text = table(engines.filter((e) => [...results.values()].some((row) => row[e.name])).map((e) => e.name), results, engines);
console.log(text);
if (write) {
  const file = join(repo, "docs/engines.md");
  const page = await readFile(file, "utf8");
  const [before, rest] = page.split(BEGIN);
  await writeFile(file, `${before}${BEGIN}\n${text}\n${END}${rest.split(END)[1]}`);
}
