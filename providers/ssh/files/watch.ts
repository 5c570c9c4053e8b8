import { type Readable, addAbortSignal } from "node:stream";
import { boundedLines } from "../../../src/lib/bounded-text.ts";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, abortError, ignoreNotFound } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Host, HostFs, HostProcess } from "../../../src/seams/host.ts";
import { quote } from "../shell/quote.ts";
import { command, script } from "../../../src/seams/command.ts";
import { linesOf } from "../../../src/lib/line-reader.ts";

export interface WatcherOptions {
  readonly fs: Pick<HostFs, "stat" | "list">;
  readonly spawn: Host["spawn"];
  readonly run: Host["run"];
  readonly clock: Clock;
}

const pollIntervalMs = 1000;
/** Timeout for inotifywait to set up its watches, one per entry of a directory, milliseconds. */
const setUpTimeoutMs = 60_000;
/** Maximum length of a line of inotifywait's output, bytes. A path has at most 4096. */
const maxLineBytes = 64 * 1024;
/** A shell's exit codes for a program that it cannot execute or find. */
const [cannotExecute, notFound] = [126, 127];
const events = ["modify", "attrib", "close_write", "create", "delete", "move", "delete_self", "move_self"];

/** Creates `Host.watch`. It uses inotifywait if the target has it, and otherwise polls every second. */
export function createWatcher(options: WatcherOptions): NonNullable<Host["watch"]> {
  return async function* watch(path, signal) {
    try {
      await options.fs.stat(path, signal);
      const notifier = await startNotifier(options, path, signal);
      const works = notifier && (yield* watchByInotify(notifier, { ...options, path, signal }));
      if (!works) yield* watchByPolling(options, path, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
}

async function startNotifier(
  { spawn }: WatcherOptions,
  path: string,
  signal: AbortSignal,
): Promise<HostProcess | undefined> {
  const options = ["-m", ["-e", events.join(",")], ["--format", "%w%f"]] as const;
  return ignoreNotFound(spawn(command("inotifywait", options, [path]), signal));
}

interface Watched extends Pick<WatcherOptions, "fs" | "clock"> {
  readonly path: string;
  readonly signal: AbortSignal;
}

/** Watches with inotifywait. @returns false if inotifywait exists but cannot be run. */
async function* watchByInotify(
  notifier: HostProcess,
  { path, fs, clock, signal }: Watched,
): AsyncGenerator<string, boolean> {
  await using child = notifier;
  // The exit of the process is not awaited: a hung link reports it late.
  addAbortSignal(signal, child.stdout);
  if (await untilAborted(established(child.stderr), clock.within(setUpTimeoutMs, signal))) {
    child.stderr.resume();
    // Files may have changed before the watches were set up.
    yield path;
    for (const { name } of await fs.list(path, signal).catch(() => [])) yield `${path}/${name}`;
    const tooLong = `inotifywait printed a line of more than ${maxLineBytes} bytes`;
    for await (const line of linesOf(child.stdout, maxLineBytes, tooLong))
      yield line.toString("utf8").replace(/(.)\/$/, "$1");
  }
  if (signal.aborted) return true;
  const code = await untilAborted(child.exited, signal);
  if (code === cannotExecute || code === notFound) return false;
  throw new CodedError("failed_precondition", `${path} can no longer be watched (inotifywait ended with ${code})`);
}

/** True once inotifywait has set up its watches, as it reports on standard error. */
async function established(stderr: Readable): Promise<boolean> {
  let last = "";
  return new Promise((resolve, reject) => {
    const onData = (chunk: Buffer) => {
      const output = last + chunk.toString("latin1");
      last = output.slice(-ready.length);
      if (!output.includes(ready)) return;
      stderr.off("data", onData);
      resolve(true);
    };
    stderr.on("data", onData);
    stderr.once("end", () => resolve(false));
    stderr.once("error", reject);
  });
}

const ready = "Watches established";

/** Polls: compares snapshots, taken every second, of the path and, for a directory, of its entries. */
async function* watchByPolling(options: WatcherOptions, path: string, signal: AbortSignal): AsyncGenerator<string> {
  let before = await takeSnapshot(options, path, signal);
  yield path;
  for (const each of before.keys()) yield each;
  for (;;) {
    await options.clock.sleep(pollIntervalMs, signal);
    const now = await takeSnapshot(options, path, signal);
    for (const each of new Set([...before.keys(), ...now.keys()])) if (before.get(each) !== now.get(each)) yield each;
    before = now;
  }
}

/** Takes a snapshot: the attributes that change with a file, by path. A name with newlines appears in several parts. */
async function takeSnapshot(
  { run }: WatcherOptions,
  path: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const folder = quote(path);
  const snapshot = `for f in ${folder} ${folder}/* ${folder}/.[!.]*; do stat -c '%i %f %s %z|%n' -- "$f" 2>/dev/null; done; :`;
  const { stdout, code } = await run(script(snapshot), { signal, maxOutputBytes: 4 * 1024 * 1024 });
  if (signal.aborted) throw abortError(signal);
  if (code !== 0 || stdout === "")
    throw new CodedError("not_found", `${path} can no longer be watched: it does not exist`);
  return new Map(
    boundedLines(stdout).flatMap((line) => {
      const at = line.indexOf("|");
      return at < 0 ? [] : [[line.slice(at + 1), line.slice(0, at)] as const];
    }),
  );
}
