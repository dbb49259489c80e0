// Users and groups inside one sandbox.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sh, useSdk } from "./sdk.mjs";

const { sandbox, SandboxUserAlreadyExistsError } = await useSdk();
const box = await sandbox();
const home = (user) => `/home/${user}`;
const out = async (run) => (await (await run).stdout()).trim();

test("a created user has a home, its own name and no sudo", async () => {
  const alice = await box.createUser("alice");
  assert.equal(alice.homeDir, home("alice"));
  assert.equal(await out(alice.runCommand("id", ["-un"])), "alice");
  assert.equal(await out(alice.runCommand("pwd")), home("alice"));
  assert.equal(await out(alice.runCommand({ cmd: "sh", args: ["-c", "echo $MINE"], env: { MINE: "with space" } })), "with space");
  const sudo = await alice.runCommand("sudo", ["-n", "true"]);
  assert.notEqual(sudo.exitCode, 0);
  await assert.rejects(box.createUser("alice"), SandboxUserAlreadyExistsError);
});

test("files of a user: written, read, owned by it, closed to another", async () => {
  const bob = await box.createUser("bob");
  const eve = await box.createUser("eve");
  await bob.writeFiles([{ path: "notes/secret.txt", content: "of bob", mode: 0o600 }]);
  assert.equal((await bob.readFileToBuffer({ path: "notes/secret.txt" })).toString(), "of bob");
  assert.equal(await out(bob.runCommand("stat", ["-c", "%U", "notes/secret.txt"])), "bob");
  assert.notEqual((await eve.runCommand("cat", [`${home("bob")}/notes/secret.txt`])).exitCode, 0);
  await bob.mkDir("made");
  assert.equal(await out(bob.runCommand("sh", ["-c", "touch made/x && echo ok"])), "ok");
  assert.equal(await out(bob.runCommand("sh", ["-c", "exit 0"])), "");
});

test("groups share a directory", async () => {
  const [carol, dave] = [await box.createUser("carol"), await box.createUser("dave")];
  const { sharedDir } = await box.createGroup("team");
  assert.equal(sharedDir, "/shared/team");
  await box.addUserToGroup("carol", "team");
  await dave.addToGroup("team");
  assert.equal((await carol.runCommand("sh", ["-c", `echo from carol > ${sharedDir}/x`])).exitCode, 0);
  assert.equal(await out(dave.runCommand("cat", [`${sharedDir}/x`])), "from carol");
  assert.match(await out(dave.runCommand("groups")), /\bteam\b/);
  await dave.removeFromGroup("team");
  assert.notEqual((await dave.runCommand("cat", [`${sharedDir}/x`])).exitCode, 0);
});

test("root as a user", async () => {
  assert.equal(await out(box.asUser("root").runCommand("id", ["-u"])), "0");
});

test("users of one sandbox see each other's processes but cannot end them", async () => {
  const [mallory, victim] = [await box.createUser("mallory"), await box.createUser("victim")];
  const running = await victim.runCommand({ cmd: "sleep", args: ["1000"], detached: true });
  const { stdout } = await sh(box, "until pgrep -u victim -x sleep; do sleep 0.05; done");
  assert.notEqual((await mallory.runCommand("kill", ["-9", stdout.trim().split("\n")[0]])).exitCode, 0);
  await box.runCommand({ cmd: "pkill", args: ["-9", "-u", "victim", "-x", "sleep"], sudo: true });
  assert.equal((await running.wait()).exitCode, 137);
});
