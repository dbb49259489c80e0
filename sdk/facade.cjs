// What the facade adds to the official client. CommonJS, so that index.mjs, index.cjs and the preload all use this one text.
//
//   const { Sandbox, Snapshot } = facade(official);      // classes that extend the official module's (package `sandbar`)
//   facade.install(OfficialSandbox, "lenient");          // the same, put into the official class itself (the preload)
const { CODE, COMMAND, CREATE, FILE, FORK, GET, GET_OR_CREATE, LIST, UPDATE, makeReader } = require("./options.cjs");

// The official client wants a token with its team and project, or VERCEL_OIDC_TOKEN. Here a token alone is enough.
function credentials(params) {
  const token = params.token ?? (process.env.VERCEL_OIDC_TOKEN ? undefined : process.env.SANDBAR_TOKEN);
  if (!token) return { ...params };
  const { owner_id, project_id } = claims(token);
  const teamId = params.teamId ?? owner_id ?? "team_sandbar";
  return { ...params, token, teamId, projectId: params.projectId ?? project_id ?? "prj_sandbar" };
}

function claims(token) {
  try {
    return JSON.parse(Buffer.from(token.split(".")[1], "base64url").toString());
  } catch {
    return {}; // an opaque token has none
  }
}

// A name alone stands for { name }.
const named = (given, key = "name") => (typeof given === "string" ? { [key]: given } : given);

// The official statics make official objects; these get our methods. Hooks see the same object.
function adopt(kind, sandbox) {
  if (!(sandbox instanceof kind)) Object.setPrototypeOf(sandbox, kind.prototype);
  return sandbox;
}

// A list is a program and its arguments; one text without arguments is a line for the shell.
function commandOf({ readOptions }, where, first, second, third) {
  const given = typeof first === "string" || Array.isArray(first)
    ? { cmd: first, ...(Array.isArray(second) ? { args: second, ...third } : second) } : first;
  const { cmd, args, ...rest } = readOptions(where, given, COMMAND);
  if (Array.isArray(cmd)) {
    if (cmd.length === 0) throw new TypeError(`${where}: \`cmd\` is an empty list`);
    return { ...rest, cmd: cmd[0], args: [...cmd.slice(1), ...(args ?? [])] };
  }
  if (typeof cmd !== "string" || !cmd) throw new TypeError(`${where}: \`cmd\` is required: a list of texts, or a line for the shell`);
  return args ? { ...rest, cmd, args } : { ...rest, cmd: "sh", args: ["-c", cmd] };
}

async function finish(sandbox, params) {
  const done = await sandbox.runCommand(params);
  if (params.detached) return done;
  const [stdout, stderr] = [await done.stdout(), await done.stderr()];
  return { exitCode: done.exitCode, stdout, stderr, durationMs: done.durationMs, cmdId: done.cmdId };
}

function filesOf({ readOptions }, where, first, second, third) {
  if (Array.isArray(first)) return first.map((file) => readOptions(where, file, FILE));
  const given = typeof first === "string" ? { path: first, content: second, ...third } : first;
  return [readOptions(where, given, FILE)];
}

async function write(reader, sandbox, where, ...args) {
  const files = filesOf(reader, where, ...args);
  for (const { path, content } of files) {
    if (typeof path !== "string" || !path) throw new TypeError(`${where}: \`path\` is required`);
    if (typeof content !== "string" && !(content instanceof Uint8Array))
      throw new TypeError(`${where}: the content of ${path} must be a string or a Uint8Array`);
  }
  await sandbox.writeFiles(files.map(({ path, content, mode, cwd }) => ({ path: cwd ? `${cwd}/${path}` : path, content, mode })));
}

async function readText({ readOptions }, sandbox, where, given) {
  const { path, cwd } = readOptions(where, named(given, "path"), FILE);
  const bytes = await sandbox.readFileToBuffer({ path, cwd });
  if (bytes === null) throw Object.assign(new Error(`${where}: there is no file ${path}`), { code: "ENOENT", path });
  return bytes.toString();
}

async function* lines(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of body) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}

async function failure(official, response) {
  const text = await response.text();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    // the status alone has to do
  }
  const message = json?.error?.message ?? `Status code ${response.status} is not ok`;
  return new official.APIError(response, { message, json, text });
}

