// Preload for unmodified programs that use @vercel/sandbox (or the `sandbox` CLI): sends their API calls to your own
// server. Load it with   NODE_OPTIONS=--import=file:///…/register.mjs   (`eval "$(sandbar env)"` does that).
//
// It fails closed. Calls to the vendor's API go to SANDBAR_URL; when that is unset or does not answer, they fail with an
// error that says so. A second guard below refuses any other connection to the vendor's hosts, whatever made it. The tokens
// of `sandbar env` go to SANDBAR_URL and nowhere else (confine.cjs).
//
// Previews: sandbox.domain(port) returns the route's own URL on your server. Names under .localhost, which are no names
// in DNS, are reached at SANDBAR_URL by whatever connects to them in this program: fetch, http, WebSocket. https: and wss:
// lead to a server without TLS too, because the bytes stay on the way to SANDBAR_URL.
//
// Options: the official client drops those that it does not know. SANDBAR_ALIASES=1 makes it understand the spellings of
// docs/sdk.md; in any case an unknown option is told, and one that is about the network is an error (facade.cjs).
// SANDBAR_DEFAULT_NET=deny-all is the network of sandboxes whose program asks for none.
// Node.js 18.19 or newer; no dependencies.
import http2 from "node:http2";
import module from "node:module";
import net from "node:net";
import tls from "node:tls";

const installed = Symbol.for("sandbar.register");

// Where this file is the only one (a download from a server), that server has put the others here.
const embedded = null;
const nodeRequire = module.createRequire(import.meta.url);
const loaded = {};
function part(name) {
  if (!embedded) return nodeRequire(name);
  if (!loaded[name]) {
    const made = (loaded[name] = { exports: {} });
    new Function("module", "exports", "require", embedded[name.slice(2)])(made, made.exports, part);
  }
  return loaded[name].exports;
}

