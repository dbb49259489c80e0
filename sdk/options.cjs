// What the calls of the facade take, and how a wrong option is told: the official client drops unknown options without a
// word, and a sandbox that was meant to be offline then is not.
//
//   const { readOptions } = makeReader("strict");
//   const params = readOptions("Sandbox.create", given, CREATE);   // official names only, or a TypeError
//
// A table maps an option to true (official), or to the official name of which it is another spelling. Three modes:
//   strict   an unknown option is an error (the package `sandbar`)
//   lenient  an unknown option is passed on with a warning; one about the network or the isolation is an error, because a
//            sandbox without it would have more than its program wanted (the preload of `sandbar env`)
//   check    the same, but other spellings are unknown too, and nothing is translated (`sandbar env --no-aliases`)
const common = { signal: true, fetch: true, token: true, teamId: true, projectId: true, apiKey: "token" };
const settings = {
  name: true, ports: true, timeout: true, resources: true, networkPolicy: true, networkId: true, env: true, tags: true,
  snapshotExpiration: true, keepLastSnapshots: true, region: true, failoverRegions: true, persistent: true, image: true,
  mounts: true, timeoutMs: "timeout", network: "networkPolicy", envs: "env", idleTimeoutMs: "__idleTimeoutMs",
};
// Not of update: the official client drops it there.
const demand = { isolation: "__isolation", nesting: "__nesting" };

const CREATE = { ...common, ...settings, ...demand, source: true, runtime: true, onResume: true };
const FORK = { ...common, ...settings, ...demand, sourceSandbox: true, onResume: true };
const GET = { ...common, ...demand, name: true, resume: true, onResume: true, sandboxId: "name" };
const GET_OR_CREATE = { ...CREATE, resume: true, onCreate: true, sandboxId: "name" };
const LIST = { ...common, limit: true, sortBy: true, sortOrder: true, namePrefix: true, cursor: true, tags: true };
const UPDATE = { ...settings, currentSnapshotId: true };
const COMMAND = {
  cmd: true, args: true, cwd: true, env: true, sudo: true, detached: true, stdout: true, stderr: true, signal: true,
  timeoutMs: true, timeout: "timeoutMs", command: "cmd", envs: "env",
};
const FILE = { path: true, content: true, mode: true, cwd: true, data: "content", body: "content", signal: true };
const CODE = {
  code: true, language: true, context: true, timeoutMs: true, env: true, cwd: true, signal: true, onEvent: true,
  timeout: "timeoutMs", envs: "env",
};
const RESOURCES = { vcpus: true, memory: true, vcpu: "vcpus", cpu: "vcpus", cpus: "vcpus" };
const POLICY = {
  allow: true, subnets: true, mode: true, allowedDomains: true, allowedCIDRs: true, deniedCIDRs: true,
  injectionRules: true, forwardRules: true, allowed: "allow", domains: "allow", hosts: "allow",
};

// Unknown options that are about what a sandbox may reach or what keeps it in, by the look of their name.
const GUARDED = /net|allow|den[iy]|block|egress|outbound|internet|online|offline|firewall|polic|domain|hosts|cidr|isolat|nesting/i;
const warned = new Set();

function warn(text) {
  if (warned.has(text)) return;
  warned.add(text);
  process.emitWarning(text, { type: "SandbarWarning", code: "SANDBAR_OPTION" });
}

function makeReader(mode) {
  const translates = mode !== "check";
  const known = (table, name) => (translates ? Object.hasOwn(table, name) : table[name] === true) || name.startsWith("__");

  function refuse(where, name, table) {
    const official = translates ? table : Object.fromEntries(Object.entries(table).filter(([, to]) => to === true));
    const text = unknown(where, name, official);
    if (mode === "strict") throw new TypeError(text);
    const near = nearest(name, Object.keys(table));
    const guarded = Object.hasOwn(table, "networkPolicy") && (GUARDED.test(name) || (near && GUARDED.test(near)));
    if (guarded || table === POLICY) throw new TypeError(`${text} (the official client would drop it without a word)`);
    warn(`${text} (the official client drops what it does not know)`);
  }

  function readOptions(where, given, table) {
    if (given === undefined || given === null) return {};
    if (typeof given !== "object" || Array.isArray(given)) throw new TypeError(`${where}: expected an object with options`);
    const out = {};
    for (const [name, value] of Object.entries(given)) {
      if (!known(table, name)) refuse(where, name, table);
      if (value === undefined) continue;
      const official = translates && typeof table[name] === "string" ? table[name] : name;
      if (official in out) throw new TypeError(`${where}: \`${name}\` and \`${official}\` are the same option; give one of them`);
      out[official] = value;
    }
    if (out.resources) out.resources = readOptions(`${where}: resources`, out.resources, RESOURCES);
    if (out.networkPolicy !== undefined) out.networkPolicy = readPolicy(where, out.networkPolicy);
    if (out.__isolation !== undefined) out.__isolation = readDemand(where, out.__isolation);
    return translates ? out : given;
  }

  // In its short form: an object would not survive the query of a get.
  function readDemand(where, demand) {
    if (typeof demand !== "object" || demand === null) return demand;
    const { minClass, engine } = readOptions(`${where}: isolation`, demand, { minClass: true, engine: true });
    if (minClass !== undefined && engine !== undefined) return { minClass, engine };
    return minClass ?? engine ?? demand;
  }

  // A policy that allows nothing is deny-all in one word.
  function readPolicy(where, policy) {
    if (translates && (policy === false || policy === "none")) return "deny-all";
    if (translates && policy === true) return "allow-all";
    if (policy === "deny-all" || policy === "allow-all") return policy;
    if (typeof policy === "string") throw new TypeError(`${where}: network policy "${policy}" is neither "deny-all" nor "allow-all"`);
    if (typeof policy !== "object") throw new TypeError(`${where}: a network policy is "deny-all", "allow-all" or an object`);
    const read = readOptions(`${where}: network policy`, policy, POLICY);
    const nothing = read.allow && Object.keys(read.allow).length === 0;
    return translates && nothing && Object.keys(read).length === 1 ? "deny-all" : read;
  }

  return { readOptions, readPolicy };
}

function unknown(where, name, table) {
  const near = nearest(name, Object.keys(table));
  return `${where}: unknown option \`${name}\`${near ? `; did you mean \`${near}\`?` : `; known are ${Object.keys(table).join(", ")}`}`;
}

// The known name at the smallest edit distance, if that is small enough to be a slip.
function nearest(name, known) {
  const rank = (other) => {
    const [a, b] = [name.toLowerCase(), other.toLowerCase()];
    return a.length > 3 && (a.startsWith(b) || b.startsWith(a)) ? 1 : distance(a, b);
  };
  const best = known.map((other) => [rank(other), other]).sort((x, y) => x[0] - y[0])[0];
  return best && best[0] <= Math.max(2, Math.floor(name.length / 3)) ? best[1] : undefined;
}

function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    row = next;
  }
  return row[b.length];
}

module.exports = { CREATE, FORK, GET, GET_OR_CREATE, LIST, UPDATE, COMMAND, FILE, CODE, makeReader, warn };
