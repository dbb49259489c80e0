import { Sandbox } from "@vercel/sandbox";

export class Machine {
  private sandbox: Sandbox | null = null;

  async initialize(): Promise<void> {
    this.sandbox = await Sandbox.create({
      apiKey: process.env.VERCEL_SANDBOX_API_KEY!,
    });
  }

  async writeFile(path: string, content: string): Promise<string> {
    if (!this.sandbox) throw new Error("no machine yet");
    await this.sandbox.files.write({ path, content });
    return `${content.length} bytes are in ${path}`;
  }

  async readFile(path: string): Promise<string> {
    if (!this.sandbox) throw new Error("no machine yet");
    return await this.sandbox.files.read({ path });
  }

  async executeCommand(command: string, timeoutMs: number = 10000): Promise<{ stdout: string; stderr: string; exitCode: number }> {
    if (!this.sandbox) throw new Error("no machine yet");
    const result = await this.sandbox.commands.run({ command, timeout: timeoutMs });
    return { stdout: result.stdout, stderr: result.stderr, exitCode: result.exitCode };
  }

  async destroy(): Promise<void> {
    if (this.sandbox) {
      await this.sandbox.close();
      this.sandbox = null;
    }
  }
}
