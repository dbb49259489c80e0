// A guest that wants out: every trick with names, addresses, bytes and its own root must end at the policy.
import assert from "node:assert/strict";
import net from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import tls from "node:tls";
import { sh, useSdk } from "../clients/sdk.mjs";
import { makeWorld } from "../support/world.mjs";

const world = await makeWorld();
const seen = []; // requests that any server of the world got
const echo = (request, response) => {
  seen.push({ host: request.headers.host, url: request.url, auth: request.headers.authorization });
  response.end(`served ${request.headers.host}`);
};
const secure = await world.https(echo);
const plain = await world.http(echo);
// The operator allowed 127.0.0.1 only: nothing may ever arrive here.
const trespassers = [];
const trespass = () => net.createServer((socket) => { trespassers.push(socket.localPort); socket.destroy(); });
for (const port of [secure, plain]) await world.listen(trespass(), "127.0.0.2", port);
const { sandbox, server } = await useSdk({ config: world.config("", "[limits]\nmax_running = 64\n") });

const rule = { transform: [{ headers: { authorization: "Bearer canary-fronting" } }] };
const custom = { allow: { "api.test": [rule], "open.test": [], "moving.test": [] } };
const somewhere = "203.0.113.7"; // the guest may connect to any address: the name decides

// Sends the pieces one after the other from inside and gives what came back, with the error's code when it broke.
const script = `
const [address, port, enough, ...pieces] = process.argv.slice(1);
const socket = require("net").connect({ port: +port, host: address, noDelay: true });
let got = Buffer.alloc(0);
const done = (why) => { console.log(JSON.stringify({ bytes: got.toString("latin1"), why })); process.exit(0); };
socket.on("connect", async () => { for (const p of pieces) { socket.write(Buffer.from(p, "base64")); await new Promise((r) => setTimeout(r, 20)); } });
socket.on("data", (d) => { got = Buffer.concat([got, d]); if (got.length >= +enough) done("enough"); });
socket.on("error", (e) => done(e.code)).on("end", () => done("end")).on("close", () => done("close"));`;
async function speak(box, port, pieces, { address = somewhere, enough = 1 << 20 } = {}) {
  const done = await box.runCommand("node", ["-e", script, address, String(port), String(enough), ...pieces.map((p) => Buffer.from(p, "latin1").toString("base64"))]);
  return JSON.parse(await done.stdout());
}
const request = (host, path = "/", more = "", last = true) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}${last ? "Connection: close\r\n" : ""}\r\n`;
const denials = async (box) => (await server.call("GET", `/x/v1/sessions/${box.currentSession().sessionId}/network/log`)).denials;

// The first flight of a real TLS client.
const helloOf = (options) => new Promise((done) => {
  let flight = "";
  const wire = new Duplex({ read() {}, write(bytes, _, next) { flight += bytes.toString("latin1"); next(); } });
  tls.connect({ socket: wire, ...options }).on("error", () => {});
  const whole = setInterval(() => { if (flight) { clearInterval(whole); done(flight); } }, 50);
});
// The same handshake message in records of `size` bytes.
function inRecords(hello, size) {
  const out = [];
  for (let at = 5; at < hello.length; at += size) {
    const part = hello.slice(at, at + size);
    out.push(`\x16\x03\x01${String.fromCharCode(part.length >> 8, part.length & 255)}${part}`);
  }
  return out;
}
const kAlert = "\x15\x03\x03\x00\x02\x02\x31"; // fatal, access_denied
const letThrough = (got) => got.bytes[0] === "\x16";
const refused = (got) => got.bytes.startsWith(kAlert);

test("where TLS is ended, another Host is misdirected, also later on the connection", async () => {
  const box = await sandbox({ networkPolicy: custom });
  seen.length = 0;
  for (const host of ["closed.test", "open.test", `open.test:${secure}`, "api.test.", "127.0.0.1"]) {
    const got = await sh(box, `curl -sS -m 20 -w '%{http_code}' -H 'Host: ${host}' https://api.test:${secure}/`);
    assert.match(got.stdout, host === "api.test." ? /served/ : /421$/, `${host}: ${got.stdout} ${got.stderr}`);
  }
  const reused = await sh(box, `node -e '
    const socket = require("tls").connect({ host: "api.test", port: ${secure}, servername: "api.test" }, () => socket.write("GET /1 HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\nGET /2 HTTP/1.1\\r\\nHost: open.test\\r\\n\\r\\n"));
    socket.on("data", (d) => process.stdout.write(d)).on("close", () => process.exit());'`);
  assert.match(reused.stdout, /HTTP\/1\.1 200[^]*HTTP\/1\.1 421/);
  assert.ok(!reused.stdout.includes("canary"));
  assert.deepEqual([...new Set(seen.map((s) => s.host))], [`api.test:${secure}`]);
});

