import { abortError, hasCode } from "../../../src/lib/errors.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import type { Link } from "../connection/link.ts";
import type { Sessions } from "../connection/sessions.ts";
import { createPool } from "./pool.ts";
import { type ShellResult, type ProcessGroup, type ShellRequest, type Shell, killScript, startShell } from "./shell.ts";

/** Pool of shells on the target. A hung shell blocks only its own caller. */
export interface ShellPool {
  /** Runs a question on the next free shell. When the signal aborts, the running command and its children are killed.
   *  @throws cancelled or deadline_exceeded like the signal, unavailable. */
  run(question: ShellRequest, signal: AbortSignal): Promise<ShellResult>;
  /** Runs a question at once, on a new shell outside of the pool if none is idle. */
  runUrgently(question: ShellRequest, signal: AbortSignal): Promise<ShellResult>;
}

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

export function createShellPool({ link, sessions, clock, log, command, onStart }: ShellPoolOptions): ShellPool {
  const start = async (signal: AbortSignal, urgent: boolean): Promise<Shell> => {
    const deadline = clock.within(startTimeoutMs, signal);
    const session = await sessions.open({ start: { exec: await command(deadline) }, urgent, signal: deadline });
    link.countExchange();
    const shell = await startShell(session, deadline);
    onStart(shell.group, session.connection.lost);
    return shell;
  };
  const pool = createPool(() => start(clock.within(startTimeoutMs), false));
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
    runUrgently,
    async run(what, signal) {
      const shell = await pool.acquire(signal);
      try {
        return await runOn(shell, what, signal);
      } finally {
        pool.release(shell);
      }
    },
  };
}
