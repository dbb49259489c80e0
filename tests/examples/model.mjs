// A model that follows a script: a function that sees what really came back from the tools and says what comes next.
// Speaks chat completions and Anthropic's messages, streamed where it is asked to.
//
//   const model = await scriptedModel(({ prompt, results }) => results.length === 0
//     ? { calls: [{ name: "run", input: { command: "date" } }] } : { text: `it is ${results.at(-1)}` });
//   model.url, model.requests, model.failures                  // an exception of the script fails the test through these
import http from "node:http";
import { after } from "node:test";

const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join(""));

// What a script is told, whichever dialect the client speaks.
function conversation(body) {
  const results = [];
  let prompt = "";
  for (const { role, content } of body.messages) {
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

export async function scriptedModel(script, { failFirst } = {}) {
  const requests = [];
  const failures = [];
  let refuse = failFirst;
  const server = http.createServer(async (request, response) => {
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
      send(200, (request.url.endsWith("/messages") ? messages : chat)(reply, requests.length));
    } catch (error) {
      failures.push(error);
      send(400, { type: "error", error: { type: "invalid_request_error", message: String(error.message) } });
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, requests, failures };
}
