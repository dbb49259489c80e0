// Root inside a machine against the machine's own network: its listener, its rules, its routes, every other protocol;
// and one machine that floods while its neighbour and the API go on.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { sh, useSdk } from "../clients/sdk.mjs";
import { engine, until } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";

const world = await makeWorld();
const arrived = [];
const port = await world.https((request, response) => { arrived.push(request.headers.host); response.end("served"); });
const plain = await world.http((request, response) => response.end("served"));
const { sandbox, server } = await useSdk({ config: world.config("", "[limits]\nmax_running = 64\n") });

// Each attack prints "name: ok" when it got through, or the error that stopped it.
const attacks = `
import errno, os, socket, struct, subprocess, sys
def attempt(name, what):
    try:
        what()
        print(name + ": ok", flush=True)
    except Exception as e:
        print(name + ": " + (errno.errorcode.get(e.errno, str(e.errno)) if isinstance(e, OSError) and e.errno else type(e).__name__), flush=True)
def tcp(family, address, send=b"x"):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(10)
    s.connect(address)
    s.sendall(send)
    if not s.recv(1): raise OSError(errno.ECONNRESET, "closed")
def bind(kind, address):
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((address, 1))
def udp(address, to):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.sendto(b"x" * 20, (address, to))
    s.recv(1)
def ping(address, kind=b"\\x08", family=socket.AF_INET, protocol=socket.IPPROTO_ICMP):
    s = socket.socket(family, socket.SOCK_DGRAM, protocol)
    s.settimeout(1)
    s.sendto(kind + b"\\x00\\x00\\x00\\x00\\x01\\x00\\x01", (address, 0))
    s.recv(1)
def netfilter():
    # NFT_MSG_DELTABLE of inet/sandbar in a batch: what "nft flush ruleset" says.
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    batch = lambda kind: struct.pack("=IHHIIBBH", 20, kind, 1, 0, 0, 0, 0, socket.htons(10))
    name = b"sandbar\\x00"
    table = struct.pack("=HH", 4 + len(name), 1) + name
    delete = struct.pack("=IHHIIBBH", 20 + len(table), (10 << 8) | 2, 5, 1, 0, 1, 0, 0) + table
    s.send(batch(16) + delete + batch(17))
    kind, code = struct.unpack_from("=xxxxHxxxxxxxxxxi", s.recv(4096))
    if kind == 2 and code: raise OSError(-code, "netlink")
def command(*argv):
    r = subprocess.run(argv, capture_output=True, text=True)
    if r.returncode: raise OSError(errno.EPERM, r.stderr)
def raw(family, kind, protocol):
    s = socket.socket(family, kind, protocol)
    s.close()
for address in ["127.0.0.1", "0.0.0.0", "127.0.0.9", "203.0.113.1"]: attempt("connect %s:1" % address, lambda: tcp(socket.AF_INET, (address, 1)))
attempt("connect [::1]:1", lambda: tcp(socket.AF_INET6, ("::1", 1)))
attempt("connect mapped:1", lambda: tcp(socket.AF_INET6, ("::ffff:127.0.0.1", 1)))
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    for address in ["0.0.0.0", "127.0.0.1", "203.0.113.1"]: attempt("bind %d %s:1" % (kind, address), lambda: bind(kind, address))
attempt("flush", netfilter)
attempt("route", lambda: command("ip", "route", "replace", "default", "dev", "lo"))
attempt("unroute", lambda: command("ip", "route", "flush", "table", "local"))
attempt("address", lambda: command("ip", "addr", "add", "203.0.113.1/32", "dev", "lo"))
attempt("device", lambda: command("ip", "link", "add", "d0", "type", "dummy"))
attempt("down", lambda: command("ip", "link", "set", "lo", "down"))
attempt("namespace", lambda: command("unshare", "-n", "true"))
attempt("port start", lambda: open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w").write("0"))
attempt("raw tcp", lambda: raw(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
attempt("raw any", lambda: raw(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
attempt("raw icmp", lambda: raw(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt("packet", lambda: raw(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
attempt("sctp", lambda: raw(socket.AF_INET, socket.SOCK_STREAM, 132))
attempt("udp", lambda: udp("203.0.113.1", 4433))
attempt("udp to port 1", lambda: udp("127.0.0.1", 1))
attempt("quic", lambda: udp("203.0.113.1", 443))
attempt("ping", lambda: ping("203.0.113.1"))
attempt("ping6", lambda: ping("2001:db8::1", b"\\x80", socket.AF_INET6, socket.IPPROTO_ICMPV6))
attempt("ipv6", lambda: tcp(socket.AF_INET6, ("2001:db8::1", 443)))
attempt("mapped", lambda: tcp(socket.AF_INET6, ("::ffff:203.0.113.1", ${port})))
attempt("mark", lambda: (lambda s: s.setsockopt(socket.SOL_SOCKET, 36, 1))(socket.socket()))
attempt("transparent", lambda: (lambda s: s.setsockopt(socket.SOL_IP, 19, 1))(socket.socket()))
attempt("ulp", lambda: (lambda s: s.setsockopt(socket.IPPROTO_TCP, 31, b"tls"))(socket.socket()))
`;

