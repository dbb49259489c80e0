// `sandbar agent` on the real programs: a scripted model service on loopback, real sandboxes, real exit codes.
import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";
import { startModels } from "./models.mjs";
import { left, lines, random, sandbar, start } from "./world.mjs";

let server, scratch;
const services = [];
before(async () => {
  server = await startServer();
  scratch = await mkdtemp(join(tmpdir(), "sandbar-agent-"));
  await chmod(scratch, 0o755);
});
after(async () => {
  for (const service of services) await service.stop();
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
});
const models = async (script) => {
  const service = await startModels(script);
  services.push(service);
  return service;
};
const agent = (args, options) => sandbar(server, ["agent", ...args], options);
const KEY = () => `sk-canary-${random(1e9, 9e9)}-${random(1e9, 9e9)}`;

// The story: the first attempt reads a sample that is not there; the model sees the real TypeError and mends it.
function selfCorrection() {
  const middle = random(10, 60), step = random(1, 9);
  const samples = [middle - 2 * step, middle - step, middle, middle + step, middle + random(50, 90)];
  const code = (list) => `const samples = ${JSON.stringify(list)};
const sorted = [...samples].sort((a, b) => a - b);
const at = (p) => sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))];
console.log({ median: at(0.5).valueOf(), p95: at(0.95).valueOf() });
`;
  return {
    samples,
    script: ({ results }) => {
      if (results.length === 0) return { text: "First try.", tool: "write_file", input: { path: "stats.js", content: code([]) } };
      if (results.length === 1) return { tool: "execute_command", input: { command: "node stats.js" } };
      const last = results.at(-1);
      if (/TypeError: .*undefined/.test(last) && /exit code 1/.test(last))
        return { text: "The list was empty.", calls: [{ tool: "write_file", input: { path: "stats.js", content: code(samples) } }, { tool: "run_command", input: { command: "node stats.js" } }] };
      const found = /\{ median: (\d+), p95: (\d+) \}/.exec(last);
      return { text: found ? found[0] : `unexpected: ${last}` };
    },
  };
}

for (const shape of ["anthropic", "openai"]) {
  test(`${shape}: the model reads the real error, mends its code and answers`, async () => {
    const story = selfCorrection();
    const service = await models(story.script);
    const key = KEY();
    const record = join(scratch, `${shape}.jsonl`);
    const got = shape === "anthropic"
      ? await agent(["--model", "anthropic:test-model", "--record", record, "compute median and p95"], { env: { ...service.anthropic, ANTHROPIC_API_KEY: key } })
      : await agent(["--model", service.openai(), "--record", record, "compute median and p95"], { env: { OPENAI_API_KEY: key } });
    assert.equal(got.code, 0, got.stderr);
    assert.equal(got.stdout, `{ median: ${story.samples[2]}, p95: ${story.samples[4]} }\n`);
    assert.match(got.last, /^sandbar: answered: 4 steps, .* 400\+80 tokens$/);
    assert.match(got.stderr, /exit code 1/);
    assert.deepEqual(await left(server), []);

    // The provider got the key and the tools; the tool list is the server's own.
    const first = service.requests[0];
    assert.equal(shape === "anthropic" ? first.headers["x-api-key"] : first.headers.authorization, shape === "anthropic" ? key : `Bearer ${key}`);
    const names = first.body.tools.map((t) => t.name ?? t.function.name);
    for (const name of ["run_command", "read_output", "read_file", "write_file", "edit_file", "list_files", "expose_port"]) assert.ok(names.includes(name), name);
    assert.equal(first.body.stream, true);

    const events = lines(await readFile(record, "utf8"));
    assert.deepEqual(events.map((e) => e.type), ["start", "request", "reply", "call", "tool", "request", "reply", "call", "tool", "request", "reply",
      "call", "tool", "call", "tool", "request", "reply", "end"]);
    const failed = events.find((e) => e.type === "tool" && e.exitCode === 1);
    assert.match(failed.content[0].text, /TypeError/);
    assert.ok(failed.bytes > 100 && failed.ms >= 0);
    assert.equal(events.at(-1).status, "answered");
  });
}

test("without an image: the server's default, as for every other sandbox", async () => {
  const service = await models(({ results }) => (results.length ? { text: results[0].split("\n").at(-1) } : { tool: "run_command", input: { command: "python3 -c 'print(6 * 7)'" } }));
  const got = await agent(["--model", "anthropic:m", "x"], { env: service.anthropic });
  assert.deepEqual([got.code, got.stdout], [0, "42\n"], got.stderr);
  assert.match(got.stderr, /vercel\/sandbox\/universal, class/);
});

