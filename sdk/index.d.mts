// Types of the facade: the official client's, plus the other spellings (docs/sdk.md).
import * as official from "@vercel/sandbox";

export * from "@vercel/sandbox";

type Params<F> = F extends (params: infer P) => unknown ? NonNullable<P> : never;
type Policy = official.NetworkPolicy | { allow: string[] } | "none" | boolean;

interface Spellings {
  apiKey?: string;
  token?: string;
  teamId?: string;
  projectId?: string;
  timeoutMs?: number;
  /** Stop the sandbox when nothing was asked of it for so long. */
  idleTimeoutMs?: number;
  /** What the machine has to have, or more: a class (1 to 3), an engine's name, or both. */
  isolation?: 1 | 2 | 3 | string | { minClass?: 1 | 2 | 3; engine?: string };
  /** `{ allow: [] }` is deny-all. */
  network?: Policy;
  envs?: Record<string, string>;
  resources?: { vcpus?: number; vcpu?: number; memory?: number };
  onResume?: (sandbox: Sandbox) => Promise<void>;
}
type With<P> = Omit<P, "resources" | "onResume" | "onCreate"> & Spellings;

export interface ExecParams {
  /** A list is a program and its arguments; a text without `args` is a line for the shell. */
  cmd: string | string[];
  args?: string[];
  cwd?: string;
  env?: Record<string, string>;
  sudo?: boolean;
  timeoutMs?: number;
  timeout?: number;
  signal?: AbortSignal;
}
export interface ExecResult {
  exitCode: number;
  stdout: string;
  stderr: string;
  durationMs?: number;
  cmdId: string;
}
export interface FileParams {
  path: string;
  content: string | Uint8Array;
  mode?: number;
  cwd?: string;
}
type Place = string | { path: string; cwd?: string };

export interface RunCodeParams {
  language?: "python" | "javascript" | "typescript" | "bash";
  context?: string;
  timeoutMs?: number;
  env?: Record<string, string>;
  cwd?: string;
  signal?: AbortSignal;
  onEvent?: (event: { type: string; [key: string]: unknown }) => void;
}
export interface RunCodeResult {
  status: "ok" | "error" | "timeout" | "oom" | "killed";
  stdout: string;
  stderr: string;
  /** The last result as plain text. */
  text?: string;
  /** By media type: text/plain, image/png (base64), text/html, … */
  results: Record<string, unknown>[];
  displays: Record<string, unknown>[];
  error?: { name: string; value: string; traceback: string };
  artifacts: { path: string; size: number; mime: string; sha256: string }[];
  context: string;
  executionCount: number;
  durationMs: number;
}

export class Sandbox extends official.Sandbox implements AsyncDisposable {
  static create(params?: With<Params<typeof official.Sandbox.create>>): Promise<Sandbox>;
  static get(params: string | (Omit<Params<typeof official.Sandbox.get>, "name"> & { name?: string; sandboxId?: string; apiKey?: string })): Promise<Sandbox>;
  static getOrCreate(
    params?: string | (With<Params<typeof official.Sandbox.getOrCreate>> & { onCreate?: (sandbox: Sandbox) => Promise<void> }),
  ): Promise<Sandbox>;
  static fork(params: string | With<Params<typeof official.Sandbox.fork>>): Promise<Sandbox>;

  /** Another word for `name`. */
  get sandboxId(): string;
  get networkUsage(): { ingress: number; egress: number } | undefined;

  exec(params: ExecParams & { detached: true }): Promise<official.Command>;
  exec(params: ExecParams): Promise<ExecResult>;
  exec(cmd: string | string[], options?: Omit<ExecParams, "cmd">): Promise<ExecResult>;
  exec(cmd: string, args: string[], options?: Omit<ExecParams, "cmd" | "args">): Promise<ExecResult>;
  get commands(): {
    run(params: Omit<ExecParams, "cmd"> & { command: string | string[] }): Promise<ExecResult>;
    run(command: string | string[], options?: Omit<ExecParams, "cmd">): Promise<ExecResult>;
  };
  get files(): {
    read(file: Place): Promise<string>;
    write(path: string, content: string | Uint8Array): Promise<void>;
    write(file: FileParams | FileParams[]): Promise<void>;
    list(directory: Place): Promise<string[]>;
    exists(file: Place): Promise<boolean>;
    remove(file: Place): Promise<void>;
    makeDir(directory: Place): Promise<void>;
  };
  /** With a path alone: the text. */
  readFile(path: string): Promise<string>;
  readFile(...args: Parameters<official.Sandbox["readFile"]>): ReturnType<official.Sandbox["readFile"]>;
  readFileToBuffer(file: Place, options?: { signal?: AbortSignal }): Promise<Buffer | null>;
  downloadFile(from: Place, to: Place, options?: { mkdirRecursive?: boolean; signal?: AbortSignal }): Promise<string | null>;
  updateNetworkPolicy(policy: Policy, options?: { signal?: AbortSignal }): Promise<official.NetworkPolicy>;
  writeFile(path: string, content: string | Uint8Array, options?: { mode?: number; cwd?: string }): Promise<void>;
  writeFile(file: FileParams): Promise<void>;
  runCode(code: string, params?: RunCodeParams): Promise<RunCodeResult>;
  runCode(params: RunCodeParams & { code: string }): Promise<RunCodeResult>;
  close(options?: { signal?: AbortSignal }): ReturnType<official.Sandbox["stop"]>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Snapshot extends official.Snapshot {}
export default Sandbox;
