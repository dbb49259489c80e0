// A store of plain directories (disk.limit = "none"): sessions are stacked there, not copied.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { engine, startServer } from "../support/server.mjs";

// A virtual machine's disk is a device, and has to be copied without its bytes.
const skip = engine.startsWith("microvm") && "microVMs need the btrfs store";
const server = skip ? undefined : await startServer({ config: '[disk]\nlimit = "none"\n' });
after(() => server?.stop());
const query = "projectId=prj_test";
const resume = async (name) => (await server.call("GET", `/v2/sandboxes/${name}?${query}&resume=true`)).session.id;
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session}/stop`);

test("files survive a chain of stops, a flatten and a fork", { skip }, async () => {
  let session = (await server.create({ name: "chain", runtime: "node24" })).session.id;
  const rounds = 13; // a chain of twelve is made into one
  for (let i = 0; i < rounds; i++) {
    const done = await server.exec(session, "sh", ["-ec", `echo ${i} > f${i}; rm -f f${i - 2}; mkdir d${i}; [ ! -e d${i - 1} ] || mv d${i - 1} moved${i}`]);
    assert.equal(done.exitCode, 0, done.stderr);
    await stop(session);
    session = await resume("chain");
  }
  const look = ["sh", ["-c", "ls; cat f*"]];
  const seen = (await server.exec(session, ...look)).stdout;
  assert.match(seen, new RegExp(`^d${rounds - 1}\nf${rounds - 2}\nf${rounds - 1}\nmoved1\n`));
  assert.equal(seen.split("\n").filter((n) => n.startsWith("moved")).length, rounds - 1);
  await stop(session);
  const fork = await server.call("POST", `/v2/sandboxes/chain/fork?${query}`, { body: { name: "fork" } });
  assert.equal((await server.exec(fork.session.id, ...look)).stdout, seen);
});

test("a limit that cannot hold is refused", { skip }, async () => {
  await assert.rejects(startServer({ config: '[limits]\ndisk_mb = 64\n[disk]\nlimit = "none"\n' }), /limits.disk_mb` needs `disk.limit/);
});
