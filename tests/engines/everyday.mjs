// What everybody does with a sandbox, on an engine of the caller's choice: files and commands, the network, previews.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sh } from "../clients/sdk.mjs";
import { app, serve } from "../previews/guest.mjs";

// `sandbox` makes one; `tls` is the port of a server that echoes path and authorization (support/world.mjs).
export function everyday({ sandbox, tls }) {
  test("write, run node and python, read, kill", async () => {
    const box = await sandbox();
    await box.writeFiles([{ path: "main.js", content: "console.log(6 * 7); console.error('careful'); process.exit(3)" }]);
    const run = await box.runCommand("node", ["main.js"]);
    assert.deepEqual([run.exitCode, await run.stdout(), await run.stderr()], [3, "42\n", "careful\n"]);
    assert.match((await box.readFileToBuffer({ path: "main.js" })).toString(), /6 \* 7/);
    const sleeper = await box.runCommand({ cmd: "sleep", args: ["1000"], detached: true });
    await sleeper.kill("SIGTERM");
    assert.equal((await sleeper.wait()).exitCode, 143);
    assert.equal((await box.runCommand({ cmd: "sleep", args: ["1000"], timeoutMs: 300 })).exitCode, 137);
    assert.equal((await sh(box, "id -u; pwd")).stdout, "1000\n/vercel/sandbox\n");
    assert.equal((await sh(box, "id -u; hostname", { sudo: true })).stdout, "0\nsandbox\n");
    const python = await sandbox({ runtime: "python3.13" });
    await python.writeFiles([{ path: "a.py", content: "import sys, sqlite3, subprocess\nprint(sys.version_info[:2], subprocess.check_output(['echo', 'hi']))" }]);
    const ran = await python.runCommand("python3", ["a.py"]);
    assert.equal(await ran.stdout(), "(3, 13) b'hi\\n'\n", await ran.stderr());
  });

  test("network: deny-all, an allowlist, a header put in on the way, and a live switch", async () => {
    const box = await sandbox({ networkPolicy: { allow: { "api.test": [{ transform: [{ headers: { authorization: "Bearer canary" } }] }], "open.test": [] } } });
    const get = (url) => sh(box, `curl -sS -m 60 ${url}`);
    const first = await get(`https://open.test:${tls}/a`);
    assert.equal(first.exitCode, 0, first.stderr);
    assert.equal(JSON.parse(first.stdout).path, "/a");
    assert.equal(JSON.parse((await get(`https://api.test:${tls}/`)).stdout).auth, "Bearer canary");
    assert.notEqual((await get(`https://closed.test:${tls}/`)).exitCode, 0);
    await box.updateNetworkPolicy("deny-all");
    assert.equal(JSON.parse((await get("http://198.51.100.1/")).stdout).error.code, "egress_denied");
    assert.notEqual((await get(`https://open.test:${tls}/a`)).exitCode, 0);
    const other = await sh(box, `node -e 'const s = require("dgram").createSocket("udp4"); s.send("x", 123, "198.51.100.1", (e) => { console.log("done"); s.close(); })'`);
    assert.equal(other.stdout, "done\n");
  });

  test("previews reach a server on the sandbox's own loopback", async () => {
    const box = await sandbox({ ports: [3000] });
    await serve(box, app(3000, "127.0.0.1"));
    const domain = new URL(box.domain(3000));
    const ask = (path, init) => fetch(new URL(path, domain), init);
    assert.equal((await (await ask("/a?b=c")).json()).url, "/a?b=c");
    const body = Buffer.alloc(3 << 20, "x");
    assert.deepEqual(Buffer.from(await (await ask("/echo", { method: "POST", body })).arrayBuffer()), body);
    assert.equal((await (await ask("/big?n=5000000")).arrayBuffer()).byteLength, 5_000_000);
  });
}
