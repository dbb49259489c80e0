// The first program: write a file, run it, read the result. Unmodified @vercel/sandbox code.
//
//   sudo ./sandbar up && eval "$(sudo ./sandbar env)"
//   npm install --no-save @vercel/sandbox && node examples/hello.mjs
import { Sandbox } from "@vercel/sandbox";

const sandbox = await Sandbox.create({ runtime: "node24" });
try {
  await sandbox.writeFiles([{ path: "main.js", content: Buffer.from("console.log('6 x 7 =', 6 * 7)\n") }]);
  const result = await sandbox.runCommand("node", ["main.js"]);
  console.log(await result.stdout());
  process.exitCode = result.exitCode;
} finally {
  await sandbox.stop();
}
