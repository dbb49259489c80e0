// A tool for the AI SDK: one sandbox per call, offline, gone afterwards, whatever happens.
//
//   node ai-sdk-tool.mjs "What is the 90th Fibonacci number?"
import { generateText, isStepCount, tool } from "ai";
import { Sandbox } from "sandbar";
import { z } from "zod";
import { model } from "./model.mjs";

const runCode = tool({
  description: "Runs JavaScript (Node.js 24, an ES module, no network) and returns what it printed. Compute with it instead of guessing.",
  inputSchema: z.object({ code: z.string() }),
  execute: async ({ code }) => {
    const sandbox = await Sandbox.create({ runtime: "node24", timeout: 60_000, networkPolicy: "deny-all", persistent: false });
    try {
      await sandbox.writeFiles([{ path: "main.mjs", content: Buffer.from(code) }]);
      const run = await sandbox.runCommand({ cmd: "node", args: ["main.mjs"], timeoutMs: 30_000 });
      return { exitCode: run.exitCode, stdout: await run.stdout(), stderr: await run.stderr() };
    } finally {
      await sandbox.stop();
    }
  },
});

const { text, steps } = await generateText({
  model,
  tools: { runCode },
  stopWhen: isStepCount(10),
  prompt: process.argv[2] ?? "What is the 90th Fibonacci number?",
});
// At the limit the last step is a tool call without an answer: say so instead of printing nothing.
if (!text) throw new Error(`no answer after ${steps.length} steps`);
console.log(text);
