// Set up once, kept as a snapshot, resumed afterwards. Without a name every call is the first.
import { Sandbox } from "@vercel/sandbox";

const name = process.argv[2] || undefined;
const machine = await Sandbox.getOrCreate({
  ...(name && { name }),
  onCreate: async (fresh) => {
    const install = await fresh.runCommand("npm", ["install", "tiny-times", "--registry", process.env.PACKAGES!]);
    console.log("install", install.exitCode);
    await fresh.snapshot();
  },
  onResume: async (again) => {
    console.log("resumed", again.status);
  },
});
const done = await machine.runCommand("node", ["-p", "require('tiny-times')(2)"]);
console.log((await done.stdout()).trim());
await machine.stop();
