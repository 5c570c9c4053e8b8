import type { Readable } from "node:stream";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, abortError, hasCode } from "../../src/lib/errors.ts";
import type { Host, HostFs, HostProcess } from "../../src/seams/host.ts";
import { quote } from "./quote.ts";

export interface WatcherOptions {
  readonly fs: Pick<HostFs, "stat" | "list">;
  readonly spawn: Host["spawn"];
  readonly run: Host["run"];
  readonly clock: Clock;
}

const pollMs = 1000;
/** A shell's codes for a program that it cannot run. */
const [cannotExecute, notFound] = [126, 127];
const events = ["modify", "attrib", "close_write", "create", "delete", "move", "delete_self", "move_self"];

/** Hints of changes: by inotifywait where the target has it, else by looking every second. @see Host.watch */
export function createWatcher(options: WatcherOptions): NonNullable<Host["watch"]> {
  return async function* watch(path, signal) {
    try {
      await options.fs.stat(path, signal);
      const notifier = await startNotifier(options, path, signal);
      const works = notifier && (yield* notified(notifier, { path, fs: options.fs, signal }));
      if (!works) yield* polled(options, path, signal);
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
  try {
    return await spawn(["inotifywait", "-m", "-e", events.join(","), "--format", "%w%f", "--", path], signal);
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}

interface Watched {
  readonly path: string;
  readonly fs: Pick<HostFs, "list">;
  readonly signal: AbortSignal;
}

/** @returns false when inotifywait is there and cannot be run. */
async function* notified(notifier: HostProcess, { path, fs, signal }: Watched): AsyncGenerator<string, boolean> {
  await using child = notifier;
  if (await established(child.stderr)) {
    child.stderr.resume();
    // What happened before the watch was set up is hinted at, too.
    yield path;
    for (const { name } of await fs.list(path, signal).catch(() => [])) yield `${path}/${name}`;
    yield* lines(child.stdout);
  }
  if (signal.aborted) return true;
  const code = await child.exited;
  if (code === cannotExecute || code === notFound) return false;
  throw new CodedError("failed_precondition", `${path} can no longer be watched (inotifywait ended with ${code})`);
}

/** Whether inotifywait has set up its watches; it says so on standard error. */
async function established(stderr: Readable): Promise<boolean> {
  let said = "";
  return new Promise((resolve, reject) => {
    const onData = (chunk: Buffer) => {
      said += chunk.toString("latin1");
      if (!said.includes("Watches established")) return;
      stderr.off("data", onData);
      resolve(true);
    };
    stderr.on("data", onData);
    stderr.once("end", () => resolve(false));
    stderr.once("error", reject);
  });
}

async function* lines(stdout: Readable): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of stdout) {
    const [...parts] = (rest + String(chunk)).split("\n");
    rest = parts.pop() ?? "";
    for (const line of parts) yield line.replace(/(.)\/$/, "$1");
  }
}

/** Compares what a look every second shows: of the path and, in a directory, of each entry. */
async function* polled(options: WatcherOptions, path: string, signal: AbortSignal): AsyncGenerator<string> {
  let before = await look(options, path, signal);
  yield path;
  for (const each of before.keys()) yield each;
  for (;;) {
    await options.clock.sleep(pollMs, signal);
    const now = await look(options, path, signal);
    for (const each of new Set([...before.keys(), ...now.keys()])) if (before.get(each) !== now.get(each)) yield each;
    before = now;
  }
}

/** What tells one state of a file from another, by path. Names with newlines are hinted at by their parts. */
async function look({ run }: WatcherOptions, path: string, signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
  const folder = quote(path);
  const script = `for f in ${folder} ${folder}/* ${folder}/.[!.]*; do stat -c '%i %f %s %z|%n' -- "$f" 2>/dev/null; done; :`;
  const { stdout, code } = await run(["/bin/sh", "-c", script], { signal, maxOutputBytes: 4 * 1024 * 1024 });
  if (signal.aborted) throw abortError(signal);
  if (code !== 0 || stdout === "")
    throw new CodedError("not_found", `${path} can no longer be watched: it is not there`);
  return new Map(
    stdout.split("\n").flatMap((line) => {
      const at = line.indexOf("|");
      return at < 0 ? [] : [[line.slice(at + 1), line.slice(0, at)] as const];
    }),
  );
}