// A route of this server's own, with the client's credentials and errors.
async function native(official, sandbox, method, path, options) {
  const client = await sandbox.ensureClient();
  const query = { projectId: sandbox.projectId };
  const response = await client.request(`/x/v1/sandboxes/${encodeURIComponent(sandbox.name)}${path}`, { method, query, ...options });
  if (!response.ok) throw await failure(official, response);
  return response;
}

function sandboxClass(official, { mode, inPlace }) {
  const reader = makeReader(mode);
  const { readOptions, readPolicy } = reader;
  // Version 1 of the client finds a sandbox by its id; later ones by its name, which is the id of the old spelling.
  const byId = Object.hasOwn(official.Sandbox.prototype, "sandboxId");
  const getTable = byId ? { ...GET, sandboxId: true, name: "sandboxId" } : GET;
  const take = (kind, sandbox) => (inPlace ? sandbox : adopt(kind, sandbox));

  // The official getOrCreate() hands what it was given to the official get() and create(), which then are these again.
  const done = new WeakSet();
  function read(kind, where, given, table) {
    if (given && typeof given === "object" && done.has(given)) return given;
    const params = credentials(readOptions(where, given, table));
    done.add(params);
    for (const hook of ["onCreate", "onResume"]) {
      const theirs = params[hook];
      if (theirs && !inPlace) params[hook] = (sandbox) => theirs(adopt(kind, sandbox));
    }
    return params;
  }

  return class Sandbox extends official.Sandbox {
    static async create(params) {
      return take(Sandbox, await official.Sandbox.create(read(Sandbox, "Sandbox.create", params, CREATE)));
    }
    static async get(params) {
      return take(Sandbox, await official.Sandbox.get(read(Sandbox, "Sandbox.get", named(params, byId ? "sandboxId" : "name"), getTable)));
    }
    static async getOrCreate(params) {
      return take(Sandbox, await official.Sandbox.getOrCreate(read(Sandbox, "Sandbox.getOrCreate", named(params), GET_OR_CREATE)));
    }
    static async fork(params) {
      return take(Sandbox, await official.Sandbox.fork(read(Sandbox, "Sandbox.fork", named(params, "sourceSandbox"), FORK)));
    }
    static async list(params) {
      return official.Sandbox.list(read(Sandbox, "Sandbox.list", params, LIST));
    }

    get sandboxId() {
      return this.name;
    }
    get networkUsage() {
      return this.networkTransfer;
    }
    domain(port) {
      const route = this.routes.find((route) => route.port === Number(port));
      if (!route) throw new Error(`No route for port ${port}; publish it at create: { ports: [${port}] }`);
      return globalThis[Symbol.for("sandbar.domain")](route);
    }

    async runCommand(first, args, options) {
      if (typeof first === "string")
        return super.runCommand({ cmd: first, args, ...readOptions("runCommand", options, COMMAND) });
      const { cmd, ...rest } = readOptions("runCommand", first, COMMAND);
      return super.runCommand(Array.isArray(cmd) ? { ...rest, cmd: cmd[0], args: [...cmd.slice(1), ...(rest.args ?? [])] } : { ...rest, cmd });
    }
    // {exitCode, stdout, stderr} as values; a non-zero exit is a result, not an error.
    async exec(...args) {
      return finish(this, commandOf(reader, "exec", ...args));
    }
    get commands() {
      return { run: async (...args) => finish(this, commandOf(reader, "commands.run", ...args)) };
    }

    async writeFile(...args) {
      await write(reader, this, "writeFile", ...args);
    }
    // With a path alone: the text. With { path }: a stream, as the official client has it.
    async readFile(file, options) {
      return typeof file === "string" ? readText(reader, this, "readFile", file) : super.readFile(file, options);
    }
    async readFileToBuffer(file, options) {
      return super.readFileToBuffer(named(file, "path"), options);
    }
    async downloadFile(from, to, options) {
      return super.downloadFile(named(from, "path"), named(to, "path"), options);
    }
    get files() {
      const path = (given) => (typeof given === "string" ? given : given.path);
      return {
        read: (given) => readText(reader, this, "files.read", given),
        write: (...args) => write(reader, this, "files.write", ...args),
        list: (given) => this.fs.readdir(path(given)),
        exists: (given) => this.fs.exists(path(given)),
        remove: (given) => this.fs.rm(path(given), { recursive: true }),
        makeDir: (given) => this.fs.mkdir(path(given), { recursive: true }),
      };
    }

    async update(params, options) {
      return super.update(readOptions("update", params, UPDATE), options);
    }
    async updateNetworkPolicy(policy, options) {
      return super.updateNetworkPolicy(readPolicy("updateNetworkPolicy", policy), options);
    }

    // A cell in a context that keeps its variables. `onEvent` sees every event as it happens.
    async runCode(first, second) {
      const given = typeof first === "string" ? { code: first, ...second } : first;
      const { signal, onEvent, ...request } = readOptions("runCode", given, CODE);
      const body = JSON.stringify({ ...(!request.context && { language: "python" }), ...request });
      const response = await this.withResume(() => native(official, this, "POST", "/code", { body, signal }), signal);
      const cell = { stdout: "", stderr: "", results: [], displays: [], artifacts: [], error: undefined };
      for await (const event of lines(response.body)) {
        onEvent?.(event);
        if (event.type === "stdout" || event.type === "stderr") cell[event.type] += event.text;
        else if (event.type === "result") cell.results.push(event.data);
        else if (event.type === "display") cell.displays.push(event.data);
        else if (event.type === "error") cell.error = { name: event.name, value: event.value, traceback: event.traceback };
        else if (event.type === "end") {
          const { type, ...end } = event;
          return { ...cell, ...end, text: cell.results.at(-1)?.["text/plain"] };
        }
      }
      throw new official.StreamError("stream_ended_early", "the answer ended before the cell did", this.name);
    }

    async close(options) {
      return this.stop(options);
    }
    async [Symbol.asyncDispose]() {
      await this.stop();
    }
  };
}

