// POST { prompt }: an agent writes JavaScript and runs it in a sandbox of its own; the answer is { text }.
//
// The model is any server with chat completions (OPENAI_BASE_URL, OPENAI_API_KEY, MODEL). The sandbox is offline unless
// SANDBOX_REGISTRY names an npm registry: then that host is allowed and packages can be installed from it.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Sandbox } from "@vercel/sandbox";
import { ToolLoopAgent, isStepCount, tool } from "ai";
import { after } from "next/server";
import { z } from "zod";

const Body = z.object({ prompt: z.string().min(1).max(10_000) });

function createSandbox() {
  const registry = process.env.SANDBOX_REGISTRY;
  return Sandbox.create({
    runtime: "node24",
    timeout: 120_000,
    persistent: false,
    networkPolicy: registry ? { allow: [new URL(registry).hostname] } : "deny-all",
    env: registry ? { npm_config_registry: registry } : {},
  });
}

const outcome = async (run) => ({ exitCode: run.exitCode, stdout: await run.stdout(), stderr: await run.stderr() });

const runJavaScript = (sandbox) => tool({
  description: "Runs JavaScript in Node.js 24 and returns its exit code and output. Print values with console.log.",
  inputSchema: z.object({
    code: z.string().describe("the program"),
    packages: z.array(z.string()).nullable().default([]).describe("npm packages to install first"),
  }),
  execute: async ({ code, packages }) => {
    if (packages?.length) {
      const install = await sandbox.runCommand({ cmd: "npm", args: ["install", "--no-audit", "--no-fund", ...packages] });
      if (install.exitCode !== 0) return outcome(install);
    }
    return outcome(await sandbox.runCommand({ cmd: "node", args: ["-e", code], timeoutMs: 60_000 }));
  },
});

export async function POST(request) {
  const body = Body.safeParse(await request.json().catch(() => undefined));
  if (!body.success) return Response.json({ error: 'Invalid body. Expected {"prompt": string}.' }, { status: 400 });

  const sandbox = await createSandbox();
  // Runs when the answer is out, also when what follows throws: nobody waits for the clean-up, and nothing is left behind.
  after(() => sandbox.stop());

  const model = createOpenAICompatible({ name: "model", baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
  const agent = new ToolLoopAgent({
    model: model(process.env.MODEL ?? "gpt-5-mini"),
    instructions: "You write and run JavaScript to answer questions.",
    tools: { runJavaScript: runJavaScript(sandbox) },
    stopWhen: isStepCount(10),
  });
  const { text } = await agent.generate({ prompt: body.data.prompt });
  return text ? Response.json({ text }) : Response.json({ error: "No answer within 10 steps." }, { status: 502 });
}
