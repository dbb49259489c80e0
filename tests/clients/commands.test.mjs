// Commands: output while it happens, several readers, detached ones, killing, aborting, deadlines.
import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { sh, useSdk } from "./sdk.mjs";
import { until } from "../support/server.mjs";

const { sandbox } = await useSdk();
const box = await sandbox();

const collector = (onText = () => {}) => {
  const sink = new Writable({ decodeStrings: false, write(text, _, done) { sink.text += text; onText(sink.text); done(); } });
  sink.text = "";
  return sink;
};
const read = async (logs) => {
  const out = { stdout: "", stderr: "" };
  for await (const line of logs) out[line.stream] += line.data;
  return out;
};

test("output streams: the program waits for what the client does after seeing its first line", async () => {
  // Would hang for ever if output were delivered only at the end.
  let answered;
  const stdout = collector((text) => {
    if (text.includes("A\n")) answered ??= box.writeFiles([{ path: "stream-go", content: "" }]);
  });
  const run = await box.runCommand({ cmd: "sh", args: ["-c", "echo A; until [ -e stream-go ]; do sleep 0.02; done; echo B"], stdout });
  await answered;
  assert.equal(stdout.text, "A\nB\n");
  assert.equal(await run.stdout(), "A\nB\n");
});

test("stdout and stderr stay apart and in order", async () => {
  const { stdout, stderr } = await sh(box, "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done");
  assert.equal(stdout, "out1\nout2\nout3\nout4\nout5\n");
  assert.equal(stderr, "err1\nerr2\nerr3\nerr4\nerr5\n");
});

test("a detached server: requests, logs, kill", async () => {
  await box.writeFiles([{ path: "server.mjs", content: `
    import { createServer } from "node:http";
    createServer((q, r) => { console.log("request", q.url); r.end("pong " + q.url); })
      .listen(3000, "127.0.0.1", () => console.log("listening"));` }]);
  const server = await box.runCommand({ cmd: "node", args: ["server.mjs"], detached: true });
  assert.equal(server.exitCode, null);
  const seen = collector();
  const following = (async () => { for await (const line of server.logs()) seen.write(line.data); })();
  await until(() => seen.text.includes("listening\n"), "the server listens");
  const ask = await box.runCommand("node", ["-e", "fetch('http://127.0.0.1:3000/x').then(r => r.text()).then(console.log)"]);
  assert.equal(await ask.stdout(), "pong /x\n");
  await until(() => seen.text.includes("request /x\n"), "the log follows");
  await server.kill();
  const ended = await server.wait();
  assert.equal(ended.exitCode, 143);
  await following;
  assert.equal(seen.text, "listening\nrequest /x\n");
  assert.equal((await (await box.getCommand(server.cmdId)).wait()).exitCode, 143);
});

test("signals other than SIGTERM, to the whole group", async () => {
  const cmd = await box.runCommand({ cmd: "sh", args: ["-c", "trap 'echo caught; exit 9' HUP; echo ready; sleep 1000 & wait"], detached: true });
  const logs = read(cmd.logs());
  await until(async () => (await sh(box, "pgrep -x sleep | wc -l")).stdout.trim() === "1", "the child runs");
  await cmd.kill("SIGHUP");
  assert.equal((await cmd.wait()).exitCode, 9);
  assert.equal((await logs).stdout, "ready\ncaught\n");
  const stubborn = await box.runCommand({ cmd: "sh", args: ["-c", "trap '' TERM; touch armed; while :; do sleep 0.1; done"], detached: true });
  await until(async () => (await sh(box, "test -e armed")).exitCode === 0, "it ignores the signal by now");
  await stubborn.kill("SIGTERM");
  assert.equal((await box.getCommand(stubborn.cmdId)).exitCode, null);
  await stubborn.kill("SIGKILL");
  assert.equal((await stubborn.wait()).exitCode, 137);
  await until(async () => (await sh(box, "pgrep -x sleep | wc -l")).stdout.trim() === "0", "no child is left");
});

