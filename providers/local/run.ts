import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import type { Clock, Timer } from "../../src/lib/clock.ts";
import { CodedError, abortError, throwIfAborted } from "../../src/lib/errors.ts";
import { BoundedBuffer } from "../../src/lib/bounded-buffer.ts";
import { untilAborted } from "../../src/lib/runnables.ts";
import type { HostProcess, RunOptions, RunResult } from "../../src/seams/host.ts";
import { codedError } from "./errors.ts";

const defaultTimeoutMs = 30_000;
const defaultMaxOutput = 1024 * 1024;
/** Time to wait for the end of a killed command, milliseconds: a hung file system may keep it alive. */
const endTimeoutMs = 1_000;

/** Starts a command in its own process group, so that killing it kills its children. */
async function start(argv: readonly string[]): Promise<ChildProcessWithoutNullStreams> {
  const [program, ...rest] = argv;
  if (program === undefined) throw new CodedError("invalid_argument", "a command needs at least a program");
  const child = spawn(program, rest, { stdio: ["pipe", "pipe", "pipe"], detached: true });
  await new Promise<void>((resolve, reject) => {
    child.once("spawn", resolve);
    child.once("error", (error) => reject(codedError(program, error)));
  });
  child.stdin.on("error", () => undefined);
  return child;
}

function killGroup({ pid }: ChildProcess, signal: "SIGTERM" | "SIGKILL"): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // Already gone, or changed to another user: the caller does not wait for it.
  }
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** Calls `stopped` when the signal aborts, or at once if it is aborted already. @returns a function that removes the listener. */
function whenAborted(signal: AbortSignal | undefined, stopped: () => void): () => void {
  if (signal?.aborted) stopped();
  signal?.addEventListener("abort", stopped, { once: true });
  return () => signal?.removeEventListener("abort", stopped);
}

/** Resolves with the exit code, or 128 + the signal's number, once the command has ended. */
function exitOf(child: ChildProcess, event: "exit" | "close"): Promise<number> {
  return new Promise((resolve) => {
    child.once(event, (code: number | null, signal: NodeJS.Signals | null) =>
      resolve(code ?? 128 + (signal ? constants.signals[signal] : 0)),
    );
  });
}

/** Runs a command on this machine to completion. @see Host.run */
export async function runLocal(clock: Clock, argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  throwIfAborted(options.signal);
  const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
  const limit = options.maxOutputBytes ?? defaultMaxOutput;
  const child = await start(argv);
  const stop = clock.within(timeoutMs, options.signal);
  // Leftover processes, even in other sessions, may keep the output open, so its end is not awaited.
  const overdue = new AbortController();
  let endTimer: Timer | undefined;
  const forget = whenAborted(stop, () => {
    killGroup(child, "SIGKILL");
    child.stdout.destroy();
    child.stderr.destroy();
    endTimer = clock.after(endTimeoutMs, () => overdue.abort());
  });
  const stdout = collect(child.stdout, limit);
  const stderr = collect(child.stderr, limit);
  child.stdin.end(options.stdin);
  const code = await untilAborted(exitOf(child, "close"), overdue.signal).catch(() => killed);
  endTimer?.cancel();
  forget();
  if (options.signal?.aborted) throw abortError(options.signal);
  if (stop.aborted)
    throw new CodedError("deadline_exceeded", `${argv[0]} timed out after ${timeoutMs} ms and was killed`);
  return { code, stdout: stdout.text(), stderr: stderr.text(), truncated: stdout.truncated() || stderr.truncated() };
}

/** Exit code of a killed command: 128 + SIGKILL. */
const killed = 137;

function collect(stream: Readable, limit: number): { text(): string; truncated(): boolean } {
  const kept = new BoundedBuffer(limit);
  let truncated = false;
  stream.on("data", (chunk: Buffer) => {
    if (!kept.add(chunk)) truncated = true;
  });
  return { text: () => kept.bytes().toString("utf8"), truncated: () => truncated };
}

/** Starts a command on this machine. @see Host.spawn */
export async function spawnLocal(argv: readonly string[], signal?: AbortSignal): Promise<HostProcess> {
  throwIfAborted(signal);
  const child = await start(argv);
  const exited = exitOf(child, "exit");
  const kill = (how: "SIGTERM" | "SIGKILL" = "SIGTERM") => {
    if (!hasEnded(child)) killGroup(child, how);
  };
  const forget = whenAborted(signal, () => kill("SIGKILL"));
  void exited.then(forget);
  return {
    pid: child.pid ?? 0,
    stdin: child.stdin,
    stdout: child.stdout,
    stderr: child.stderr,
    exited,
    kill,
    async [Symbol.asyncDispose]() {
      kill("SIGKILL");
      await exited;
    },
  };
}
