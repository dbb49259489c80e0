// A model service on loopback whose next reply depends on what really came back: the Anthropic and the OpenAI shape,
// streamed or not, with the failures that real ones have.
//
//   const service = await startModels((turn) => turn.results.length === 0 ? { tool: "run_command", input: {…} } : { text: … });
//   // turn: { prompt, results: ["exit code …", …], request: n, body, headers }
//   // a reply: { text, tool, input, calls: [{ tool, input }], usage: { input, output }, stop }
//   // or a failure: { status: 429, headers, body } | { cut: bytes } | { malformed: true } | { whole: true, … } | { hang: true }
import { createServer } from "node:http";

const usageOf = (reply) => ({ input: 100, output: 20, ...reply.usage });
const callsOf = (reply) => reply.calls ?? (reply.tool ? [{ tool: reply.tool, input: reply.input ?? {} }] : []);

// Text in pieces, as real services send it.
const pieces = (text) => (text.length > 10_000 ? [text.slice(0, 7), text.slice(7)] : (text.match(/[^]{1,7}/gu) ?? []));

function anthropicEvents(reply, n) {
  const usage = usageOf(reply);
  const events = [{ type: "message_start", message: { id: `msg_${n}`, role: "assistant", content: [], usage: { input_tokens: usage.input, output_tokens: 1 } } }];
  let index = 0;
  const block = (start, deltas) => {
    events.push({ type: "content_block_start", index, content_block: start });
    for (const delta of deltas) events.push({ type: "content_block_delta", index, delta });
    events.push({ type: "content_block_stop", index });
    index++;
  };
  if (reply.text) block({ type: "text", text: "" }, pieces(reply.text).map((text) => ({ type: "text_delta", text })));
  events.push({ type: "ping" });
  callsOf(reply).forEach((call, i) => block({ type: "tool_use", id: `toolu_${n}_${i}`, name: call.tool, input: {} },
    pieces(JSON.stringify(call.input)).map((partial_json) => ({ type: "input_json_delta", partial_json }))));
  events.push({ type: "message_delta", delta: { stop_reason: reply.stop ?? (callsOf(reply).length ? "tool_use" : "end_turn") }, usage: { output_tokens: usage.output } });
  events.push({ type: "message_stop" });
  return events.map((e) => `event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`);
}

function openaiEvents(reply, n) {
  const usage = usageOf(reply);
  const chunks = pieces(reply.text ?? "").map((content) => ({ delta: { content } }));
  callsOf(reply).forEach((call, index) => {
    chunks.push({ delta: { tool_calls: [{ index, id: `call_${n}_${index}`, type: "function", function: { name: call.tool, arguments: "" } }] } });
    for (const piece of pieces(JSON.stringify(call.input))) chunks.push({ delta: { tool_calls: [{ index, function: { arguments: piece } }] } });
  });
  chunks.push({ delta: {}, finish_reason: reply.stop ?? (callsOf(reply).length ? "tool_calls" : "stop") });
  const all = chunks.map((choice) => ({ id: `c${n}`, choices: [{ index: 0, ...choice }] }));
  all.push({ id: `c${n}`, choices: [], usage: { prompt_tokens: usage.input, completion_tokens: usage.output } });
  return [...all.map((c) => `data: ${JSON.stringify(c)}\n\n`), "data: [DONE]\n\n"];
}

function whole(reply, n, anthropic) {
  const usage = usageOf(reply);
  const calls = callsOf(reply);
  if (anthropic)
    return { id: `msg_${n}`, role: "assistant", stop_reason: calls.length ? "tool_use" : "end_turn", usage: { input_tokens: usage.input, output_tokens: usage.output },
      content: [...(reply.text ? [{ type: "text", text: reply.text }] : []), ...calls.map((c, i) => ({ type: "tool_use", id: `toolu_${n}_${i}`, name: c.tool, input: c.input }))] };
  return { id: `c${n}`, usage: { prompt_tokens: usage.input, completion_tokens: usage.output },
    choices: [{ finish_reason: calls.length ? "tool_calls" : "stop", message: { role: "assistant", content: reply.text ?? null,
      tool_calls: calls.map((c, i) => ({ id: `call_${n}_${i}`, type: "function", function: { name: c.tool, arguments: JSON.stringify(c.input) } })) } }] };
}

// The texts of all tool results so far, oldest first.
function resultsOf(body, anthropic) {
  if (!anthropic) return body.messages.filter((m) => m.role === "tool").map((m) => m.content);
  return body.messages.filter((m) => m.role === "user" && Array.isArray(m.content)).flatMap((m) => m.content)
    .filter((b) => b.type === "tool_result")
    .map((b) => (typeof b.content === "string" ? b.content : b.content.map((p) => p.text ?? `[${p.type}]`).join("\n")));
}

export async function startModels(script) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = JSON.parse(Buffer.concat(parts).toString());
    const anthropic = request.url === "/v1/messages";
    if (!anthropic && request.url !== "/v1/chat/completions") return response.writeHead(404).end();
    const prompt = body.messages.find((m) => m.role === "user").content;
    requests.push({ url: request.url, headers: request.headers, body });
    const n = requests.length;
    const reply = await script({ prompt, results: resultsOf(body, anthropic), request: n, body, headers: request.headers });
    if (reply.hang) return;
    if (reply.status) {
      response.writeHead(reply.status, { "content-type": "application/json", ...reply.headers });
      return response.end(JSON.stringify(reply.body ?? { error: { type: "some_error", message: `status ${reply.status}` } }));
    }
    if (reply.whole) {
      response.writeHead(200, { "content-type": "application/json" });
      return response.end(JSON.stringify(whole(reply, n, anthropic)));
    }
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    const events = anthropic ? anthropicEvents(reply, n) : openaiEvents(reply, n);
    if (reply.malformed) return response.end(events[0] + "data: {not json\n\n");
    if (reply.cut !== undefined) return response.write(events.join("").slice(0, reply.cut), () => response.destroy());
    // Pieces that do not respect the borders of events.
    const text = events.join("");
    const size = text.length > 100_000 ? 65_537 : 50;
    for (let at = 0; at < text.length; at += size) response.write(text.slice(at, at + size));
    response.end();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${server.address().port}`;
  return {
    url, requests,
    anthropic: { ANTHROPIC_BASE_URL: url },
    openai: (id = "test-model") => `openai:${id}@${url}/v1`,
    stop: () => new Promise((done) => { server.close(done); server.closeAllConnections(); }),
  };
}