test("plain HTTP is decided request by request", async () => {
  const box = await sandbox({ networkPolicy: custom });
  seen.length = 0;
  const got = await speak(box, plain, [request("open.test", "/1", "", false), request("closed.test", "/2", "", false), request("open.test", "/3")]);
  assert.match(got.bytes, /^HTTP\/1\.1 200[^]*served open\.test[^]*HTTP\/1\.1 403[^]*egress_denied/);
  assert.ok(seen.every((s) => s.host === `open.test:${plain}`), JSON.stringify(seen));
  // A secret is not sent in the clear, whatever the guest asks for.
  assert.match((await speak(box, plain, [request("api.test")])).bytes, /^HTTP\/1\.1 403[^]*use https/);
  assert.ok(!seen.some((s) => s.auth));
});

test("ambiguous requests reach no upstream", async () => {
  const box = await sandbox({ networkPolicy: custom });
  seen.length = 0;
  const H = "Host: open.test\r\n";
  const bad = [
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc`,
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n`,
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n`,
    `POST / HTTP/1.0\r\n${H}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `POST / HTTP/1.1\r\n${H}Content-Length: 3, 3\r\n\r\nabc`,
    `POST / HTTP/1.1\r\n${H}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc`,
    `POST / HTTP/1.1\r\n${H}Content-Length: +3\r\n\r\nabc`,
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n0\r\n\r\n`,
    `GET / HTTP/1.1\r\n${H}X : y\r\n\r\n`, `GET / HTTP/1.1\n${H}\n\n`, `GET / HTTP/1.1\r\n${H}${H}\r\n`,
    `GET http://closed.test/ HTTP/1.1\r\n${H}\r\n`, `CONNECT closed.test:443 HTTP/1.1\r\n${H}\r\n`, `TRACE / HTTP/1.1\r\n${H}\r\n`,
    `GET /#/../x HTTP/1.1\r\n${H}\r\n`, "GET / HTTP/1.1\r\n\r\n",
  ];
  for (const bytes of bad) {
    const got = await speak(box, plain, [bytes]);
    assert.match(got.bytes, /^HTTP\/1\.1 4\d\d/, `${JSON.stringify(bytes)}: ${JSON.stringify(got)}`);
  }
  assert.deepEqual(seen, []);
});

test("a secret of a path is not sent where the path may lead elsewhere", async () => {
  const paths = { match: { path: { startsWith: "/v1/" } }, transform: [{ headers: { authorization: "Bearer canary-path" } }] };
  const box = await sandbox({ networkPolicy: { allow: { "api.test": [paths] } } });
  seen.length = 0;
  const ask = (path) => sh(box, `curl -sS -m 20 --path-as-is -o /tmp/body -w '%{http_code}' 'https://api.test:${secure}${path}'; cat /tmp/body`);
  for (const path of ["/v1/%252e%252e/admin", "/v1/%25252E%25252e/admin", "/v1/..;/admin", "/v1/..%2fadmin", "/v1/..%255cadmin", "/v1/%c0%ae%c0%ae/admin"]) {
    const got = await ask(path);
    assert.match(got.stdout, /^403[^]*rules about paths/, `${path}: ${got.stdout} ${got.stderr}`);
  }
  assert.deepEqual(seen, []);
  assert.ok((await denials(box)).some((d) => /dot segment/.test(d.reason) && d.host === "api.test"));
  assert.match((await ask("/v1/x")).stdout, /^200/);
  assert.match((await ask("/v1/%2e%2e/admin")).stdout, /^200/);
  assert.deepEqual(seen.map((s) => [s.url, s.auth]), [["/v1/x", "Bearer canary-path"], ["/admin", undefined]]);
});

