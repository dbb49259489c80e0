// Calls on single files (docs/files.md), over HTTP: what an SFTP server, a dashboard or an editor needs.
import assert from "node:assert/strict";
import http from "node:http";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { sh, useSdk } from "./sdk.mjs";
import { until } from "../support/server.mjs";

const { sandbox, server } = await useSdk();
const box = await sandbox();
const session = (await server.call("GET", `/x/v1/sandboxes/${box.name}?teamId=team_test&projectId=prj_test`)).session.id;

const target = (call, query) => `/x/v1/sessions/${session}/files/${call}?${new URLSearchParams({ teamId: "team_test", projectId: "prj_test", ...query })}`;
async function ask(method, call, query, body) {
  const response = await server.request(method, target(call, query), { body });
  const bytes = Buffer.from(await response.arrayBuffer());
  const json = response.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(bytes) : undefined;
  return { status: response.status, bytes, json };
}
async function good(...call) {
  const answer = await ask(...call);
  assert.equal(answer.status, 200, answer.bytes.toString());
  return answer;
}
async function refused(reason, ...call) {
  const { status, json } = await ask(...call);
  if (reason === "not_found") return assert.equal(status, 404, JSON.stringify(json));
  assert.deepEqual([status, json.error.code, json.error.reason], [400, "file_error", reason], JSON.stringify(json));
}
const stat = async (path, query) => (await good("GET", "stat", { path, ...query })).json.file;
const put = (path, body, query) => ask("PUT", "content", { path, ...query }, body);
const read = async (path, query) => (await good("GET", "content", { path, ...query })).bytes.toString();
const names = async (path, query) => (await good("GET", "list", { path, ...query })).json.entries.map((e) => e.name);

test("a file is written, read in parts, changed in place and replaced", async () => {
  assert.deepEqual((await put("a.txt", "0123456789")).json, { written: 10 });
  const file = await stat("a.txt");
  assert.deepEqual([file.type, file.size, file.mode, file.path.endsWith("/a.txt")], ["file", 10, "0644", true]);
  assert.ok(Math.abs(Date.now() - file.modifiedAt) < 3600_000);
  assert.equal(await read("a.txt", { offset: 2, length: 3 }), "234");
  assert.equal(await read("a.txt", { offset: 8 }), "89");
  assert.equal(await read("a.txt", { offset: 100, length: 1 }), "");
  await put("a.txt", "ab", { offset: 3 });
  await put("a.txt", "!", { append: true });
  assert.equal(await read("a.txt"), "012ab56789!");
  await put("a.txt", "new");
  assert.equal(await read("a.txt"), "new");
  await refused("exists", "PUT", "content", { path: "a.txt", exclusive: true }, "x");
  await refused("not_found", "PUT", "content", { path: "b.txt", create: false }, "x");
  await refused("not_found", "GET", "content", { path: "b.txt" });
  await refused("is_a_directory", "GET", "content", { path: "/" });
  await refused("not_a_regular_file", "PUT", "content", { path: "/dev/null" }, "x");
  await refused("permission_denied", "PUT", "content", { path: "/etc/passwd" }, "x");
  assert.equal(await read("a.txt"), "new");
});

test("modes are those that were asked for, and kept", async () => {
  await put("m1", "x", { mode: "0666" });
  await put("m2", "x", { mode: "0666", append: true });
  assert.deepEqual([(await stat("m1")).mode, (await stat("m2")).mode], ["0666", "0666"]);
  await sh(box, "chmod 4711 m1");
  await put("m1", "y", { mode: "0600" });
  assert.equal((await stat("m1")).mode, "0711", "without the rights of the former bytes");
  await sh(box, "ln -s nowhere dangling");
  await refused("exists", "PUT", "content", { path: "dangling", exclusive: true }, "x");
});

test("64 MB up and down", async () => {
  const bytes = randomBytes(64 << 20);
  assert.equal((await put("big", bytes)).status, 200);
  assert.ok((await good("GET", "content", { path: "big" })).bytes.equals(bytes));
  const part = await good("GET", "content", { path: "big", offset: 50 << 20, length: 1 << 20 });
  assert.ok(part.bytes.equals(bytes.subarray(50 << 20, 51 << 20)));
});

test("a directory comes sorted, in pages, with every kind of name", async () => {
  await sh(box, `mkdir d && cd d && touch b a .hidden "$(printf 'bad\\377name')" 'with space' 'ü' && ln -s ../a.txt link && mkfifo pipe && mkdir sub`);
  const { entries, more } = (await good("GET", "list", { path: "d" })).json;
  assert.equal(more, false);
  assert.deepEqual(entries.map((e) => [e.type, e.nameBase64 ? Buffer.from(e.nameBase64, "base64").toString("latin1") : e.name]), [
    ["file", ".hidden"], ["file", "a"], ["file", "b"], ["file", "bad\xffname"], ["symlink", "link"], ["pipe", "pipe"], ["directory", "sub"], ["file", "with space"], ["file", "ü"],
  ]);
  assert.equal(entries.find((e) => e.name === "link").target, "../a.txt");
  const first = (await good("GET", "list", { path: "d", limit: 3 })).json;
  assert.deepEqual([first.entries.map((e) => e.name), first.more], [[".hidden", "a", "b"], true]);
  assert.deepEqual((await names("d", { after: "link" })), ["pipe", "sub", "with space", "ü"]);
  // A name that is no text, by its bytes.
  const pathBase64 = Buffer.from("d/bad\xffname", "latin1").toString("base64");
  assert.equal((await good("GET", "stat", { pathBase64 })).json.file.type, "file");
  await good("POST", "rename", { pathBase64, to: "d/good" });
  assert.equal((await names("d")).includes("good"), true);
  await refused("not_a_directory", "GET", "list", { path: "a.txt" });
});

