import { Sandbox } from '@vercel/sandbox';

export class Workbench {
  private machine!: Awaited<ReturnType<typeof Sandbox.create>>;

  async start() {
    this.machine = await Sandbox.create({
      runtime: 'python3.13',
      idleTimeoutMs: 10 * 60_000,
    });
  }

  writeFile(path: string, body: string) {
    return this.machine.writeFile(path, body);
  }

  exec(cmd: string[]) {
    return this.machine.exec({ cmd, timeoutMs: 60_000 });
  }

  close() {
    return this.machine.close();
  }
}

const bench = new Workbench();
await bench.start();
try {
  await bench.writeFile('numbers.txt', process.argv[2]);
  await bench.exec(['python', '-c', "open('sum.txt', 'w').write(str(sum(map(int, open('numbers.txt').read().split()))))"]);
  const { stdout, exitCode } = await bench.exec(['cat', 'sum.txt']);
  console.log(exitCode, stdout);
} finally {
  await bench.close();
}