test("429, 529, a cut, a malformed stream: tried again with the wait that was asked for, and told", async () => {
  const number = random(1000, 9999);
  const failures = [
    { status: 429, headers: { "retry-after": "0" } },
    { status: 529, headers: { "retry-after-ms": "5" } },
    { cut: 400, text: "never to be seen in the answer, because it is cut" },
    { malformed: true, text: "x" },
  ];
  const service = await models(({ results, request }) => failures[request - 1] ?? (results.length === 0
    ? { tool: "run_command", input: { command: `echo $((${number} + 1))` } } : { text: `it is ${/stdout:\s+(\d+)/.exec(results[0])?.[1]}` }));
  for (const model of ["anthropic:m", service.openai()]) {
    service.requests.length = 0;
    const record = join(scratch, "retries.jsonl");
    const got = await agent(["--model", model, "--record", record, "add"], { env: service.anthropic });
    assert.equal(got.code, 0, got.stderr);
    assert.equal(got.stdout, `it is ${number + 1}\n`);
    const retries = lines(await readFile(record, "utf8")).filter((e) => e.type === "retry");
    assert.equal(retries.length, 4);
    assert.equal(retries[0].waitMs, 0);
    assert.equal(retries[1].waitMs, 5);
    assert.match(retries[2].reason, /cut|closed|end/i);
    assert.match(got.stderr, /again in/);
  }
});

test("a service that stays broken is given up after a few attempts; one that asks for too long at once", async () => {
  const down = await models(() => ({ status: 503, headers: { "retry-after": "0" } }));
  const got = await agent(["--model", "anthropic:m", "x"], { env: down.anthropic });
  assert.equal(got.code, 1);
  assert.equal(down.requests.length, 5);
  assert.match(got.last, /failed: 5 attempts failed.*503/);
  const slow = await models(() => ({ status: 429, headers: { "retry-after": "86400" } }));
  const patient = await agent(["--model", "anthropic:m", "x"], { env: slow.anthropic });
  assert.equal(patient.code, 1);
  assert.equal(slow.requests.length, 1);
  assert.match(patient.last, /wait 86400 s/);
  assert.deepEqual(await left(server), []);
});

test("answers that are not streamed work too", async () => {
  const service = await models(({ results }) => ({ whole: true, ...(results.length ? { text: "seen: " + results[0].split("\n").at(-1) } : { tool: "run_command", input: { command: "echo $((6*7))" } }) }));
  for (const model of ["anthropic:m", service.openai()]) {
    const got = await agent(["--model", model, "x"], { env: service.anthropic });
    assert.equal(got.stdout, "seen: 42\n", got.stderr);
  }
});

test("what is wrong with the settings is exit 2 and leaves nothing", async () => {
  const service = await models(() => ({ status: 401, body: { error: { message: "invalid x-api-key" } } }));
  const cases = [
    [["--model", "anthropic:m", "x"], {}, /ANTHROPIC_API_KEY/],
    [["--model", "openai:m", "x"], {}, /OPENAI_API_KEY/],
    [["--model", "gpt", "x"], {}, /names no model/],
    [["--model", "scripted:/no/such/file", "x"], {}, /No such file/],
    [["x"], {}, /no model given/],
    [["--model", "anthropic:m", "x"], { ...service.anthropic, ANTHROPIC_API_KEY: "wrong-key-wrong-key" }, /401: invalid x-api-key/],
    [["--model", "anthropic:m", "--net", "some", "x"], service.anthropic, /deny, allow or allow:/],
    [["--model", "anthropic:m", "--upload", "/no/such/dir", "x"], service.anthropic, /no directory/],
    [["--model", "anthropic:m", "--image", "no/such-image", "x"], service.anthropic, /image/],
    [["--model", "anthropic:m", "--sandbox", "no-such-sandbox", "x"], service.anthropic, /no-such-sandbox|not found/i],
    [["--model", "anthropic:m", "--max-steps", "0", "x"], service.anthropic, /max-steps/],
    [["--model", "anthropic:m", "--record", "/no/such/dir/t.jsonl", "x"], service.anthropic, /No such file/],
    [["--model", "anthropic:m", "--html", "/no/such/dir/t.html", "x"], service.anthropic, /No such file/],
    [["--model", "anthropic:m", "--download", "a", "--to", "/no/such/dir", "x"], service.anthropic, /no directory/],
    [["--model", "anthropic:m", "--from", "snap_none", "x"], service.anthropic, /snap_none|snapshot/i],
    [["--model", "anthropic:m", "--sandbox", "a", "x"], { ...service.anthropic, SANDBAR_DATA: join(scratch, "none") }, /needs a server that stays/],
  ];
  for (const [args, env, expected] of cases) {
    const got = await agent(args, { env });
    assert.equal(got.code, 2, `${args}: ${got.stderr}`);
    assert.match(got.stderr, expected);
    assert.equal(got.stdout, "");
  }
  assert.deepEqual(await left(server), []);
});

