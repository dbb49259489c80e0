// What the facade adds to the official client: a function from its module to the classes that replace its own. CommonJS, so
// that index.mjs, index.cjs and the preload (SANDBAR_ALIASES) all use this one text.
const { CODE, COMMAND, CREATE, FILE, FORK, GET, GET_OR_CREATE, LIST, UPDATE, readOptions, readPolicy } = require("./options.cjs");

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

function read(kind, where, given, table) {
  const params = credentials(readOptions(where, given, table));
  for (const hook of ["onCreate", "onResume"]) {
    const theirs = params[hook];
    if (theirs) params[hook] = (sandbox) => theirs(adopt(kind, sandbox));
  }
  return params;
}

// A list is a program and its arguments; one text without arguments is a line for the shell.
function commandOf(where, first, second, third) {
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

function filesOf(where, first, second, third) {
  if (Array.isArray(first)) return first.map((file) => readOptions(where, file, FILE));
  const given = typeof first === "string" ? { path: first, content: second, ...third } : first;
  return [readOptions(where, given, FILE)];
}

async function write(sandbox, where, ...args) {
  const files = filesOf(where, ...args);
  for (const { path, content } of files) {
    if (typeof path !== "string" || !path) throw new TypeError(`${where}: \`path\` is required`);
    if (typeof content !== "string" && !(content instanceof Uint8Array))
      throw new TypeError(`${where}: the content of ${path} must be a string or a Uint8Array`);
  }
  await sandbox.writeFiles(files.map(({ path, content, mode, cwd }) => ({ path: cwd ? `${cwd}/${path}` : path, content, mode })));
}

async function readText(sandbox, where, given) {
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

function sandboxClass(official) {
  return class Sandbox extends official.Sandbox {
    static async create(params) {
      return adopt(Sandbox, await official.Sandbox.create(read(Sandbox, "Sandbox.create", params, CREATE)));
    }
    static async get(params) {
      return adopt(Sandbox, await official.Sandbox.get(read(Sandbox, "Sandbox.get", named(params), GET)));
    }
    static async getOrCreate(params) {
      return adopt(Sandbox, await official.Sandbox.getOrCreate(read(Sandbox, "Sandbox.getOrCreate", named(params), GET_OR_CREATE)));
    }
    static async fork(params) {
      return adopt(Sandbox, await official.Sandbox.fork(read(Sandbox, "Sandbox.fork", named(params, "sourceSandbox"), FORK)));
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
      return finish(this, commandOf("exec", ...args));
    }
    get commands() {
      return { run: async (...args) => finish(this, commandOf("commands.run", ...args)) };
    }

    async writeFile(...args) {
      await write(this, "writeFile", ...args);
    }
    // With a path alone: the text. With { path }: a stream, as the official client has it.
    async readFile(file, options) {
      return typeof file === "string" ? readText(this, "readFile", file) : super.readFile(file, options);
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
        read: (given) => readText(this, "files.read", given),
        write: (...args) => write(this, "files.write", ...args),
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

module.exports = (official) => ({ Sandbox: sandboxClass(official), Snapshot: snapshotClass(official) });
