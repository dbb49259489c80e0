// A generated app behind a URL: publish a port, start the server, wait until it answers, look at it, change it live.
//
//   node live-preview.mjs            # prints the URL, keeps it up until Ctrl-C; with --once it ends after the check
import { Sandbox } from "sandbar";

const words = process.argv.slice(2);
const once = words.includes("--once");
const title = words.find((word) => word !== "--once") ?? "Hello";
const page = (text) => `<!doctype html><title>${text}</title><h1>${text}</h1>`;
const app = `
  import { readFileSync } from "node:fs";
  import http from "node:http";
  http.createServer((request, response) => {
    response.setHeader("content-type", "text/html").end(readFileSync("index.html"));
  }).listen(3000, () => console.log("listening"));`;

const sandbox = await Sandbox.create({ runtime: "node24", ports: [3000], network: { allow: [] }, persistent: false });
try {
  await sandbox.writeFiles([{ path: "app.mjs", content: app }, { path: "index.html", content: page(title) }]);
  const server = await sandbox.runCommand({ cmd: "node", args: ["app.mjs"], detached: true });
  for await (const line of server.logs()) if (line.data.includes("listening")) break;

  const url = sandbox.domain(3000);
  console.log(url);
  console.log(await (await fetch(url)).text());
  await sandbox.writeFile("index.html", page(`${title}, changed`));
  console.log(await (await fetch(url)).text());
  if (!once) await new Promise((done) => process.once("SIGINT", done));
} finally {
  await sandbox.stop();
}
