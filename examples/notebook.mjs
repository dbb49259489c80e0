// A notebook session for a model: one sandbox, two tools. Variables live on from one call of run_code to the next, so
// that data is loaded once and asked many times.
//
//   node notebook.mjs "Which of these cities is the largest?"
import { ToolLoopAgent, isStepCount, tool } from "ai";
import { Sandbox } from "sandbar";
import { z } from "zod";
import { model } from "./model.mjs";

const sandbox = await Sandbox.create({ runtime: "python3.13", timeout: 600_000, network: { allow: [] }, persistent: false });

const agent = new ToolLoopAgent({
  model,
  instructions: "You have a Python notebook. Save data with write_file, work on it in cells with run_code; variables are kept.",
  stopWhen: isStepCount(20),
  tools: {
    write_file: tool({
      description: "Saves a file beside the notebook.",
      inputSchema: z.object({ path: z.string(), content: z.string() }),
      execute: async ({ path, content }) => {
        await sandbox.files.write({ path, content });
        return `saved ${path}`;
      },
    }),
    run_code: tool({
      description: "Runs a cell of Python. Returns what it printed, the value of its last expression, and the error if there was one.",
      inputSchema: z.object({ code: z.string() }),
      execute: async ({ code }) => {
        const cell = await sandbox.runCode(code, { language: "python", timeoutMs: 60_000 });
        const { status, stdout, stderr, text, error, artifacts } = cell;
        return { cell: cell.executionCount, status, stdout, stderr, value: text, error: error?.traceback || error?.value, files: artifacts.map((a) => a.path) };
      },
    }),
  },
});

try {
  const { text, steps } = await agent.generate({ prompt: process.argv[2] ?? "What is the mean of the squares of 1 to 100?" });
  if (text) {
    console.log(text);
  } else {
    console.error(`step limit reached: ${steps.length} steps and no answer`);
    process.exitCode = 3;
  }
} finally {
  await sandbox.close();
}