test("a limit is exit 3, said in the last line, and never an answer", async () => {
  const forever = await models(() => ({ text: "Task completed.", tool: "run_command", input: { command: "true" } }));
  const steps = await agent(["--model", "anthropic:m", "--max-steps", "3", "x"], { env: forever.anthropic });
  assert.equal(steps.code, 3);
  assert.equal(steps.stdout, "");
  assert.match(steps.last, /limit hit: step limit reached \(--max-steps 3\); the task is not finished/);
  assert.equal(forever.requests.length, 3);
  const tokens = await agent(["--model", "anthropic:m", "--max-tokens", "200", "--json", "x"], { env: forever.anthropic });
  assert.equal(tokens.code, 3);
  const report = JSON.parse(tokens.stdout);
  assert.equal(report.status, "limit");
  assert.equal(report.answer, "");
  assert.equal(report.usage.input, 200);
  const asleep = await models(() => ({ tool: "run_command", input: { command: "sleep 1000" } }));
  const time = await agent(["--model", "anthropic:m", "--timeout", "2s", "x"], { env: asleep.anthropic });
  assert.equal(time.code, 3);
  assert.match(time.last, /time limit reached/);
  const cut = await models(({ body }) => ({ text: "half an ans", stop: body.messages[0].role === "system" ? "length" : "max_tokens" }));
  for (const model of ["anthropic:m", cut.openai()]) {
    const got = await agent(["--model", model, "x"], { env: cut.anthropic });
    assert.equal(got.code, 3);
    assert.equal(got.stdout, "");
  }
  assert.deepEqual(await left(server), []);
});

test("the key is nowhere: not in the sandbox, the transcript, the page, the live view or the server's logs", async () => {
  const key = KEY();
  // A service that echoes the key in every way it can.
  const service = await models(({ results }) => {
    if (results.length === 0)
      return { text: `your key is ${key}`, calls: [
        { tool: "run_command", input: { command: "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; echo found: $(sudo grep -rlsE 'sk-can[a]ry' /etc /home /opt /root /run /srv /tmp /var /vercel/sandbox | head)" } },
        { tool: "write_file", input: { path: "k.txt", content: `key ${key}` } },
        { tool: "run_command", input: { command: "cat k.txt" } },
        { tool: `tool_${key}`, input: {} }] };
    return { text: `done with ${key}` };
  });
  const record = join(scratch, "key.jsonl"), html = join(scratch, "key.html");
  const got = await agent(["--model", "anthropic:m", "--record", record, "--html", html, "look around"], { env: { ...service.anthropic, ANTHROPIC_API_KEY: key, OPENAI_API_KEY: key } });
  assert.equal(got.code, 0, got.stderr);
  assert.equal(service.requests[0].headers["x-api-key"], key);
  const transcript = await readFile(record, "utf8");
  const places = { stdout: got.stdout, stderr: got.stderr, transcript, html: await readFile(html, "utf8"), server: server.output, spawner: await server.spawnerLog() };
  for (const [place, text] of Object.entries(places)) assert.ok(!text.includes(key), `the key is in ${place}`);
  const results = lines(transcript).filter((e) => e.type === "tool");
  assert.match(results[0].content[0].text, /PATH=/);
  assert.match(results[0].content[0].text, /^found:\s*$/m);
  assert.doesNotMatch(results[0].content[0].text, /sk-canary/);
  assert.match(results[2].content[0].text, /key \[key\]/);
  const refused = await models(() => ({ status: 400, body: { error: { message: `bad key ${key}` } } }));
  const failed = await agent(["--model", "anthropic:m", "--record", record, "x"], { env: { ...refused.anthropic, ANTHROPIC_API_KEY: key } });
  assert.equal(failed.code, 1);
  assert.ok(!(failed.stderr + (await readFile(record, "utf8"))).includes(key));
  // Long answers are cut short; half a key is a secret, too.
  const wordy = await models(() => ({ status: 400, body: { error: { message: `${"x".repeat(500 - key.length / 2)}${key}` } } }));
  const cut = await agent(["--model", "anthropic:m", "--record", record, "x"], { env: { ...wordy.anthropic, ANTHROPIC_API_KEY: key } });
  assert.equal(cut.code, 1);
  assert.ok(!(cut.stderr + (await readFile(record, "utf8"))).includes(key.slice(0, key.length / 3)));
});

