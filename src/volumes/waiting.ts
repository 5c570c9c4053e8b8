import { CodedError, messageOf } from "../lib/errors.ts";
import type { Volume } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { PodRejectedError } from "../pod/rejected.ts";
import { UnprocessedError } from "./failure.ts";
import type { VolumeDeps } from "./kinds/kind.ts";
import { usedVolumes } from "./paths.ts";
import type { PodVolumes, SetUp } from "./set-up.ts";

/** Timeout of one pod sync for mounting its volumes, milliseconds: the kubelet's. */
const mountWaitMs = 123_000;
/** A claim that was just bound may be visible before its volume: number of reads before the sync gives up, and their interval,
 *  milliseconds. */
const looks = 4;
const lookMs = 100;

/** Waits for all volumes of a pod; an unusable claim is reported as an event.
 *  @throws PodRejectedError if the node has reached its attachment limit; CodedError in the kubelet's words; `cancelled` if
 *  interrupted. */
export function createWaiting({ clock, events }: Pick<VolumeDeps, "clock" | "events">, setUp: SetUp) {
  return async function wait(state: PodVolumes, signal: AbortSignal): Promise<void> {
    const { pod } = state;
    const volumes = usedVolumes(pod);
    const deadline = clock.within(mountWaitMs, signal);
    const given = new AbortController();
    const unprocessed = new Map<string, UnprocessedError>();
    const oneReady = async (volume: Volume) => {
      const problem = await processed(state, volume, AbortSignal.any([deadline, given.signal]));
      if (!problem) return;
      unprocessed.set(volume.name, problem);
      given.abort();
    };
    await Promise.all(volumes.map(oneReady));
    const missing = volumes.filter(({ name }) => !state.mounted.has(name)).map(({ name }) => name);
    if (missing.length === 0) return;
    if (signal.aborted || state.ended.signal.aborted)
      throw new CodedError("cancelled", "interrupted while waiting for volumes");
    const why = [...unprocessed.values()].map(messageOf).join("; ") || "context deadline exceeded";
    const unattached = missing.filter((name) => state.unattached.has(name));
    const questions = [...state.unattached].filter(([name]) => unattached.includes(name));
    const which = `unmounted volumes=[${listed(missing)}], unattached volumes=[${listed(unattached)}], failed to process volumes=[${listed([...unprocessed.keys()])}]: ${why}`;
    const answers = await Promise.all(questions.map(([, isExhausted]) => isExhausted(signal)));
    if (answers.includes(true)) throw new PodRejectedError(noMore(which));
    const message = `Unable to attach or mount volumes: ${which}`;
    // A timeout has no event: the failures behind it have their own.
    if (unprocessed.size === 0) throw new CodedError("deadline_exceeded", message);
    events.event(podReference(pod), "Warning", "FailedMount", message);
    throw new CodedError("failed_precondition", message);
  };

  /** Sets up a volume. @returns the reason if its claim is still unusable after a few reads. */
  async function processed(state: PodVolumes, volume: Volume, signal: AbortSignal) {
    for (let look = 1; ; look += 1) {
      try {
        await setUp.untilReady(state, volume, signal);
        return undefined;
      } catch (error) {
        if (!(error instanceof UnprocessedError)) throw error;
        if (look === looks || signal.aborted) return error;
        await clock.sleep(lookMs, signal).catch(() => undefined);
      }
    }
  }
}

/** Rejection of a pod whose volumes exceed the node's attachment limit. It may be rescheduled to another node. */
function noMore(which: string): Rejection {
  return {
    reason: "VolumeAttachmentLimitExceeded",
    message: `Node has reached its volume attachment limit, rejecting pod. ${which}`,
  };
}

function listed(names: readonly string[]): string {
  return names.toSorted().join(" ");
}
