import { type ChildProcess, spawn, type StdioOptions } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createInterface } from "node:readline";
import { patience } from "./wait.ts";

/** A process told apart from a later one with the same number: `startTicks` is field 22 of /proc/PID/stat. */
export interface ProcessId {
  readonly pid: number;
  readonly startTicks: string;
}

/** What a finished command left: its exit code (128 + signal when killed) and its output. */
export interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** How a command is run. A command that outlives the `patience` for `timeoutMs` (default 60 s) is killed and reported as code 124. */
export interface RunOptions {
  readonly stdin?: string | Uint8Array;
  readonly timeoutMs?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** Runs a command to its end. Never throws for an exit code; throws when the program cannot be started. */
export function run(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const timeoutMs = patience(options.timeoutMs ?? 60_000);
  return new Promise((resolve, reject) => {
    const child = start(argv, { ...options, stdio: "pipe" });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill("SIGKILL");
    }, timeoutMs);
    child.stdout?.on("data", (chunk: Buffer) => out.push(chunk));
    child.stderr?.on("data", (chunk: Buffer) => err.push(chunk));
    child.stdin?.on("error", () => {
      /* the command ended without reading: its exit code tells */
    });
    child.stdin?.end(options.stdin ?? "");
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      const late = timedOut ? `\nkilled after ${timeoutMs} ms: ${argv.join(" ")}` : "";
      resolve({
        code: timedOut ? 124 : (code ?? (signal ? 128 : 1)),
        stdout: Buffer.concat(out).toString(),
        stderr: Buffer.concat(err).toString() + late,
      });
    });
  });
}

/** Runs a command that must succeed and returns its standard output. Throws with its standard error otherwise. */
export async function must(argv: readonly string[], options: RunOptions = {}): Promise<string> {
  const done = await run(argv, options);
  if (done.code !== 0)
    throw new Error(`${argv.join(" ")} failed with ${done.code}: ${done.stderr.trim() || done.stdout.trim()}`);
  return done.stdout;
}

/** How a child is started: its environment is added to ours. */
export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly stdio?: StdioOptions;
  readonly detached?: boolean;
}

/** Starts a command and returns the running child. */
export function start(argv: readonly string[], options: StartOptions = {}): ChildProcess {
  const [program, ...args] = argv;
  if (program === undefined) throw new Error("an empty command");
  return spawn(program, args, {
    stdio: options.stdio ?? "pipe",
    detached: options.detached ?? false,
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
}

/** The first line that a child says. @throws when it ends without one. */
export async function firstLine({ stdout, spawnargs }: ChildProcess): Promise<string> {
  if (!stdout) throw new Error(`${spawnargs.join(" ")} has no standard output`);
  const { value, done } = await createInterface({ input: stdout })[Symbol.asyncIterator]().next();
  if (done) throw new Error(`${spawnargs.join(" ")} ended at once`);
  return value;
}

/** Starts a command in a session of its own that outlives this process, its output appended to `logFile`. */
export function startDaemon(argv: readonly string[], logFile: string, options: StartOptions = {}): Promise<ProcessId> {
  const log = openSync(logFile, "a");
  return new Promise((resolve, reject) => {
    const child = start(argv, { ...options, stdio: ["ignore", log, log], detached: true });
    child.once("error", reject);
    child.once("spawn", () => {
      child.unref();
      const id = child.pid === undefined ? undefined : identify(child.pid);
      if (id) resolve(id);
      else reject(new Error(`${argv.join(" ")} ended at once: see ${logFile}`));
    });
  }).finally(() => closeSync(log)) as Promise<ProcessId>;
}

/** The identity of a running process; `undefined` when there is none, or only its zombie. */
export function identify(pid: number): ProcessId | undefined {
  const stat = readStat(pid);
  return stat && stat.state !== "Z" ? { pid, startTicks: stat.startTicks } : undefined;
}

/** When the process of this number was started, its zombie included; `undefined` when there is none. */
export function startTicksOf(pid: number): string | undefined {
  return readStat(pid)?.startTicks;
}

/** Whether this very process still runs. */
export function isAlive(id: ProcessId): boolean {
  return identify(id.pid)?.startTicks === id.startTicks;
}

/** Sends a signal to this very process; false when it has gone. */
export function signalProcess(id: ProcessId, signal: NodeJS.Signals): boolean {
  if (!isAlive(id)) return false;
  try {
    return process.kill(id.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** A running process as /proc shows it; `netns` is the inode of its network namespace. */
export interface ProcessEntry extends ProcessId {
  readonly parent: number;
  readonly netns: number | undefined;
}

/** Content of a file of /proc, or of another that may have gone: empty then. */
export function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** All running processes but zombies. */
export function listProcesses(): ProcessEntry[] {
  const entries: ProcessEntry[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const pid = Number(name);
    const stat = readStat(pid);
    if (stat && stat.state !== "Z")
      entries.push({ pid, startTicks: stat.startTicks, parent: stat.parent, netns: inodeOf(`/proc/${pid}/ns/net`) });
  }
  return entries;
}

/** The inode of a file, following links; `undefined` when it cannot be read. */
export function inodeOf(path: string): number | undefined {
  try {
    return statSync(path).ino;
  } catch {
    return undefined;
  }
}

function readStat(pid: number): { state: string; parent: number; startTicks: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { state: fields[0] ?? "", parent: Number(fields[1]), startTicks: fields[19] ?? "" };
  } catch {
    return undefined;
  }
}
