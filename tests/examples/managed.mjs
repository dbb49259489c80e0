// Claude's managed agents as a worker sees them, on loopback: work items with leases, sessions with events. What the agent
// does next is a script's to say, which sees the results that the worker really posted.
//
//   const claude = await managedAgents();
//   const session = claude.session(({ results }) => (results.length === 0 ? use("bash", { command: "date" }) : "end"));
//   claude.queue(session); …; session.results, claude.log, claude.work
import assert from "node:assert/strict";
import http from "node:http";
import { after } from "node:test";

export const use = (name, input, more = {}) => ({ name, input, ...more });

class Session {
  constructor(claude, script) {
    Object.assign(this, { claude, script, id: `session_${claude.count++}`, events: [], streams: new Set(), results: [], asked: 0 });
    this.emit({ type: "user.message", content: [{ type: "text", text: "go" }] });
  }
  emit(event) {
    const full = { id: `evt_${this.claude.count++}`, ...event };
    this.events.push(full);
    for (const stream of this.streams) stream.write(`event: ${full.type}\ndata: ${JSON.stringify(full)}\n\n`);
    return full;
  }
  // The agent's next move, when every call so far is settled. "end": the turn is over; "wait": somebody else acts.
  advance() {
    if (this.asked > this.results.length) return;
    const next = this.script(this);
    if (next === "wait") return;
    if (next === "end") return void this.emit({ type: "session.status_idle", stop_reason: { type: "end_turn" } });
    if (next === "terminate") return void this.emit({ type: "session.status_terminated" });
    const { name, input, type = "agent.tool_use", permission, foreign } = next;
    if (!foreign) this.asked++;
    const call = this.emit({ type, name, input, ...(permission && { evaluated_permission: permission }) });
    this.calls = [...(this.calls ?? []), call];
    if (foreign) this.advance();
  }
  accept(event) {
    assert.equal(event.type, "user.tool_result");
    assert.ok(this.events.some((e) => e.id === event.tool_use_id), "a result for a call that was made");
    assert.ok(!this.results.some((r) => r.id === event.tool_use_id), "one result for a call");
    this.results.push({ id: event.tool_use_id, isError: event.is_error, text: event.content.map((part) => part.text).join("") });
    this.emit(event);
    setImmediate(() => this.advance());
  }
}

export async function managedAgents({ key = `env-key-${Math.random()}`, ttl = 60, fail = () => undefined, cut = () => false } = {}) {
  const claude = { key, count: 1, work: [], log: [], failures: [], sessions: new Map(), fail, cut, ttl };
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    const url = new URL(request.url, "http://x");
    const send = (status, body) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    const call = `${request.method} ${url.pathname}`;
    claude.log.push(call);
    const trouble = claude.fail(call, claude);
    if (trouble) return send(trouble, { error: { type: "api_error", message: "trouble" } });
    try {
      answer(claude, { request, response, url, call, body: text ? JSON.parse(text) : undefined, send });
    } catch (error) {
      claude.failures.push(error);
      send(400, { error: { message: error.message } });
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  claude.url = `http://127.0.0.1:${server.address().port}`;
  claude.session = (script) => {
    const session = new Session(claude, script);
    claude.sessions.set(session.id, session);
    return session;
  };
  claude.queue = (session, { token = `token-${Math.random()}` } = {}) => {
    const secret = token && Buffer.from(JSON.stringify({ sessions_token: token })).toString("base64url");
    const item = { type: "work", id: `work_${claude.count++}`, environment_id: "env_1", data: { type: "session", id: session.id }, secret: secret || null, state: "queued", token };
    claude.work.push(item);
    return item;
  };
  return claude;
}

function answer(claude, { request, response, url, call, body, send }) {
  assert.equal(request.headers["anthropic-beta"], "managed-agents-2026-04-01");
  const bearer = request.headers.authorization;
  let match;
  if (call === "GET /v1/environments/env_1/work/poll") {
    if (bearer !== `Bearer ${claude.key}`) return send(401, { error: { type: "authentication_error", message: `bad key ${bearer}` } });
    assert.ok(request.headers["anthropic-worker-id"]);
    const item = claude.work.find((w) => w.state === "queued");
    if (!item) return void setTimeout(() => send(200, null), 50);
    item.state = "starting";
    const { token, ...shown } = item;
    return send(200, shown);
  }
  if ((match = /^POST \/v1\/environments\/env_1\/work\/(\w+)\/(ack|heartbeat|stop)$/.exec(call))) {
    const item = claude.work.find((w) => w.id === match[1]);
    const own = match[2] === "ack" || !item.token ? claude.key : item.token;
    assert.equal(bearer, `Bearer ${own}`, `${match[2]} with the right credential`);
    if (match[2] === "ack") item.state = "active";
    if (match[2] === "stop") {
      assert.deepEqual(body, { force: true });
      item.state = "stopped";
    }
    if (match[2] !== "heartbeat") return send(200, { id: item.id });
    const expected = url.searchParams.get("expected_last_heartbeat");
    if (item.lost || expected !== (item.last ?? "NO_HEARTBEAT")) return send(412, { error: { message: "lost" } });
    item.last = new Date(Date.now() + claude.count++).toISOString();
    const session = claude.sessions.get(item.data.id);
    if (!item.begun) {
      item.begun = true;
      setImmediate(() => session.advance());
    }
    return send(200, { type: "work_heartbeat", last_heartbeat: item.last, lease_extended: true, state: item.stopping ? "stopping" : "active", ttl_seconds: claude.ttl });
  }
  match = /^(GET|POST) \/v1\/sessions\/(\w+)(\/events(\/stream)?)?$/.exec(call);
  assert.ok(match, `unknown call ${call}`);
  const session = claude.sessions.get(match[2]);
  const item = claude.work.findLast((w) => w.data.id === session.id);
  assert.equal(bearer, `Bearer ${item.token || claude.key}`);
  if (!match[3]) return send(200, { id: session.id, type: "session", resources: [], agent: { skills: [] } });
  if (match[4]) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(": hello\n\n");
    session.streams.add(response);
    response.on("close", () => session.streams.delete(response));
    return;
  }
  if (match[1] === "GET") {
    // In small pages, so that paging is used.
    const from = Number(url.searchParams.get("page") ?? 0);
    return send(200, { data: session.events.slice(from, from + 3), next_page: from + 3 < session.events.length ? String(from + 3) : null });
  }
  for (const event of body.events) session.accept(event);
  send(200, { data: body.events });
  if (claude.cut(session)) for (const stream of session.streams) stream.destroy();
}
