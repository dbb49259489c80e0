// A server for one test file and the unmodified SDK pointed at it by the preload hook, as users get it.
//
//   const { Sandbox, sandbox, server } = await useSdk();
//   const box = await sandbox({ timeout: 60_000 });      // deleted after the file's tests
import { after } from "node:test";
import { startServer } from "../support/server.mjs";

export async function useSdk({ config = "[limits]\nmax_running = 64\n", client = "@vercel/sandbox" } = {}) {
  const server = await startServer({ config });
  const made = [];
  after(async () => {
    await Promise.allSettled(made.map((box) => (box.delete ? box.delete() : box.stop())));
    await server.stop();
  });
  process.env.SANDBAR_URL = server.url;
  await import("../../sdk/register.mjs"); // reads the URL when it is loaded
  const sdk = await import(client);
  const credentials = { token: server.token, teamId: "team_test", projectId: "prj_test" };
  const sandbox = async (params = {}) => {
    const box = await sdk.Sandbox.create({ runtime: "node24", networkPolicy: "deny-all", ...credentials, ...params });
    made.push(box);
    return box;
  };
  return { ...sdk, sdk, sandbox, credentials, server };
}

// Other versions of the client are installed beside this file.
export const load = (client) => import(client);

// Runs a shell script and gives {exitCode, stdout, stderr} as strings.
export async function sh(box, script, params = {}) {
  const done = await box.runCommand({ cmd: "sh", args: ["-c", script], ...params });
  return { exitCode: done.exitCode, stdout: await done.stdout(), stderr: await done.stderr(), done };
}

// The error that an SDK call must end with: {status, code, message}.
export async function apiError(promise) {
  try {
    await promise;
  } catch (error) {
    const body = error.json?.error ?? {};
    return { status: error.response?.status, code: body.code, message: body.message ?? error.message, error };
  }
  throw new Error("the call succeeded, an API error was expected");
}
