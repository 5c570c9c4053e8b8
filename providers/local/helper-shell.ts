import type { Clock, Timer } from "../../src/lib/clock.ts";
import { BoundedBuffer } from "../../src/lib/bounded-buffer.ts";
import { CodedError, abortError, throwIfAborted } from "../../src/lib/errors.ts";
import { createSemaphore } from "../../src/lib/semaphore.ts";
import type { HostProcess, RunOptions, RunResult } from "../../src/seams/host.ts";
import { quoteAll } from "../ssh/shell/quote.ts";

const defaultTimeoutMs = 30_000;
const maxErrorBytes = 64 * 1024;
/** Time after which an unused shell is ended, milliseconds. */
const idleMs = 60_000;

/** A resident shell that runs short commands, one after another. When a large process starts another one, it is blocked for
 *  milliseconds, since the kernel copies its page tables; a shell is small. */
export type HelperShell = ReturnType<typeof createHelperShell>;

interface Shell {
  readonly process: HostProcess;
  /** Aborts when the process has ended. */
  readonly exited: AbortSignal;
}

interface Deps {
  readonly clock: Clock;
  /** Starts `sh` in the place where the commands should run. */
  readonly startShell: () => Promise<HostProcess>;
}

export function createHelperShell({ clock, startShell }: Deps) {
  const oneAtATime = createSemaphore(1);
  let shell: Shell | undefined;
  let idle: Timer | undefined;
  const end = async (): Promise<void> => {
    idle?.cancel();
    const ended = shell;
    shell = undefined;
    await ended?.process[Symbol.asyncDispose]();
  };
  const start = async (): Promise<Shell> => {
    const process = await startShell();
    process.stdin.on("error", () => undefined);
    process.stderr.resume();
    const exited = new AbortController();
    const started = { process, exited: exited.signal };
    shell = started;
    void process.exited.then(() => {
      if (shell === started) shell = undefined;
      exited.abort();
    });
    return started;
  };
  return {
    /** @see RunOptions.brief */
    run: (argv: readonly string[], { timeoutMs = defaultTimeoutMs, signal }: RunOptions): Promise<RunResult> =>
      oneAtATime(async () => {
        throwIfAborted(signal);
        idle?.cancel();
        const stop = clock.within(timeoutMs, signal);
        try {
          return await runIn(shell ?? (await start()), argv, stop);
        } catch (error) {
          await end();
          throwIfAborted(signal);
          if (!stop.aborted) throw error;
          throw new CodedError("deadline_exceeded", `${argv[0]} timed out after ${timeoutMs} ms and was killed`);
        } finally {
          if (shell) idle = clock.after(idleMs, () => void oneAtATime(end));
        }
      }),
    [Symbol.asyncDispose]: () => oneAtATime(end),
  };
}

/** Runs a command in a shell. @throws unavailable if the shell ends; the signal's reason. After an error the shell is unusable. */
function runIn(
  { process: { stdin, stdout }, exited }: Shell,
  argv: readonly string[],
  stop: AbortSignal,
): Promise<RunResult> {
  if (stop.aborted) return Promise.reject(abortError(stop));
  const { promise, resolve, reject } = Promise.withResolvers<RunResult>();
  const answer = new BoundedBuffer(maxErrorBytes);
  const onData = (chunk: Buffer) => {
    if (!answer.add(chunk))
      reject(new CodedError("resource_exhausted", `${argv[0]} printed too much on standard error`));
    else if (chunk.at(-1) === 0) resolve(parse(answer.bytes()));
  };
  const onAbort = () => reject(abortError(stop));
  stop.addEventListener("abort", onAbort, { once: true });
  stdout.on("data", onData);
  const onExit = () => reject(new CodedError("unavailable", `the shell that ran ${argv[0]} has ended`));
  exited.addEventListener("abort", onExit, { once: true });
  stdin.on("error", reject);
  stdin.write(`gl_e=$(exec ${quoteAll(argv)} 2>&1 >/dev/null </dev/null); printf '%s %s\\0' "$?" "$gl_e"\n`);
  return promise.finally(() => {
    stop.removeEventListener("abort", onAbort);
    exited.removeEventListener("abort", onExit);
    stdout.off("data", onData);
    stdin.off("error", reject);
  });
}

/** Parses the shell's answer: the exit code, a space, and standard error, ended by a NUL. */
function parse(answer: Buffer): RunResult {
  const text = answer.subarray(0, -1).toString("utf8");
  const end = text.indexOf(" ");
  return { code: Number(text.slice(0, end)), stdout: "", stderr: text.slice(end + 1), truncated: false };
}
