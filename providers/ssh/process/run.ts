import type { Readable } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted, abortError, hasCode } from "../../../src/lib/errors.ts";
import type { RunOptions, RunResult } from "../../../src/seams/host.ts";
import { printfFormat, quoteAll } from "../shell/quote.ts";
import type { ShellPool } from "../shell/shell-pool.ts";
import { type SshCommand, type CommandResult, noSuchProgram, programOf, maxPooledScriptBytes } from "./command.ts";
import { type SpawnerOptions, createSpawner } from "./spawn.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";

const defaultTimeoutMs = 30_000;
const defaultMaxOutput = 1024 * 1024;

export interface RunnerOptions {
  readonly pool: ShellPool;
  readonly clock: Clock;
  readonly ownSession: SpawnerOptions;
}

/** Creates `Host.run`, which runs commands to completion on pooled shells. */
export function createRunner({ pool, clock, ownSession }: RunnerOptions) {
  return async (argv: readonly string[], options: RunOptions = {}): Promise<RunResult> => {
    throwIfAborted(options.signal);
    const program = programOf(argv);
    const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
    const limit = options.maxOutputBytes ?? defaultMaxOutput;
    const stop = clock.within(timeoutMs, options.signal);
    const asTimeout = (error: unknown) =>
      stop.aborted && !options.signal?.aborted ? timeoutError(program, timeoutMs) : error;
    const stdin = options.stdin ?? "";
    try {
      const { code, stdout, stderr } =
        Buffer.byteLength(stdin) > maxPooledScriptBytes / 4
          ? await runInOwnSession(ownSession, { argv, stdin, limit: limit + 1 }, stop)
          : await runPooled(pool, { argv, stdin, limit: limit + 1 }, stop);
      if (code === undefined) throw noSuchProgram(program);
      const truncated = stdout.length > limit || stderr.length > limit;
      return { code, stdout: decodeOutput(stdout, limit), stderr: decodeOutput(stderr, limit), truncated };
    } catch (error) {
      throw asTimeout(error);
    }
  };
}

async function runPooled(
  pool: ShellPool,
  { argv, stdin, limit }: SshCommand,
  stop: AbortSignal,
): Promise<CommandResult> {
  const feed = stdin.length === 0 ? "''" : printfFormat(stdin);
  const { stdout, stderr, words } = await pool.run(
    { script: `gl_run ${feed} ${limit} ${limit} ${quoteAll(argv)}`, outcome: '"$gl_rc"', maxBytes: limit },
    stop,
  );
  return { code: words[0] === "absent" ? undefined : Number(words[0]), stdout, stderr };
}

function timeoutError(program: string, timeoutMs: number): CodedError {
  return new CodedError("deadline_exceeded", `${program} timed out after ${timeoutMs} ms and was killed`);
}

function decodeOutput(bytes: Buffer, limit: number): string {
  return bytes.subarray(0, limit).toString("utf8");
}

/** Runs a command in its own session; used for input that is too large for a pooled shell.
 *  @throws cancelled or deadline_exceeded like the signal (the command is killed), unavailable. */
export async function runInOwnSession(
  options: SpawnerOptions,
  { argv, stdin, limit }: SshCommand,
  stop: AbortSignal,
): Promise<CommandResult> {
  const none = Buffer.alloc(0);
  try {
    await using child = await createSpawner(options)(argv, stop);
    const output = Promise.all([collect(child.stdout, limit), collect(child.stderr, limit)]);
    child.stdin.on("error", () => undefined);
    child.stdin.end(stdin);
    const [code, [stdout, stderr]] = await Promise.all([child.exited, untilAborted(output, stop)]);
    throwIfAborted(stop);
    return { code, stdout, stderr };
  } catch (error) {
    if (stop.aborted) throw abortError(stop);
    if (hasCode(error, "not_found")) return { code: undefined, stdout: none, stderr: none };
    throw error;
  }
}

function collect(stream: Readable, limit: number): Promise<Buffer> {
  const kept = new BoundedBuffer(limit);
  return new Promise((resolve, reject) => {
    stream.on("data", (chunk: Buffer) => void kept.add(chunk));
    stream.once("end", () => resolve(kept.bytes()));
    stream.once("error", (error) =>
      reject(error instanceof CodedError ? error : new CodedError("unavailable", error.message, { cause: error })),
    );
  });
}
