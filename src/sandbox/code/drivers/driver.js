// Runs cells of JavaScript and TypeScript for run_code (docs/run-code.md). Node's own modules only; started as
// `node --expose-internals -e <this text>`. Requests come on descriptor 3 and events go back there as lines of JSON, so that nothing a program
// prints can be taken for one. Cells are evaluated by V8's REPL mode: let, const and class survive and may be declared
// again, await works at the top.
(() => {
  "use strict";
  const fs = require("node:fs"), net = require("node:net"), util = require("node:util"), vm = require("node:vm");
  const { Session } = require("node:inspector"), { promiseHooks } = require("node:v8");

  const MAX_EVENT = 6 << 20, MAX_TEXT = 100_000;
  const MAX_ENTRIES = 10_000, MAX_ARTIFACTS = 200, MAX_HASHED = 64 << 20;
  const SKIPPED = new Set(["node_modules", ".git", "__pycache__", ".venv", ".cache"]);
  const BRIDGE = `sandbar${process.pid}${Date.now()}`, GATE = `await ${BRIDGE}.gate;`;
  // Before programs can change them.
  const { stringify } = JSON;
  const { stderr } = process, leave = process.reallyExit.bind(process);

  const channel = new net.Socket({ fd: 3, readable: true, writable: true });
  const session = new Session();
  session.connect();
  const reported = new Map(); // path -> "size ctime" of artifacts told before
  // Promises of cells that have not ended. The inspector speaks up when one is collected, from inside of the collection,
  // which ends the process: one that was interrupted is kept for ever.
  const kept = new Set();
  let interrupt = null; // ends the cell that is waited for now
  let taken; // a value on its way out of the inspector

  const bridge = {
    take: (value) => { taken = value; },
    load: (specifier, options) => import(specifier, options),
    meta: { get url() { return `file://${process.cwd()}/cell.mjs`; }, get dirname() { return process.cwd(); },
            get filename() { return `${process.cwd()}/cell.mjs`; } },
  };
  Object.defineProperty(globalThis, BRIDGE, { value: bridge });

  // Written at once and without a stream: an interrupt in the middle of a stream's work leaves the stream useless.
  function writeAll(fd, bytes) {
    while (bytes.length > 0) {
      try {
        bytes = bytes.subarray(fs.writeSync(fd, bytes));
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
      }
    }
  }
  for (const [stream, fd] of [[process.stdout, 1], [stderr, 2]]) {
    stream.write = (chunk, encoding, done = encoding) => {
      writeAll(fd, typeof chunk === "string" ? Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk);
      if (typeof done === "function") process.nextTick(done);
      return true;
    };
  }
  const send = (event) => writeAll(3, Buffer.from(
    stringify(event, (_, v) => typeof v === "string" ? v.toWellFormed() : typeof v === "bigint" ? String(v) : v) + "\n"));

  const cut = (text) => text.length <= MAX_TEXT
    ? text : `${text.slice(0, MAX_TEXT)}… [${text.length - MAX_TEXT} characters more]`;
  const show = (value) => cut(util.inspect(value, { depth: 4, maxArrayLength: 200, maxStringLength: 20_000, breakLength: 100 }));
  const encode = (data) => data instanceof Uint8Array ? Buffer.from(data).toString("base64") : data;

  function sendBundle(type, data) {
    const parts = Object.fromEntries(Object.entries(data).map(([mime, value]) => [mime, encode(value)]));
    const size = (mime) => (stringify(parts[mime]) ?? "").length;
    while (Object.keys(parts).reduce((sum, mime) => sum + size(mime), 0) > MAX_EVENT) {
      const largest = Object.keys(parts).reduce((a, b) => size(a) >= size(b) ? a : b);
      const note = `[${largest} of ${size(largest)} bytes is too large to show]`;
      delete parts[largest];
      parts["text/plain"] = note;
    }
    send({ type, data: parts });
  }

  // A promise only when the value's own way of showing itself is one.
  function bundleOf(value) {
    const method = value?.[Symbol.for("Jupyter.display")];
    const made = typeof method === "function" ? method.call(value) : {};
    const whole = (data) => ({ "text/plain": show(value), ...data });
    return made instanceof Promise ? made.then(whole) : whole(made);
  }

  // display(value), or what it is: display.html("<b>…</b>"), display.png(buffer), display.raw({ "text/html": … }).
  const display = (value) => {
    const data = bundleOf(value);
    return data instanceof Promise ? data.then((d) => sendBundle("display", d)) : sendBundle("display", data);
  };
  display.raw = (data) => sendBundle("display", data);
  for (const [name, mime] of Object.entries({ html: "text/html", markdown: "text/markdown", svg: "image/svg+xml",
                                              png: "image/png", jpeg: "image/jpeg", json: "application/json" }))
    display[name] = (data) => sendBundle("display", { [mime]: data });
  Object.defineProperty(globalThis, "display", { value: display, writable: true, configurable: true });

  class ProcessExit extends Error {
    constructor(code) {
      super(`process.exit(${code})`);
      this.name = "ProcessExit";
      this.code = code;
    }
  }
  process.exit = (code) => { throw new ProcessExit(Number(code ?? process.exitCode ?? 0)); };

  // Where the words import and export stand in code: not in strings, comments, templates and regular expressions.
  function keywords(code) {
    const found = [], braces = [];
    let before = ""; // the last token: decides whether a slash divides
    for (let i = 0; i < code.length;) {
      const c = code[i], rest = code.slice(i, i + 2);
      if (rest === "//") { i = code.indexOf("\n", i); if (i < 0) break; continue; }
      if (rest === "/*") { i = code.indexOf("*/", i + 2); if (i < 0) break; i += 2; continue; }
      if (c === "}" && braces.at(-1) === "`") { braces.pop(); i = template(code, i + 1, braces); before = ")"; continue; }
      if (c === "`") { i = template(code, i + 1, braces); before = ")"; continue; }
      if (c === '"' || c === "'") {
        for (i++; i < code.length && code[i] !== c && code[i] !== "\n"; i++) if (code[i] === "\\") i++;
        i++; before = ")"; continue;
      }
      if (c === "/" && !/^(?:[)\]}]|[\w$]+)$/.test(before) || c === "/" && /^(?:return|typeof|case|in|of|void|await)$/.test(before)) {
        for (let set = false, j = i++; i < code.length && (set || code[i] !== "/") && code[i] !== "\n" && j >= 0; i++) {
          if (code[i] === "\\") i++;
          else if (code[i] === "[") set = true;
          else if (code[i] === "]") set = false;
        }
        i++; before = ")"; continue;
      }
      const word = /^[\w$]+/.exec(code.slice(i, i + 64))?.[0];
      if (word) {
        if ((word === "import" || word === "export") && before !== ".") found.push(i);
        i += word.length; before = word; continue;
      }
      if (c === "{" || c === "}") c === "{" ? braces.push("{") : braces.pop();
      if (c.trim()) before = c;
      i++;
    }
    return found;
  }
  // Past the template's end, or into a ${…} of it.
  function template(code, i, braces) {
    for (; i < code.length; i++) {
      if (code[i] === "\\") i++;
      else if (code[i] === "`") return i + 1;
      else if (code[i] === "$" && code[i + 1] === "{") { braces.push("`"); return i + 2; }
    }
    return i;
  }

  // Modules for a place that has none: import statements become awaited calls, exports plain declarations.
  function rewrite(code) {
    if (!/\b(?:import|export)\b/.test(code)) return code;
    let out = "", from = 0;
    for (const at of keywords(code)) {
      if (at < from) continue;
      const rest = code.slice(at);
      let m, text;
      if ((m = /^import\s*\(/.exec(rest))) text = `${BRIDGE}.load(`;
      else if ((m = /^import\s*\.\s*meta\b/.exec(rest))) text = `${BRIDGE}.meta`;
      else if ((m = /^import\s*(["'][^"'\n]+["'])/.exec(rest))) text = `await ${BRIDGE}.load(${m[1]})`;
      else if ((m = /^import\s+([\w$\s{},*]+?)\s*from\s*(["'][^"'\n]+["'])/.exec(rest))) text = declare(m[1], m[2]);
      else if ((m = /^export\s+(?:default\s+(?=function\s+\w|class\s+\w|async\s+function\s+\w))?(?=const|let|var|function|class|async)/.exec(rest))) text = "";
      else continue;
      // As many lines as before, so that errors point where the user looks.
      text += "\n".repeat(m[0].split("\n").length - 1);
      out += code.slice(from, at) + text;
      from = at + m[0].length;
    }
    return out + code.slice(from);
  }
  function declare(clause, specifier) {
    const load = `await ${BRIDGE}.load(${specifier})`;
    const braces = /\{([^}]*)\}/.exec(clause)?.[1];
    const all = /\*\s*as\s+([\w$]+)/.exec(clause)?.[1];
    const one = /^\s*([\w$]+)\s*(?:,|$)/.exec(clause.replace(/\{[^}]*\}/, ""))?.[1];
    const names = (braces ?? "").split(",").map((n) => n.trim()).filter(Boolean).map((n) => n.replace(/\s+as\s+/, ": "));
    if (one) names.unshift(`default: ${one}`);
    return all ? `const ${all} = ${load}` + (one ? `, ${one} = ${all}.default` : "") : `const {${names.join(", ")}} = ${load}`;
  }

  function strip(code) {
    const { stripTypeScriptTypes } = require("node:module");
    if (!stripTypeScriptTypes) throw new Error(`TypeScript needs node 22.13 or newer, this is ${process.version}`);
    const warn = process.emitWarning;
    process.emitWarning = () => {}; // that it is experimental
    try {
      try { return stripTypeScriptTypes(code); } catch (error) {
        if (error.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw error;
        return stripTypeScriptTypes(code, { mode: "transform" }); // enum and the like: lines may move
      }
    } finally {
      process.emitWarning = warn;
    }
  }

  // Of node's own, because what the public ways also run must not be interrupted half-way: its queue of ticks.
  const runMicrotasks = (() => {
    const warn = process.emitWarning;
    process.emitWarning = () => {}; // that it is internal
    try {
      return require("internal/test/binding").internalBinding("task_queue").runMicrotasks;
    } catch {
      return process._tickCallback;
    } finally {
      process.emitWarning = warn;
      process.execArgv = process.execArgv.filter((word) => word !== "--expose-internals"); // not for its children
    }
  })();

  const post = (method, params) => {
    let answer;
    session.post(method, params, (error, result) => { answer = error ? undefined : result; });
    return answer;
  };
  function valueOf(remote) {
    if (remote.objectId !== undefined) {
      post("Runtime.callFunctionOn", { objectId: remote.objectId,
                                       functionDeclaration: `function () { "use strict"; ${BRIDGE}.take(this); }` });
      const value = taken;
      taken = undefined;
      return value;
    }
    const odd = remote.unserializableValue;
    if (odd !== undefined) return odd.endsWith("n") ? BigInt(odd.slice(0, -1)) : Number(odd);
    return remote.type === "undefined" ? undefined : remote.value;
  }

  // Ends with [the cell's value], or throws what the cell threw. The inspector compiles the code and runs it up to the gate:
  // an interrupt ends JavaScript wherever it is, and the inspector does not survive that inside of itself.
  function evaluate(code, name) {
    return new Promise((resolve, reject) => {
      interrupt = () => reject(new Interrupted());
      let open, refused = false, begun = false;
      bridge.gate = new Promise((opened) => { open = opened; });
      const made = new Set(), stop = promiseHooks.onInit((promise) => made.add(promise));
      kept.add(made);
      session.post("Runtime.evaluate",
        { expression: `${GATE}${code}\n//# sourceURL=${name}`, replMode: true, awaitPromise: true, objectGroup: "cell" },
        (error, done) => {
          refused = true;
          kept.delete(made);
          // Not here, where an interrupt may still come; and an interrupt is told first.
          setImmediate(() => {
            if (error) return reject(new Error(error.message));
            if (!done.exceptionDetails) return resolve([valueOf(done.result)]);
            const thrown = done.exceptionDetails.exception ? valueOf(done.exceptionDetails.exception) : new Interrupted();
            reject(begun ? thrown : notCode(thrown, done.exceptionDetails, code, name));
          });
        });
      stop();
      if (refused) return;
      bridge.run = () => {
        begun = true;
        send({ type: "begun" });
        open();
        runMicrotasks(); // goes on behind the gate, here and now, until it waits for something
      };
      // When somebody waits for the promise: what is rejected before counts as a mistake of the program's.
      setImmediate(() => {
        try {
          guarded.runInThisContext({ breakOnSigint: true });
        } catch (error) {
          reject(error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED" ? new Interrupted() : error);
        }
      });
    });
  }
  function notCode(error, { lineNumber, columnNumber }, code, name) {
    const line = Math.min(lineNumber + 1, code.split("\n").length);
    error.stack = `${name}:${line}:${columnNumber + 1}\n${error.name}: ${error.message}`;
    return error;
  }
  class Interrupted extends Error {
    constructor() {
      super("interrupted");
      this.name = "KeyboardInterrupt";
      this.stack = "KeyboardInterrupt: interrupted";
    }
  }
  const guarded = new vm.Script(`${BRIDGE}.run()`);
  process.on("SIGINT", () => interrupt?.());
  // A signal that comes when such a run ends is lost, and ends the next one instead: this takes its place.
  const spare = new vm.Script("for (const end = Date.now() + 20; Date.now() < end;);");
  function forgetSignals() {
    try { spare.runInThisContext({ breakOnSigint: true }); } catch { return; }
  }

  // The program's own frames: everything from the first of ours or the inspector's on is left out.
  function trim(stack) {
    const lines = String(stack).split("\n").filter((l) => !l.includes("(node:internal/process/task_queues:"));
    // The gate stands before the first line.
    for (const [i, l] of lines.entries())
      lines[i] = l.replace(/(\bcell-\d+:1:)(\d+)/, (_, place, column) => place + Math.max(1, column - GATE.length));
    const end = lines.findIndex((l) => /^\s+at .*(?:\(|\s)(?:node:inspector|\[eval\]|evalmachine|node:internal\/process\/execution)/.test(l));
    return (end < 0 ? lines : lines.slice(0, end)).join("\n").slice(0, 60_000);
  }
  function report(thrown) {
    if (thrown instanceof ProcessExit && thrown.code === 0) return true;
    const isError = thrown instanceof Error || (thrown !== null && typeof thrown === "object" && "stack" in thrown);
    send({ type: "error", name: isError ? String(thrown.name) : "Error",
           value: cut(isError ? String(thrown.message) : show(thrown)),
           traceback: thrown instanceof ProcessExit ? "" : isError ? trim(thrown.stack) : `Uncaught ${show(thrown)}` });
    return false;
  }
  // What nobody awaits fails beside the cell, not as the cell.
  const stray = (error) => { if (!(error instanceof ProcessExit)) stderr.write(`Uncaught ${trim(error?.stack ?? show(error))}\n`); };
  process.on("uncaughtException", stray);
  process.on("unhandledRejection", stray);

  function digest(path, size, budget) {
    if (size > budget) return undefined;
    const hash = require("node:crypto").createHash("sha256");
    const piece = Buffer.alloc(1 << 20), fd = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
    try {
      for (let left = budget, n; left > 0 && (n = fs.readSync(fd, piece, 0, Math.min(left, piece.length))) > 0; left -= n)
        hash.update(piece.subarray(0, n));
    } finally {
      fs.closeSync(fd);
    }
    return hash.digest("hex");
  }
  function writable(path) {
    try { fs.accessSync(path, fs.constants.W_OK); return true; } catch { return false; }
  }
  // Tells the regular files below `top` that were made or changed since; true when there are more than are told.
  function artifacts(top, since) {
    const folders = [top];
    let entries = 0, found = 0, budget = MAX_HASHED;
    while (folders.length > 0) {
      const folder = folders.pop();
      let listing;
      try { listing = fs.readdirSync(folder, { withFileTypes: true }); } catch { continue; }
      for (const entry of listing.sort((a, b) => a.name < b.name ? -1 : 1)) {
        if (++entries > MAX_ENTRIES || found > MAX_ARTIFACTS) return true;
        const path = folder === "/" ? `/${entry.name}` : `${folder}/${entry.name}`;
        // Where it may not write, it did not: images hold many files.
        if (entry.isDirectory() && !SKIPPED.has(entry.name) && writable(path)) folders.push(path);
        if (!entry.isFile()) continue;
        try {
          const about = fs.lstatSync(path, { bigint: true });
          const size = Number(about.size), stamp = `${size} ${about.ctimeNs}`;
          if (about.ctimeNs < since || reported.get(path) === stamp) continue;
          const sha256 = digest(path, size, budget);
          if (sha256) budget -= size;
          found++;
          if (reported.size > 4 * MAX_ARTIFACTS) reported.clear();
          reported.set(path, stamp);
          send({ type: "artifact", path, size, sha256 });
        } catch { continue; }
      }
    }
    return false;
  }

  const cpu = () => { const u = process.resourceUsage(); return u.userCPUTime + u.systemCPUTime; };

  async function runCell(count, language, code, cwd, env) {
    // File times come from a clock that may be some milliseconds behind.
    const before = cpu(), since = BigInt(Date.now() - 10) * 1_000_000n;
    const oldEnv = Object.fromEntries(Object.keys(env).map((key) => [key, process.env[key]]));
    let ok = true, home, top;
    try {
      try { home = process.cwd(); } catch { home = undefined; }
      if (cwd) process.chdir(cwd);
      top = cwd || home;
      Object.assign(process.env, env);
      let [value] = await evaluate(rewrite(language === "typescript" ? strip(code) : code), `cell-${count}`);
      if (value instanceof Promise) {
        const cancelled = new Promise((_, reject) => { interrupt = () => reject(new Interrupted()); });
        value = await Promise.race([value, cancelled]);
      }
      if (value !== undefined) sendBundle("result", await bundleOf(value));
    } catch (thrown) {
      interrupt = null;
      if (thrown instanceof Interrupted) forgetSignals();
      ok = report(thrown);
    }
    interrupt = null;
    post("Runtime.releaseObjectGroup", { objectGroup: "cell" });
    for (const [key, value] of Object.entries(oldEnv)) value === undefined ? delete process.env[key] : process.env[key] = value;
    const artifactsTruncated = top !== undefined && artifacts(top, since);
    if (cwd && home !== undefined) process.chdir(home);
    send({ type: "end", status: ok ? "ok" : "error", cpuMs: Math.round((cpu() - before) / 1000),
           maxRssBytes: process.resourceUsage().maxRSS * 1024, artifactsTruncated });
  }

  let input = Buffer.alloc(0), busy = false;
  async function next() {
    if (busy) return;
    const line = input.indexOf(10);
    if (line < 0) return;
    const [, count, language, ...sizes] = input.toString("latin1", 0, line).split(" ");
    const [codeSize, cwdSize, envSize] = sizes.map(Number);
    if (input.length < line + 1 + codeSize + cwdSize + envSize) return;
    const part = (at, size) => input.toString("utf8", at, at + size);
    const code = part(line + 1, codeSize), cwd = part(line + 1 + codeSize, cwdSize);
    const env = JSON.parse(part(line + 1 + codeSize + cwdSize, envSize));
    input = Buffer.from(input.subarray(line + 1 + codeSize + cwdSize + envSize));
    busy = true;
    await runCell(count, language, code, cwd, env);
    busy = false;
    next();
  }
  channel.on("data", (piece) => { input = Buffer.concat([input, piece]); next(); });
  channel.on("end", () => leave(0));
  channel.on("error", () => leave(1));
})();
