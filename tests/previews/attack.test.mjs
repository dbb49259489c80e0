// A hostile page in a preview, in a real browser, against the API on the same server and port: it gets nothing.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { useSdk } from "../clients/sdk.mjs";
import { startBrowser } from "./browser.mjs";
import { app, serve } from "./guest.mjs";

const { sandbox, server } = await useSdk();
const browser = await startBrowser();
after(() => browser.close());
const box = await sandbox({ ports: [3000] });
const other = await sandbox({ ports: [3000] });
for (const b of [box, other]) await serve(b, app(3000, "127.0.0.1"));
const page = await browser.open(`${box.domain(3000)}/html`);
const apis = [`http://127.0.0.1:${server.port}`, `http://localhost:${server.port}`];
const query = "teamId=team_test&project=prj_test&projectId=prj_test";
const names = async () => (await server.call("GET", `/v2/sandboxes?${query}`)).sandboxes.map((s) => s.name).sort();
const before = await names();
assert.equal(before.length, 2);
const body = JSON.stringify({ projectId: "prj_test", runtime: "node24" });

test("the page itself works, and its own paths are the guest's", async () => {
  assert.equal(await page.evaluate(`document.querySelector("#x").textContent`), "hello");
  assert.equal(await page.evaluate(`fetch("/v2/sandboxes").then((r) => r.json()).then((j) => j.url)`), "/v2/sandboxes");
});

test("fetch reads nothing and changes nothing, with and without credentials, even with a stolen token", async () => {
  const attempts = [
    `{}`, `{ credentials: "include" }`, `{ method: "POST", body: ${JSON.stringify(body)} }`,
    `{ headers: { authorization: "Bearer ${server.token}" } }`,
    `{ method: "POST", headers: { authorization: "Bearer ${server.token}", "content-type": "application/json" }, body: ${JSON.stringify(body)} }`,
    `{ headers: { "x-sandbar-preview-token": "x" } }`,
  ];
  for (const api of apis)
    for (const options of attempts)
      assert.match(await page.evaluate(`fetch("${api}/v2/sandboxes?${query}", ${options}).then((r) => "read " + r.status, (e) => String(e))`), /^TypeError/, options);
  // No answer is shown in this mode, but the request is sent.
  for (const api of apis)
    assert.equal(await page.evaluate(`fetch("${api}/v2/sandboxes?${query}", { method: "POST", mode: "no-cors", body: ${JSON.stringify(body)} }).then((r) => r.type + r.status)`), "opaque0");
  assert.deepEqual(await names(), before);
});

test("forms, scripts, frames, windows and WebSockets get nothing either", async () => {
  for (const api of apis) {
    assert.equal(await page.evaluate(`new Promise((done) => { const f = document.createElement("iframe"); f.name = "post"; f.onload = () => done("loaded"); document.body.append(f);
      const form = document.createElement("form"); form.method = "post"; form.target = "post"; form.enctype = "text/plain"; form.action = "${api}/v2/sandboxes?${query}";
      const i = document.createElement("input"); i.name = ${JSON.stringify(body.slice(0, -1) + ',"x":"')}; i.value = '"}'; form.append(i); document.body.append(form); form.submit(); })`), "loaded");
    assert.equal(await page.evaluate(`new Promise((done) => { const s = document.createElement("script"); s.src = "${api}/sdk/register.mjs"; s.onload = () => done("ran"); s.onerror = () => done("refused"); document.body.append(s); })`), "refused");
    assert.equal(await page.evaluate(`new Promise((done) => { const f = document.createElement("iframe"); f.src = "${api}/health"; f.onload = () => { try { done(f.contentDocument ? "read" : "closed"); } catch { done("closed"); } }; document.body.append(f); })`), "closed");
    assert.equal(await page.evaluate(`new Promise((done) => { const w = open("${api}/health"); setTimeout(() => { try { done("read " + w.document.body.innerText); } catch { done("closed"); } }, 1500); })`), "closed");
    assert.equal(await page.evaluate(`new Promise((done) => { const w = new WebSocket("${api.replace("http", "ws")}/x/v1/sessions/${before[0]}/ports/3000"); w.onopen = () => done("open"); w.onerror = () => done("refused"); })`), "refused");
  }
  assert.deepEqual(await names(), before);
});

test("cookies stay with their preview, and other previews are other origins", async () => {
  const cookies = await page.evaluate(`document.cookie = "wide=1; domain=localhost"; document.cookie = "own=1"; document.cookie`);
  assert.equal(cookies, "own=1");
  const neighbour = await browser.open(`${other.domain(3000)}/html`);
  assert.equal(await neighbour.evaluate("document.cookie"), "");
  assert.match(await neighbour.evaluate(`fetch("${box.domain(3000)}/").then(() => "read", (e) => String(e))`), /^TypeError/);
  const api = await browser.open(`${apis[1]}/health`);
  assert.match(await api.evaluate(`document.body.innerText`), /"ok"/, "a person may look at it");
  assert.match(await api.evaluate(`(() => { try { return "has " + document.cookie; } catch (e) { return e.name; } })()`), /SecurityError/, "an API answer is a sandboxed document");
});

test("a name that was rebound to this server is turned away", async () => {
  const rebound = await browser.open(`http://rebound.test:${server.port}/v2/sandboxes`);
  const shown = await rebound.evaluate("document.body.innerText");
  assert.match(shown, /misdirected_request/);
});
