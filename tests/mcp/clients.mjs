// The official MCP clients in every way they can reach us: two majors, two transports, two protocol eras.
//
//   const mcp = await kind.connect(server, { path: "/mcp/s/box" }, t);      // closed when the test `t` is over
//
// `call` returns {text, content, isError}; `progress` gets what arrives while the call runs.
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { binary } from "../support/server.mjs";

const info = { name: "sandbar-tests", version: "1.0.0" };
const makers = {
  "sdk 1": { client: () => new Client1(info), Http: Http1, Stdio: Stdio1 },
  "sdk 2": { client: () => new Client2(info), Http: Http2, Stdio: Stdio2 },
  "sdk 2, new era": {
    client: () => new Client2(info, { versionNegotiation: { mode: "auto" } }), Http: Http2, Stdio: Stdio2, modern: true,
  },
};

export class Mcp {
  constructor(client, old) {
    this.client = client;
    this.old = old;
  }
  async list() {
    return (await this.client.listTools()).tools;
  }
  async call(name, args = {}, options = {}) {
    const { progress, ...rest } = options;
    const opts = { timeout: 300_000, ...rest, ...(progress && { onprogress: progress }) };
    const params = { name, arguments: args };
    const result = await (this.old ? this.client.callTool(params, undefined, opts) : this.client.callTool(params, opts));
    return { ...result, text: result.content.filter((c) => c.type === "text").map((c) => c.text).join("\n") };
  }
  close() {
    return this.client.close();
  }
}

export function httpTransport(Http, server, path, token = server.token) {
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  return new Http(new URL(server.url + path), { requestInit: { headers } });
}

async function connect(maker, transport, t) {
  const client = maker.client();
  t.after(() => client.close());
  await client.connect(transport);
  return new Mcp(client, maker.Http === Http1);
}

export const kinds = Object.entries(makers).flatMap(([name, maker]) => [
  {
    name: `${name}, http`, modern: !!maker.modern, http: true,
    connect: (server, { path = "/mcp/s/box", token }, t) => connect(maker, httpTransport(maker.Http, server, path, token), t),
  },
  {
    name: `${name}, stdio`, modern: !!maker.modern, http: false,
    connect: (server, { args = [] }, t) => {
      const env = { ...process.env, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token };
      return connect(maker, new maker.Stdio({ command: binary, args: ["mcp", ...args], env, stderr: "inherit" }), t);
    },
  },
]);
export const http1 = kinds[0];
