// Every tool through every client: what a model would do, and what it would read.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, test } from "node:test";
import { startServer, until } from "../support/server.mjs";
import { http1, kinds } from "./clients.mjs";

let server;
before(async () => (server = await startServer()));
after(async () => server?.stop());

const TOOLS = ["run_code", "run_command", "read_output", "read_file", "write_file", "edit_file", "list_files", "expose_port"];
const ADMIN = ["snapshot", "fork", "network"];

// A PNG of one pixel row, drawn in the sandbox with nothing but the standard library.
const DRAW = `
import struct, sys, zlib
w, h = int(sys.argv[1]), int(sys.argv[2])
chunk = lambda t, d: struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d))
rows = b"".join(b"\\0" + b"\\xff\\0\\0" * w for _ in range(h))
open("red.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
  + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
`;

for (const kind of kinds) {
  const at = { path: `/mcp/s/tools-${kinds.indexOf(kind)}`, args: ["--sandbox", `tools-${kinds.indexOf(kind)}`] };

  test(`${kind.name}: the list has the tools, small, annotated, without the operator's`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    const tools = await mcp.list();
    assert.deepEqual(tools.map((t) => t.name).sort(), [...TOOLS].sort());
    for (const tool of tools) {
      assert.equal(tool.inputSchema.type, "object");
      assert.ok(tool._meta["anthropic/maxResultSizeChars"] >= 30_000);
      assert.equal(typeof tool.annotations.readOnlyHint, "boolean");
    }
    assert.ok(tools.find((t) => t.name === "read_file").annotations.readOnlyHint);
    assert.ok(JSON.stringify(tools).length < 8_000, `schemas are paid for in context: ${JSON.stringify(tools).length}`);
  });

  test(`${kind.name}: a program that fails is data, and can be mended and run again`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    const numbers = Array.from({ length: 5 }, () => randomInt(1, 1000)).sort((a, b) => a - b);
    const wrong = `const xs = ${JSON.stringify(numbers)};\nconst median = [].at(2).toFixed();\nconsole.log({ median });\n`;
    const wrote = await mcp.call("write_file", { path: "src/median.mjs", content: wrong });
    assert.match(wrote.text, /wrote \d+ bytes to \/\S+\/src\/median\.mjs/);

    const failed = await mcp.call("run_command", { command: "node src/median.mjs" });
    assert.ok(!failed.isError, "a non-zero exit is a result");
    assert.match(failed.text, /^exit code 1 · [\d.]+ m?s\n/);
    assert.match(failed.text, /stderr:\n[^]*TypeError/);

    const edited = await mcp.call("edit_file", { path: "src/median.mjs", oldString: "[].at(2).toFixed()", newString: "xs.at(2)" });
    assert.match(edited.text, /replaced 1 occurrence, the first in line 2/);
    const passed = await mcp.call("run_command", { command: "node src/median.mjs" });
    assert.match(passed.text, new RegExp(`^exit code 0 · [^]*stdout:\\n\\{ median: ${numbers[2]} \\}$`));
  });

  test(`${kind.name}: files are read by lines, listed, and edits that are not exact say why`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    const lines = Array.from({ length: 50 }, (_, i) => `line ${i + 1} ${randomInt(1e9)}`);
    await mcp.call("write_file", { path: "deep/er/text.txt", content: lines.join("\n") + "\n" });
    assert.equal((await mcp.call("read_file", { path: "deep/er/text.txt" })).text, lines.join("\n") + "\n");
    const part = await mcp.call("read_file", { path: "deep/er/text.txt", offset: 11, limit: 2 });
    assert.equal(part.text, `${lines[10]}\n${lines[11]}\n[… more lines; go on with offset 13]`);

    const listed = await mcp.call("list_files", { path: "deep", depth: 2 });
    assert.match(listed.text, /\/deep:\ner\/\ner\/text\.txt  \d+$/);
    const missing = await mcp.call("list_files", { path: "nowhere" });
    assert.ok(missing.isError);
    assert.match(missing.text, /No such file/);
    const file = await mcp.call("list_files", { path: "deep/er/text.txt" });
    assert.ok(file.isError);
    assert.match(file.text, /is no directory; use read_file/);

    const none = await mcp.call("edit_file", { path: "deep/er/text.txt", oldString: "absent", newString: "x" });
    assert.ok(none.isError);
    assert.match(none.text, /occurs 0 times/);
    const many = await mcp.call("edit_file", { path: "deep/er/text.txt", oldString: "line ", newString: "row " });
    assert.ok(many.isError);
    assert.match(many.text, /occurs 50 times[^]*replaceAll/);
    const all = await mcp.call("edit_file", { path: "deep/er/text.txt", oldString: "line ", newString: "row ", replaceAll: true });
    assert.match(all.text, /replaced 50 occurrences/);
    const gone = await mcp.call("read_file", { path: "deep/er/nothing.txt" });
    assert.ok(gone.isError);
    const wrong = await mcp.call("write_file", { pth: "x", content: "" });
    assert.ok(wrong.isError);
    assert.match(wrong.text, /pth[^]*did you mean `path`/);
  });

  test(`${kind.name}: code keeps its variables, shows the last value, errors are data, files become links that can be read`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    const [a, b] = [randomInt(1e6), randomInt(1e6)];
    const first = await mcp.call("run_code", { code: `x = ${a}\nprint("hello")` });
    assert.match(first.text, /^exit code 0 · [^\n]* · python \[\d+\]\nstdout:\nhello$/);
    const second = await mcp.call("run_code", { language: "python", code: `x + ${b}` });
    assert.match(second.text, new RegExp(`\\nresult:\\n${a + b}$`));
    const failed = await mcp.call("run_code", { code: "def f(xs):\n    return xs[0]\nf([])" });
    assert.ok(!failed.isError);
    assert.match(failed.text, /^exit code 1 · [^\n]* · error · [^]*\nerror:\n[^]*IndexError/);
    const js = await mcp.call("run_code", { language: "javascript", code: `const y = await Promise.resolve(${b}); y * 2` });
    assert.match(js.text, new RegExp(`\\nresult:\\n${b * 2}$`));
    const sh = await mcp.call("run_code", { language: "bash", code: "cd /tmp; exit_code() { return 7; }; exit_code" });
    assert.match(sh.text, /^exit code 7 /);

    const wrote = await mcp.call("run_code", { code: `open("n ü.txt", "w").write("${a}")` });
    const link = wrote.content.find((c) => c.type === "resource_link");
    assert.equal(link.name, "n ü.txt");
    assert.match(wrote.text, /\nfiles written:\n\/\S+\/n ü\.txt  \d+$/);
    const { contents } = await mcp.client.readResource({ uri: link.uri });
    assert.equal(contents[0].text, String(a));
    await assert.rejects(mcp.client.readResource({ uri: "sandbar://other/etc/passwd" }), /this connection is about/);
  });

  test(`${kind.name}: an image that was made in the sandbox comes back as one`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    await mcp.call("write_file", { path: "draw.py", content: DRAW });
    const drawn = await mcp.call("run_command", { command: "python3 draw.py 7 3 && base64 -w0 red.png" });
    const bytes = drawn.text.split("stdout:\n")[1];
    const shown = await mcp.call("read_file", { path: "red.png" });
    const image = shown.content.find((c) => c.type === "image");
    assert.equal(image.mimeType, "image/png");
    assert.equal(image.data, bytes);
    const displayed = await mcp.call("run_code", {
      code: 'class Red:\n    def _repr_png_(self): return open("red.png", "rb").read()\nRed()',
    });
    assert.equal(displayed.content.find((c) => c.type === "image").data, bytes);
  });

  test(`${kind.name}: no network unless the operator said so, and the result says who denied it`, async (t) => {
    const mcp = await kind.connect(server, at, t);
    const name = `host-${randomInt(1e9)}.example`;
    const tried = await mcp.call("run_command", { command: `curl -sS --max-time 20 http://${name}/` });
    assert.doesNotMatch(tried.text, /^exit code 0 /);
    assert.match(tried.text, new RegExp(`network: ${name}[^\\n]* was denied \\(.+\\)`));
  });
}