test("a policy that would hold up the server is refused, and the rule is named", async () => {
  const box = await sandbox();
  const set = (match) => server.request("POST", `/v2/sandboxes/sessions/${box.currentSession().sessionId}/network-policy?teamId=team_test&projectId=prj_test`,
    { body: { allow: { "api.test": [{ response: { statusCode: 204 } }, { match, response: { statusCode: 204 } }] } } });
  for (const [match, why] of [
    [{ path: { regex: "^/(?:a?){1000}b$" } }, /\[1\]\.match\.path: is too large a regular expression/],
    [{ path: { regex: "a{0,1000}".repeat(400) } }, /\[1\]\.match\.path: is too large a regular expression/],
    [{ headers: Array.from({ length: 2000 }, () => ({ key: { exact: "a" } })) }, /1000/],
  ]) {
    const response = await set(match);
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.message, why);
  }
});

test("the server name is read however it is cut, and nothing else is one", async () => {
  const box = await sandbox({ networkPolicy: custom });
  const hello = await helloOf({ servername: "open.test" });
  const sizes = [1, 7, 64].map((size) => inRecords(hello, size)).filter((records) => records.length < 250);
  for (const pieces of [[hello], [hello.slice(0, 1), hello.slice(1, 60), hello.slice(60)], [...hello.slice(0, 80)].concat(hello.slice(80)), ...sizes, ...sizes.map((r) => [r.join("")])]) {
    const got = await speak(box, secure, pieces, { enough: 1 });
    assert.ok(letThrough(got), `${pieces.length} pieces: ${JSON.stringify(got)}`);
  }
  const denied = await helloOf({ servername: "closed.test" });
  const bare = await helloOf({});
  const dotted = (await helloOf({ servername: "open.testX" })).replace("open.testX", "open.test.");
  assert.ok(letThrough(await speak(box, secure, [dotted], { enough: 1 })), "a final dot changes nothing");
  for (const [what, pieces] of Object.entries({
    denied: [denied], "denied in pieces": inRecords(denied, 64), "no name": [bare],
    "NUL inside": [hello.replace("open.test", "open\0tes")], "NUL behind": [(await helloOf({ servername: "open.testX" })).replace("open.testX", "open.test\0")],
    "an address": [(await helloOf({ servername: "127a0a0a1" })).replace("127a0a0a1", "127.0.0.1")],
    "a number": [(await helloOf({ servername: "x130706434" })).replace("x130706434", "2130706434")],
    "two dots": [(await helloOf({ servername: "open.testXX" })).replace("open.testXX", "open.test..")],
  })) {
    const got = await speak(box, secure, pieces, { enough: 7 });
    assert.ok(refused(got) || got.why === "ECONNRESET", `${what}: ${JSON.stringify(got)}`);
  }
  assert.ok((await denials(box)).some((d) => /without a server name/.test(d.reason)));
  assert.ok(!world.asked.includes("closed.test"));
});

test("a ClientHello as large as they come, and one that is larger", async () => {
  const box = await sandbox({ networkPolicy: custom });
  const long = (count) => helloOf({ servername: "open.test", ALPNProtocols: ["http/1.1", ...Array.from({ length: count }, (_, i) => `${i}`.padStart(250, "x"))] });
  const large = await long(200); // some 50 KB
  assert.ok(large.length > 50_000);
  const passed = await speak(box, secure, [large], { enough: 1 });
  assert.ok(letThrough(passed), JSON.stringify(passed));
  // More than 64 KB, said to be one message: refused without waiting for all of it.
  const endless = `\x16\x03\x01\x40\x00\x01\x01\x86\xa0${"\x03".repeat(16380)}`;
  const got = await speak(box, secure, [endless, endless.slice(0, 5) + "\x03".repeat(16384)], { enough: 7 });
  assert.ok(refused(got) || got.why !== "enough", JSON.stringify(got));
  assert.deepEqual(trespassers, []);
});

