import { hasCode } from "../../../src/lib/errors.ts";
import type { DockerParts } from "../parts.ts";
import { script } from "../../../src/seams/command.ts";

/** State of a command in a container, and a way to signal it, which the Engine API lacks. */
export interface ExecState {
  /** Waits until it has started. @returns its PID on the target; 0 if it could not be started. */
  started(signal: AbortSignal): Promise<number>;
  /** Waits until it has ended. @returns its exit code. */
  ended(signal: AbortSignal): Promise<number>;
  /** Signals the command if it is still running. Never throws. Waits five seconds for an unresponsive daemon; the signal is still sent if
   *  the daemon responds within two minutes. */
  kill(how: "KILL" | "HUP"): Promise<void>;
}

interface ExecInspection {
  /** 0 while there is no process, or if it never started. */
  readonly Pid: number;
  readonly Running: boolean;
  /** Null until it has ended, or failed to start. */
  readonly ExitCode: number | null;
}

/** Interval between inspections. */
const firstIntervalMs = 5;
const maxIntervalMs = 1000;
const killTimeoutMs = 120_000;
const killWaitMs = 5000;

/** @param id the daemon's exec ID. */
export function execState(parts: DockerParts, id: string): ExecState {
  const { docker, clock, host, log } = parts;
  const inspect = (signal: AbortSignal) => docker.request<ExecInspection>({ path: `/exec/${id}/json` }, signal);
  let last: ExecInspection | undefined;
  const pollUntil = async (enough: (seen: ExecInspection) => boolean, signal: AbortSignal): Promise<ExecInspection> => {
    for (let waitMs = firstIntervalMs; ; waitMs = Math.min(2 * waitMs, maxIntervalMs)) {
      last = await inspect(signal);
      if (enough(last)) return last;
      await clock.sleep(waitMs, signal);
    }
  };
  const hasStarted = ({ Pid, ExitCode }: ExecInspection) => Pid > 0 || ExitCode !== null;
  const hasEnded = ({ Running, ExitCode }: ExecInspection) => !Running && ExitCode !== null;
  return {
    started: async (signal) => (await pollUntil(hasStarted, signal)).Pid,
    ended: async (signal) => (last && hasEnded(last) ? last : await pollUntil(hasEnded, signal)).ExitCode ?? 0,
    async kill(how) {
      const killed = new AbortController();
      const kill = sendSignal(how).finally(() => killed.abort());
      await Promise.race([kill, clock.sleep(killWaitMs, killed.signal).catch(() => undefined)]);
    },
  };

  async function sendSignal(how: "KILL" | "HUP"): Promise<void> {
    const timeout = clock.within(killTimeoutMs);
    try {
      const { Pid: pid, Running: running } = await pollUntil(hasStarted, timeout);
      if (!running || pid === 0) return;
      // The shell's builtin: some machines have no `kill` program.
      const argv = script('kill -s "$1" "$2"', how, String(pid));
      const { code, stderr } = await host.run(argv, { signal: timeout });
      if (code !== 0) log.warn({ exec: id, pid, why: stderr.trim() }, "cannot kill a command in a container");
    } catch (error) {
      // The command ended with its container.
      if (!hasCode(error, "not_found")) log.warn({ exec: id, err: error }, "cannot kill a command in a container");
    }
  }
}
