// No route reaches a record of another project. The list of routes is the server's own document, so a new route is in the
// matrix without anyone thinking of it: the token of one project asks for everything that another project has.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { startServer } from "../support/server.mjs";

const SECRET = "canary-of-the-owner";
let server, document, owner, stranger, strangerAdmin, ownersKey;
before(async () => {
  server = await startServer({ config: "[limits]\nmax_running = 16\n" });
  document = await (await server.request("GET", "/openapi.json", { token: null })).json();
  const jwtKey = (await readFile(join(server.data, "jwt.key"), "utf8")).trim();
  const b64 = (v) => Buffer.from(JSON.stringify(v)).toString("base64url");
  const mint = (project_id) => {
    const exp = Math.floor(Date.now() / 1000) + 3600;
    const head = `${b64({ alg: "HS256", typ: "JWT" })}.${b64({ owner_id: "team_sandbar", project_id, aud: "sandbar", exp })}`;
    return `${head}.${createHmac("sha256", jwtKey).update(head).digest("base64url")}`;
  };
  owner = mint("prj_owner");
  stranger = mint("prj_stranger");
  const key = (project) => server.call("POST", "/x/v1/keys", { body: { name: project, role: "admin", project } });
  strangerAdmin = (await key("prj_stranger")).secret;
  ownersKey = (await key("prj_owner")).key.id;
});
after(() => server?.stop());

const ask = async (token, method, path, body) => {
  const bytes = body instanceof Uint8Array;
  const response = await server.request(method, path, {
    token, body: body === undefined || bytes ? body : JSON.stringify(body),
    headers: body === undefined ? {} : { "content-type": bytes ? "application/gzip" : "application/json" },
  });
  return { status: response.status, text: await response.text() };
};
// The one route that wants an upgrade, which fetch does not send.
const upgrade = (token, path) => new Promise((done, fail) => {
  const headers = { authorization: `Bearer ${token}`, connection: "Upgrade", upgrade: "sandbar-tcp" };
  const q = request(server.url + path, { headers }, async (r) => {
    let text = "";
    for await (const piece of r) text += piece;
    done({ status: r.statusCode, text });
  });
  q.on("upgrade", (r, socket) => socket.destroy() && done({ status: r.statusCode, text: "" })).on("error", fail).end();
});
const own = async (method, path, body) => {
  const { status, text } = await ask(owner, method, path, body);
  assert.ok(status < 300, `${method} ${path}: ${status} ${text}`);
  return text.startsWith("{") && !text.includes("}\n{") ? JSON.parse(text) : text;
};

// An archive with nothing in it: two blocks of zeros.
const archive = () => gzipSync(Buffer.alloc(1024));
// Bodies that the owner could send: a refusal of the body would say nothing about the scope.
const bodies = {
  "/extend-timeout": { duration: 60_000 },
  "/network-policy": { mode: "allow-all" },
  "/snapshot": {},
  "/cmd": { command: "cat", args: ["secret"], env: {}, sudo: false },
  "/commands": { command: "cat", args: ["secret"] },
  "/resize": { cols: 80, rows: 24 },
  "/kill": { signal: 9 },
  "/fs/read": { path: "secret" },
  "/fs/mkdir": { path: "made" },
  "/fork": {},
  "/promote": {},
  "/resume": {},
  "/code": { language: "javascript", code: "1" },
  "/contexts": { language: "javascript" },
  "/network/test": { policy: { mode: "allow-all" } },
};
const bodyOf = (method, path, operation) => {
  if (!operation.requestBody) return undefined;
  if (operation.requestBody.content["application/gzip"]) return archive();
  if (method === "PATCH") return { tags: { taken: "yes" } };
  const end = Object.keys(bodies).find((suffix) => path.endsWith(suffix));
  return end ? bodies[end] : {};
};