if (!globalThis[installed]) {
  globalThis[installed] = true;
  const { warn } = part("./options.cjs");

  // Read when it is needed: programs that load a .env file do so after their imports.
  let base, ours, bareHost;
  const addresses = new Set(); // every server of ours that this program was pointed at
  const portOf = (url) => url.port || (url.protocol === "https:" ? "443" : "80");
  const look = () => {
    const now = (process.env.SANDBAR_URL ?? "").replace(/\/+$/, "");
    if (now === base) return;
    ours = now ? new URL(now) : undefined;
    bareHost = ours?.hostname.replace(/^\[|\]$/g, "");
    base = now;
    if (ours) addresses.add(`${loopbackOr(bareHost)} ${portOf(ours)}`);
  };
  const loopbackOr = (host) => (/^(localhost|127\.0\.0\.1|::1)$/i.test(host) ? "loopback" : host.toLowerCase());
  const isOurs = (host, port) => (look(), addresses.has(`${loopbackOr(String(host ?? "").replace(/^\[|\]$/g, ""))} ${port}`));
  look();
  const realFetch = globalThis.fetch;

  const isVendor = (host) => {
    look();
    const name = String(host ?? "").toLowerCase().replace(/\.$/, "");
    if (ours && name === ours.hostname) return false;
    return /(^|\.)vercel\.(com|run)$/.test(name);
  };

  const refusal = (what, cause) => {
    const error = new TypeError(`sandbar: ${what}`, cause ? { cause } : undefined);
    error.code = "SANDBAR_UNREACHABLE";
    return error;
  };
  const tokens = part("./confine.cjs")({ isOurs, refusal: (what) => Object.assign(refusal(what), { code: "SANDBAR_TOKEN_KEPT" }) });

  const isPreview = (host) => (look(), ours) && /^sb-[a-z0-9]+\.localhost$/i.test(String(host ?? ""));
  const localPreview = (subdomain) => `${ours.protocol}//${subdomain}.localhost${ours.port ? `:${ours.port}` : ""}`;

  // What domain() returns. The server's own idea of its port may differ from the address that we were given.
  globalThis[Symbol.for("sandbar.domain")] = (route) => {
    look();
    if (!base) throw refusal("SANDBAR_URL is not set");
    return route.url && !isPreview(new URL(route.url).hostname) ? route.url.replace(/\/$/, "") : localPreview(route.subdomain);
  };
  globalThis.__sandbar_domain = globalThis[Symbol.for("sandbar.domain")];

  // Where a vendor URL leads instead; undefined: nowhere.
  const rewrite = (url) => {
    const preview = /^(sb-[a-z0-9]+)\.vercel\.run$/.exec(url.hostname);
    if (preview) return localPreview(preview[1]) + url.pathname + url.search;
    if (url.hostname === "vercel.com" || url.hostname === "www.vercel.com") return base + url.pathname + url.search;
    if (url.hostname === "api.vercel.com") return `${base}/api${url.pathname}${url.search}`;
    // The keys of tokens that our proxy signs in the vendor's name, for programs that check them.
    if (url.hostname === "oidc.vercel.com" && url.pathname === "/.well-known/jwks") return base + url.pathname;
    return undefined;
  };

  const target = (input) => {
    try {
      return new URL(input instanceof Request ? input.url : String(input));
    } catch {
      return undefined; // a relative or malformed URL: fetch itself says what is wrong with it
    }
  };

  // The values of a request's headers, in whichever form they were given.
  const headerValues = (input, init) => {
    try {
      const given = init?.headers ?? (input instanceof Request ? input.headers : undefined);
      return given ? [...new Headers(given).values()] : [];
    } catch {
      return []; // fetch itself says what is wrong with them
    }
  };

  // A sandbox that is about to be made: its network, when the program asks for none, and whether we could read its options.
  const adopted = new WeakSet();
  let anyAdopted = false;
  const creates = (url, input, init) =>
    /\/v\d+\/sandboxes\/?$/.test(url.pathname) && (init?.method ?? (input instanceof Request ? input.method : "GET")).toUpperCase() === "POST";
  const withDefaults = async (input, init) => {
    if (!anyAdopted)
      warn("this program's copy of @vercel/sandbox is bundled in a form that the preload does not know. Options that the official " +
        "client has not got (such as `network`) are dropped without a word, and other spellings do not work. Leave the package " +
        'out of the bundle: serverExternalPackages: ["@vercel/sandbox"] in next.config, --external:@vercel/sandbox for esbuild');
    const net = process.env.SANDBAR_DEFAULT_NET;
    if (!net) return init;
    if (net !== "deny-all" && net !== "allow-all") throw refusal(`SANDBAR_DEFAULT_NET is "${net}"; it can be deny-all or allow-all`);
    const text = await new Response(init?.body ?? (input instanceof Request ? input.clone().body : "")).text();
    let body;
    try {
      body = JSON.parse(text || "{}");
    } catch {
      return { ...init, body: text }; // the server says what is wrong with it
    }
    return { ...init, body: JSON.stringify(body.networkPolicy == null ? { ...body, networkPolicy: { mode: net } } : body) };
  };

  // The official CLI asks the host of a terminal whether it is up, always over https and on port 443.
  const isProbe = (url) =>
    (look(), ours) && url.protocol === "https:" && !url.port && url.pathname === "/health" && url.hostname === ours.hostname;

  globalThis.fetch = async function fetch(input, init) {
    const url = target(input);
    if (url && isProbe(url)) return realFetch(`${base}/health`, init);
    if (url && !isVendor(url.hostname)) tokens.check(url, headerValues(input, init));
    if (!url || !isVendor(url.hostname)) return realFetch(input, init);
    // Usage statistics have no place here; their sender ignores the answer.
    if (url.hostname.startsWith("telemetry.")) return new Response(null, { status: 204 });
    if (!base) throw refusal(`SANDBAR_URL is not set, and ${url.hostname} is not contacted from here`);
    const to = rewrite(url);
    if (!to) throw refusal(`${url.hostname} is not contacted from here (SANDBAR_URL is ${base})`);
    const changed = creates(url, input, init) ? await withDefaults(input, init) : init;
    // Our API never redirects; one that did could lead back to the vendor. Servers in sandboxes may.
    const options = url.hostname.endsWith(".vercel.run") ? { ...changed } : { redirect: "error", ...changed };
    if (options.body && typeof options.body === "object" && !options.duplex) options.duplex = "half";
    let response;
    try {
      response = await (input instanceof Request ? realFetch(new Request(to, input), options) : realFetch(to, options));
    } catch (error) {
      if (error?.name === "AbortError" || options.signal?.aborted) throw error;
      const why = error?.cause?.code ?? error?.cause?.message ?? error?.message;
      throw refusal(`no answer from SANDBAR_URL=${base} (${why}); is the server running? sandbar up`, error);
    }
    // The official client would speak of missing rights.
    if (response.status === 403) {
      const said = (await response.clone().json().catch(() => undefined))?.error;
      if (said?.code === "misdirected_request") throw refusal(`the server at SANDBAR_URL=${base} does not know that name: ${said.message}`);
    }
    return response;
  };

  // The host and port of the arguments of a connect(), in whichever form they were given.
  const whereTo = (args) => {
    const first = Array.isArray(args[0]) ? args[0][0] : args[0];
    if (first && typeof first === "object") return { host: first.host ?? first.servername, port: first.port, options: first };
    return { host: typeof args[1] === "string" ? args[1] : undefined, port: first };
  };

  // Everything that dials by name passes here: https, tls, undici, WebSocket clients.
  const realConnect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function connect(...args) {
    const { host, port, options } = whereTo(args);
    if (isPreview(host)) {
      const there = { ...options, host: bareHost, port: Number(portOf(ours)) };
      if (Array.isArray(args[0])) args[0][0] = there;
      else if (options) args[0] = there;
      else [args[0], args[1]] = [there.port, bareHost];
      tokens.mark(this, host, false);
      return realConnect.apply(this, args);
    }
    if (isVendor(host)) {
      process.nextTick(() => this.destroy(refusal(`${host} is not contacted from here (SANDBAR_URL is ${base || "not set"})`)));
      return this;
    }
    tokens.mark(this, host ?? options?.path, isOurs(host ?? "localhost", port));
    return realConnect.apply(this, args);
  };

  // A plain connection that passes for one over TLS: to a preview of a server that has none.
  const plainly = (host, options, listener) => {
    const { timeout, keepAlive, keepAliveInitialDelay, noDelay, signal } = options;
    const socket = options.socket ?? net.connect({ host: bareHost, port: Number(portOf(ours)), timeout, keepAlive, keepAliveInitialDelay, noDelay, signal });
    tokens.mark(socket, host, false);
    const none = () => undefined;
    Object.assign(socket, {
      encrypted: true, authorized: true, authorizationError: null, alpnProtocol: false, servername: host,
      getPeerCertificate: () => ({}), getPeerX509Certificate: none, getCertificate: () => ({}), getCipher: () => ({}), getProtocol: () => null, getSession: none,
      getTLSTicket: none, isSessionReused: () => false, setServername: none, setSession: none, getEphemeralKeyInfo: () => ({}), getFinished: none, getPeerFinished: none,
    });
    if (listener) socket.once("secureConnect", listener);
    const ready = () => (socket.emit("secure"), socket.emit("secureConnect"));
    if (socket.connecting) socket.once("connect", ready);
    else process.nextTick(ready);
    return socket;
  };

  // Over TLS a preview under .localhost shows the certificate of SANDBAR_URL, and that is the name it is checked for.
  const realTls = tls.connect;
  tls.connect = function connect(...args) {
    const listener = typeof args.at(-1) === "function" ? args.at(-1) : undefined;
    const objects = args.filter((a) => a && typeof a === "object");
    const options = Object.assign({}, ...objects, typeof args[0] === "number" && { port: args[0] }, typeof args[1] === "string" && { host: args[1] });
    const host = isPreview(options.servername) ? options.servername : options.host;
    if (!isPreview(host)) {
      const socket = realTls.apply(this, args);
      // Over a connection that exists (a proxy's tunnel): the name in the certificate says who reads it.
      if (options.socket) tokens.mark(socket, options.servername ?? host, isOurs(options.servername ?? host, options.port ?? 443));
      return socket;
    }
    if (ours.protocol === "http:") return plainly(host, options, listener);
    const socket = realTls.call(this, { ...options, host: bareHost, servername: net.isIP(bareHost) ? "" : bareHost }, ...(listener ? [listener] : []));
    tokens.mark(socket, host, false);
    return socket;
  };
  tokens.watch({ net, http2 });

  // The client's classes, wherever they come from: its package, or a bundle that holds a copy of it. Their text asks for us at
  // the beginning of every static method. The words have no quotes, because some bundlers keep modules as quoted text.
  const mode = process.env.SANDBAR_ALIASES && process.env.SANDBAR_ALIASES !== "0" ? "lenient" : "check";
  const facade = part("./facade.cjs");
  const isSandbox = (kind) => ["create", "get"].every((m) => Object.hasOwn(kind, m)) &&
    ["runCommand", "writeFiles", "updateNetworkPolicy"].every((m) => Object.hasOwn(kind.prototype, m));
  const isSnapshot = (kind) => ["list", "get"].every((m) => Object.hasOwn(kind, m)) &&
    ["snapshotId", "delete"].every((m) => Object.hasOwn(kind.prototype, m));
  globalThis.__sandbar_adopt = (kind) => {
    // A program's own class may extend the client's.
    for (let k = kind; typeof k === "function" && k.prototype; k = Object.getPrototypeOf(k)) {
      if (adopted.has(k)) return false;
      if (!isSandbox(k) && !(mode !== "check" && isSnapshot(k))) continue;
      adopted.add(k).add(facade.install(k, mode));
      anyAdopted ||= isSandbox(k);
      return true;
    }
    return false;
  };

  // The SDK spells the vendor's domain in one place; here it asks us instead. Without these hooks (a very old Node)
  // domain() returns the vendor's name, and fetch above still leads it here.
  // No word boundary before `static`: in quoted text a tab is the two characters \t.
  const apply = (source) =>
    source
      .replace(/`https:\/\/\$\{(\w+)\.subdomain\}\.vercel\.run`/g, "globalThis.__sandbar_domain($1)")
      .replace(/static\s+(?:async\s+)?(create|get|getOrCreate|fork|list|tree)\s*\([^()]*\)\s*\{/g,
        "$&if(globalThis.__sandbar_adopt?.(this))return this.$1(...arguments);");
  const wanted = (source) => source.includes(".vercel.run") || source.includes("updateNetworkPolicy") || source.includes("listSnapshots");
  const realCompile = module.prototype._compile;
  module.prototype._compile = function _compile(content, filename, ...rest) {
    return realCompile.call(this, typeof content === "string" && wanted(content) ? apply(content) : content, filename, ...rest);
  };
  const text = (source) => (typeof source === "string" ? source : new TextDecoder().decode(source));
  const patch = (loaded) => {
    if (!loaded.source || loaded.format === "wasm" || loaded.format === "json") return loaded;
    const source = text(loaded.source);
    return wanted(source) ? { ...loaded, source: apply(source) } : loaded;
  };
  // registerHooks only where `register` is deprecated. Before Node.js 26 a load hook of that kind leaves a CommonJS
  // program that comes after --import with a poorer `require`, without the extensions that `next` and others need.
  if (module.registerHooks && parseInt(process.versions.node, 10) >= 26) {
    module.registerHooks({ load: (url, context, next) => patch(next(url, context)) });
  } else if (module.register) {
    const hook = `const apply = ${apply}; const wanted = ${wanted}; const text = ${text}; const patch = ${patch};
      export const load = async (url, context, next) => patch(await next(url, context));`;
    module.register(`data:text/javascript,${encodeURIComponent(hook)}`);
  }
  module.syncBuiltinESMExports();
}
