import Anthropic from "@anthropic-ai/sdk";
import dotenv from "dotenv";
import { Machine } from "./sandbox.js";
import { machineTools } from "./tools.js";
dotenv.config();

async function work(task: string): Promise<string> {
  const anthropic = new Anthropic({ apiKey: process.env.ANTHROPIC_API_KEY });
  const machine = new Machine();
  await machine.initialize();
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: task }];
  try {
    for (let step = 0; step < 10; step++) {
      const response = await anthropic.messages.create({ model: "claude-3-5-sonnet-20241022", max_tokens: 4000, system: "You work in a machine of your own.", tools: machineTools, messages });
      messages.push({ role: "assistant", content: response.content });
      if (response.stop_reason !== "tool_use") break;
      const results: any[] = [];
      for (const block of response.content) {
        if (block.type !== "tool_use") continue;
        let outcome: string;
        try {
          const input = block.input as any;
          if (block.name === "write_file") outcome = await machine.writeFile(input.path, input.content);
          else if (block.name === "read_file") outcome = await machine.readFile(input.path);
          else outcome = JSON.stringify(await machine.executeCommand(input.command, input.timeoutMs));
        } catch (error: any) {
          outcome = `failed: ${error.message}`;
        }
        results.push({ type: "tool_result", tool_use_id: block.id, content: outcome });
      }
      messages.push({ role: "user", content: results });
    }
    const last = messages[messages.length - 1].content;
    const block = Array.isArray(last) ? last.find((b) => b.type === "text") : undefined;
    return block && "text" in block ? block.text : "no answer";
  } finally {
    await machine.destroy();
  }
}

console.log(await work(process.argv[2]));