function snapshotClass(official) {
  return class Snapshot extends official.Snapshot {
    static async list(params) {
      return official.Snapshot.list(credentials(params ?? {}));
    }
    static async get(params) {
      return official.Snapshot.get(credentials(named(params, "snapshotId")));
    }
    static async tree(params) {
      return official.Snapshot.tree(credentials(named(params, "snapshotId")));
    }
  };
}

module.exports = (official) => ({ Sandbox: sandboxClass(official, { mode: "strict" }), Snapshot: snapshotClass(official) });

// For calls that the official client does not have, where its own errors are out of reach.
class APIError extends Error {
  constructor(response, { message, json, text }) {
    super(message);
    Object.assign(this, { response, json, text });
  }
}
class StreamError extends Error {
  constructor(code, message, sandboxName) {
    super(message);
    Object.assign(this, { code, sandboxName });
  }
}

// Everything that a class has of its own, once more: what `super` and the statics of a facade lead to when the class itself
// is changed.
function shadowOf(kind) {
  const shadow = class {};
  const skip = new Set(["constructor", "prototype", "length", "name"]);
  const copy = (from, to) => {
    for (const key of Reflect.ownKeys(from))
      if (!skip.has(key) || (key === "name" && from === kind.prototype)) Object.defineProperty(to, key, { ...Object.getOwnPropertyDescriptor(from, key), configurable: true });
  };
  copy(kind, shadow);
  copy(kind.prototype, shadow.prototype);
  return shadow;
}

// What `check` does not add, and what the official class has to have for it to be replaced.
const CHECKED = new Set(["create", "get", "getOrCreate", "fork", "list", "update", "updateNetworkPolicy", "domain"]);
const REPLACED = new Set([...CHECKED, "tree", "runCommand", "readFile", "readFileToBuffer", "downloadFile"]);

function graft(from, onto, mode) {
  for (const key of Reflect.ownKeys(from)) {
    if (key === "constructor" || key === "prototype" || key === "length" || key === "name") continue;
    if (mode === "check" && !CHECKED.has(key)) continue;
    if (REPLACED.has(key) !== Object.hasOwn(onto, key)) continue; // never over something of the client's own
    Object.defineProperty(onto, key, Object.getOwnPropertyDescriptor(from, key));
  }
}

// Changes the official class itself, so that programs keep their `instanceof`. Returns the shadow, whose statics are the
// official ones. `kind` is a Sandbox or a Snapshot of any version, from its package or out of a bundle.
module.exports.install = (kind, mode) => {
  const shadow = shadowOf(kind);
  const isSandbox = Object.hasOwn(kind, "create");
  const made = isSandbox ? sandboxClass({ Sandbox: shadow, APIError, StreamError }, { mode, inPlace: true }) : snapshotClass({ Snapshot: shadow });
  graft(made, kind, mode);
  graft(made.prototype, kind.prototype, mode);
  return shadow;
};