test("modes survive edits, long text and long lines are cut with a way to go on, binary files are not shown", async (t) => {
  const mcp = await http1.connect(server, { path: "/mcp/s/texts" }, t);
  await mcp.call("write_file", { path: "run.sh", content: "#!/bin/sh\necho one\n" });
  await mcp.call("run_command", { command: "chmod 751 run.sh" });
  await mcp.call("edit_file", { path: "run.sh", oldString: "one", newString: "two" });
  assert.match((await mcp.call("run_command", { command: "stat -c %a run.sh && ./run.sh" })).text, /stdout:\n751\ntwo$/);
  await mcp.call("write_file", { path: "run.sh", content: "#!/bin/sh\necho three\n" });
  assert.match((await mcp.call("run_command", { command: "stat -c %a run.sh && ./run.sh" })).text, /stdout:\n751\nthree$/);

  await mcp.call("run_command", { command: "seq 1 100000 > long.txt; head -c 100000 /dev/zero | tr '\\0' x > line.txt; head -c 1000 /dev/zero > zeros" });
  const long = (await mcp.call("read_file", { path: "long.txt" })).text;
  assert.match(long, /\n2000\n\[… more lines; go on with offset 2001\]$/);
  const line = (await mcp.call("read_file", { path: "line.txt" })).text;
  assert.ok(line.length < 31_000);
  assert.match(line, /x\n\[… cut in line 1 after 30000 bytes/);
  assert.match((await mcp.call("read_file", { path: "zeros" })).text, /binary file/);
  const past = await mcp.call("read_file", { path: "run.sh", offset: 99 });
  assert.equal(past.text, "(no line 99: the file has 2 lines)");

  // Through tar names that are long or not ASCII, and names that look like options.
  const odd = `${"d".repeat(90)}/${"e".repeat(90)}/-rf grüße\t☃.txt`;
  await mcp.call("write_file", { path: odd, content: "snow ☃\n" });
  assert.equal((await mcp.call("read_file", { path: odd })).text, "snow ☃\n");
  await mcp.call("write_file", { path: "-dash", content: "d" });
  assert.match((await mcp.call("list_files", { path: "-dash/.." })).text, /\n-dash  1\n/);
  const climbed = await mcp.call("read_file", { path: "../../../../etc/hostname" });
  assert.ok(!climbed.isError, "'..' is resolved in the sandbox's own tree");
  const denied = await mcp.call("write_file", { path: "/etc/passwd", content: "" });
  assert.ok(denied.isError, "files are written as the sandbox's user");
});

test("output is cut in the middle with the gap stated; the tail is kept", async (t) => {
  const mcp = await http1.connect(server, { path: "/mcp/s/texts" }, t);
  const out = await mcp.call("run_command", { command: "seq 1 200000; echo the end >&2" });
  assert.ok(out.text.length > 25_000 && out.text.length < 31_000, `${out.text.length}`);
  assert.match(out.text, /^exit code 0 · [^\n]*\nstdout:\n1\n2\n3\n/);
  assert.match(out.text, /\[… \d+ bytes left out;[^\n]*\]\n/);
  assert.match(out.text, /\n199999\n200000\nstderr:\nthe end$/);
  const left = Number(/\[… (\d+) bytes left out/.exec(out.text)[1]);
  const shown = out.text.replace(/\n\[… [^\n]*\]\n/, "").split("stdout:\n")[1].split("\nstderr:")[0].length;
  const whole = Array.from({ length: 200_000 }, (_, i) => String(i + 1).length + 1).reduce((a, b) => a + b);
  assert.equal(shown + 1 + left, whole, "shown and left out make the whole");
});

test("the operator's tools: only when asked for; snapshot, fork, network", async (t) => {
  const plain = await http1.connect(server, { path: "/mcp/s/ops" }, t);
  assert.deepEqual((await plain.list()).filter((t) => ADMIN.includes(t.name)), []);
  await assert.rejects(plain.call("snapshot"), /unknown tool/);

  const admin = await http1.connect(server, { path: "/mcp/s/ops?admin=1" }, t);
  assert.deepEqual((await admin.list()).map((t) => t.name).filter((n) => ADMIN.includes(n)).sort(), [...ADMIN].sort());
  const mark = String(randomInt(1e9));
  await admin.call("write_file", { path: "mark", content: mark });
  assert.match((await admin.call("snapshot")).text, /^snapshot snap_\w+ /);
  assert.equal((await admin.call("read_file", { path: "mark" })).text, mark, "the next call goes on from it");
  assert.match((await admin.call("fork", { name: "ops-fork" })).text, /^sandbox ops-fork runs$/);
  await admin.call("write_file", { path: "mark", content: "changed" });
  const fork = await http1.connect(server, { path: "/mcp/s/ops-fork" }, t);
  assert.equal((await fork.call("read_file", { path: "mark" })).text, mark);

  assert.match((await admin.call("network")).text, /deny-all/);
  assert.match((await admin.call("network", { policy: { allow: ["example.com"] } })).text, /example\.com/);
  const tried = await admin.call("run_command", { command: "curl -sS --max-time 20 http://other.example/" });
  assert.match(tried.text, /network: other\.example[^\n]* was denied/);
  assert.match((await admin.call("network", { policy: "deny-all" })).text, /"deny-all"/);
  assert.ok((await admin.call("network", { policy: "allow-some" })).isError);
});

test("sandbar mcp --admin-tools", async (t) => {
  const mcp = await kinds[1].connect(server, { args: ["--admin-tools"] }, t);
  assert.ok((await mcp.list()).some((t) => t.name === "network"));
});

test("a published port answers under its URL", async (t) => {
  const mcp = await http1.connect(server, { path: "/mcp/s/web" }, t);
  const body = `hello ${randomInt(1e9)}`;
  const web = `require("http").createServer((q, r) => r.end(${JSON.stringify(body)})).listen(3000, "127.0.0.1")`;
  await mcp.call("write_file", { path: "web.cjs", content: web });
  const started = await mcp.call("run_command", { command: "node web.cjs", background: true });
  assert.match(started.text, /^running · [^\n]* · handle cmd_\w+\n/);
  const url = /published at (\S+)/.exec((await mcp.call("expose_port", { port: 3000 })).text)[1];
  assert.equal(/published at (\S+)/.exec((await mcp.call("expose_port", { port: 3000 })).text)[1], url, "once is enough");
  const host = new URL(url).host;
  await until(async () => {
    // node's fetch would not resolve *.localhost everywhere.
    const { request } = await import("node:http");
    const text = await new Promise((done) => {
      const r = request({ host: "127.0.0.1", port: server.port, headers: { host } }, async (answer) => {
        let all = "";
        for await (const piece of answer) all += piece;
        done(all);
      });
      r.on("error", () => done("")).end();
    });
    return text === body;
  }, "the preview answers");
});

test("two names are two sandboxes; /mcp takes the name as an argument and has a default of its own", async (t) => {
  const a = await http1.connect(server, { path: "/mcp/s/left" }, t);
  const b = await http1.connect(server, { path: "/mcp/s/right" }, t);
  await a.call("write_file", { path: "who", content: "left" });
  assert.ok((await b.call("read_file", { path: "who" })).isError);
  const any = await http1.connect(server, { path: "/mcp" }, t);
  assert.ok((await any.list()).every((t) => t.inputSchema.properties.sandbox));
  assert.ok((await a.list()).every((t) => !t.inputSchema.properties.sandbox));
  assert.equal((await any.call("read_file", { path: "who", sandbox: "left" })).text, "left");
  assert.ok((await any.call("read_file", { path: "who" })).isError, "the default is neither");
  assert.ok((await a.call("read_file", { path: "who", sandbox: "right" })).isError, "bound by its URL");
  const { sandboxes } = await server.call("GET", "/v2/sandboxes?limit=50&projectId=prj_sandbar");
  assert.equal(sandboxes.filter((s) => s.name.startsWith("mcp-")).length, 1);
});

test("listing tools makes no sandbox; the first call does; a fresh one of stdio goes with the connection", async (t) => {
  const names = async () => (await server.call("GET", "/v2/sandboxes?limit=50&projectId=prj_sandbar")).sandboxes.map((s) => s.name);
  const lazy = await http1.connect(server, { path: "/mcp/s/lazy" }, t);
  await lazy.list();
  assert.ok(!(await names()).includes("lazy"));
  await lazy.call("run_command", { command: "true" });
  assert.ok((await names()).includes("lazy"));

  const before = await names();
  const stdio = await kinds[1].connect(server, {}, t);
  await stdio.call("write_file", { path: "x", content: "1" });
  const fresh = (await names()).filter((n) => !before.includes(n));
  assert.equal(fresh.length, 1);
  await stdio.close();
  await until(async () => !(await names()).includes(fresh[0]), "the sandbox is gone with the connection");
});

test("runtime and network of a new sandbox are in the URL", async (t) => {
  const mcp = await http1.connect(server, { path: "/mcp/s/py?runtime=python3.13&allow=example.com,*.example.org&admin=1" }, t);
  assert.match((await mcp.call("run_command", { command: "python3 --version" })).text, /Python 3\.13/);
  const policy = (await mcp.call("network")).text;
  assert.match(policy, /example\.com/);
  assert.match(policy, /\*\.example\.org/);
  const bad = await server.request("POST", "/mcp/s/py?network=allow-all&allow=x.example", { body: {} });
  assert.equal(bad.status, 400);
});
