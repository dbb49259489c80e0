// The server is killed while a guest tries everything in a loop: closed while it is down, and what was denied before is
// denied from the first moment after.
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { sleep, until } from "../support/server.mjs";
import { makeWorld, outside } from "../support/world.mjs";

const world = await makeWorld();
const served = { "open.test": 0, "closed.test": 0, "api.test": 0 };
const handler = (request, response) => {
  served[request.headers.host.split(":")[0]]++;
  response.end(request.headers.authorization ?? "served");
};
const secure = await world.https(handler);
const plain = await world.http(handler);
// Where a machine whose policy was lost would get to.
if (outside) await world.listen(http.createServer(handler), outside, plain);
const { sandbox, server } = await useSdk({ config: world.config() });

const loop = `
const https = require("https"), http = require("http"), net = require("net"), dns = require("dns");
const count = {};
const note = (what) => { count[what] = (count[what] ?? 0) + 1; };
const ask = (module, name, port, label) => {
  // The name decides, whatever the address; the guest does not wait for DNS.
  const request = module.get({ host: "${outside ?? "203.0.113.5"}", servername: name, port, headers: { host: name + ":" + port }, agent: false, timeout: 2000 }, (r) => {
    let body = "";
    r.on("data", (d) => { body += d; }).on("end", () => { note(label + " " + r.statusCode + " " + (body.includes("egress_denied") ? "denied" : body)); });
  });
  request.on("timeout", () => request.destroy()).on("error", () => note(label + " failed")).on("close", () => setTimeout(ask, 5, module, name, port, label));
};
for (let i = 0; i < 4; i++) {
  ask(https, "closed.test", ${secure}, "tls"); ask(http, "closed.test", ${plain}, "http");
  ask(https, "open.test", ${secure}, "allowed"); ask(https, "api.test", ${secure}, "ruled");
}
setInterval(() => console.log(JSON.stringify(count)), 200);`;

test("kill -9 and restart, again and again: a denied server is never reached", async () => {
  const policy = { allow: { "api.test": [{ transform: [{ headers: { authorization: "canary-crash" } }] }], "open.test": [] } };
  const box = await sandbox({ networkPolicy: policy, timeout: 600_000 });
  const locked = await sandbox({ networkPolicy: "allow-all", timeout: 600_000 });
  await locked.updateNetworkPolicy("deny-all"); // the last acknowledged one counts, not the first
  const session = box.currentSession().sessionId;
  await sh(box, `nohup node -e '${loop.replaceAll("'", `'"'"'`)}' > /tmp/loop.log 2>&1 &`);
  await sh(locked, `nohup node -e '${loop.replaceAll("'", `'"'"'`)}' > /tmp/loop.log 2>&1 &`);
  const last = async (b) => JSON.parse((await sh(b, "tail -n 1 /tmp/loop.log")).stdout || "{}");
  await until(() => served["open.test"] > 5 && served["api.test"] > 5, "allowed servers are reached");
  for (let round = 0; round < 4; round++) {
    await server.crash();
    await sleep(50); // what was under way has ended
    const before = { ...served };
    await sleep(1500);
    assert.deepEqual(served, before, "nothing passes while the server is down");
    await server.start();
    // The answer to the first call comes after the policy is back.
    const { session: row } = await server.call("GET", `/v2/sandboxes/sessions/${session}`);
    assert.deepEqual(row.networkPolicy.allowedDomains, ["api.test", "open.test"]);
    await until(() => {
      assert.equal(served["closed.test"], 0);
      return served["open.test"] > before["open.test"] && served["api.test"] > before["api.test"];
    }, "allowed servers are reached again");
  }
  assert.equal(served["closed.test"], 0);
  const count = await last(box);
  assert.ok(count["http 403 denied"] > 0 && count["ruled 200 canary-crash"] > 0 && count["allowed 200 served"] > 0, JSON.stringify(count));
  assert.ok(!Object.keys(count).some((k) => /^(tls|http) 200/.test(k)), JSON.stringify(count));
  const none = await last(locked);
  assert.ok(none["http 403 denied"] > 0 && !Object.keys(none).some((k) => / 200 /.test(k)), JSON.stringify(none));
});
