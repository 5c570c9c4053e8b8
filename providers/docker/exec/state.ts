import { hasCode } from "../../../src/lib/errors.ts";
import type { DockerParts } from "../parts.ts";
import { script } from "../../../src/seams/command.ts";

/** State of a command in a container, and a way to signal it, which the Engine API lacks. */
export interface ExecState {
  /** Waits until it has started. @returns its PID on the target; 0 if it could not be started. */
  begun(signal: AbortSignal): Promise<number>;
  /** Waits until it has ended. @returns its exit code. */
  ended(signal: AbortSignal): Promise<number>;
  /** Signals the command if it is still running. Never throws. Waits five seconds for an unresponsive daemon; the signal is still sent if
   *  the daemon responds within two minutes. */
  kill(how: "KILL" | "HUP"): Promise<void>;
}

interface Inspected {
  /** 0 while there is no process, or if it never started. */
  readonly Pid: number;
  readonly Running: boolean;
  /** Null until it has ended, or failed to start. */
  readonly ExitCode: number | null;
}

/** Interval between inspections. */
const firstIntervalMs = 5;
const longestIntervalMs = 1000;
const killMs = 120_000;
const awaitKillMs = 5000;

/** @param id the daemon's exec ID. */
export function execState(parts: DockerParts, id: string): ExecState {
  const { docker, clock, host, log } = parts;
  const inspect = (signal: AbortSignal) => docker.ask<Inspected>({ path: `/exec/${id}/json` }, signal);
  let last: Inspected | undefined;
  const once = async (enough: (seen: Inspected) => boolean, signal: AbortSignal): Promise<Inspected> => {
    for (let waitMs = firstIntervalMs; ; waitMs = Math.min(2 * waitMs, longestIntervalMs)) {
      last = await inspect(signal);
      if (enough(last)) return last;
      await clock.sleep(waitMs, signal);
    }
  };
  const hasBegun = ({ Pid, ExitCode }: Inspected) => Pid > 0 || ExitCode !== null;
  const hasEnded = ({ Running, ExitCode }: Inspected) => !Running && ExitCode !== null;
  return {
    begun: async (signal) => (await once(hasBegun, signal)).Pid,
    ended: async (signal) => (last && hasEnded(last) ? last : await once(hasEnded, signal)).ExitCode ?? 0,
    async kill(how) {
      const killed = new AbortController();
      const kill = trySending(how).finally(() => killed.abort());
      await Promise.race([kill, clock.sleep(awaitKillMs, killed.signal).catch(() => undefined)]);
    },
  };

  async function trySending(how: "KILL" | "HUP"): Promise<void> {
    const soon = clock.within(killMs);
    try {
      const { Pid: pid, Running: running } = await once(hasBegun, soon);
      if (!running || pid === 0) return;
      // The shell's builtin: some machines have no `kill` program.
      const argv = script('kill -s "$1" "$2"', how, String(pid));
      const { code, stderr } = await host.run(argv, { signal: soon });
      if (code !== 0) log.warn({ exec: id, pid, why: stderr.trim() }, "cannot kill a command in a container");
    } catch (error) {
      // The command ended with its container.
      if (!hasCode(error, "not_found")) log.warn({ exec: id, err: error }, "cannot kill a command in a container");
    }
  }
}
