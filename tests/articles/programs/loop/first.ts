// One file into a machine, one command, its result.
import { Sandbox } from "@vercel/sandbox";

const program = process.argv[2];
const machine = await Sandbox.create({
  runtime: "node24",
  timeout: 60_000,
  networkPolicy: "deny-all",
  ports: [],
  resources: { vcpu: 1 },
});
await machine.writeFiles([{ path: "main.js", content: Buffer.from(program) }]);
const done = await machine.runCommand("node", ["main.js"]);
const printed = await done.stdout();
console.log(done.exitCode, printed);
await machine.stop();