test("Ctrl-C: the sandbox is gone, whatever it was doing", async () => {
  for (const what of ["tool", "model"]) {
    const service = await models(({ results }) => (what === "model" && results.length ? { hang: true }
      : { tool: "run_command", input: { command: what === "tool" ? "echo up; sleep 1000" : "true" } }));
    const record = join(scratch, "interrupted.jsonl");
    const child = start(server, ["agent", "--model", "anthropic:m", "--record", record, "x"], { env: service.anthropic });
    if (what === "tool") await until(() => child.text.includes("run_command echo up"), "the tool call");
    else await until(() => service.requests.length === 2, "the second request");
    assert.equal((await left(server)).length, 1);
    child.kill("SIGINT");
    assert.deepEqual(await child.gone, { code: 130, signal: null });
    assert.match(child.text.trimEnd().split("\n").at(-1), /interrupted: the task is not finished/);
    assert.equal(lines(await readFile(record, "utf8")).at(-1).status, "interrupted");
    assert.deepEqual(await left(server), []);
  }
});

test("files in, files out; names from the sandbox stay below the target", async () => {
  const word = `w${random(1e6, 9e6)}`;
  const up = join(scratch, "up"), to = join(scratch, "down"), outside = join(scratch, "outside");
  for (const dir of [join(up, "sub"), to, outside]) await mkdir(dir, { recursive: true });
  await writeFile(join(up, "sub/in.txt"), word);
  await symlink(outside, join(to, "link"));
  const service = await models(({ results }) => (results.length === 0
    ? { tool: "run_command", input: { command: "mkdir -p out/deep link .hidden && tr a-z A-Z < sub/in.txt | tee out/deep/a.txt > .hidden/b.txt; ln -s /etc/passwd out/p.txt; echo x > link/x.txt; touch \"$(printf 'out/new\\nline.txt')\"" } }
    : { text: results[0].split("\n")[0] }));
  const base = ["--model", "anthropic:m", "--upload", up, "--to", to];
  const got = await agent([...base, "--download", "out/**/*.txt", "x"], { env: service.anthropic });
  assert.equal(got.code, 0, got.stderr);
  assert.equal((await readFile(join(to, "out/deep/a.txt"), "utf8")), word.toUpperCase());
  assert.deepEqual(await readdir(join(to, "out")), ["deep"]);
  // Through a link of ours: refused, and that is a failure.
  const linked = await agent([...base, "--download", "link/*", "x"], { env: service.anthropic });
  assert.equal(linked.code, 1);
  assert.deepEqual(await readdir(outside), []);
  const none = await agent([...base, "--download", "nothing-here", "x"], { env: service.anthropic });
  assert.equal(none.code, 1);
  assert.match(none.last, /nothing in the sandbox matches --download nothing-here/);
  assert.equal(none.stdout, "");
  assert.equal((await agent([...base, "--download", "../*", "x"], { env: service.anthropic })).code, 1);
  assert.deepEqual(await left(server), []);
});

test("--sandbox uses one that stays, --from starts from a snapshot, --net says what it may reach", async () => {
  const word = `w${random(1e6, 9e6)}`;
  const service = await models(({ results }) => (results.length === 0 ? { tool: "run_command", input: { command: "cat word.txt" } } : { text: results[0].split("\n").at(-1) }));
  assert.equal((await sandbar(server, ["run", "--keep", "--name", "stays", "--", "sh", "-c", `echo ${word} > word.txt`])).code, 0);
  const there = await agent(["--model", "anthropic:m", "--sandbox", "stays", "x"], { env: service.anthropic });
  assert.equal(there.stdout, `${word}\n`, there.stderr);
  assert.deepEqual((await left(server)).map((s) => s.name), ["stays"]);
  const { session } = await server.call("GET", "/v2/sandboxes/stays?project=prj_sandbar");
  const { snapshot } = await server.call("POST", `/v2/sandboxes/sessions/${session.id}/snapshot?project=prj_sandbar`);
  const from = await agent(["--model", "anthropic:m", "--from", snapshot.id, "x"], { env: service.anthropic });
  assert.equal(from.stdout, `${word}\n`, from.stderr);
  await sandbar(server, ["rm", "stays"]);
  const seen = [];
  for (const net of ["deny", "allow:one.example,two.example"]) {
    await agent(["--model", "anthropic:m", "--net", net, "x"], { env: service.anthropic });
    seen.push(service.requests.at(-1).body.system);
  }
  assert.match(seen[0], /no network/);
  assert.match(seen[1], /only these hosts: one.example,two.example/);
  assert.deepEqual(await left(server), []);
});

