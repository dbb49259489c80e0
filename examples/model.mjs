// The model of the AI SDK examples: any server that speaks chat completions (a gateway, Ollama, vLLM, …).
//
//   OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_API_KEY=… MODEL=qwen3 node ai-sdk-tool.mjs "…"
//
// The key stays in this process. Nothing of its environment reaches a sandbox.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const baseURL = process.env.OPENAI_BASE_URL;
if (!baseURL) throw new Error("set OPENAI_BASE_URL to a server with /chat/completions, and OPENAI_API_KEY and MODEL");

export const model = createOpenAICompatible({ name: "model", baseURL, apiKey: process.env.OPENAI_API_KEY })(process.env.MODEL ?? "gpt-5-mini");
