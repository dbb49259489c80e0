// forwardURL with the SDK's own, unmodified defineSandboxProxy on the other side: it verifies the token with the keys
// that the preload fetches from our server, and learns who asked for what.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { makeWorld } from "../support/world.mjs";

const world = await makeWorld();
const { sandbox } = await useSdk({ config: world.config() });
const { defineSandboxProxy } = createRequire(new URL("../clients/package.json", import.meta.url))("@vercel/sandbox/proxy");

const proxy = defineSandboxProxy(
  async (request, meta) => Response.json({ url: request.url, method: request.method, body: await request.text(), own: request.headers.get("x-own"), meta }),
  (request, error) => Response.json({ refused: error.message }, { status: 403 }));

// The helper takes a web Request; this is what a framework would do around it.
const forged = {}; // headers that somebody in between changed
const port = await world.https(async (request, response) => {
  const pieces = await request.toArray();
  const url = `https://${request.headers.host}${request.url}`;
  const headers = { ...request.headers, ...forged };
  const answer = await proxy(new Request(url, { method: request.method, headers, ...(pieces.length ? { body: Buffer.concat(pieces) } : {}) }));
  response.writeHead(answer.status);
  response.end(await answer.text());
});

const ask = async (box, url, options = "") => JSON.parse((await sh(box, `curl -sS -m 20 ${options} '${url}'`)).stdout);

test("the helper accepts forwarded requests and sees the original one", async () => {
  const box = await sandbox({ networkPolicy: { allow: { "api.test": [{ forwardURL: `https://proxy.test:${port}/hook/` }] } } });
  const plain = await ask(box, "https://api.test/");
  assert.equal(plain.refused, undefined);
  assert.deepEqual(plain.meta, { host: `proxy.test:${port}`, teamId: "team_test", projectId: "prj_test", sandboxId: plain.meta.sandboxId, sandboxName: box.name });
  assert.equal(plain.url, "https://api.test/");
  const posted = await ask(box, "https://api.test:8443/a/b?c=d%20e", `-H 'X-Own: 1' -H 'vercel-forwarded-host: forged.test' -H 'vercel-sandbox-oidc-token: forged' -d body`);
  assert.deepEqual([posted.url, posted.method, posted.body, posted.own], ["https://api.test:8443/a/b?c=d%20e", "POST", "body", "1"]);
  assert.equal(posted.meta.sandboxId, plain.meta.sandboxId);
});

test("it refuses a token for another audience or one that was changed", async () => {
  const box = await sandbox({ networkPolicy: { allow: { "api.test": [{ forwardURL: `https://proxy.test:${port}/hook` }] } } });
  forged["vercel-forwarded-path"] = "/k/other"; // then /hook/x is taken for the forwardURL itself
  assert.match((await ask(box, "https://api.test/x")).refused, /aud/);
  delete forged["vercel-forwarded-path"];
  forged["vercel-sandbox-oidc-token"] = "e30.e30.e30";
  assert.ok((await ask(box, "https://api.test/x")).refused);
  delete forged["vercel-sandbox-oidc-token"];
  assert.equal((await ask(box, "https://api.test/x")).refused, undefined);
});
