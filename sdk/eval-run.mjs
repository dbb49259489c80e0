// Run by `sandbar eval` for cases that are .mjs files, never by hand:
//
//   node eval-run.mjs describe FILE            prints the case as one line of JSON, functions left out
//   node eval-run.mjs assert FILE < result     calls its assert with the result, prints {score, message}
import { register } from "node:module";
import { pathToFileURL } from "node:url";

// "sandbar/eval" works without an npm installation, and so does the name that articles use.
const here = new URL("./eval.mjs", import.meta.url).href;
register(`data:text/javascript,${encodeURIComponent(`
  export async function resolve(specifier, context, next) {
    if (specifier === "sandbar/eval" || specifier === "eve/evals") return { url: ${JSON.stringify(here)}, shortCircuit: true };
    return next(specifier, context);
  }
`)}`);

// Our answer is the last line of stdout; what the case prints is for people.
console.log = console.info = console.debug = console.error;
const reply = (value) => process.stdout.write(`\n${JSON.stringify(value)}\n`);

async function stdin() {
  const pieces = [];
  for await (const piece of process.stdin) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString());
}

// A fresh fork of the prepared sandbox with the trial's outputs in it. Nothing else of the trial is there.
function reach({ sandbox }) {
  if (!sandbox) {
    const unnamed = async () => {
      throw new Error("the case has no `outputs`: name the files that assert looks at, such as outputs: [\"out.txt\"], or [] for the prepared sandbox alone");
    };
    return { readFile: unnamed, run: unnamed };
  }
  const call = async (path, body) => {
    const response = await fetch(`${process.env.SANDBAR_URL}/v2/sandboxes/sessions/${sandbox.session}${path}?teamId=team_sandbar&projectId=prj_sandbar`, {
      method: "POST",
      headers: { authorization: `Bearer ${process.env.SANDBAR_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  return {
    readFile: async (path) => (await call("/fs/read", { path, cwd: sandbox.cwd })).text(),
    run: async (command) => {
      const text = await (await call("/cmd", { command: "sh", args: ["-c", command], wait: true, logs: true })).text();
      const out = { stdout: "", stderr: "", exitCode: null };
      for (const line of text.split("\n").filter(Boolean).map((l) => JSON.parse(l))) {
        if (line.stream === "stdout" || line.stream === "stderr") out[line.stream] += line.data;
        else if (line.stream === "error") throw new Error(line.data.message);
        else if (line.command) out.exitCode = line.command.exitCode ?? out.exitCode;
      }
      return out;
    },
  };
}

const verdict = (value) => {
  if (value === undefined || value === true) return { score: 1 };
  if (value === false) return { score: 0, message: "assert returned false" };
  if (typeof value === "number") return { score: value, message: `score ${value}` };
  if (value !== null && typeof value === "object" && ("pass" in value || "score" in value))
    return { score: value.score ?? (value.pass ? 1 : 0), message: String(value.message ?? "") };
  throw new TypeError("assert must return a boolean, a score or nothing");
};

const [verb, file] = process.argv.slice(2);
const spec = (await import(pathToFileURL(file).href)).default;
if (!spec?.[Symbol.for("sandbar.eval")]) throw new Error("the file has no `export default defineEval({…})`");
if (verb === "describe") {
  reply({ ...spec, assert: typeof spec.assert === "function" });
} else {
  const result = await stdin();
  let answer;
  try {
    answer = verdict(await spec.assert({ ...result, output: result.answer, sandbox: { ...result.sandbox, ...reach(result) } }));
  } catch (error) {
    answer = { score: 0, message: error?.message ?? String(error) };
  }
  reply(answer);
}
// A handle that the case left open must not keep us.
process.exitCode = 0;
