// The examples without a model: warm start, credentials that stay outside, live preview.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { after, afterEach, test } from "node:test";
import { startServer } from "../support/server.mjs";
import { makeWorld } from "../support/world.mjs";
import { environment, example, examples, node, nothingRuns, number } from "./run.mjs";

const world = await makeWorld();
const key = `key-${number(1e12)}`;
const seen = [];
const port = await world.https((request, response) => {
  seen.push(request.headers.authorization);
  response.end(request.headers.authorization === `Bearer ${key}` ? `welcome ${key.length}` : "who are you?");
});
const server = await startServer({ config: world.config() });
after(() => server.stop());
afterEach(() => nothingRuns(server));

test("hello", async () => {
  const run = await example("hello.mjs", [], environment(server, undefined, { NODE_OPTIONS: `--import=${new URL("../../sdk/register.mjs", import.meta.url).href}`, ...await sdkToken() }));
  assert.equal(run.code, 0, run.stderr);
  assert.equal(run.stdout, "6 x 7 = 42\n\n");
});

// As `eval "$(sandbar env)"` sets it, for programs that import the official name.
async function sdkToken() {
  const lines = await (await server.request("GET", "/sdk/env.sh")).text();
  return { VERCEL_OIDC_TOKEN: /VERCEL_OIDC_TOKEN='([^']+)'/.exec(lines)[1] };
}

test("the package for programs that say require()", async () => {
  const code = `const { Sandbox } = require("sandbar");
    Sandbox.create({ runtime: "node24", network: false, persistent: false }).then(async (box) => {
      console.log((await box.exec("echo required")).stdout.trim());
      await box.close();
    });`;
  const { stdout } = await promisify(execFile)(node, ["-e", code], { cwd: examples, env: environment(server) });
  assert.equal(stdout, "required\n");
});

test("warm start: set up once, found again by name", async () => {
  const name = `warm-${number()}`;
  const first = await example("warm-snapshot.mjs", [name], environment(server));
  assert.equal(first.code, 0, first.stderr);
  assert.equal(first.stdout, `setting up\ngoing on from the snapshot\nhello ${name}\n`);
  const second = await example("warm-snapshot.mjs", [name], environment(server));
  assert.equal(second.code, 0, second.stderr);
  assert.equal(second.stdout, `going on from the snapshot\nhello ${name}\n`);
});

test("brokered credentials: the API sees the key, the sandbox does not", async () => {
  const run = await example("brokered-credentials.mjs", [], environment(server, undefined, { API_URL: `https://api.test:${port}/items`, API_KEY: key }));
  assert.equal(run.code, 0, run.stdout + run.stderr);
  assert.equal(run.stdout, `200 welcome ${key.length}\nthe key is not in the sandbox\nother hosts are out of reach\n`);
  assert.deepEqual(seen, [`Bearer ${key}`]);
});

test("live preview: the page is there and changes", async () => {
  const title = `Title ${number()}`;
  const run = await example("live-preview.mjs", [title, "--once"], environment(server));
  assert.equal(run.code, 0, run.stderr);
  const [url, before, changed] = run.stdout.split("\n");
  assert.match(url, /^http:\/\/sb-[a-z0-9]+\.localhost:\d+$/);
  assert.match(before, new RegExp(`<h1>${title}</h1>`));
  assert.match(changed, new RegExp(`<h1>${title}, changed</h1>`));
});
