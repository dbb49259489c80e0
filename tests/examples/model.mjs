// A model that follows a script: a function that sees what really came back from the tools and says what comes next.
// Speaks chat completions, Anthropic's messages and the AI SDK's own gateway.
//
//   const model = await scriptedModel(({ prompt, results }) => results.length === 0
//     ? { calls: [{ name: "run", input: { command: "date" } }] } : { text: `it is ${results.at(-1)}` });
//   model.url, model.requests, model.failures                  // an exception of the script fails the test through these
import http from "node:http";
import https from "node:https";
import { after } from "node:test";

const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join(""));

// What a script is told, whichever dialect the client speaks.
function conversation(body) {
  const results = [];
  let prompt = "";
  // The gateway's: parts everywhere, and results that say of what kind they are.
  for (const { role, content } of body.prompt ?? []) {
    if (role === "user") prompt ||= textOf(content);
    if (role === "tool") results.push(...content.map(({ output }) => (output.type === "text" ? output.value : JSON.stringify(output.value))));
  }
  for (const { role, content } of body.messages ?? []) {
    if (role === "tool") results.push(textOf(content));
    else if (role === "user" && Array.isArray(content) && content.some((part) => part.type === "tool_result"))
      for (const part of content) results.push(textOf(part.content));
    else if (role === "user") prompt ||= textOf(content);
  }
  const tools = (body.tools ?? []).map((tool) => tool.function?.name ?? tool.name);
  return { prompt, results, last: results.at(-1), tools, body };
}

const chat = ({ text, calls = [] }, id) => ({
  id: `chat-${id}`, object: "chat.completion", created: 1, model: "scripted",
  choices: [{
    index: 0, finish_reason: calls.length ? "tool_calls" : "stop",
    message: {
      role: "assistant", content: text ?? null,
      ...(calls.length && { tool_calls: calls.map(({ name, input }, i) => ({ id: `call_${id}_${i}`, type: "function", function: { name, arguments: JSON.stringify(input) } })) }),
    },
  }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
});

const messages = ({ text, calls = [] }, id) => ({
  id: `msg_${id}`, type: "message", role: "assistant", model: "scripted", stop_sequence: null,
  stop_reason: calls.length ? "tool_use" : "end_turn", usage: { input_tokens: 1, output_tokens: 1 },
  content: [...(text ? [{ type: "text", text }] : []), ...calls.map(({ name, input }, i) => ({ type: "tool_use", id: `toolu_${id}_${i}`, name, input }))],
});

const gateway = ({ text, calls = [] }, id) => ({
  content: [...(text ? [{ type: "text", text }] : []), ...calls.map(({ name, input }, i) => ({ type: "tool-call", toolCallId: `call_${id}_${i}`, toolName: name, input: JSON.stringify(input) }))],
  finishReason: { unified: calls.length ? "tool-calls" : "stop", raw: "stop" }, warnings: [],
  usage: { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } },
});
const dialects = [[/\/messages$/, messages], [/\/language-model$/, gateway], [/./, chat]];

// `tls`: { key, cert }, for a stand-in of a host that is asked over https.
export async function scriptedModel(script, { failFirst, tls } = {}) {
  const requests = [];
  const failures = [];
  let refuse = failFirst;
  const answer = async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    const send = (status, value) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    if (refuse) {
      refuse = undefined;
      return send(failFirst, { type: "error", error: { type: "overloaded_error", message: "try again" } });
    }
    const body = JSON.parse(text);
    requests.push({ path: request.url, headers: request.headers, body });
    try {
      const reply = await script(conversation(body));
      send(200, dialects.find(([path]) => path.test(request.url))[1](reply, requests.length));
    } catch (error) {
      failures.push(error);
      send(400, { type: "error", error: { type: "invalid_request_error", message: String(error.message) } });
    }
  };
  const server = tls ? https.createServer(tls, answer) : http.createServer(answer);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address();
  return { url: `${tls ? "https" : "http"}://127.0.0.1:${port}`, port, requests, failures };
}
