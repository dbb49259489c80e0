// sdk/python/sandbar.py against a real server: the cases are in test_sandbar.py, each test class is one entry here.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { join } from "node:path";
import { repo, startServer } from "../support/server.mjs";

const server = await startServer({ config: "[limits]\nmax_running = 64\n" });
after(() => server.stop());

function python(args) {
  return new Promise((done) => {
    const env = { PATH: process.env.PATH, HOME: "/nonexistent", PYTHONDONTWRITEBYTECODE: "1", PYTHONWARNINGS: "error",
                  PYTHONPATH: join(repo, "sdk/python"), SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token };
    const child = spawn("python3", args, { cwd: join(repo, "tests/python"), env, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (d) => (output += d));
    child.on("close", (code) => done({ code, output }));
  });
}

for (const name of ["Commands", "Files", "Life", "Errors", "Cut", "Code"]) {
  test(`Python: ${name}`, async () => {
    const { code, output } = await python(["-m", "unittest", "-v", `test_sandbar.${name}`]);
    assert.equal(code, 0, output);
    assert.match(output, /Ran [1-9]\d* tests?/);
  });
}

test("the server hands out the very file, and it imports nothing that must be installed", async () => {
  const response = await server.request("GET", "/sdk/sandbar.py", { token: null });
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /^text\/x-python/);
  const { code, output } = await python(["-I", "-S", "-c", `${await response.text()}\nprint(len(__all__) > 10)`]);
  assert.equal(output.trim(), "True");
  assert.equal(code, 0);
});