test("a token of another project reaches nothing by any route with an id in it", async () => {
  const made = await own("POST", "/v2/sandboxes", { projectId: "prj_owner", name: "box", runtime: "node24", ports: [3000], env: { KEY: SECRET } });
  const first = made.session.id;
  const written = await ask(owner, "POST", `/v2/sandboxes/sessions/${first}/cmd`, { command: "sh", args: ["-c", `echo ${SECRET} | tee secret`], env: {}, sudo: false, wait: true });
  const command = /"id":"(cmd_\w+)"/.exec(written.text)[1];
  const { snapshot } = await own("POST", `/v2/sandboxes/sessions/${first}/snapshot`, {});
  const { session } = await own("GET", "/v2/sandboxes/box?resume=true");
  await own("POST", "/v2/sandboxes/drives/volume", { projectId: "prj_owner", maxSizeBytes: 64 << 20 });
  const context = JSON.parse((await ask(owner, "POST", "/x/v1/sandboxes/box/contexts", { language: "javascript" })).text);
  const records = {
    name: "box", session: session.id, command, snapshot: snapshot.id, drive: "volume", team: "team_other", project: "prj_owner",
    context: context.id ?? context.context?.id, port: "3000", key: ownersKey,
    code: "BBBB-BBBB", // a login belongs to no project: whoever has a key and the code may approve it
  };
  assert.ok(records.context, JSON.stringify(context));

  let refused = 0;
  for (const [template, methods] of Object.entries(document.paths)) {
    for (const [verb, operation] of Object.entries(methods)) {
      const method = verb.toUpperCase();
      // A drive and an MCP sandbox of a name that another project has are made anew, as one's own (see below).
      const makes = method === "POST" && /^\/mcp|\/drives\/\{drive\}$/.test(template);
      if (!template.includes("{") || makes) continue;
      const path = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(records[name] ?? assert.fail(`${template}: what is ${name}?`)));
      const body = bodyOf(method, template, operation);
      const query = template.includes("/files/") ? "?path=secret&to=x&target=x" : template.endsWith("/stdin") && method === "POST" ? "?offset=0" : "";
      // The session of a running sandbox, and the one that the command ran in.
      for (const target of template.includes("{command}") ? [path.replace(session.id, first), path] : [path]) {
        for (const prefix of ["", "/api"]) {
          // Keys are an admin's; everything else needs no more than the token of a program.
          const who = template.includes("{key}") ? strangerAdmin : stranger;
          const call = template.endsWith("/ports/{port}") ? upgrade(who, prefix + target) : ask(who, method, prefix + target + query, body);
          const { status, text } = await call;
          const said = `${method} ${prefix}${target}: ${status} ${text.slice(0, 300)}`;
          assert.ok(!text.includes(SECRET) && !text.includes(snapshot.id), said);
          assert.ok(status === 404 || (status === 403 && !template.includes("{key}")), said);
          refused++;
        }
      }
    }
  }
  assert.ok(refused > 150, `${refused} calls`);

  // Nothing happened to what the owner has.
  const now = await own("GET", "/v2/sandboxes/box");
  assert.equal(now.session.id, session.id);
  assert.equal(now.session.status, "running");
  assert.deepEqual(now.sandbox.tags ?? {}, {});
  assert.equal((await own("POST", `/v2/sandboxes/sessions/${session.id}/fs/read`, { path: "secret" })).trim(), SECRET);
  assert.equal((await own("GET", `/v2/sandboxes/snapshots/${snapshot.id}`)).snapshot.status, "created");
  assert.ok(JSON.stringify(await own("GET", "/v2/sandboxes/drives")).includes("volume"));
  assert.ok((await server.call("GET", "/x/v1/keys")).keys.some((k) => k.id === ownersKey), "the owner's key is in force");
});

test("neither do bodies and queries that name records of another project", async () => {
  const { snapshots } = await own("GET", "/v2/sandboxes/snapshots");
  const id = snapshots[0].id;
  const tries = [
    ["POST", "/v2/sandboxes", { projectId: "prj_stranger", ports: [], source: { type: "snapshot", snapshotId: id } }],
    ["POST", "/v1/sandboxes", { projectId: "prj_stranger", ports: [], source: { type: "snapshot", snapshotId: id } }],
    ["POST", "/v2/sandboxes", { projectId: "prj_stranger", ports: [], mounts: { "/mnt": { drive: "volume", mode: "read-only" } } }],
    ["POST", "/v2/sandboxes", { projectId: "prj_owner", ports: [] }],
    ["POST", "/x/v1/race", { source: "box", count: 2, command: "cat", args: ["secret"] }],
    ["GET", `/x/v1/diff?a=${id}&b=box`],
    ["GET", `/v2/sandboxes/snapshots/tree?snapshotId=${id}`],
    ["GET", "/v2/sandboxes?projectId=prj_owner"],
    ["GET", "/v2/sandboxes?project=prj_owner"],
    ["GET", "/v2/sandboxes/box?projectId=prj_owner"],
  ];
  for (const [method, path, body] of tries) {
    const { status, text } = await ask(stranger, method, path, body);
    assert.ok(status >= 400 && status < 500 && !text.includes(SECRET), `${method} ${path}: ${status} ${text}`);
  }
});

test("lists show a project what it has and nothing else", async () => {
  let seen = 0;
  for (const [template, methods] of Object.entries(document.paths)) {
    if (template.includes("{") || !methods.get || methods.get.security?.length === 0) continue;
    if (/tree|diff/.test(template)) continue; // asked above
    const mine = await ask(owner, "GET", template);
    const { status, text } = await ask(stranger, "GET", template);
    for (const name of ['"box"', '"volume"', SECRET, "prj_owner"]) assert.ok(!text.includes(name), `GET ${template}: ${status} ${text.slice(0, 300)}`);
    if (/"box"|"volume"/.test(mine.text)) seen++;
  }
  assert.ok(seen >= 4, `${seen} lists show the owner something`);
});

test("names are a project's own", async () => {
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "run_command", arguments: { command: "cat secret; echo $KEY; echo done" } } };
  const { text } = await ask(stranger, "POST", "/mcp/s/box?network=deny-all", call);
  assert.match(text, /done/);
  assert.ok(!text.includes(SECRET), text);
  const drive = await ask(stranger, "POST", "/v2/sandboxes/drives/volume", { projectId: "prj_stranger", maxSizeBytes: 32 << 20 });
  assert.equal(drive.status, 201, drive.text);
  assert.equal((await ask(stranger, "DELETE", "/v2/sandboxes/drives/volume")).status, 200);
  assert.ok(JSON.stringify(await own("GET", "/v2/sandboxes/drives")).includes("volume"));
});
