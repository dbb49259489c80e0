import { Sandbox } from '@vercel/sandbox';

export async function interpret(code: string) {
  const machine = await Sandbox.create({
    runtime: 'python3.13',
    idleTimeoutMs: 30_000,
    network: { allow: [] },
  });

  try {
    const result = await machine.exec({
      cmd: ['python', '-c', code],
      timeoutMs: 15_000,
    });

    return {
      stdout: result.stdout,
      stderr: result.stderr,
      exitCode: result.exitCode,
    };
  } finally {
    await machine.close();
  }
}
