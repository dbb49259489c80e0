// A stock Vite development server in a sandbox without network, through its preview URL in a real browser: a file
// written with the SDK changes the open page, by Vite's own WebSocket and without a reload.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { dirname } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { sh, useSdk } from "../clients/sdk.mjs";
import { sleep, until } from "../support/server.mjs";
import { startBrowser } from "./browser.mjs";

const { sandbox } = await useSdk();
const browser = await startBrowser();
after(() => browser.close());

test("live reload through a preview", async () => {
  const box = await sandbox({ ports: [5173] });
  const here = dirname(fileURLToPath(import.meta.url));
  const packed = execFileSync("tar", ["-C", here, "-czf", "-", "node_modules", "package.json"], { maxBuffer: 1 << 28 });
  await box.writeFiles([
    { path: "app.tgz", content: packed },
    { path: "app/index.html", content: Buffer.from(`<!doctype html><div id="out">empty</div><script type="module" src="/main.js"></script>`) },
    { path: "app/main.js", content: Buffer.from(`import { text } from "./text.js";
const show = (t) => (document.querySelector("#out").textContent = t);
show(text);
import.meta.hot.accept("./text.js", (m) => show(m.text));`) },
    { path: "app/text.js", content: Buffer.from(`export const text = "version one";`) },
  ]);
  assert.equal((await sh(box, "tar xzf app.tgz -C app")).exitCode, 0);
  const vite = await box.runCommand({ cmd: "node", args: ["node_modules/vite/bin/vite.js", "--port", "5173", "--strictPort"], cwd: `${(await sh(box, "pwd")).stdout.trim()}/app`, detached: true });
  let log = "";
  const following = (async () => { for await (const line of vite.logs()) log += line.data; })().catch(() => {});
  const url = box.domain(5173);
  await until(async () => (await fetch(url)).status === 200, `Vite answers\n${log}`);
  const page = await browser.open(url);
  const text = () => page.evaluate(`document.querySelector("#out").textContent`);
  await until(async () => (await text()) === "version one", `the page shows its first version\n${log}`);
  await page.evaluate("window.stayed = true");
  // Vite tells only pages that are connected, and says nowhere when its watcher is ready: written until it is seen.
  let edits = 0;
  await until(async () => {
    if ((await text()) === "version two") return true;
    await box.writeFiles([{ path: "app/text.js", content: Buffer.from(`export const text = "version two"; // ${++edits}`) }]);
    await sleep(1000);
    return false;
  }, "the page changed", 60);
  assert.equal(await page.evaluate("window.stayed"), true, "without a reload");
  await vite.kill("SIGKILL");
  await following;
});
