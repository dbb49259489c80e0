// For the tests of run_code: cells in a sandbox of a real server, their events in a form that reads well.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";

// Numbers differ from run to run: no answer can be known beforehand.
export const number = () => randomInt(1000, 1_000_000);

// Reads NDJSON as it arrives; onEvent may be used to act in the middle of a cell.
export async function readEvents(response, onEvent = () => {}) {
  const events = [], decoder = new TextDecoder();
  let text = "";
  for await (const piece of response.body) {
    text += decoder.decode(piece, { stream: true });
    for (let end; (end = text.indexOf("\n")) >= 0; text = text.slice(end + 1)) {
      if (!text.slice(0, end).trim()) continue;
      const event = JSON.parse(text.slice(0, end));
      events.push(event);
      await onEvent(event, events);
    }
  }
  assert.equal(text.trim(), "", "the stream ended inside of a line");
  return events;
}

export class Cells {
  constructor(server, name, language, scope = "projectId=prj_test") {
    Object.assign(this, { server, name, language, scope });
  }

  start(code, fields = {}, options = {}) {
    return this.server.request("POST", `/x/v1/sandboxes/${this.name}/code?${this.scope}`, {
      body: { language: this.language, code, ...fields }, ...options,
    });
  }

  // A cell to its end: {stdout, stderr, result, displays, error, artifacts, end, started, events}.
  async run(code, fields = {}, onEvent) {
    const response = await this.start(code, fields);
    if (!response.ok) {
      const text = await response.text();
      throw Object.assign(new Error(`${response.status} ${text}`), { status: response.status, text });
    }
    assert.equal(response.headers.get("content-type"), "application/x-ndjson");
    const events = await readEvents(response, onEvent);
    const of = (type) => events.filter((e) => e.type === type);
    const text = (type) => of(type).map((e) => e.text).join("");
    assert.equal(events[0].type, "started");
    assert.equal(events.at(-1)?.type, "end", JSON.stringify(events));
    return {
      events, started: events[0], end: events.at(-1), status: events.at(-1).status, stdout: text("stdout"), stderr: text("stderr"),
      result: of("result")[0]?.data, text: of("result")[0]?.data["text/plain"], displays: of("display").map((e) => e.data),
      error: of("error")[0], artifacts: of("artifact"),
    };
  }

  async ok(code, fields) {
    const cell = await this.run(code, fields);
    assert.equal(cell.status, "ok", JSON.stringify(cell.events));
    return cell;
  }

  contexts(method, path = "", body) {
    return this.server.call(method, `/x/v1/sandboxes/${this.name}/contexts${path}?${this.scope}`, { body });
  }
}
