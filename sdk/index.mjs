// The official client, pointed at your own server (register.mjs), plus the spellings that people and models guess.
//
//   import { Sandbox } from "sandbar";                     // SANDBAR_URL and SANDBAR_TOKEN, or `eval "$(sandbar env)"`
//   const sandbox = await Sandbox.create({ runtime: "python3.13", network: { allow: [] } });
//   const { exitCode, stdout, stderr } = await sandbox.exec({ cmd: ["python3", "-c", "print(6 * 7)"], timeoutMs: 15_000 });
//   await sandbox.close();
//
// Everything official works as it does there. Unknown options are errors here instead of being dropped. Which spelling
// means what: docs/sdk.md.
import "./register.mjs";
import * as official from "@vercel/sandbox";
import makeFacade from "./facade.cjs";

export * from "@vercel/sandbox";
export const { Sandbox, Snapshot } = makeFacade(official);
export default Sandbox;
