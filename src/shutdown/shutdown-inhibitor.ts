import { type LockHolder, startLockHolder, holderScriptLines } from "../host/lock-holder.ts";
import { remoteHeartbeat, type HolderHeartbeat } from "../host/holder-heartbeat.ts";
import type { Clock } from "../lib/clock.ts";
import type { Host, HostFs } from "../seams/host.ts";
import { type Logind, inhibitDelayDirectory, inhibitDelayFile, inhibitDelayText } from "../host/systemd/logind.ts";
import { recordOwnFile } from "../host/ownership-record.ts";
import { CodedError, codeOf, messageOf } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import { type Argv, script, wrapped } from "../seams/command.ts";

export interface ShutdownInhibitorDeps {
  readonly host: Pick<Host, "spawn">;
  /** True if the target is another machine. */
  readonly isRemote: boolean;
  readonly clock: Clock;
}

/** Creates the delay lock of logind, not yet acquired. */
export function createShutdownInhibitor({ host, isRemote, clock }: ShutdownInhibitorDeps) {
  let current: LockHolder | undefined;
  /** Releases the lock, so that the machine can shut down. Safe to repeat. */
  const release = async () => {
    const previous = current;
    current = undefined;
    await previous?.[Symbol.asyncDispose]();
  };
  return {
    /** Acquires a new lock, then releases the previous one. @param onLost called when the lock ends without having been released.
     *  @throws as `inhibitShutdown` does. */
    async acquire(onLost: () => void, signal: AbortSignal) {
      const acquired = await inhibitShutdown(host, signal, isRemote ? { ...remoteHeartbeat, clock } : undefined);
      await release();
      current = acquired;
      void acquired.ended.then(() => {
        if (current === acquired) onLost();
      });
    },
    release,
  };
}

/** Number of reads of logind's new setting, and the pause after the first, milliseconds; the pause doubles each time. */
const [maxReads, firstPauseMs] = [5, 100];

/** Raises logind's InhibitDelayMaxSec to the wanted time if it is lower, by a drop-in file that the node records as its own. (kubelet,
 *  nodeshutdown_manager_linux.go, start) @param wantedMs milliseconds. @throws with the kubelet's message if logind keeps a lower value. */
export async function raiseInhibitDelay(
  { fs, rootDir, clock }: { readonly fs: HostFs; readonly rootDir: string; readonly clock: Clock },
  logind: Logind,
  wantedMs: number,
  signal: AbortSignal,
): Promise<void> {
  let currentMs = await logind.inhibitDelayMs(signal);
  if (currentMs >= wantedMs) return;
  try {
    await recordOwnFile(fs, rootDir, inhibitDelayFile, signal);
    const changes = [
      { kind: "mkdir", path: inhibitDelayDirectory, parents: true },
      { kind: "write", path: inhibitDelayFile, data: inhibitDelayText(wantedMs) },
    ] as const;
    await fs.apply(changes, signal);
  } catch (error) {
    const why = `unable to override inhibit delay by shutdown manager: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), why, { cause: error });
  }
  await logind.reload(signal);
  for (let read = 0, pauseMs = firstPauseMs; read < maxReads; read++, pauseMs *= 2) {
    currentMs = await logind.inhibitDelayMs(signal);
    if (currentMs >= wantedMs) return;
    if (read < maxReads - 1) await clock.sleep(pauseMs, signal);
  }
  throw new CodedError(
    "failed_precondition",
    `node shutdown manager was timed out after ${maxReads} attempts waiting for logind InhibitDelayMaxSec to update to ${goDuration(wantedMs)} (ShutdownGracePeriod), current value is ${goDuration(currentMs)}`,
  );
}

/** The command that holds logind's inhibitor lock as long as its standard input is open.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/systemd-inhibit.html */
function inhibitCommand(timeoutSeconds?: number): Argv {
  const lock = {
    what: "shutdown",
    mode: "delay",
    who: "kubelet",
    why: "Kubelet needs time to handle node shutdown",
  };
  const options = Object.entries(lock).map(([name, value]) => `--${name}=${value}` as const);
  return wrapped(["systemd-inhibit", ...options, "--"], script(holderScriptLines(timeoutSeconds).join("\n")));
}

/** Delays a shutdown of the target, up to logind's maximum delay, until disposed. The lock is held by a process on the target, since
 *  the file descriptor that logind returns cannot be passed to another machine. It is released with this process and with the
 *  connection. @param heartbeat sent to a target that might not notice the loss of the connection. @throws not_found without
 *  systemd-inhibit; failed_precondition with logind's message if it grants no lock. */
async function inhibitShutdown(
  host: Pick<Host, "spawn">,
  signal: AbortSignal,
  heartbeat?: HolderHeartbeat,
): Promise<LockHolder> {
  const held = await startLockHolder(host, inhibitCommand(heartbeat?.timeoutSeconds), signal, heartbeat);
  if (!("code" in held)) return held;
  const why = held.stderr || `systemd-inhibit ended with ${held.code}`;
  throw new CodedError("failed_precondition", `failed creating systemd inhibitor: ${why}`);
}
