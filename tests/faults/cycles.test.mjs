// A sandbox that stops and resumes a hundred times, ten times with a kill -9 of the daemon somewhere in between: its
// files are the same after each. And what a stop does to programs that are still at work.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { engine, sleep, startServer, until } from "../support/server.mjs";

const cycles = 100;
const query = "projectId=prj_test";
const script = fileURLToPath(new URL("tree.py", import.meta.url));

let server;
before(async () => (server = await startServer()));
after(() => server?.stop());

const resume = (name) => server.call("GET", `/v2/sandboxes/${name}?${query}&resume=true`);
const stop = (session) => server.call("POST", `/v2/sandboxes/sessions/${session}/stop`);
const python = (session, ...args) => server.exec(session, "python3", args, { sudo: true, env: engine === "gvisor" ? { PLAIN: "1" } : {} });

// A request that a dying server may or may not answer.
const attempt = (promise) => promise.then(() => true, () => false);

test(`${cycles} stops and resumes leave every file as it was`, async () => {
  const source = await readFile(script, "utf8");
  const { sandbox, session } = await server.create({ runtime: "python3.13", timeout: 3_600_000, env: { TREE: source } });
  const write = await server.exec(session.id, "sh", ["-c", 'mkdir -p /data && printf %s "$TREE" > /data/tree.py'], { sudo: true });
  assert.equal(write.exitCode, 0, write.stderr);
  let id = session.id;
  let expected;
  for (let n = 0; n <= cycles; n++) {
    const done = await python(id, "/data/tree.py", String(n));
    assert.equal(done.exitCode, 0, done.stderr);
    const [found, next] = done.stdout.trim().split("\n");
    if (n > 0) assert.equal(found, expected, `the tree after stop ${n}`);
    expected = next;
    if (n % 10 === 5) {
      const delay = Math.random() * 400;
      const stopping = attempt(stop(id));
      await sleep(delay);
      await server.crash();
      await stopping;
      await server.start();
    } else {
      await stop(id);
    }
    id = (await resume(sandbox.name)).session.id;
  }
  const { sandbox: end } = await server.call("GET", `/v2/sandboxes/${sandbox.name}?${query}`);
  assert.equal(end.status, "running");
  await server.call("DELETE", `/v2/sandboxes/${sandbox.name}?${query}&deleteOrphanSnapshots=true`);
});

const writer = `
import signal, sqlite3, sys, time
db = sqlite3.connect("/vercel/work.db")
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE t (n INTEGER)")
db.commit()
n = 0
while True:
    n += 1
    db.execute("INSERT INTO t VALUES (?)", (n,))
    db.commit()
    print(n, flush=True)
    time.sleep(0.005)
`;
const farewell = `
import signal, sys, time
def bye(number, frame):
    with open("/vercel/farewell", "w") as f:
        for i in range(1000):
            f.write("line %d\\n" % i)
    print("bye", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, bye)
print("ready", flush=True)
while True: time.sleep(1)
`;

test("programs at work when the stop comes leave intact files, exit codes and logs", async () => {
  const { sandbox, session } = await server.create({ runtime: "python3.13" });
  const start = async (code) => (await server.call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`,
    { body: { command: "python3", args: ["-c", code], env: {}, sudo: true } })).command.id;
  const log = async (id) => {
    const text = await (await server.request("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${id}/logs`)).text();
    return text.split("\n").filter(Boolean).map((l) => JSON.parse(l)).filter((l) => l.stream === "stdout").map((l) => l.data).join("");
  };
  const [db, handler] = [await start(writer), await start(farewell)];
  await until(async () => (await server.exec(session.id, "sh", ["-c", "test -s /vercel/work.db"])).exitCode === 0, "it writes");
  await sleep(1000);
  const stopped = await stop(session.id);
  assert.equal(stopped.session.status, "stopped");
  const codes = await Promise.all([db, handler].map(async (id) =>
    (await server.call("GET", `/v2/sandboxes/sessions/${session.id}/cmd/${id}`)).command.exitCode));
  assert.deepEqual(codes, [143, 5]);
  assert.equal(await log(handler), "ready\nbye\n");
  const committed = Number((await log(db)).trim().split("\n").at(-1));
  assert.ok(committed > 0);

  const id = (await resume(sandbox.name)).session.id;
  const check = await python(id, "-c", `
import sqlite3
db = sqlite3.connect("/vercel/work.db")
print(db.execute("PRAGMA integrity_check").fetchone()[0], db.execute("SELECT count(*) FROM t").fetchone()[0])
print(open("/vercel/farewell").read().count("\\n"))`);
  assert.equal(check.exitCode, 0, check.stderr);
  const [database, lines] = check.stdout.trim().split("\n");
  const [verdict, rows] = database.split(" ");
  assert.equal(verdict, "ok");
  assert.ok(Number(rows) >= committed, "what was committed is there");
  assert.equal(lines, "1000");
});
