// Which image a sandbox gets: the default, names of the vendor's images, the operator's aliases, and beside a snapshot.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, sh, useSdk } from "./sdk.mjs";

const { sandbox, server } = await useSdk({ config: '[images.aliases]\n"registry.example/us/*" = "vercel/sandbox/node:22"\n' });
const imageOf = async (image) => (await sandbox({ runtime: undefined, image })).image;

test("without an image: node, bun, python and a compiler", async () => {
  const box = await sandbox({ runtime: undefined });
  assert.match(box.image, /^vercel\/sandbox\/universal@sha256:/);
  const got = await sh(box, "node --version && bun --version && python3 --version && pip --version && gcc --version");
  assert.equal(got.exitCode, 0, got.stderr);
});

test("the vendor's base images get the universal one, and the answer says so", async () => {
  for (const name of ["vcr.vercel.com/vercel/eve/base:0.80.1", "vercel/eve/base", "vercel/sandbox/ubuntu:26.04"]) {
    assert.match(await imageOf(name), /^vercel\/sandbox\/universal@sha256:[0-9a-f]{64}$/, name);
  }
  const { sandbox: made, session } = await server.call("POST", "/v3/sandboxes", { body: { projectId: "prj_test", image: "vercel/eve/base:1" } });
  assert.match(made.image, /^vercel\/sandbox\/universal@/);
  assert.equal(session.image, made.image);
  const digest = `sha256:${"0".repeat(64)}`;
  const pinned = await apiError(sandbox({ runtime: undefined, image: `vercel/eve/base@${digest}` }));
  assert.equal(pinned.status, 400, "another content than the digest says is refused");
  assert.match(pinned.message, /digest/);
});

test("the operator's aliases", async () => {
  assert.match(await imageOf("registry.example/us/worker:7"), /^vercel\/sandbox\/node@sha256:|^vercel\/sandbox\/node:22@sha256:/);
  const refused = await apiError(sandbox({ runtime: undefined, image: "registry.example/them/worker" }));
  assert.equal(refused.status, 422);
  assert.match(refused.message, /images\.aliases/);
});

test("a snapshot brings its image: runtime and image beside it are ignored", async () => {
  const first = await sandbox({ runtime: "node22" });
  assert.equal((await sh(first, "echo kept > note")).exitCode, 0);
  const { snapshotId } = await first.snapshot();
  const source = { type: "snapshot", snapshotId };
  for (const body of [{ runtime: "python3.13" }, { image: "vercel/sandbox/universal" }, { image: "no/such-image" }, { runtime: "node24", image: "x" }]) {
    for (const version of [2, 3]) {
      const made = await server.call("POST", `/v${version}/sandboxes?teamId=team_test`, { body: { projectId: "prj_test", source, ...body } });
      assert.equal(made.session.runtime, "node22", JSON.stringify(body));
      assert.equal(made.sandbox.image, first.image);
      assert.match((await server.exec(made.session.id, "sh", ["-c", "node --version; cat note"])).stdout, /^v22\.[\d.]+\nkept\n$/, JSON.stringify(body));
      await server.call("DELETE", `/v2/sandboxes/${made.sandbox.name}?projectId=prj_test&teamId=team_test`);
    }
  }
  const box = await sandbox({ source, runtime: "node24" });
  assert.equal((await sh(box, "cat note")).stdout, "kept\n");
});
