// The outside world for network tests, all of it on loopback: a certificate authority, a resolver that knows every name
// below .test, web servers, and the settings with which a server under test can reach them.
//
//   const world = await makeWorld();
//   const port = await world.https((request, response) => response.end("hi"));   // see `names`
//   const { sandbox } = await useSdk({ config: world.config() });
//   world.answers.set("moving.test", (type) => (type === 1 ? [Buffer.from([10, 0, 0, 1])] : []));
//   world.asked                                                                   // names, in order
import { execFile } from "node:child_process";
import dgram from "node:dgram";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);

// A wildcard right below the top is nothing that clients accept.
const names = ["api", "open", "closed", "other", "proxy", "git", "elsewhere", "files", "registry", "moving", "deep", "x.deep", "y.x.deep"].map((n) => `${n}.test`);

async function makeCertificates(dir) {
  const openssl = (...args) => run("openssl", args, { cwd: dir });
  await openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
    "-days", "2", "-subj", "/CN=Test authority", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign");
  await openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=leaf");
  await writeFile(join(dir, "leaf.ext"), `subjectAltName=${names.map((n) => `DNS:${n}`).join(",")}\nbasicConstraints=CA:FALSE\n`);
  await openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "leaf.ext", "-out", "leaf.pem");
  await chmod(join(dir, "ca.pem"), 0o644);
}

// Every question about a name below .test gets 127.0.0.1, everything else does not exist. `answers` has other replies:
// from a name to a function that gives the records (Buffers) for a type.
function answer(query, answers) {
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
  const records = answers.get(name)?.(type) ?? (known && type === 1 ? [Buffer.from([127, 0, 0, 1])] : []);
  head.writeUInt16BE(records.length, 6);
  const rows = records.map((r) => Buffer.concat([Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 30, 0, r.length]), r]));
  return { name, bytes: Buffer.concat([head, question, ...rows]) };
}

// An address of this host that a machine does not take for its own, as it does with all of loopback: under allow-all the
// guest's address is what is dialled. Undefined on a host without a network.
export const outside = Object.values(networkInterfaces()).flat().find((a) => a.family === "IPv4" && !a.internal)?.address;

export async function makeWorld() {
  const dir = await mkdtemp(join(tmpdir(), "sandbar-world-"));
  await chmod(dir, 0o755); // the server reads the authority as a user of its own
  await makeCertificates(dir);
  const tls = { key: await readFile(join(dir, "leaf.key")), cert: await readFile(join(dir, "leaf.pem")) };
  const asked = [];
  const answers = new Map();
  const resolver = dgram.createSocket("udp4");
  resolver.on("message", (query, from) => {
    const { name, bytes } = answer(query, answers);
    asked.push(name);
    resolver.send(bytes, from.port, from.address);
  });
  await new Promise((done) => resolver.bind(0, "127.0.0.1", done));
  const servers = [];
  const listen = (server, host = "127.0.0.1", port = 0) => new Promise((done) => {
    servers.push(server);
    server.listen(port, host, () => done(server.address().port));
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
    dir, asked, answers, listen, tls,
    http: (handler) => listen(http.createServer(handler)),
    https: (handler) => listen(https.createServer(tls, handler)),
    config: (network = "", rest = "") => `extra_ca = ${JSON.stringify(join(dir, "ca.pem"))}\n[network]\n` +
      `allow_addresses = ${JSON.stringify(["127.0.0.1", outside].filter(Boolean))}\nresolver = "127.0.0.1:${resolver.address().port}"\n${network}\n${rest}`,
  };
}
