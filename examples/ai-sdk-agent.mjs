// An agent that repairs its own code: exit code and stderr go back to the model, which tries again in the same sandbox.
//
//   node ai-sdk-agent.mjs "Median and p95 of these latencies: 12 40 44 118"
import { ToolLoopAgent, isStepCount, tool } from "ai";
import { Sandbox } from "sandbar";
import { z } from "zod";
import { model } from "./model.mjs";

const sandbox = await Sandbox.create({ runtime: "node24", timeout: 300_000, networkPolicy: "deny-all", persistent: false });

const agent = new ToolLoopAgent({
  model,
  instructions: "Solve the task by writing JavaScript to a file and running it. When it fails, read the error, repair the file, run it again.",
  stopWhen: isStepCount(12),
  tools: {
    writeFile: tool({
      description: "Writes a file.",
      inputSchema: z.object({ path: z.string(), content: z.string() }),
      execute: async ({ path, content }) => {
        await sandbox.writeFile(path, content);
        return { written: Buffer.byteLength(content) };
      },
    }),
    run: tool({
      description: "Runs a shell command and returns its exit code and output.",
      inputSchema: z.object({ command: z.string() }),
      execute: async ({ command }) => {
        const { exitCode, stdout, stderr } = await sandbox.exec(command, { timeoutMs: 60_000 });
        console.error(`$ ${command}\n  exit code ${exitCode}`);
        return { exitCode, stdout, stderr };
      },
    }),
  },
});

try {
  const { text, steps } = await agent.generate({ prompt: process.argv[2] ?? "Median and p95 of 12, 40, 44 and 118" });
  if (text) {
    console.log(text);
  } else {
    console.error(`step limit reached: ${steps.length} steps and no answer`);
    process.exitCode = 3;
  }
} finally {
  await sandbox.stop();
}
