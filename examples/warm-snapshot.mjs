// Set up once, then start warm: getOrCreate finds the sandbox by name; its files are there, its set-up is not run again.
//
//   node warm-snapshot.mjs my-interpreter        # the first call installs, later ones do not
import { Sandbox } from "sandbar";

const name = process.argv[2] ?? "warm-interpreter";
const began = Date.now();

const sandbox = await Sandbox.getOrCreate({
  name,
  runtime: "node24",
  // Here the set-up would be `npm install`, with `network: { allow: [the registry] }` until it is done.
  network: { allow: [] },
  onCreate: async (box) => {
    console.log("setting up");
    await box.writeFiles([{ path: "node_modules/greet/index.js", content: "exports.greet = (who) => `hello ${who}`;\n" }]);
    await box.snapshot(); // stops it and keeps its files; the next call goes on from there
  },
  onResume: async () => console.log("going on from the snapshot"),
});

try {
  const { stdout, stderr, exitCode } = await sandbox.exec({ cmd: ["node", "-p", "require('greet').greet(process.argv[1])", name] });
  process.stdout.write(exitCode === 0 ? stdout : stderr);
  console.error(`${Date.now() - began} ms`);
  process.exitCode = exitCode;
} finally {
  await sandbox.stop();
}