test("a transcript replays without a model service; the page escapes what it shows", async () => {
  const service = await models(({ results }) => (results.length === 0
    ? { text: "<script>alert(1)</script>", tool: "run_command", input: { command: "echo '<img src=x onerror=alert(2)>'; date +%N" } }
    : { text: `</pre><b>${results[0].length > 0}</b>` }));
  const record = join(scratch, "replay.jsonl"), html = join(scratch, "page.html");
  const first = await agent(["--model", "anthropic:m", "--record", record, "<i>go</i>"], { env: service.anthropic });
  assert.equal(first.code, 0, first.stderr);
  const asked = service.requests.length;
  const again = await agent(["--model", `replay:${record}`, "--html", html, "<i>go</i>"]);
  assert.equal(again.code, 0, again.stderr);
  assert.equal(again.stdout, first.stdout);
  assert.equal(service.requests.length, asked);
  for (const file of [record, html]) assert.equal((await stat(file)).mode & 0o777, 0o600, `${file} is its owner's alone`);
  const page = await readFile(html, "utf8");
  for (const bad of ["<script", "<img", "<i>", "<b>"]) assert.ok(!page.includes(bad), bad);
  assert.ok(page.includes("&lt;img src=x onerror=alert(2)&gt;"));
  const short = join(scratch, "short.jsonl");
  await writeFile(short, (await readFile(record, "utf8")).split("\n").slice(0, 4).join("\n"));
  const cut = await agent(["--model", `replay:${short}`, "x"]);
  assert.equal(cut.code, 1);
  assert.match(cut.last, /no reply number 2/);
});

test("cells keep their variables, images reach the model, refused calls can be mended", async () => {
  const number = random(1000, 9999);
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const steps = [
    { tool: "run_code", input: { language: "javascript", code: `globalThis.kept = ${number}; require("fs").writeFileSync("a.png", Buffer.from("${png}", "base64")); 1` } },
    { tool: "no_such_tool", input: {} },
    { tool: "write_file", input: { path: "big", content: "x".repeat(6 << 20) } },
    { calls: [{ tool: "run_code", input: { language: "javascript", code: "kept * 2" } }, { tool: "read_file", input: { path: "a.png" } }] },
  ];
  const service = await models(({ body, results }) => {
    const turn = body.messages.filter((m) => m.role === "assistant").length;
    return steps[turn] ?? { text: `${results.at(-2).split("\n").at(-1)} ${results[1]}` };
  });
  const got = await agent(["--model", "anthropic:m", "x"], { env: service.anthropic });
  assert.equal(got.code, 0, got.stderr);
  assert.match(got.stdout, new RegExp(`^${number * 2} .*no_such_tool`));
  const blocks = service.requests.at(-1).body.messages.at(-1).content.flatMap((b) => b.content);
  const image = blocks.find((b) => b.type === "image");
  assert.deepEqual(image.source, { type: "base64", media_type: "image/png", data: png });
  for (const n of [2, 3]) assert.equal(service.requests[n].body.messages.at(-1).content[0].is_error, true);
  assert.match(service.requests[3].body.messages.at(-1).content[0].content[0].text, /larger than/);
});

test("a sandbox that is removed under the agent is a failure, not a fresh start", async () => {
  const service = await models(async ({ results }) => {
    if (results.length === 0) return { tool: "run_command", input: { command: "echo one" } };
    if (results.length === 1) {
      const [box] = await left(server);
      await sandbar(server, ["rm", box.name]);
      return { tool: "run_command", input: { command: "printf '\\033[31mtwo'" } };
    }
    return { text: "all done" };
  });
  const got = await agent(["--model", "anthropic:m", "x"], { env: service.anthropic });
  assert.equal(got.code, 1);
  assert.equal(got.stdout, "");
  assert.match(got.last, /failed: the sandbox was removed while the model worked/);
  assert.doesNotMatch(got.stderr, /\x1b/);
  assert.deepEqual(await left(server), []);
});

test("a server that is not there is started for the run and gone afterwards", async () => {
  const service = await models(({ results }) => (results.length === 0 ? { tool: "run_command", input: { command: "echo alone" } } : { text: results[0].split("\n").at(-1) }));
  const got = await agent(["--model", "anthropic:m", "x"], { env: { ...service.anthropic, SANDBAR_DATA: join(scratch, "none") } });
  assert.equal(got.code, 0, got.stderr);
  assert.equal(got.stdout, "alone\n");
});
