// Containers in a sandbox: podman with its own networks, storage that is part of snapshots, the network policy and its
// authority for containers too. On every engine that can; one that cannot refuses.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { apiError, useSdk } from "../clients/sdk.mjs";
import { engine, until } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";
import { inside, must, root, withImage } from "./podman.mjs";

const world = await makeWorld();
const echo = (request, response) => response.end(JSON.stringify({ auth: request.headers.authorization, path: request.url }));
const tls = await world.https(echo);
const { Sandbox, sandbox, credentials, server } = await useSdk({ config: `allow_nesting_on_class1 = true\n${world.config()}` });
const session = async (box) => (await server.call("GET", `/v2/sandboxes/sessions/${box.currentSession().sessionId}`)).session;
const unique = () => `c-${Math.random().toString(36).slice(2, 10)}`;
const policy = { allow: { "api.test": [{ transform: [{ headers: { authorization: "Bearer canary" } }] }], "open.test": [] } };
const name = unique();
const make = () => sandbox({ name, runtime: undefined, image: "sandbar/podman:latest", __nesting: true, __isolation: engine, ports: [3000], networkPolicy: policy, timeout: 1_800_000 });
const { nesting } = (await server.call("GET", "/x/v1/info")).engines.find((e) => e.name === engine);
const box = nesting && (await withImage(await make()));
const skip = nesting ? false : `${engine} runs no containers`;

test("an engine that cannot run containers refuses the sandbox", { skip: nesting && "this one can" }, async () => {
  const refused = await apiError(make());
  assert.equal(refused.status, 422);
  assert.match(refused.message, /nesting/);
});

test("podman runs an image that was made here, with the host's network and with its own", { skip }, async () => {
  const plain = await inside(box, "id; cat /proc/self/cgroup; ls /proc/self/exe", "--network host");
  assert.match(plain.stdout, /^uid=0 .*\n/, plain.stderr);
  const own = await inside(box, "cat /proc/net/route /proc/1/comm; id -u", "--user 1234");
  assert.match(own.stdout, /0100580A[^]*\nsh\n1234\n$/, own.stderr);
  await must(box, "podman run -d --name web -p 8080:8080 local/tiny:1 sleep 1000 && podman exec web sh -c 'echo hi > /f && cat /f'");
  assert.equal(await must(box, "podman exec web cat /f"), "hi\n");
  assert.match(await must(box, "podman ps --format '{{.Names}} {{.Ports}}'"), /web .*8080/);
  await must(box, "podman rm -f -t 0 web");
});

test("a port that a container publishes has a preview", { skip }, async () => {
  const serve = 'socket(S, 2, 1, 0); bind(S, pack("S n a4 x8", 2, 80, "")) || die $!; listen(S, 5); while (accept(C, S)) { sysread(C, $_, 4096); syswrite(C, "HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\nConnection: close\\r\\n\\r\\ncontainer"); close C; }';
  await box.writeFiles([{ path: "/tmp/serve.pl", content: serve }]);
  await must(box, "podman run -d --name web -p 3000:80 -v /tmp/serve.pl:/serve.pl:ro local/tiny:1 perl /serve.pl");
  const answer = await until(async () => {
    const got = await fetch(box.domain(3000));
    return got.ok && (await got.text());
  }, "it serves");
  assert.equal(answer, "container");
  await must(box, "podman rm -f -t 0 web");
});

test("the policy holds for containers, and they trust the sandbox's authority", { skip }, async () => {
  const api = await inside(box, `curl -sS -m 60 https://api.test:${tls}/a`);
  assert.deepEqual(JSON.parse(api.stdout), { auth: "Bearer canary", path: "/a" }, api.stderr);
  const open = await inside(box, `curl -sS -m 60 https://open.test:${tls}/b`);
  assert.equal(JSON.parse(open.stdout).path, "/b", open.stderr);
  const closed = await inside(box, `curl -sS -m 60 https://closed.test:${tls}/`);
  assert.notEqual(closed.exitCode, 0);
  assert.match((await inside(box, "curl -sS -m 60 http://198.51.100.1/")).stdout, /egress_denied/);
});

test("what containers are made of is kept: stop, resume, fork", { skip }, async () => {
  await must(box, "podman run --name kept local/tiny:1 sh -c 'echo kept > /data'; echo x > /run/gone");
  await box.stop();
  const again = await Sandbox.get({ name, ...credentials });
  assert.equal((await session(again)).nesting, true);
  assert.equal((await root(again, "cat /run/gone")).exitCode, 1, "/run is empty after a start");
  assert.match(await must(again, "podman ps -a --format '{{.Names}} {{.State}}'"), /kept/);
  assert.equal(await must(again, "podman start -a kept; podman cp kept:/data - | tar -xO"), "kept\n");
  await again.stop();
  const fork = await Sandbox.fork({ sourceSandbox: name, name: unique(), ...credentials });
  after(() => fork.delete());
  assert.deepEqual([(await session(fork)).nesting, (await session(fork)).isolation.engine], [true, engine]);
  assert.match((await inside(fork, "id")).stdout, /uid=0/);
});