test("links are told from their targets", async () => {
  await good("POST", "link", { path: "s", target: "a.txt" });
  assert.equal((await stat("s")).type, "file");
  assert.deepEqual([(await stat("s", { follow: false })).type, (await stat("s", { follow: false })).target], ["symlink", "a.txt"]);
  await good("POST", "link", { path: "h", target: "a.txt", symbolic: false });
  assert.equal((await stat("h")).links, 2);
  await refused("exists", "POST", "link", { path: "h", target: "a.txt" });
  // A whole file is written through a link, not in its place.
  await put("s", "through");
  assert.deepEqual([await read("a.txt"), (await stat("s", { follow: false })).type], ["through", "symlink"]);
});

test("attributes", async () => {
  await put("attr", "12345");
  await good("POST", "attributes", { path: "attr" }, JSON.stringify({ mode: "0600", size: 2, modifiedAt: 1_000_000_000_123 }));
  const file = await stat("attr");
  assert.deepEqual([file.mode, file.size, file.modifiedAt], ["0600", 2, 1_000_000_000_123]);
  await refused("permission_denied", "POST", "attributes", { path: "attr" }, JSON.stringify({ uid: 0 }));
  await good("POST", "attributes", { path: "attr", sudo: true }, JSON.stringify({ uid: 0, gid: 0 }));
  assert.equal((await stat("attr")).uid, 0);
  await refused("permission_denied", "GET", "content", { path: "attr" });
  assert.equal(await read("attr", { sudo: true }), "12");
});

test("rename, remove, mkdir", async () => {
  await good("POST", "mkdir", { path: "t/u/v", parents: true, mode: "0750" });
  assert.equal((await stat("t/u/v")).mode, "0750");
  await refused("exists", "POST", "mkdir", { path: "t" });
  await good("POST", "mkdir", { path: "t/u/v", parents: true, mode: "0777" });
  assert.equal((await stat("t/u/v")).mode, "0750", "one that was there keeps its mode");
  await put("t/one", "1");
  await put("t/two", "2");
  await refused("exists", "POST", "rename", { path: "t/one", to: "t/two" });
  assert.equal(await read("t/two"), "2");
  await good("POST", "rename", { path: "t/one", to: "t/two", replace: true });
  assert.deepEqual([await names("t"), await read("t/two")], [["two", "u"], "1"]);
  await refused("not_empty", "POST", "remove", { path: "t" });
  await refused("is_a_directory", "POST", "remove", { path: "t/u/v", type: "file" });
  await good("POST", "remove", { path: "t/u/v", type: "directory" });
  // What is not named is not removed: neither the directory behind a dot nor that behind a link.
  await put("t/u/kept", "x");
  await good("POST", "link", { path: "to-t", target: "t" });
  for (const path of ["t/.", "t/u/..", "t/u/../", ".", "/", "/tmp/.."]) await refused("invalid", "POST", "remove", { path, recursive: true });
  assert.equal((await ask("POST", "remove", { path: "t", recursive: true, type: "file" })).status, 400);
  await good("POST", "remove", { path: "to-t/", recursive: true });
  assert.deepEqual([await read("t/u/kept"), (await names(".")).includes("to-t")], ["x", false]);
  await good("POST", "remove", { path: "t", recursive: true });
  await refused("not_found", "GET", "stat", { path: "t" });
  await refused("not_found", "POST", "remove", { path: "t", recursive: true });
});

test("an upload that is cut off leaves the former file, and nothing beside it", async () => {
  await good("POST", "mkdir", { path: "cut" });
  await put("cut/f", "former");
  const url = new URL(target("content", { path: "cut/f" }), server.url);
  for (let i = 0; i < 5; i++) {
    const request = http.request(url, { method: "PUT", headers: { authorization: `Bearer ${server.token}`, "content-length": 10_000_000 } });
    request.on("error", () => {});
    request.write(Buffer.alloc(1 << 20));
    await new Promise((done) => setTimeout(done, 200));
    request.destroy();
  }
  await until(async () => (await names("cut")).length === 1, "the parts are removed");
  assert.equal(await read("cut/f"), "former");
});

test("wrong questions are told by field", async () => {
  const wrong = [
    ["GET", "stat", {}, undefined, "path"], ["GET", "list", { path: "/", limit: 5000 }, undefined, "limit"], ["PUT", "content", { path: "x", mode: "999" }, "x", "mode"],
    ["GET", "content", { path: "x", offset: "-1" }, undefined, "offset"], ["POST", "rename", { path: "x" }, undefined, "to"], ["POST", "attributes", { path: "x" }, '{"uid":-1}', "uid"],
  ];
  for (const [method, call, query, body, field] of wrong) {
    const { status, json } = await ask(method, call, query, body);
    assert.deepEqual([status, json.error.message.includes(`\`${field}\``)], [400, true], json.error.message);
  }
});

test("a viewer looks and changes nothing, and never as root", async () => {
  const { secret } = await server.call("POST", "/x/v1/keys?teamId=team_test", { body: JSON.stringify({ name: "looker", role: "viewer", project: "prj_test" }) });
  const as = (method, call, query, body) => server.request(method, target(call, query), { token: secret, body });
  assert.equal((await as("GET", "list", { path: "/" })).status, 200);
  assert.equal((await as("GET", "content", { path: "a.txt" })).status, 200);
  for (const [method, call, query] of [["PUT", "content", { path: "v" }], ["POST", "remove", { path: "a.txt" }], ["GET", "content", { path: "/etc/shadow", sudo: true }]])
    assert.equal((await as(method, call, query, method === "PUT" ? "x" : undefined)).status, 403, call);
});
