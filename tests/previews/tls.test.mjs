// A server with TLS and a preview domain of the operator's: two certificates on one port, chosen by name.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Server, binary, freePort, until } from "../support/server.mjs";
import { app } from "./guest.mjs";

let server, dir, view;
before(async () => {
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // the certificates are looked at below, by name
  dir = await mkdtemp(join(tmpdir(), "sandbar-tls-"));
  await chmod(dir, 0o755);
  for (const [file, names] of [["api", "DNS:localhost,IP:127.0.0.1"], ["previews", "DNS:*.preview.test"]])
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", `/CN=${file}`, "-addext", `subjectAltName=${names}`,
      "-keyout", join(dir, `${file}.key`), "-out", join(dir, `${file}.pem`)], { stdio: "ignore" });
  for (const file of ["api", "previews"]) await chmod(join(dir, `${file}.key`), 0o644);
  const data = join(dir, "data");
  const configFile = join(dir, "config.toml");
  await writeFile(configFile, `[server]\ntls_cert = "${dir}/api.pem"\ntls_key = "${dir}/api.key"\npreview_domain = "preview.test"\npreview_tls_cert = "${dir}/previews.pem"\npreview_tls_key = "${dir}/previews.key"\n`);
  const port = await freePort();
  server = await new Server({ data, configFile, port, args: [], env: {}, url: `https://127.0.0.1:${port}` }).start();
  view = await server.call("POST", "/v2/sandboxes?teamId=team_sandbar", { body: { projectId: "prj_sandbar", name: "box", runtime: "node24", ports: [3000], networkPolicy: { mode: "deny-all" } } });
  await server.call("POST", `/v2/sandboxes/sessions/${view.session.id}/cmd`, { body: { command: "node", args: ["-e", app(3000, "127.0.0.1")], env: {}, sudo: false } });
});
after(async () => {
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

// A request to the server under another name: {status, body, certificate}.
const get = (host, path = "/", headers = {}) => new Promise((done, fail) => {
  const request = https.request({ host: "127.0.0.1", port: server.port, servername: host.split(":")[0], path, agent: false, headers: { host, ...headers } }, (response) => {
    const { subject } = response.socket.getPeerCertificate();
    let body = "";
    response.on("data", (d) => (body += d)).on("end", () => done({ status: response.statusCode, body, certificate: subject.CN }));
  });
  request.on("error", fail).end();
});

test("the route's URL, its certificate, and the Host that development servers accept", async () => {
  const [{ url, subdomain }] = view.routes;
  assert.equal(url, `https://${subdomain}.preview.test:${server.port}`);
  const host = new URL(url).host;
  await until(async () => (await get(host)).status === 200, "the guest's server answers");
  const { body, certificate } = await get(host, "/p");
  assert.equal(certificate, "previews");
  const { headers } = JSON.parse(body);
  assert.equal(headers.host, `${subdomain}.localhost`);
  assert.equal(headers["x-forwarded-host"], host);
  assert.equal(headers["x-forwarded-proto"], "https");
  assert.equal((await get(`localhost:${server.port}`, "/health")).certificate, "api");
  assert.equal((await get(host.replace(subdomain, "sb-none"))).status, 404);
});

test("the preload reaches previews of a TLS server too, by the API's own certificate", async () => {
  const script = `const name = ${JSON.stringify(view.routes[0].subdomain)};
    const local = await fetch("https://" + name + ".localhost:${server.port}/x").then((r) => r.json());
    const vendor = await fetch("https://" + name + ".vercel.run/y").then((r) => r.json());
    console.log(local.url, vendor.url);`;
  const env = { ...process.env, SANDBAR_URL: `https://localhost:${server.port}`, NODE_EXTRA_CA_CERTS: join(dir, "api.pem"), NODE_TLS_REJECT_UNAUTHORIZED: "1" };
  const run = (env) => execFileSync(process.execPath, ["--import", new URL("../../sdk/register.mjs", import.meta.url).href, "--input-type=module", "-e", script], { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  assert.equal(run(env), "/x /y\n");
  // Another certificate than the one for SANDBAR_URL's name is refused.
  assert.throws(() => run({ ...env, SANDBAR_URL: `https://127.0.0.1:${server.port}`, NODE_EXTRA_CA_CERTS: join(dir, "previews.pem") }), /./);
});

test("forward speaks TLS", async () => {
  const env = { ...process.env, SANDBAR_URL: server.url, SANDBAR_TOKEN: server.token, SSL_CERT_FILE: join(dir, "api.pem") };
  const child = spawn(binary, ["forward", "box", "3000:0", "--json"], { stdio: ["ignore", "pipe", "inherit"], env });
  let out = "";
  child.stdout.on("data", (d) => (out += d));
  await until(() => out.includes("\n"), "it listens");
  const { local } = JSON.parse(out);
  assert.equal((await (await fetch(`http://${local}/through`)).json()).url, "/through");
  child.kill("SIGTERM");
  assert.equal((await once(child, "exit"))[0], 130);
});