test("addresses are no names, in any spelling, and no policy opens what the operator keeps shut", async () => {
  const wide = await sandbox({ networkPolicy: { allow: ["*"], subnets: { allow: ["0.0.0.0/0"] } } });
  const names = await sandbox({ networkPolicy: { allow: ["*"] } });
  seen.length = 0;
  for (const spelling of ["127.0.0.2", "2130706434", "0x7f000002", "017700000002", "0177.0.0.2", "127.2", "0x7f.2", "[::ffff:127.0.0.2]", "[::ffff:7f00:2]", "[::1]", "[64:ff9b::7f00:2]",
    "127.0.0.2.", "127.0.0.2%00.test", "①②⑦.0.0.2", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0"]) {
    const got = await speak(names, plain, [Buffer.from(request(spelling)).toString("latin1")]);
    assert.match(got.bytes, /^HTTP\/1\.1 (400|403|421)/, `${spelling}: ${JSON.stringify(got)}`);
  }
  for (const address of ["169.254.169.254", "100.100.100.200", "168.63.129.16", "10.0.0.1", "192.168.1.1", "198.18.0.77", "224.0.0.1", "255.255.255.255", "0.0.0.1"]) {
    const got = await sh(wide, `curl -sS -m 20 http://${address}:${plain}/`);
    assert.ok(!got.stdout.includes("served") && (got.exitCode !== 0 || JSON.parse(got.stdout).error.code === "egress_denied"), `${address}: ${got.stdout}`);
  }
  // What the host itself would call by these names is reached by nobody's forwardURL either.
  for (const url of [`https://127.0.0.2:${secure}/`, `https://2130706434:${secure}/`, `https://0x7f000002:${secure}/`, `https://[::ffff:127.0.0.2]:${secure}/`, "http://169.254.169.254/latest"]) {
    const box = await sandbox({ networkPolicy: { allow: { "api.test": [{ forwardURL: url }] } } }).catch((e) => e);
    if (!(box instanceof Error)) assert.match((await sh(box, `curl -sS -m 20 -w '%{http_code}' https://api.test:${secure}/`)).stdout, /(403|502)$/, url);
  }
  assert.deepEqual([seen, trespassers], [[], []]);
});

test("a name that moves to a forbidden address leads nowhere, in every kind of connection", async () => {
  const v4 = (...bytes) => (type) => (type === 1 ? [Buffer.from(bytes)] : []);
  const v6 = (hex) => (type) => (type === 28 ? [Buffer.from(hex, "hex")] : []);
  const open = await sandbox({ networkPolicy: custom });
  const ended = await sandbox({ networkPolicy: { allow: { "moving.test": [rule] } } });
  const get = (box, url) => sh(box, `curl -sS -m 20 ${url}`);
  for (const box of [open, ended]) assert.match((await get(box, `https://moving.test:${secure}/`)).stdout, /served moving/);
  assert.match((await get(open, `http://moving.test:${plain}/`)).stdout, /served moving/);
  seen.length = 0;
  for (const [where, records] of Object.entries({
    "another loopback": v4(127, 0, 0, 2), metadata: v4(169, 254, 169, 254), private: v4(10, 0, 0, 1), unspecified: v4(0, 0, 0, 0), "IPv6 loopback": v6("00000000000000000000000000000001"),
    mapped: v6("00000000000000000000ffff7f000002"), NAT64: v6("0064ff9b0000000000000000a9fea9fe"), "link-local": v6("fe800000000000000000000000000001"),
  })) {
    world.answers.set("moving.test", records);
    for (const [box, url] of [[open, `https://moving.test:${secure}/`], [ended, `https://moving.test:${secure}/`], [open, `http://moving.test:${plain}/`]]) {
      const got = await get(box, url);
      assert.ok(got.exitCode !== 0 || JSON.parse(got.stdout).error.code === "egress_denied", `${where} ${url}: ${got.stdout}`);
    }
  }
  world.answers.delete("moving.test");
  assert.deepEqual([seen, trespassers], [[], []]);
  assert.ok((await denials(open)).some((d) => /metadata/.test(d.reason) && d.rule === "server"));
});

// Questions by hand: name, type, transport, to whichever server.
const question = `
const dgram = require("dgram"), net = require("net");
const [marker] = process.argv.slice(1);
const encode = (name, type) => Buffer.concat([Buffer.from([7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]), ...name.split(".").map((l) => Buffer.concat([Buffer.from([l.length]), Buffer.from(l)])), Buffer.from([0, 0, type, 0, 1])]);
const names = [];
for (let i = 0; i < 60; i++) names.push(marker + i + ".evil.test", marker + i + ".open.test", "open.test");
for (const l of [63, 40]) names.push(Array.from({ length: 3 }, () => (marker + "x".repeat(63)).slice(0, l)).join(".") + ".open.test");
let left = 0;
const udp = dgram.createSocket("udp4");
udp.on("message", () => {});
udp.on("error", () => {});
for (const name of names) for (const type of [1, 16, 10, 5, 15, 28, 65]) for (const to of ["192.0.2.53", "203.0.113.53"]) udp.send(encode(name, type), 53, to, () => {});
for (const to of ["192.0.2.53", "203.0.113.53"]) {
  left++;
  const tcp = net.connect(53, to, () => { for (const name of names.slice(0, 20)) { const q = encode(name, 16); tcp.write(Buffer.concat([Buffer.from([0, q.length]), q])); } tcp.end(); });
  tcp.on("data", () => {}).on("error", () => {}).on("close", () => { if (--left === 0) setTimeout(() => process.exit(), 1500); });
}`;

test("nothing gets out through DNS, under deny-all and under a domain policy", async () => {
  const dig = async (box, marker) => {
    const before = world.asked.length;
    const done = await box.runCommand("node", ["-e", question, marker]);
    assert.equal(done.exitCode, 0, await done.stderr());
    return world.asked.slice(before);
  };
  assert.deepEqual(await dig(await sandbox(), "leak1x"), []);
  const box = await sandbox({ networkPolicy: { allow: ["open.test"] } });
  assert.deepEqual(await dig(box, "leak2x"), []);
  // Only when it is let through does somebody ask, and then only for the name itself.
  const before = world.asked.length;
  assert.match((await sh(box, `curl -sS -m 20 https://open.test:${secure}/`)).stdout, /served/);
  assert.deepEqual([...new Set(world.asked.slice(before))], ["open.test"]);
  // The test's own resolver does hear the questions of a policy that lets them pass.
  assert.ok((await dig(await sandbox({ networkPolicy: "allow-all" }), "leak3x")).some((n) => n.startsWith("leak3x")));
});

test("names with odd bytes are refused before anybody is asked", async () => {
  const box = await sandbox({ networkPolicy: { allow: ["*"] } });
  const before = world.asked.length;
  for (const host of ["open.test\0.evil", "open..test", ".open.test", `${"a".repeat(64)}.test`, `${"a.".repeat(130)}test`, "open_test:99999", "a b.test", "user@open.test", "open.test/x", "*.test", "%6fpen.test"]) {
    const got = await speak(box, plain, [request(host)]);
    assert.match(got.bytes, /^HTTP\/1\.1 4\d\d/, `${JSON.stringify(host)}: ${JSON.stringify(got)}`);
  }
  assert.equal(world.asked.length, before);
  assert.match((await speak(box, plain, [request("OPEN.Test.")])).bytes, /served open\.test/);
});

test("a client that dribbles is dropped, an upstream that dribbles is given up, and others do not notice", async () => {
  const dribble = (socket, text, ms) => {
    let at = 0;
    const timer = setInterval(() => (at < text.length ? socket.write(text[at++]) : clearInterval(timer)), ms);
    socket.on("close", () => clearInterval(timer)).on("error", () => {});
  };
  const slow = await world.listen(net.createServer((socket) => dribble(socket, `HTTP/1.1 200 OK\r\nX: ${"y".repeat(4000)}\r\n\r\n`, 300)));
  const box = await sandbox({ networkPolicy: custom });
  const hello = await helloOf({ servername: "open.test" });
  const drip = (port, text) => box.runCommand("node", ["-e", `
    const text = Buffer.from("${Buffer.from(text, "latin1").toString("base64")}", "base64");
    let open = 0;
    for (let i = 0; i < 100; i++) {
      const socket = require("net").connect({ port: ${port}, host: "${somewhere}", noDelay: true }, () => { open++; });
      let at = 0;
      const timer = setInterval(() => socket.write(text.subarray(at, ++at)), 300);
      socket.on("data", () => {}).on("error", () => {}).on("close", () => { clearInterval(timer); if (--open === 0) process.exit(); });
    }`]);
  const drips = [drip(secure, hello), drip(plain, request("open.test", `/${"z".repeat(1000)}`))];
  const upstream = sh(box, `curl -sS -m 100 -w '%{http_code}' http://open.test:${slow}/`);
  // Meanwhile, from the same machine and from another.
  const other = await sandbox({ networkPolicy: custom });
  for (const b of [box, other]) assert.match((await sh(b, `curl -sS -m 60 https://open.test:${secure}/`)).stdout, /served/);
  for (const done of await Promise.all(drips)) assert.equal(done.exitCode, 0, "all of them were closed");
  assert.match((await upstream).stdout, /(502|504)$/);
});
