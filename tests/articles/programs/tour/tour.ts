// Every call of the client that its guides show, one after the other.
import { Sandbox, Snapshot } from '@vercel/sandbox';
import { readFileSync } from 'node:fs';

const say = (...words: unknown[]) => console.log(JSON.stringify(words));
const [registry, tarball] = process.argv.slice(2);

const sandbox = await Sandbox.create({ runtime: 'node24', ports: [3000], env: { NODE_ENV: 'production', API_KEY: process.env.API_KEY! } });
const result = await sandbox.runCommand('node', ['-e', 'console.log(6 * 7, process.env.NODE_ENV)']);
say(await result.stdout());
await sandbox.mkDir('app');
const install = await sandbox.runCommand({ cmd: 'npm', args: ['install', '--registry', registry, 'tiny-times'], cwd: '/vercel/sandbox/app', env: { NODE_ENV: 'development' }, sudo: true });
say(install.exitCode, await install.stderr());

await sandbox.writeFiles([
  { path: 'server.js', content: Buffer.from('require("http").createServer((q, r) => r.end("served " + q.url)).listen(3000, () => console.log("listening"))') },
  { path: 'out/data.bin', content: Buffer.from([1, 2, 3]) },
]);
const cmd = await sandbox.runCommand({ cmd: 'node', args: ['server.js'], detached: true });
for await (const log of cmd.logs()) {
  say(log.stream, log.data);
  if (log.data.includes('listening')) break;
}
const url = sandbox.domain(3000);
say(await (await fetch(`${url}/page`)).text());
await cmd.kill();
await cmd.wait();

const buf = await sandbox.readFileToBuffer({ path: 'out/data.bin' });
say([...buf!]);
const pieces: Buffer[] = [];
for await (const piece of (await sandbox.readFile({ path: 'out/data.bin' }))!) pieces.push(Buffer.from(piece));
say([...Buffer.concat(pieces)]);
await sandbox.downloadFile('out/data.bin', './here.bin');
say([...readFileSync('./here.bin')]);

await sandbox.updateNetworkPolicy('deny-all');
await sandbox.updateNetworkPolicy({ allow: ['api.test', '*.deep.test'] });
await sandbox.updateNetworkPolicy({ allow: { 'api.test': [{ transform: [{ headers: { 'x-api-key': process.env.API_KEY! } }] }] } });
await sandbox.extendTimeout(60_000);

const { sandboxes } = await Sandbox.list({ limit: 10 });
say(sandboxes.length > 0, sandbox.status);
const again = await Sandbox.get({ sandboxId: sandbox.sandboxId });
say(again.sandboxId === sandbox.sandboxId);

const snapshot = await sandbox.snapshot({ expiration: 86400_000 });
const { snapshots } = await Snapshot.list();
say(snapshots.some((s) => s.id === snapshot.snapshotId));
const restored = await Sandbox.create({ source: { type: 'snapshot', snapshotId: snapshot.snapshotId } });
say([...(await restored.readFileToBuffer({ path: 'out/data.bin' }))!]);
await restored.stop();
say(restored.status, typeof restored.activeCpuUsageMs, Object.keys(restored.networkUsage).sort());
const snap = await Snapshot.get({ snapshotId: snapshot.snapshotId });
await snap.delete();

const unpacked = await Sandbox.create({ source: { type: 'tarball', url: tarball } });
say((await unpacked.readFileToBuffer({ path: 'package/package.json' })) !== null);
await unpacked.stop();
