// Headless Chromium over its debugging pipe, as far as these tests need it. No package besides the browser itself.
//
//   const browser = await startBrowser();
//   const page = await browser.open("http://sb-x.localhost:8787/");
//   await page.evaluate(`fetch("/").then((r) => r.status)`);
//   await browser.close();
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

// The browser reaches this machine's loopback under these names and nothing else.
const rules = "MAP rebound.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1";

export async function startBrowser() {
  const profile = await mkdtemp(join(tmpdir(), "sandbar-chromium-"));
  const child = spawn("chromium", [
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-popup-blocking", "--disable-dev-shm-usage",
    `--host-resolver-rules=${rules}`, `--user-data-dir=${profile}`, "about:blank",
  ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const gone = new Promise((done) => child.once("exit", done));
  const [, , , into, from] = child.stdio;
  const waiting = new Map();
  const listeners = new Set();
  let last = 0;
  let buffer = "";
  into.on("error", () => {});
  from.setEncoding("utf8").on("data", (text) => {
    buffer += text;
    for (let end; (end = buffer.indexOf("\0")) >= 0; buffer = buffer.slice(end + 1)) {
      const message = JSON.parse(buffer.slice(0, end));
      if (message.id === undefined) for (const listener of listeners) listener(message);
      const call = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) call?.fail(new Error(`${message.error.message} ${message.error.data ?? ""}`));
      else call?.done(message.result);
    }
  });
  gone.then(() => { for (const { fail } of waiting.values()) fail(new Error("the browser is gone")); });
  const send = (method, params = {}, sessionId = undefined) => new Promise((done, fail) => {
    waiting.set(++last, { done, fail });
    into.write(JSON.stringify({ id: last, method, params, sessionId }) + "\0");
  });

  const open = async (url) => {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const call = (method, params) => send(method, params, sessionId);
    await call("Page.enable");
    await call("Runtime.enable");
    const page = {
      async goto(to) {
        const loaded = new Promise((done) => {
          const listener = (m) => m.sessionId === sessionId && m.method === "Page.loadEventFired" && (listeners.delete(listener), done());
          listeners.add(listener);
        });
        const { errorText } = await call("Page.navigate", { url: to });
        if (errorText) throw new Error(`${to}: ${errorText}`);
        await loaded;
      },
      // The value of an expression in the page, promises awaited.
      async evaluate(expression) {
        const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true, userGesture: true });
        if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        return result.value;
      },
    };
    if (url) await page.goto(url);
    return page;
  };
  const close = async () => {
    child.kill("SIGKILL");
    await gone;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  await send("Browser.getVersion");
  return { open, close };
}
