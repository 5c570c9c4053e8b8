import { CodedError, messageOf } from "../lib/errors.ts";
import type { Volume } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { PodRejectedError } from "../pod/rejected.ts";
import { UnprocessedVolumeError } from "./failure.ts";
import type { VolumeDeps } from "./plugins/plugin.ts";
import { usedVolumes } from "./paths.ts";
import type { PodVolumes, SetUp } from "./set-up.ts";

/** Timeout of one pod sync for mounting its volumes, milliseconds: the kubelet's. */
const mountTimeoutMs = 123_000;
/** A claim that was just bound may be visible before its volume: number of reads before the sync gives up, and their interval,
 *  milliseconds. */
const maxClaimReads = 4;
const claimReadIntervalMs = 100;

/** Waits for all volumes of a pod; an unusable claim is reported as an event.
 *  @throws PodRejectedError if the node has reached its attachment limit; CodedError in the kubelet's words; `cancelled` if
 *  interrupted. */
export function createVolumeWaiter({ clock, events }: Pick<VolumeDeps, "clock" | "events">, setUp: SetUp) {
  return async function wait(state: PodVolumes, signal: AbortSignal): Promise<void> {
    const { pod } = state;
    const volumes = usedVolumes(pod);
    const deadline = clock.within(mountTimeoutMs, signal);
    const giveUp = new AbortController();
    const unprocessed = new Map<string, UnprocessedVolumeError>();
    const waitForOne = async (volume: Volume) => {
      const problem = await setUpVolume(state, volume, AbortSignal.any([deadline, giveUp.signal]));
      if (!problem) return;
      unprocessed.set(volume.name, problem);
      giveUp.abort();
    };
    await Promise.all(volumes.map(waitForOne));
    const missing = volumes.filter(({ name }) => !state.mounted.has(name)).map(({ name }) => name);
    if (missing.length === 0) return;
    if (signal.aborted || state.ended.signal.aborted)
      throw new CodedError("cancelled", "interrupted while waiting for volumes");
    const why = [...unprocessed.values()].map(messageOf).join("; ") || "context deadline exceeded";
    const unattached = missing.filter((name) => state.unattached.has(name));
    const limitChecks = [...state.unattached].filter(([name]) => unattached.includes(name));
    const which = `unmounted volumes=[${joinSorted(missing)}], unattached volumes=[${joinSorted(unattached)}], failed to process volumes=[${joinSorted([...unprocessed.keys()])}]: ${why}`;
    const exhausted = await Promise.all(limitChecks.map(([, isExhausted]) => isExhausted(signal)));
    if (exhausted.includes(true)) throw new PodRejectedError(attachmentLimitRejection(which));
    const message = `Unable to attach or mount volumes: ${which}`;
    // A timeout has no event: the failures behind it have their own.
    if (unprocessed.size === 0) throw new CodedError("deadline_exceeded", message);
    events.event(podReference(pod), "Warning", "FailedMount", message);
    throw new CodedError("failed_precondition", message);
  };

  /** Sets up a volume. @returns the reason if its claim is still unusable after a few reads. */
  async function setUpVolume(state: PodVolumes, volume: Volume, signal: AbortSignal) {
    for (let look = 1; ; look += 1) {
      try {
        await setUp.untilReady(state, volume, signal);
        return undefined;
      } catch (error) {
        if (!(error instanceof UnprocessedVolumeError)) throw error;
        if (look === maxClaimReads || signal.aborted) return error;
        await clock.sleep(claimReadIntervalMs, signal).catch(() => undefined);
      }
    }
  }
}

/** Rejection of a pod whose volumes exceed the node's attachment limit. It may be rescheduled to another node. */
function attachmentLimitRejection(which: string): Rejection {
  return {
    reason: "VolumeAttachmentLimitExceeded",
    message: `Node has reached its volume attachment limit, rejecting pod. ${which}`,
  };
}

function joinSorted(names: readonly string[]): string {
  return names.toSorted().join(" ");
}