// Where the guest has a kernel of its own, this is its own network, and nobody else's; what it sends must still be what the
// link lets through (src/os/netns_link_test.cc sends it every kind of frame).
const own = engine !== "namespaces";
const ITS_OWN = /^(for kind|    for address)|^attempt\("(flush|route|unroute|address|device|down|namespace|port start|raw \w+|packet|sctp|mark|transparent|ulp)"/;
const script = attacks.split("\n").filter((line) => !own || !ITS_OWN.test(line)).join("\n");

for (const sudo of [false, true]) {
  test(`${sudo ? "root" : "the default user"} finds no way around the proxy`, async () => {
    const box = await sandbox({ runtime: "python3.13" });
    const done = await box.runCommand({ cmd: "python3", args: ["-c", script], sudo });
    const lines = (await done.stdout()).split("\n").filter(Boolean);
    assert.equal(done.exitCode, 0, await done.stderr());
    assert.equal(lines.length, own ? 13 : 35, lines.join("\n"));
    assert.deepEqual(lines.filter((l) => l.endsWith(": ok")), []);
    // What is neither TCP nor DNS fails at once, is counted, and is told like any other refusal.
    const session = box.currentSession().sessionId;
    const packets = async () => (await server.call("GET", `/x/v1/sessions/${session}/network/log`)).denials.find((d) => d.kind === "packets");
    const before = await packets();
    assert.match(before.reason, /QUIC/);
    await sh(box, `python3 -c 'import socket\nfor i in range(7):\n  try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("203.0.113.1", 443))\n  except OSError: pass'`);
    await until(async () => (await packets()).count >= before.count + 7, "they are counted");
    // The rules are what they were: a connection is refused with a reason, loopback works, and the daemon serves.
    assert.match((await sh(box, "curl -sS -m 20 http://203.0.113.1/")).stdout, /egress_denied/);
    assert.equal((await sh(box, `python3 -c '
import socket
a = socket.create_server(("127.0.0.1", 8080)); b = socket.create_connection(("127.0.0.1", 8080)); print("hi")'`)).stdout, "hi\n");
    await box.updateNetworkPolicy({ allow: ["open.test"] });
    assert.equal((await sh(box, `curl -sS -m 20 https://open.test:${port}/`)).stdout, "served");
    assert.notEqual((await sh(box, `curl -sS -m 20 https://closed.test:${port}/`)).exitCode, 0);
  });
}

test("root that stops the agent's file worker keeps nothing that a new policy denies", { skip: own }, async () => {
  const box = await sandbox({ runtime: "python3.13", networkPolicy: { allow: ["open.test", "closed.test"] } });
  const follow = async (command, heard) => { for await (const line of command.logs()) heard(line.data); };
  // Asks for the name again and again, and says whether it gets an address.
  let status;
  const probe = await box.runCommand({ cmd: "python3", detached: true, args: ["-u", "-c", `
import socket, time
while True:
    try:
        socket.getaddrinfo("closed.test", 443)
        print("allowed", flush=True)
    except socket.gaierror: print("denied", flush=True)
    time.sleep(0.05)`] });
  const probing = follow(probe, (text) => { status = text.trim().split("\n").at(-1) || status; }).catch(() => {});
  await until(() => status === "allowed", "it is allowed");
  // Whatever the agent starts next is stopped as soon as it exists: it has one of the next process ids.
  let heard = "";
  const stopper = await box.runCommand({ cmd: "python3", detached: true, sudo: true, args: ["-u", "-c", `
import os, signal
first = max(int(p) for p in os.listdir("/proc") if p.isdigit()) + 1
stopped = set()
print("ready", flush=True)
while True:
    for p in range(first, first + 100):
        try:
            os.kill(p, signal.SIGSTOP)
            if p not in stopped: print("stopped", p, flush=True)
            stopped.add(p)
        except OSError: pass`] });
  const stopping = follow(stopper, (text) => { heard += text; }).catch(() => {});
  await until(() => heard.includes("ready"), "root waits for the worker");
  const set = (policy) => server.request("POST", `/v2/sandboxes/sessions/${box.currentSession().sessionId}/network-policy?teamId=team_test&projectId=prj_test`, { body: policy });
  const tight = { allow: { "open.test": [], "api.test": [{ transform: [{ headers: { authorization: "canary-late" } }] }] } };
  let change, denied = false;
  // A worker may be faster than root now and then.
  for (let attempt = 0; attempt < 10 && !denied; attempt++) {
    assert.equal((await set({ allow: ["open.test", "closed.test"] })).status, 200);
    await until(() => status === "allowed", "it is allowed again");
    let settled = false;
    change = set(tight).finally(() => { settled = true; });
    await until(() => status === "denied" || settled, "the new policy denies it");
    denied = !settled;
  }
  assert.ok(denied, "the denial did not wait for the certificate");
  // A later change is not held up either, and takes the place of the first one.
  assert.equal((await set({ mode: "deny-all" })).status, 200);
  assert.equal((await change).status, 200);
  const session = (await server.call("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}?teamId=team_test&projectId=prj_test`)).session;
  assert.equal(session.networkPolicy.mode, "deny-all");
  await box.stop();
  await Promise.all([probing, stopping]);
});

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
// Milliseconds of whole exchanges, one after the other.
async function exchanges(box, count) {
  const done = await box.runCommand("node", ["-e", `
    const times = [];
    const one = () => new Promise((ok, bad) => {
      const start = performance.now();
      const socket = require("net").connect(${plain}, "203.0.113.9", () => socket.write("GET / HTTP/1.1\\r\\nHost: open.test\\r\\nConnection: close\\r\\n\\r\\n"));
      let got = "";
      socket.on("data", (d) => { got += d; }).on("error", bad).on("close", () => { if (!got.includes("served")) return bad(new Error(got)); times.push(performance.now() - start); ok(); });
    });
    (async () => { for (let i = 0; i < ${count}; i++) await one(); console.log(JSON.stringify(times)); })().catch((e) => { console.error(e); process.exit(1); });`]);
  assert.equal(done.exitCode, 0, await done.stderr());
  return JSON.parse(await done.stdout());
}
async function calls(count) {
  const times = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    await server.call("GET", "/v2/sandboxes?limit=1&teamId=team_test&project=prj_test");
    times.push(performance.now() - start);
  }
  return times;
}

for (const [what, policy, flood] of [
  ["denied connects", "deny-all", `for (let i = 0; i < 400; i++) again("203.0.113.1", 443, "\\x16");`],
  ["silent connections", { allow: ["open.test"] }, `for (let i = 0; i < 3000; i++) again("203.0.113.1", 443, "");`],
  ["connects and resets", "allow-all", `for (let i = 0; i < 200; i++) again("127.1.2.3", 9, ""), again("198.51.100.1", 443, "x", true);`],
  // As costly as a policy may be: some milliseconds for each request.
  ["costly matches", { allow: { "open.test": [{ match: { path: { regex: "^/(?:a?){900}b$" } }, response: { statusCode: 204 } }] } },
    `for (let i = 0; i < 100; i++) again("203.0.113.1", ${plain}, "GET /" + "a".repeat(500) + " HTTP/1.1\\r\\nHost: open.test\\r\\nConnection: close\\r\\n\\r\\n");`],
  ["requests", { allow: ["open.test"] }, `for (let i = 0; i < 300; i++) again("203.0.113.1", ${plain}, "GET / HTTP/1.1\\r\\nHost: open.test\\r\\nConnection: close\\r\\n\\r\\n");`],
]) {
  test(`a flood of ${what} leaves the neighbour and the API alone`, async () => {
    const bad = await sandbox({ networkPolicy: policy });
    const neighbour = await sandbox({ networkPolicy: { allow: ["open.test"] } });
    const quiet = { exchange: median(await exchanges(neighbour, 30)), call: median(await calls(30)) };
    const running = await bad.runCommand({ cmd: "node", detached: true, args: ["-e", `
      const net = require("net");
      let count = 0;
      const again = (host, port, text, reset) => {
        const socket = net.connect({ host, port }, () => { count++; if (text) socket.write(text, "latin1"); if (reset) socket.resetAndDestroy(); });
        socket.on("data", () => {}).on("error", () => {}).on("close", () => setImmediate(again, host, port, text, reset));
      };
      ${flood}
      setInterval(() => console.log(count), 500);`] });
    let counted = 0;
    const following = (async () => { for await (const line of running.logs()) counted = Number(line.data.trim().split("\n").at(-1)); })().catch(() => {});
    await until(() => counted > 0, "the flood has begun");
    const start = counted;
    const loud = { exchange: median(await exchanges(neighbour, 30)), call: median(await calls(30)) };
    await until(() => counted > start, "the flood went on");
    await running.kill("SIGKILL");
    await following;
    // They share the processors with the flood: slower, but not starved.
    assert.ok(Math.max(loud.exchange, loud.call) < 50 * quiet.exchange, JSON.stringify({ quiet, loud }));
    const log = await server.call("GET", `/x/v1/sessions/${bad.currentSession().sessionId}/network/log`);
    if (what === "silent connections") assert.ok(log.denials.some((d) => /too many connections/.test(d.reason)), JSON.stringify(log.denials.slice(-3)));
    assert.equal((await sh(neighbour, "echo alive")).stdout, "alive\n");
  });
}

test("no denied server was ever reached", () => {
  assert.deepEqual([...new Set(arrived)], [`open.test:${port}`]);
});
