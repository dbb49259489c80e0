// Preload for unmodified programs that use @vercel/sandbox (or the `sandbox` CLI): sends their API calls to your own
// server. Load it with   NODE_OPTIONS=--import=file:///…/register.mjs   (`eval "$(sandbar env)"` does that).
//
// It fails closed. Calls to the vendor's API go to SANDBAR_URL; when that is unset or does not answer, they fail with an
// error that says so. A second guard below refuses any other connection to the vendor's hosts, whatever made it.
// Node.js 18.19 or newer; no dependencies.
import net from "node:net";

const installed = Symbol.for("sandbar.register");

if (!globalThis[installed]) {
  globalThis[installed] = true;

  const base = (process.env.SANDBAR_URL ?? "").replace(/\/+$/, "");
  const ours = base ? new URL(base) : undefined;
  const realFetch = globalThis.fetch;

  const isVendor = (host) => {
    const name = String(host ?? "").toLowerCase().replace(/\.$/, "");
    if (ours && name === ours.hostname) return false;
    return /(^|\.)vercel\.(com|run)$/.test(name);
  };

  const refusal = (what, cause) => {
    const error = new TypeError(`sandbar: ${what}`, cause ? { cause } : undefined);
    error.code = "SANDBAR_UNREACHABLE";
    return error;
  };

  // Where a vendor URL leads instead; undefined: nowhere.
  const rewrite = (url) => {
    if (url.hostname === "vercel.com" || url.hostname === "www.vercel.com") return base + url.pathname + url.search;
    if (url.hostname === "api.vercel.com") return `${base}/api${url.pathname}${url.search}`;
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
    // Our server never redirects; one that did could lead back to the vendor.
    const options = { redirect: "error", ...init };
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
    if (isVendor(host)) {
      process.nextTick(() => this.destroy(refusal(`${host} is not contacted from here (SANDBAR_URL is ${base || "not set"})`)));
      return this;
    }
    return realConnect.apply(this, args);
  };
}
