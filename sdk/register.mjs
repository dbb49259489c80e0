// Preload for unmodified programs that use @vercel/sandbox (or the `sandbox` CLI): sends their API calls to your own
// server. Load it with   NODE_OPTIONS=--import=file:///…/register.mjs   (`eval "$(sandbar env)"` does that).
//
// It fails closed. Calls to the vendor's API go to SANDBAR_URL; when that is unset or does not answer, they fail with an
// error that says so. A second guard below refuses any other connection to the vendor's hosts, whatever made it.
//
// Previews: sandbox.domain(port) returns the route's own URL on your server. Names under .localhost, which are no names
// in DNS, are reached at SANDBAR_URL by whatever connects to them in this program: fetch, http, WebSocket.
// Node.js 18.19 or newer; no dependencies.
import module from "node:module";
import net from "node:net";
import tls from "node:tls";

const installed = Symbol.for("sandbar.register");

if (!globalThis[installed]) {
  globalThis[installed] = true;

  // Read when it is needed: programs that load a .env file do so after their imports.
  let base, ours, bareHost;
  const look = () => {
    const now = (process.env.SANDBAR_URL ?? "").replace(/\/+$/, "");
    if (now === base) return;
    ours = now ? new URL(now) : undefined;
    bareHost = ours?.hostname.replace(/^\[|\]$/g, "");
    base = now;
  };
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

  const isPreview = (host) => (look(), ours) && /^sb-[a-z0-9]+\.localhost$/i.test(String(host ?? ""));
  const localPreview = (subdomain) => `${ours.protocol}//${subdomain}.localhost${ours.port ? `:${ours.port}` : ""}`;

  // What domain() returns. The server's own idea of its port may differ from the address that we were given.
  globalThis[Symbol.for("sandbar.domain")] = (route) => {
    look();
    if (!base) throw refusal("SANDBAR_URL is not set");
    return route.url && !isPreview(new URL(route.url).hostname) ? route.url.replace(/\/$/, "") : localPreview(route.subdomain);
  };

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

  globalThis.fetch = async function fetch(input, init) {
    const url = target(input);
    if (!url || !isVendor(url.hostname)) return realFetch(input, init);
    // Usage statistics have no place here; their sender ignores the answer.
    if (url.hostname.startsWith("telemetry.")) return new Response(null, { status: 204 });
    if (!base) throw refusal(`SANDBAR_URL is not set, and ${url.hostname} is not contacted from here`);
    const to = rewrite(url);
    if (!to) throw refusal(`${url.hostname} is not contacted from here (SANDBAR_URL is ${base})`);
    // Our API never redirects; one that did could lead back to the vendor. Servers in sandboxes may.
    const options = url.hostname.endsWith(".vercel.run") ? { ...init } : { redirect: "error", ...init };
    if (options.body && typeof options.body === "object" && !options.duplex) options.duplex = "half";
    try {
      if (input instanceof Request) return await realFetch(new Request(to, input), options);
      return await realFetch(to, options);
    } catch (error) {
      if (error?.name === "AbortError" || options.signal?.aborted) throw error;
      const why = error?.cause?.code ?? error?.cause?.message ?? error?.message;
      throw refusal(`no answer from SANDBAR_URL=${base} (${why}); is the server running? sandbar up`, error);
    }
  };

  // Everything that dials by name passes here: https, tls, undici, WebSocket clients.
  const realConnect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function connect(...args) {
    const first = Array.isArray(args[0]) ? args[0][0] : args[0];
    const host = first && typeof first === "object" ? (first.host ?? first.servername) : args[1];
    if (isPreview(host)) {
      if (first && typeof first === "object") {
        const there = { ...first, host: bareHost };
        if (Array.isArray(args[0])) args[0][0] = there;
        else args[0] = there;
      } else {
        args[1] = bareHost;
      }
      return realConnect.apply(this, args);
    }
    if (isVendor(host)) {
      process.nextTick(() => this.destroy(refusal(`${host} is not contacted from here (SANDBAR_URL is ${base || "not set"})`)));
      return this;
    }
    return realConnect.apply(this, args);
  };

  // Over TLS a preview under .localhost shows the certificate of SANDBAR_URL, and that is the name it is checked for.
  const realTls = tls.connect;
  tls.connect = function connect(...args) {
    const options = args[0];
    if (options && typeof options === "object" && isPreview(options.servername || options.host))
      args[0] = { ...options, host: bareHost, servername: net.isIP(bareHost) ? "" : bareHost };
    return realTls.apply(this, args);
  };

  // The SDK spells the vendor's domain in one place; here it asks us instead. Without these hooks (a very old Node, a
  // bundled program) domain() returns the vendor's name, and fetch above still leads it here.
  const apply = (source) =>
    source.replace(/`https:\/\/\$\{(\w+)\.subdomain\}\.vercel\.run`/g, 'globalThis[Symbol.for("sandbar.domain")]($1)');
  const wanted = /\/dist\/(session|sandbox)\.c?js$/;
  if (base || process.env.SANDBAR_ALIASES) {
    const realCompile = module.prototype._compile;
    module.prototype._compile = function _compile(content, filename, ...rest) {
      const isOurs = typeof content === "string" && wanted.test(String(filename).replaceAll("\\", "/"));
      return realCompile.call(this, isOurs ? apply(content) : content, filename, ...rest);
    };
    const text = (source) => (typeof source === "string" ? source : new TextDecoder().decode(source));
    const patch = (url, loaded) => (wanted.test(url) && loaded.source ? { ...loaded, source: apply(text(loaded.source)) } : loaded);
    // SANDBAR_ALIASES=1: `import … from "@vercel/sandbox"` gets the facade beside this file, which in turn gets the
    // official package from where the program has it.
    const facade = process.env.SANDBAR_ALIASES ? new URL("./index.mjs", import.meta.url).href : "";
    const seen = { from: undefined };
    const divert = (specifier, context, next) => {
      if (!facade || specifier !== "@vercel/sandbox" || !context.conditions.includes("import")) return next(specifier, context);
      if (context.parentURL === facade) return next(specifier, { ...context, parentURL: seen.from ?? facade });
      seen.from = context.parentURL;
      return { url: facade, format: "module", shortCircuit: true };
    };
    if (facade) {
      // The same for require().
      const makeFacade = module.createRequire(import.meta.url)("./facade.cjs");
      const made = new WeakMap();
      const realLoad = module._load;
      module._load = function _load(request, ...rest) {
        const loaded = realLoad.call(this, request, ...rest);
        if (request !== "@vercel/sandbox") return loaded;
        if (!made.has(loaded)) made.set(loaded, { ...loaded, ...makeFacade(loaded) });
        return made.get(loaded);
      };
    }
    // registerHooks only where `register` is deprecated. Before Node.js 26 a load hook of that kind leaves a CommonJS
    // program that comes after --import with a poorer `require`, without the extensions that `next` and others need.
    if (module.registerHooks && parseInt(process.versions.node, 10) >= 26) {
      module.registerHooks({ resolve: divert, load: (url, context, next) => patch(url, next(url, context)) });
    } else if (module.register) {
      const hook = `const wanted = ${wanted}, facade = ${JSON.stringify(facade)}, seen = {};
        const apply = ${apply}; const text = ${text}; const patch = ${patch};
        export const resolve = ${divert};
        export const load = async (url, context, next) => patch(url, await next(url, context));`;
      module.register(`data:text/javascript,${encodeURIComponent(hook)}`);
    }
    module.syncBuiltinESMExports();
  }
}
