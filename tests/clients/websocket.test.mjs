// Our WebSocket layer and the npm package `ws`, which the official CLI uses, against each other: each as server and as
// client. The program websocket-echo (tests/support/http/websocket_echo) is our side.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { binary } from "../support/server.mjs";

const program = join(dirname(binary), "../tests/websocket-echo");

const echo = spawn(program, ["serve"], { stdio: ["pipe", "pipe", "inherit"] });
after(() => echo.stdin.end());
const [port] = await once(createInterface(echo.stdout), "line");

async function open(where = "/", options = {}) {
  const ws = new WebSocket(`ws://127.0.0.1:${port}${where}`, options);
  await once(ws, "open");
  return ws;
}

async function ask(ws, message) {
  ws.send(message);
  const [data, binary] = await once(ws, "message");
  return binary ? data : data.toString();
}

test("messages of all sizes come back, and deflate is declined", async () => {
  const ws = await open();
  assert.equal(ws.extensions, "");
  for (const size of [0, 1, 125, 126, 65535, 65536, 1 << 20]) {
    assert.equal(await ask(ws, "é".repeat(size / 2)), "é".repeat(size / 2));
    const bytes = Buffer.alloc(size, size % 251);
    assert.deepEqual(await ask(ws, bytes), bytes);
  }
  ws.close(4002, "enough");
  const [code] = await once(ws, "close");
  assert.equal(code, 4002);
});

test("fragments are put together, and a ping between them is answered", async () => {
  const ws = await open();
  const answer = once(ws, "message");
  ws.send("frag", { fin: false });
  ws.send("men", { fin: false });
  ws.ping("there?");
  const [pong] = await once(ws, "pong");
  assert.equal(pong.toString(), "there?");
  ws.send("ts", { fin: true });
  assert.equal((await answer)[0].toString(), "fragments");
  ws.terminate();
});

test("the server closes with a code and a reason", async () => {
  const ws = await open();
  ws.send("close 4000 that is all, café");
  const [code, reason] = await once(ws, "close");
  assert.equal(code, 4000);
  assert.equal(reason.toString(), "that is all, café");
});

test("pings keep the connection open", async () => {
  const ws = await open("/pings");
  for (let i = 0; i < 3; i++) await once(ws, "ping");
  assert.equal(await ask(ws, "still here"), "still here");
  ws.close();
  await once(ws, "close");
});

test("a reader that pauses gets everything in the end", async () => {
  const ws = await open();
  const seen = [];
  ws.on("message", (data) => seen.push(data));
  ws.send("flood 300");
  await once(ws, "message");
  ws.pause();
  await new Promise((resolve) => setTimeout(resolve, 200));
  ws.resume();
  while (seen.length < 300) await once(ws, "message");
  for (const [i, data] of seen.entries()) assert.ok(data.length === 65536 && data[0] === i % 256 && data[65535] === i % 256);
  assert.equal(await ask(ws, "after"), "after");
  ws.close();
  await once(ws, "close");
});

test("what is too large is refused with 1009, and a wrong mask with 1002", async () => {
  const large = await open();
  large.on("error", () => {}); // what it still sends may meet a closed socket
  large.send(Buffer.alloc((1 << 20) + 1));
  assert.equal((await once(large, "close"))[0], 1009);
  const unmasked = await open();
  unmasked.send("x", { mask: false });
  assert.equal((await once(unmasked, "close"))[0], 1002);
});

test("our client talks to the package's server, deflate or not", async () => {
  for (const perMessageDeflate of [false, true]) {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate });
    await once(server, "listening");
    const closed = new Promise((resolve) => {
      server.on("connection", (ws) => {
        ws.on("message", (data, binary) => ws.send(data, { binary }));
        ws.on("close", (code, reason) => resolve([code, reason.toString()]));
      });
    });
    const client = spawn(program, ["talk", `ws://127.0.0.1:${server.address().port}/x?token=1`]);
    const [said] = await once(createInterface(client.stdout), "line");
    assert.equal(said, "ok");
    assert.deepEqual(await closed, [4001, "that is all"]);
    server.close();
  }
});

test("our client says that it was refused", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", verifyClient: (_, answer) => answer(false, 401) });
  await once(server, "listening");
  const client = spawn(program, ["talk", `ws://127.0.0.1:${server.address().port}/`]);
  const [said] = await once(createInterface(client.stdout), "line");
  assert.equal(said, "refused with 401");
  server.close();
});
