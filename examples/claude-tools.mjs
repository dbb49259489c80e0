// Claude with three tools (write_file, execute_command, read_file) in a sandbox that has no network.
//
//   ANTHROPIC_API_KEY=… node claude-tools.mjs "Write a prime sieve, run it for 100, put the result into report.txt"
//
// The key stays in this process. Exit code 0: answered, 3: the step limit was reached.
import Anthropic from "@anthropic-ai/sdk";
import { Sandbox } from "sandbar";

const MAX_STEPS = Number(process.env.MAX_STEPS ?? 20);
const text = (description) => ({ type: "string", description });
const tool = (name, description, properties, required) => ({ name, description, input_schema: { type: "object", properties, required } });
const tools = [
  tool("write_file", "Writes a file in the sandbox.", { path: text("relative to the working directory"), content: text("the whole file") }, ["path", "content"]),
  tool("execute_command", "Runs a shell command. Returns exit code, stdout and stderr.", { command: text("a line for sh"), timeoutMs: { type: "integer" } }, ["command"]),
  tool("read_file", "Reads a text file.", { path: text("relative to the working directory") }, ["path"]),
];

const sandbox = await Sandbox.create({ runtime: "node24", timeout: 600_000, network: { allow: [] }, persistent: false });

async function call(name, input) {
  switch (name) {
    case "write_file":
      await sandbox.files.write({ path: input.path, content: input.content });
      return `wrote ${Buffer.byteLength(input.content)} bytes to ${input.path}`;
    case "execute_command": {
      const { exitCode, stdout, stderr } = await sandbox.commands.run({ command: input.command, timeout: input.timeoutMs ?? 60_000 });
      return JSON.stringify({ exitCode, stdout, stderr });
    }
    case "read_file":
      return sandbox.files.read({ path: input.path });
    default:
      throw new Error(`there is no tool ${name}`);
  }
}

async function result({ id, name, input }) {
  try {
    return { type: "tool_result", tool_use_id: id, content: await call(name, input) };
  } catch (error) {
    return { type: "tool_result", tool_use_id: id, content: String(error.message ?? error), is_error: true };
  }
}

async function answer(prompt) {
  const claude = new Anthropic();
  const messages = [{ role: "user", content: prompt }];
  for (let step = 0; step < MAX_STEPS; step++) {
    const reply = await claude.messages.create({ model: process.env.MODEL ?? "claude-sonnet-4-6", max_tokens: 4096, tools, messages });
    messages.push({ role: "assistant", content: reply.content });
    const calls = reply.content.filter((block) => block.type === "tool_use");
    if (calls.length === 0) return reply.content.filter((block) => block.type === "text").map((block) => block.text).join("");
    const results = [];
    for (const block of calls) results.push(await result(block));
    messages.push({ role: "user", content: results });
  }
  return undefined;
}

try {
  const said = await answer(process.argv[2] ?? "Compute the sum of the first 100 primes with a program.");
  if (said === undefined) {
    console.error(`step limit reached: ${MAX_STEPS} steps and no answer`);
    process.exitCode = 3;
  } else {
    console.log(said);
  }
} finally {
  await sandbox.close();
}
