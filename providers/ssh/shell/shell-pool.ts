import type { Clock } from "../../../src/lib/clock.ts";
import { abortError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import type { Link } from "../connection/link.ts";
import type { Sessions } from "../connection/sessions.ts";
import { type ShellResult, type ProcessGroup, type ShellRequest, type Shell, killScript, startShell } from "./shell.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";

/** Pool of shells on the target. A hung shell blocks only its own caller. */
export type ShellPool = ReturnType<typeof createShellPool>;

export interface ShellPoolOptions extends ClockAndLog {
  readonly link: Link;
  readonly sessions: Sessions;
  /** Command line that starts a shell, such as `exec /bin/sh`. */
  readonly command: (signal: AbortSignal) => Promise<string>;
  /** Called with each shell's process group, which has to be killed when its connection is lost. */
  readonly onStart: (group: ProcessGroup, lost: AbortSignal) => void;
}

const startTimeoutMs = 20_000;
const killTimeoutMs = 20_000;

export function createShellPool({ link, sessions, clock, log, command, onStart }: ShellPoolOptions) {
  const start = async (signal: AbortSignal, urgent: boolean): Promise<Shell> => {
    const deadline = clock.within(startTimeoutMs, signal);
    const session = await sessions.open({ start: { exec: await command(deadline) }, urgent, signal: deadline });
    link.countExchange();
    const shell = await startShell(session, deadline);
    onStart(shell.group, session.connection.lost);
    return shell;
  };
  const pool = createPool(() => start(clock.within(startTimeoutMs), false), clock);
  const runOn = async (shell: Shell, what: ShellRequest, signal: AbortSignal): Promise<ShellResult> => {
    link.countExchange();
    try {
      return await shell.run(what, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      void abandon(shell);
      throw abortError(signal);
    }
  };
  const runUrgently = async (what: ShellRequest, signal: AbortSignal): Promise<ShellResult> => {
    const free = pool.acquireIdle();
    const shell = free ?? (await start(signal, true));
    try {
      return await runOn(shell, what, signal);
    } finally {
      if (free) pool.release(free);
      else shell.close();
    }
  };
  /** Kills a command that has exceeded its timeout, and its children. */
  const abandon = async (shell: Shell): Promise<void> => {
    try {
      await runUrgently({ script: killScript(shell.group, "SIGKILL"), maxBytes: 0 }, clock.within(killTimeoutMs));
    } catch (err) {
      if (!hasCode(err, "unavailable"))
        log.warn({ err, group: shell.group.id }, "a timed-out command may still be running");
    }
    shell.close();
  };
  return {
    /** Runs a script at once, on a new shell outside the pool if none is idle. */
    runUrgently,
    /** Runs a script on the next free shell. When the signal aborts, the running command and its children are killed.
     *  @throws cancelled or deadline_exceeded like the signal, unavailable. */
    async run(what: ShellRequest, signal: AbortSignal): Promise<ShellResult> {
      const shell = await pool.acquire(signal);
      try {
        return await runOn(shell, what, signal);
      } finally {
        pool.release(shell);
      }
    },
  };
}

/** Limit of pooled shells; beyond it, callers wait. */
const maxShells = 12;
/** As many as a pod's start uses at once: another shell takes three round trips to start. */
const maxIdle = 6;
/** How long a caller waits for one of so many shells before another one is started, ms. Most scripts end sooner, and more sessions than a
 *  connection allows take another connection. */
const patienceMs = 500;

/** Pool of busy and idle shells. If no shell is idle, another one is started for the caller, at once while there are few. The caller gets the
 *  new shell or the first released one, since most scripts take less time than starting a shell. */
export function createPool<T extends Pick<Shell, "usable" | "close">>(
  start: () => Promise<T>,
  clock: Pick<Clock, "after">,
) {
  type Waiter = PromiseWithResolvers<T>;
  const idle: T[] = [];
  const waiting = new Set<Waiter>();
  let shells = 0;
  const acquireIdle = (): T | undefined => {
    for (let shell = idle.pop(); shell; shell = idle.pop()) {
      if (shell.usable()) return shell;
      shells -= 1;
    }
    return undefined;
  };
  const startFor = async (waiter: Waiter): Promise<void> => {
    shells += 1;
    try {
      release(await start());
    } catch (error) {
      shells -= 1;
      waiting.delete(waiter);
      waiter.reject(error);
      // If no shell is left that could be released, one has to be started for the next waiter.
      const [next] = waiting;
      if (next && shells === 0) await startFor(next);
    }
  };
  const release = (shell: T) => {
    const [next] = waiting;
    if (!shell.usable()) {
      shells -= 1;
      if (next) void startFor(next);
    } else if (next) {
      waiting.delete(next);
      next.resolve(shell);
    } else if (idle.length < maxIdle) idle.push(shell);
    else {
      shells -= 1;
      shell.close();
    }
  };
  const acquire = async (signal: AbortSignal): Promise<T> => {
    throwIfAborted(signal);
    const free = acquireIdle();
    if (free) return free;
    const waiter = Promise.withResolvers<T>();
    waiting.add(waiter);
    const startUnlessServed = () => {
      if (waiting.has(waiter) && shells < maxShells) void startFor(waiter);
    };
    const impatient = shells < maxIdle ? undefined : clock.after(patienceMs, startUnlessServed);
    if (!impatient) startUnlessServed();
    try {
      return await untilAborted(waiter.promise, signal);
    } catch (error) {
      // A shell assigned to a caller that has given up goes to the next one.
      if (!waiting.delete(waiter)) void waiter.promise.then(release, () => undefined);
      throw error;
    } finally {
      impatient?.cancel();
    }
  };
  return {
    acquireIdle,
    /** Acquires a shell. @throws the error of starting a shell, if no other became free first; the signal's reason. */
    acquire,
    release,
  };
}
