import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, Presence } from "../pipeline.ts";
import { fullName } from "../pod/reference.ts";
import type { WorkerPhase, WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import { isFinished, untilStopped, untilWorkers } from "../state/worker-ends.ts";
import type { Evicted } from "./evict.ts";
import type { HoldToLimits } from "./local-limits.ts";
import type { NodePressureRound } from "./node-pressure.ts";

export interface EvictionDeps {
  /** Looks whether the node runs short, and shows it. */
  readonly look: (signal: AbortSignal) => Promise<NodePressureRound>;
  /** Absent where pods are not held to their limits of local storage. */
  readonly holdToLimits?: HoldToLimits;
  /** Resolves when the node may run short before the next round. */
  readonly news?: (signal: AbortSignal) => Promise<void>;
  /** Pods that have ended, and that have objects. */
  readonly ended: () => readonly Pod[];
  /** True once every source of pods has spoken. */
  readonly sourcesSeen: () => boolean;
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly events: EventSink;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The kubelet's monitoring period, and its patience with the end of evicted pods, milliseconds; sources get as long to speak. */
const periodMs = 10_000;
const patienceMs = 30_000;

/** Evicts pods that exceed their own limits, and others while the node runs short of something: one a round, and the next round begins
 *  when that pod is gone. After a start that holds for pods that ended before it: an agent may have been killed while it waited.
 *  Until the sources have spoken the node's condition is shown, and nothing is evicted.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ */
export function createEviction(deps: EvictionDeps): Service {
  const { look, holdToLimits, log, sourcesSeen, ended, clock } = deps;
  let isSettled = false;
  const patientUntil = clock.monotonic() + patienceMs;
  /** True once all pods are known, or a source has been silent for long. Of those not known yet one may be about to make room. */
  const mayAct = () => isSettled || sourcesSeen() || clock.monotonic() >= patientUntil;
  /** Waits once, as soon as all pods are known. @returns whether it did. */
  const settles = async (signal: AbortSignal): Promise<boolean> => {
    if (isSettled || !sourcesSeen()) return false;
    isSettled = true;
    const pods = ended();
    // Each pod that has an object gets a worker, be it for its remains.
    await untilGone(deps, pods, (phase) => phase === "finished", signal);
    return pods.length > 0;
  };
  const unmeasured = (signal: AbortSignal) => (err: unknown) => {
    signal.throwIfAborted();
    log.warn({ err }, "eviction: the files of pods with limits cannot be measured, will try again");
    return [];
  };
  const round = async (signal: AbortSignal): Promise<void> => {
    for (;;) {
      const { disks, act } = await look(signal);
      if (!mayAct()) return;
      if (await settles(signal)) continue;
      const overLimits = (await holdToLimits?.(disks, signal).catch(unmeasured(signal))) ?? [];
      const evicted = overLimits.length > 0 ? overLimits : await act(signal).then((one) => (one ? [one] : []));
      if (evicted.length === 0) return;
      await Promise.all(evicted.map((one) => untilEnded(deps, one, signal)));
      await untilGone(
        deps,
        evicted.map(({ pod }) => pod),
        isFinished,
        signal,
      );
    }
  };
  return patrol({ ...deps, name: "eviction", everyMs: periodMs }, round);
}

/** Waits for a pod that was evicted just now to have ended, as long as the kubelet does. */
async function untilEnded(deps: EvictionDeps, { pod, graceSeconds }: Evicted, signal: AbortSignal): Promise<void> {
  if (graceSeconds === undefined || (await untilStopped(deps, pod, graceSeconds, signal))) return;
  deps.log.error({ pod: fullName(pod) }, "evicted pod has not ended yet");
}

/** Waits for pods to have ended and to have given back what they used; not for ever. */
async function untilGone(
  { worker, clock, log }: EvictionDeps,
  pods: readonly Pod[],
  isGone: (phase: WorkerPhase | undefined) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const uids = pods.map(({ metadata }) => metadata.uid);
  try {
    await untilWorkers(worker, uids, isGone, clock.within(patienceMs, signal));
  } catch {
    signal.throwIfAborted();
    log.warn({ pods: pods.map(fullName) }, "pods that have ended are not gone yet");
  }
}
