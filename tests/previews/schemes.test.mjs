// Programs ask for a preview's https: or wss: address, because the vendor's have no other. Under the preload these reach a
// server without TLS too, whatever dials.
import assert from "node:assert/strict";
import https from "node:https";
import { createRequire } from "node:module";
import { test } from "node:test";
import { useSdk } from "../clients/sdk.mjs";
import { app, serve } from "./guest.mjs";

const { sandbox, server } = await useSdk();
const undici = createRequire(new URL("../clients/package.json", import.meta.url))("undici");
const box = await sandbox({ ports: [3000] });
await serve(box, app(3000, "127.0.0.1"));
const plain = new URL(box.domain(3000));
const secure = (path, port = plain.port) => `https://${plain.hostname}${port ? `:${port}` : ""}${path}`;

test("fetch, with the server's port, another one and none", async () => {
  for (const port of [plain.port, "", "9443"]) {
    const seen = await (await fetch(secure("/seen", port))).json();
    assert.equal(seen.url, "/seen");
    assert.equal(seen.headers["x-forwarded-proto"], "http");
  }
  const posted = await fetch(secure("/count"), { method: "POST", body: "x".repeat(100_000) });
  assert.equal(await posted.text(), "100000");
});

test("node:https and another copy of undici", async () => {
  const body = await new Promise((done, fail) => {
    https.get(secure("/from-https"), (response) => {
      let text = "";
      response.on("data", (d) => (text += d)).on("end", () => done(text));
    }).on("error", fail);
  });
  assert.equal(JSON.parse(body).url, "/from-https");
  assert.equal((await (await undici.fetch(secure("/from-undici"))).json()).url, "/from-undici");
});

test("WebSocket over wss:", async () => {
  const socket = new undici.WebSocket(secure("/socket").replace("https", "wss"));
  const got = await new Promise((done, fail) => {
    socket.onopen = () => socket.send("there and back");
    socket.onmessage = (event) => done(event.data);
    socket.onerror = (event) => fail(event.error ?? new Error("no socket"));
  });
  assert.equal(got, "there and back");
  socket.close();
});

test("a token of ours is not for a guest", async () => {
  await assert.rejects(fetch(secure("/"), { headers: { "x-mine": `Bearer ${process.env.SANDBAR_TOKEN = server.token}` } }), { code: "SANDBAR_TOKEN_KEPT" });
});
