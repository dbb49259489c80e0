// The network as guests see it: a real package under allow-all, a quick and clear no under deny-all, live switches.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import dns from "node:dns/promises";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";
import { until } from "../support/server.mjs";

// The registry that this machine uses; its addresses need not be public ones, so the server is told about them.
const registry = new URL(execFileSync("npm", ["config", "get", "registry"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim());
const addresses = (await dns.lookup(registry.hostname, { all: true, family: 4 })).map((a) => a.address);
const { sandbox, server } = await useSdk({ config: `[network]\nallow_addresses = ${JSON.stringify(addresses)}\n` });
const npm = { npm_config_registry: registry.href, npm_config_update_notifier: "false" };
const port = Number(registry.port || (registry.protocol === "https:" ? 443 : 80));

test("npm install works under allow-all, then the switch to deny-all is felt at once", async () => {
  const box = await sandbox({ networkPolicy: "allow-all" });
  assert.equal(box.networkPolicy, "allow-all");
  const install = await sh(box, "npm install --no-audit --no-fund is-number", { env: npm, timeoutMs: 120_000 });
  assert.equal(install.exitCode, 0, install.stderr);
  assert.equal((await sh(box, `node -p 'require("is-number")("5")'`)).stdout, "true\n");

  // A connection that is open during the switch.
  const holder = await box.runCommand({ cmd: "node", detached: true, args: ["-e", `
    const socket = require("net").connect(${port}, "${registry.hostname}", () => console.log("open"));
    socket.on("error", (e) => console.log("cut", e.code)); socket.on("close", () => process.exit(0));`] });
  let seen = "";
  const following = (async () => { for await (const line of holder.logs()) seen += line.data; })();
  await until(() => seen.includes("open"), "the connection is open");
  assert.equal(await box.updateNetworkPolicy("deny-all"), "deny-all");
  await following;
  assert.equal(seen, "open\ncut ECONNRESET\n");

  // 137 would be the deadline: it must give up by itself, and say what could not be reached.
  const denied = await sh(box, "npm install --no-audit --no-fund --cache /tmp/fresh is-odd", { env: npm, timeoutMs: 30_000 });
  assert.ok(denied.exitCode !== 0 && denied.exitCode !== 137, `exit code ${denied.exitCode}\n${denied.stderr}`);
  assert.match(denied.stderr, new RegExp(`ENOTFOUND|${registry.hostname}`));

  await box.updateNetworkPolicy("allow-all");
  const again = await sh(box, "npm install --no-audit --no-fund --cache /tmp/fresh is-odd", { env: npm, timeoutMs: 120_000 });
  assert.equal(again.exitCode, 0, again.stderr);
  const stopped = await box.stop();
  assert.ok(stopped.networkTransfer.ingress > 1000 && stopped.networkTransfer.egress > 100, JSON.stringify(stopped.networkTransfer));
});

test("deny-all says no in the client's own language", async () => {
  const box = await sandbox();
  assert.equal(box.networkPolicy, "deny-all");
  const http = await sh(box, "curl -sS -m 20 http://198.51.100.1/");
  assert.equal(JSON.parse(http.stdout).error.code, "egress_denied");
  assert.match(JSON.parse(http.stdout).error.hint, /allow-all/);
  const tls = await sh(box, "curl -sS -m 20 https://198.51.100.1/");
  assert.equal(tls.exitCode, 35);
  assert.match(tls.stderr, /alert access denied/);
  const name = await sh(box, "curl -sS -m 20 http://example.com/");
  assert.equal(name.exitCode, 6, "the name does not resolve");
  const other = await sh(box, `node -e 'require("net").connect(22, "198.51.100.1").on("error", (e) => console.log(e.code)).on("close", () => process.exit())'`);
  assert.equal(other.stdout, "ECONNRESET\n");
  assert.notEqual((await sh(box, `node -e 'const s = require("dgram").createSocket("udp4"); s.send("x", 123, "198.51.100.1", (e) => { console.log(e?.code ?? "sent"); s.close(); })'`)).exitCode, 137);
});

test("allow-all does not reach the host, its networks or metadata services", async () => {
  const box = await sandbox({ networkPolicy: "allow-all" });
  const api = new URL(server.url).port;
  for (const address of ["169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16"]) {
    const { stdout } = await sh(box, `curl -sS -m 20 http://${address}:${api}/health`);
    assert.equal(JSON.parse(stdout).error.code, "egress_denied", address);
  }
  assert.equal((await sh(box, `curl -sS -m 20 http://127.0.0.1:${api}/health`)).exitCode, 7, "loopback is the machine's own");
});

test("loopback inside works under deny-all", async () => {
  const box = await sandbox();
  const script = `const s = require("net").createServer((c) => c.end("hi")).listen(8080, "127.0.0.1", () =>
    require("net").connect(8080, "127.0.0.1").on("data", (d) => { console.log(String(d)); process.exit(0); }));`;
  assert.equal(await (await box.runCommand("node", ["-e", script])).stdout(), "hi\n");
});

test("a policy that makes no sense is refused, not echoed", async () => {
  const custom = { allow: ["exa*mple.com"] };
  assert.equal((await apiError(sandbox({ networkPolicy: custom }))).status, 400);
  const box = await sandbox();
  assert.equal((await apiError(box.updateNetworkPolicy(custom))).status, 400);
  assert.equal(box.networkPolicy, "deny-all");
});
