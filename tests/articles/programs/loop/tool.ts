// A tool that boots a machine per call; the model reads its own crash and mends its program.
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";
import { Sandbox } from "@vercel/sandbox";

export const evaluate = tool({
  description: "Runs JavaScript and returns what it printed.",
  inputSchema: z.object({ code: z.string() }),
  execute: async ({ code }) => {
    const machine = await Sandbox.create({ runtime: "node24", timeout: 60_000, networkPolicy: "deny-all" });
    try {
      await machine.writeFiles([{ path: "main.js", content: Buffer.from(code) }]);
      const done = await machine.runCommand("node", ["main.js"]);
      return { exitCode: done.exitCode, stdout: await done.stdout(), stderr: await done.stderr() };
    } finally {
      await machine.stop();
    }
  },
});

const { text } = await generateText({
  model: process.env.MODEL_NAME ?? "anthropic/claude-sonnet-4-6",
  tools: { evaluate },
  stopWhen: stepCountIs(6),
  prompt: process.argv[2],
});
console.log(text);
