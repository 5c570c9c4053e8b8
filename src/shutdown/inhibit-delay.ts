import { type Logind, inhibitDelayDirectory, inhibitDelayFile, inhibitDelayText } from "../host/systemd/logind.ts";
import { recordOwnFile } from "../host/ownership-record.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, codeOf, messageOf } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { HostFs } from "../seams/host.ts";

export interface InhibitDelayDeps {
  readonly fs: HostFs;
  readonly rootDir: string;
  readonly clock: Clock;
}

/** Number of reads of logind's new setting, and the pause after the first, milliseconds; the pause doubles each time. */
const [maxReads, firstPauseMs] = [5, 100];

/** Raises logind's InhibitDelayMaxSec to the wanted time if it is lower, by a drop-in file that the node records as its own. (kubelet,
 *  nodeshutdown_manager_linux.go, start) @param wantedMs milliseconds. @throws with the kubelet's message if logind keeps a lower value. */
export async function raiseInhibitDelay(
  { fs, rootDir, clock }: InhibitDelayDeps,
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
