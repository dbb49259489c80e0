// Keeps the tokens of `sandbar env` at the server that minted them. Other clients of the same family take what they find in
// VERCEL_OIDC_TOKEN and send it to hosts of their own: the model gateway of the AI SDK does. This looks at everything that
// the program writes to a connection that it opened itself, before TLS encrypts it, and at the headers of HTTP/2.
//
//   const tokens = confine({ isOurs, refusal });    // isOurs(host, port)
//   tokens.check(url, headers);                     // throws for a URL or headers that must not leave
//   tokens.watch({ net, http2 });                   // the same for every socket and HTTP/2 session from now on
//   tokens.mark(socket, trusted);
//
// What it cannot see: other programs (curl), compressed bodies, sockets that native code opens.

// The beginning of the payload of every token that a server of ours signs: {"iss":"sandbar","
const SIGNED = Buffer.from('{"iss":"sandbar","').toString("base64url");

// The same bytes inside of base64 (Basic authorization), wherever they begin in their group of three. The characters at
// both ends hold bits of the neighbours.
function base64Forms(text) {
  return [0, 1, 2].map((shift) => {
    const all = Buffer.from("\0".repeat(shift) + text).toString("base64").replace(/=+$/, "");
    return all.slice(shift === 0 ? 0 : shift + 1, -1);
  });
}

const forms = (text) => [text, ...base64Forms(text)];

module.exports = ({ isOurs, refusal }) => {
  let patterns = forms(SIGNED);
  let longest = Math.max(...patterns.map((p) => p.length));
  const opaque = new Set();
  // Read when it is needed, and kept: a program may load a .env file late, or delete the variable after reading it.
  const look = () => {
    const token = process.env.SANDBAR_TOKEN;
    if (!token || token.length < 8 || opaque.has(token)) return;
    opaque.add(token);
    patterns = [...patterns, ...forms(token)];
    longest = Math.max(...patterns.map((p) => p.length));
  };
  const holds = (text) => patterns.some((p) => text.includes(p));

  const leak = (host) =>
    refusal(
      `the token of \`sandbar env\` is for SANDBAR_URL alone and is not sent to ${host || "another host"}. If this is a model behind ` +
        "the AI gateway (a model named by a text, such as \"anthropic/…\"): set AI_GATEWAY_API_KEY to a key of the gateway's, or " +
        "use a provider package (@ai-sdk/anthropic, @ai-sdk/openai, @ai-sdk/openai-compatible) with that provider's key. " +
        "Other clients: give them a credential of their own",
    );

  const portOf = (url) => url.port || { "https:": "443", "wss:": "443" }[url.protocol] || "80";

  function check(url, headers) {
    look();
    if (isOurs(url.hostname, portOf(url))) return;
    if (holds(url.href)) throw leak(url.hostname);
    for (const value of headers) if (holds(String(value))) throw leak(url.hostname);
  }

  const sockets = new WeakMap(); // what was opened here: { host, trusted, tail }
  const mark = (socket, host, trusted) => void sockets.set(socket, { host, trusted, tail: "" });

  // Also finds a token that is spread over two writes.
  function passes(state, chunk, encoding) {
    const text = typeof chunk === "string" && !/^(hex|base64|base64url|utf-?16le|ucs-?2)$/i.test(encoding ?? "");
    const bytes = text ? undefined : Buffer.isBuffer(chunk) ? chunk : typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    const whole = text ? chunk : bytes;
    if (holds(whole)) return false;
    const piece = (from, to) => (text ? chunk.slice(from, to) : bytes.latin1Slice(from < 0 ? Math.max(0, bytes.length + from) : from, Math.min(to ?? bytes.length, bytes.length)));
    if (state.tail && holds(state.tail + piece(0, longest))) return false;
    state.tail = (state.tail + piece(-longest)).slice(-longest);
    return true;
  }

  // A stream's method of this name sees every write of its kind; the last argument is told of a failure.
  function guard(target, name, chunksOf) {
    const real = target[name];
    if (typeof real !== "function") return;
    target[name] = function (...args) {
      const state = sockets.get(this);
      if (!state || state.trusted) return real.apply(this, args);
      look();
      for (const [chunk, encoding] of chunksOf(args)) {
        if (passes(state, chunk, encoding)) continue;
        const error = leak(state.host);
        const done = args.at(-1);
        if (typeof done === "function") done(error);
        this.destroy(error);
        return false;
      }
      return real.apply(this, args);
    };
  }

  const several = (list) => list.map((entry) => (entry && entry.chunk !== undefined ? [entry.chunk, entry.encoding] : [entry, "buffer"]));

  function watch({ net, http2 }) {
    guard(net.Socket.prototype, "_writeGeneric", ([writev, data, encoding]) => (writev ? several(data) : [[data, encoding]]));
    const realConnect = http2.connect;
    http2.connect = function connect(authority, ...rest) {
      const session = realConnect.call(this, authority, ...rest);
      const url = typeof authority === "string" ? new URL(authority) : authority;
      const host = String(url.hostname ?? url.host ?? "").replace(/^\[|\]$/g, "");
      if (isOurs(host, portOf(url))) return session;
      const realRequest = session.request;
      session.request = function request(headers, ...more) {
        look();
        if (Object.entries(headers ?? {}).some(([, value]) => [value].flat().some((v) => holds(String(v))))) throw leak(host);
        const stream = realRequest.call(this, headers, ...more);
        mark(stream, host, false);
        guard(stream, "_write", ([data, encoding]) => [[data, encoding]]);
        guard(stream, "_writev", ([data]) => several(data));
        return stream;
      };
      return session;
    };
  }

  return { check, mark, watch };
};
