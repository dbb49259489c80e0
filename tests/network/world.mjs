// The outside world for network tests, all of it on loopback: a certificate authority, a resolver that knows every name
// below .test, web servers, and the settings with which a server under test can reach them.
//
//   const world = await makeWorld();
//   const port = await world.https((request, response) => response.end("hi"));   // any *.test name leads there
//   const { sandbox } = await useSdk({ config: world.config() });
import { execFile } from "node:child_process";
import dgram from "node:dgram";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);

async function makeCertificates(dir) {
  const openssl = (...args) => run("openssl", args, { cwd: dir });
  await openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
    "-days", "2", "-subj", "/CN=Test authority", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign");
  await openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=leaf");
  await writeFile(join(dir, "leaf.ext"), "subjectAltName=DNS:*.test,DNS:*.deep.test\nbasicConstraints=CA:FALSE\n");
  await openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "leaf.ext", "-out", "leaf.pem");
  await chmod(join(dir, "ca.pem"), 0o644);
}

// Every question about a name below .test gets 127.0.0.1, everything else does not exist.
function answer(query) {
  let at = 12;
  const labels = [];
  while (query[at] !== 0) {
    labels.push(query.subarray(at + 1, at + 1 + query[at]).toString());
    at += query[at] + 1;
  }
  const name = labels.join(".").toLowerCase();
  const question = query.subarray(12, at + 5);
  const type = query.readUInt16BE(at + 1);
  const known = name.endsWith(".test");
  const head = Buffer.alloc(12);
  query.copy(head, 0, 0, 2);
  head.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
  head.writeUInt16BE(1, 4);
  if (!known || type !== 1) return { name, bytes: Buffer.concat([head, question]) };
  head.writeUInt16BE(1, 6);
  return { name, bytes: Buffer.concat([head, question, Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 127, 0, 0, 1])]) };
}

export async function makeWorld() {
  const dir = await mkdtemp(join(tmpdir(), "sandbar-world-"));
  await chmod(dir, 0o755); // the server reads the authority as a user of its own
  await makeCertificates(dir);
  const tls = { key: await readFile(join(dir, "leaf.key")), cert: await readFile(join(dir, "leaf.pem")) };
  const asked = [];
  const resolver = dgram.createSocket("udp4");
  resolver.on("message", (query, from) => {
    const { name, bytes } = answer(query);
    asked.push(name);
    resolver.send(bytes, from.port, from.address);
  });
  await new Promise((done) => resolver.bind(0, "127.0.0.1", done));
  const servers = [];
  const listen = (server) => new Promise((done) => {
    servers.push(server);
    server.listen(0, "127.0.0.1", () => done(server.address().port));
  });
  after(async () => {
    resolver.close();
    for (const server of servers) {
      server.closeAllConnections?.();
      server.close();
    }
    await rm(dir, { recursive: true, force: true });
  });
  return {
    dir, asked,
    http: (handler) => listen(http.createServer(handler)),
    https: (handler) => listen(https.createServer(tls, handler)),
    config: (network = "", rest = "") => `extra_ca = ${JSON.stringify(join(dir, "ca.pem"))}\n[network]\n` +
      `allow_addresses = ["127.0.0.1"]\nresolver = "127.0.0.1:${resolver.address().port}"\n${network}\n${rest}`,
  };
}
