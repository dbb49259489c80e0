// Code in the sandbox calls an API that wants a key, and never has the key: the proxy adds the header on the way out.
//
//   API_URL=https://api.example.com/v1/items API_KEY=… node brokered-credentials.mjs
import { Sandbox } from "sandbar";

const { API_URL, API_KEY } = process.env;
if (!API_URL || !API_KEY) throw new Error("set API_URL and API_KEY");
const { hostname } = new URL(API_URL);

const sandbox = await Sandbox.create({
  runtime: "node24",
  persistent: false,
  networkPolicy: { allow: { [hostname]: [{ transform: [{ headers: { authorization: `Bearer ${API_KEY}` } }] }] } },
});
try {
  await sandbox.writeFile("call.mjs", `
    const response = await fetch(process.argv[2]);
    console.log(response.status, await response.text());`);
  const call = await sandbox.exec({ cmd: ["node", "call.mjs", API_URL], timeoutMs: 60_000 });
  process.stdout.write(call.stdout + call.stderr);

  // What somebody who owns the code inside can find.
  const search = await sandbox.exec("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; grep -rs . . --exclude-dir=node_modules");
  console.log(search.stdout.includes(API_KEY) ? "the key is in the sandbox" : "the key is not in the sandbox");
  const elsewhere = await sandbox.exec({ cmd: ["node", "call.mjs", "http://elsewhere.example/"], timeoutMs: 60_000 });
  console.log(elsewhere.exitCode === 0 && !/^403/.test(elsewhere.stdout) ? "other hosts answer" : "other hosts are out of reach");
  process.exitCode = call.exitCode;
} finally {
  await sandbox.stop();
}