test("two log readers, one from the start and one late, get every byte", async () => {
  const script = "i=0; while [ $i -lt 200 ]; do echo line $i; echo error $i >&2; i=$((i+1)); [ $((i % 20)) -ne 0 ] || sleep 0.05; done";
  const cmd = await box.runCommand({ cmd: "sh", args: ["-c", script], detached: true });
  const early = read(cmd.logs());
  const late = read(cmd.logs());
  await cmd.wait();
  const after = read(cmd.logs());
  const expected = {
    stdout: Array.from({ length: 200 }, (_, i) => `line ${i}\n`).join(""),
    stderr: Array.from({ length: 200 }, (_, i) => `error ${i}\n`).join(""),
  };
  for (const got of [await early, await late, await after]) assert.deepEqual(got, expected);
});

test("a waited command's output is complete, and so is its log afterwards", async () => {
  const run = await box.runCommand("sh", ["-c", "seq 1 100000"]);
  const expected = Array.from({ length: 100000 }, (_, i) => `${i + 1}\n`).join("");
  assert.equal((await run.stdout()) === expected, true);
  assert.equal((await read((await box.getCommand(run.cmdId)).logs())).stdout === expected, true);
});

test("text of every alphabet survives any split, and bytes that are no text are replaced", async () => {
  const text = "ä€𝄞漢字🙂\u2028".repeat(20000);
  await box.writeFiles([{ path: "text", content: text }]);
  assert.equal((await sh(box, "cat text")).stdout === text, true);
  // One byte at a time: characters arrive in pieces.
  const slow = await sh(box, `node -e 'const b=Buffer.from("ä€𝄞");let i=0;const t=setInterval(()=>{process.stdout.write(b.subarray(i,++i));if(i>=b.length)clearInterval(t)},5)'`);
  assert.equal(slow.stdout, "ä€𝄞");
  assert.equal((await sh(box, "printf 'a\\377b'")).stdout, "a\ufffdb");
});

test("aborting a waited command ends the wait; the command goes on", async () => {
  const controller = new AbortController();
  const stdout = collector((text) => text.includes("started") && controller.abort());
  const waiting = box.runCommand({
    cmd: "sh", args: ["-c", "echo started; until [ -e abort-go ]; do sleep 0.02; done; echo finished > abort-done"], stdout, signal: controller.signal,
  });
  await assert.rejects(waiting, (e) => e.name === "AbortError");
  await box.writeFiles([{ path: "abort-go", content: "" }]);
  await until(async () => (await box.readFileToBuffer({ path: "abort-done" }))?.toString() === "finished\n", "the command finishes by itself");
});

test("a command's own deadline kills it, waited or detached", async () => {
  const waited = await box.runCommand({ cmd: "sh", args: ["-c", "echo before; sleep 1000"], timeoutMs: 300 });
  assert.equal(waited.exitCode, 137);
  assert.equal(await waited.stdout(), "before\n");
  const detached = await box.runCommand({ cmd: "sleep", args: ["1000"], detached: true, timeoutMs: 300 });
  assert.equal((await detached.wait()).exitCode, 137);
});

test("a background child holds nothing open", async () => {
  const { stdout, exitCode } = await sh(box, "sleep 1000 & echo parent done");
  assert.equal(stdout, "parent done\n");
  assert.equal(exitCode, 0);
  assert.equal((await sh(box, "pgrep -x sleep | wc -l")).stdout.trim(), "1", "and lives on");
  await sh(box, "pkill -x sleep");
});

test("many commands at once", async () => {
  const runs = await Promise.all(Array.from({ length: 40 }, (_, i) => sh(box, `echo ${i}; exit ${i}`)));
  runs.forEach((run, i) => assert.deepEqual([run.stdout, run.exitCode], [`${i}\n`, i]));
});
