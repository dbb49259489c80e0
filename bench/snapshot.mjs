// What keeping, resuming and forking cost against the size of what is kept, next to a copy of the same files (cp -a) and
// an archive of them (tar | zstd) on the same file system.
//   publish   from the call that stops to its answer, without the grace for processes (there are none)
//   durable   from then until all of it is synced, read and has its manifest
//   resume    until the first command has run; fork: the same in a new sandbox
//
//   SANDBAR_URL=… SANDBAR_TOKEN=… node bench/snapshot.mjs --data DIR [--rounds 5]
import { execFileSync } from "node:child_process";
import { parseArgs } from "node:util";
import { spawnerPid } from "../tests/support/host.mjs";

const { values } = parseArgs({ options: { data: { type: "string" }, rounds: { type: "string", default: "5" } } });
const rounds = Number(values.rounds);
const scope = "projectId=prj_bench&teamId=team_bench";
const headers = { authorization: `Bearer ${process.env.SANDBAR_TOKEN}`, "content-type": "application/json" };
const spawner = await spawnerPid(values.data);

async function call(method, path, body) {
  const response = await fetch(`${process.env.SANDBAR_URL}${path}${path.includes("?") ? "&" : "?"}${scope}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text;
}
const json = async (...args) => JSON.parse(await call(...args));
async function exec(session, script) {
  const text = await call("POST", `/v2/sandboxes/sessions/${session}/cmd`, { command: "sh", args: ["-ec", script], env: {}, sudo: false, wait: true, logs: true });
  if (JSON.parse(text.trim().split("\n").at(-1)).command.exitCode !== 0) throw new Error(text);
}
const timed = async (f) => {
  const start = performance.now();
  const value = await f();
  return [performance.now() - start, value];
};
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const inStore = (script) => execFileSync("nsenter", ["-t", String(spawner), "-m", "--", "sh", "-ec", `cd /run/sandbar/mnt/store; ${script}`]);

const sizes = {
  "10 files": "for i in $(seq 10); do echo $i > f$i; done",
  "10k files": "mkdir d; cd d; seq 10000 | split -l 1 -a 4 - f",
  "500 MB": "head -c 500000000 /dev/urandom > big",
};

async function round(fill) {
  const took = {};
  const { sandbox, session } = await json("POST", "/v2/sandboxes", { projectId: "prj_bench", runtime: "node24", ports: [], networkPolicy: { mode: "deny-all" } });
  await exec(session.id, fill);
  [took.publish] = await timed(() => call("POST", `/v2/sandboxes/sessions/${session.id}/stop`));
  const id = (await json("GET", `/v2/sandboxes/${sandbox.name}`)).sandbox.currentSnapshotId;
  [took.durable] = await timed(async () => {
    while (!(await json("GET", `/v2/sandboxes/snapshots/${id}`)).snapshot.durable) await new Promise((done) => setTimeout(done, 5));
  });
  [took.resume] = await timed(async () => exec((await json("GET", `/v2/sandboxes/${sandbox.name}?resume=true`)).session.id, "true"));
  let fork;
  [took.fork] = await timed(async () => {
    fork = await json("POST", `/v2/sandboxes/${sandbox.name}/fork`, {});
    await exec(fork.session.id, "true");
  });
  [took["cp -a"]] = await timed(() => inStore(`cp -a --reflink=never snapshots/${id}/upper bench-copy`));
  [took["tar|zstd"]] = await timed(() => inStore(`tar -C snapshots/${id} -cf - upper | zstd -q -o bench-tar`));
  inStore("rm -rf bench-copy bench-tar");
  for (const name of [fork.sandbox.name, sandbox.name]) await call("DELETE", `/v2/sandboxes/${name}?deleteOrphanSnapshots=true`);
  return took;
}

await round(sizes["10 files"]); // warms both sides
const columns = ["publish", "durable", "resume", "fork", "cp -a", "tar|zstd"];
console.log(`snapshots, medians of ${rounds}, ms`);
console.log(["".padEnd(10), ...columns.map((c) => c.padStart(9)), "  publish : cp -a", "  durable : tar|zstd"].join(""));
for (const [name, fill] of Object.entries(sizes)) {
  const all = [];
  for (let i = 0; i < rounds; i++) all.push(await round(fill));
  const ms = Object.fromEntries(columns.map((c) => [c, median(all.map((r) => r[c]))]));
  const ratio = (a, b) => `1 : ${(ms[b] / ms[a]).toFixed(2)}`;
  console.log([name.padEnd(10), ...columns.map((c) => ms[c].toFixed(1).padStart(9)), ratio("publish", "cp -a").padStart(17), ratio("durable", "tar|zstd").padStart(20)].join(""));
}
