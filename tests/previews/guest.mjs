// Servers for the inside of a sandbox, and how a test starts them there.
//
//   const stop = await serve(box, app(3000, "127.0.0.1"));   // resolves when it listens
import { once } from "node:events";

// An HTTP server with one path per behaviour, and a WebSocket echo on every path.
export const app = (port, address) => `
const http = require("http"), crypto = require("crypto");
const server = http.createServer((q, r) => {
  const path = q.url.split("?")[0];
  if (path === "/echo") { r.writeHead(200, { "content-type": "application/octet-stream" }); return q.pipe(r); }
  if (path === "/count") { let n = 0; q.on("data", (d) => (n += d.length)).on("end", () => r.end(String(n))); return; }
  if (path === "/big") { const n = Number(new URL(q.url, "http://x").searchParams.get("n")); r.writeHead(200, { "content-length": n });
    let left = n; const more = () => { while (left > 0) { const piece = Buffer.alloc(Math.min(left, 65536), 120); left -= piece.length; if (!r.write(piece)) return r.once("drain", more); } r.end(); }; return more(); }
  if (path === "/events") { r.writeHead(200, { "content-type": "text/event-stream" }); r.write("data: 1\\n\\n"); server.once("go", () => { r.write("data: 2\\n\\n"); }); q.on("close", () => (server.gone = true)); return; }
  if (path === "/go") { server.emit("go"); return r.end("went"); }
  if (path === "/gone") return r.end(String(!!server.gone));
  if (path === "/cookies") { r.setHeader("set-cookie", ["a=1; Domain=localhost; Path=/", "b=2; HttpOnly; domain=.vercel.run"]); r.setHeader("alt-svc", "h3=:1"); return r.end("cookies"); }
  if (path === "/redirect") { r.writeHead(302, { location: "/seen" }); return r.end(); }
  if (path === "/drop") return q.socket.destroy();
  if (path === "/never") return;
  if (path === "/html") { r.setHeader("content-type", "text/html"); return r.end("<!doctype html><title>guest</title><p id=x>hello</p>"); }
  r.end(JSON.stringify({ method: q.method, url: q.url, headers: q.headers, raw: q.rawHeaders.length / 2 }));
});
server.on("upgrade", (q, s, head) => {
  const accept = crypto.createHash("sha1").update(q.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  s.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n");
  // Frames come back with the mask taken off: enough of RFC 6455 for an echo.
  let buffer = head;
  const take = () => {
    while (buffer.length >= 2) {
      let size = buffer[1] & 127, at = 2;
      if (size === 126) { if (buffer.length < 4) return; size = buffer.readUInt16BE(2); at = 4; }
      if (size === 127) { if (buffer.length < 10) return; size = Number(buffer.readBigUInt64BE(2)); at = 10; }
      if (buffer.length < at + 4 + size) return;
      const mask = buffer.subarray(at, at + 4), data = Buffer.from(buffer.subarray(at + 4, at + 4 + size));
      for (let i = 0; i < data.length; i++) data[i] ^= mask[i & 3];
      const head = Buffer.from(buffer.subarray(0, at)); head[1] &= 127;
      s.write(Buffer.concat([head, data]));
      if ((head[0] & 15) === 8) return s.end();
      buffer = buffer.subarray(at + 4 + size);
    }
  };
  s.on("data", (d) => { buffer = Buffer.concat([buffer, d]); take(); }).on("error", () => {}); take();
});
server.listen(${port}, "${address}", () => console.log("listening"));`;

// A server that answers every connection with the given bytes, whatever it was asked.
export const raw = (port, bytes, { wait = false, close = false } = {}) => `
require("net").createServer((s) => { s.on("error", () => {}); s.once("data", () => { s.write(Buffer.from("${Buffer.from(bytes).toString("base64")}", "base64")); ${close ? "s.end();" : ""} }); ${wait ? "" : ""} })
  .listen(${port}, "127.0.0.1", () => console.log("listening"));`;

// Starts a script with node in a sandbox of the SDK's and waits until it says that it listens.
export async function serve(box, script, args = []) {
  const command = await box.runCommand({ cmd: "node", args: ["-e", script, ...args], detached: true });
  let seen = "";
  for await (const line of command.logs()) {
    seen += line.data;
    if (seen.includes("listening")) return () => command.kill("SIGKILL");
  }
  throw new Error(`the server in the sandbox did not start: ${seen}`);
}

// Raw bytes to the server's port, everything up to the close back.
export async function exchange(connect, port, bytes) {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.on("data", (d) => (text += d)).on("error", () => {});
  socket.write(bytes);
  await once(socket, "close");
  return text;
}
