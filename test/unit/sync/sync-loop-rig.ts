import { type TestContext } from "node:test";
import type { ResizeDecider } from "../../../src/sync/ports.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Pod, PodStatus } from "../../../src/objects.ts";
import type { Rejection, SourceName } from "../../../src/pipeline.ts";
import { isPlaceholder } from "../../../src/pod/placeholder.ts";
import { createPodManager } from "../../../src/sync/pod-manager.ts";
import type { WorkerPhase } from "../../../src/state/pod-table.ts";
import type { PodWorkers } from "../../../src/sync/pod-workers.ts";
import { createSyncLoop } from "../../../src/sync/sync-loop.ts";
import { eventLines } from "../../fakes/events.ts";
import { type TestPod, aPod, aSandbox, observe } from "../../fakes/pods.ts";
import { noResizes } from "../../fakes/resizes.ts";
import { createSourceMilestone } from "../../../src/state/values.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { createSignals } from "../../../src/state/signals.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { columnOf } from "../../fakes/state.ts";

export const named = (uid: string, more: Partial<TestPod["metadata"]> = {}, status: PodStatus = {}): TestPod => ({
  ...aPod({}, { uid, name: uid, ...more }),
  status,
});

/** A loop over workers that only write down what they are told. */
export function rig(
  t: TestContext,
  admit: (pod: Pod, others: readonly Pod[]) => Promise<Rejection | undefined> = async () => undefined,
  resizes: Partial<ResizeDecider> = {},
  sources: readonly SourceName[] = ["api", "file"],
) {
  const calls: string[] = [];
  const counts: string[] = [];
  const runtimeErrors: string[] = [];
  const phases = new Map<string, WorkerPhase>();
  const events = eventLines();
  const running = new Set<string>();
  const statuses: PodStatus[] = [];
  /** Phases of the workers when statuses were set. */
  const phasesThen: (WorkerPhase | undefined)[] = [];
  /** For each word to the mirror pods whether all was handled then. */
  const told: boolean[] = [];
  const clock = fakeClock();
  const { desired, apiPods } = createPodTable(clock);
  const pods = desired.reader;
  const manager = createPodManager({ desired: desired.writer, apiPods: apiPods.writer });
  const signals = createSignals();
  signals.wakeWorker.subscribe((uid, cause) => void calls.push(`wake ${uid} ${cause}`));
  signals.mirrorsChanged.subscribe(() => void told.push(loop.isIdle()));
  const takenIn = createSourceMilestone(sources);
  const workers: PodWorkers = {
    update(pod) {
      phases.set(pod.metadata.uid, phases.get(pod.metadata.uid) ?? "syncing");
      calls.push(`update ${pod.metadata.uid}`);
    },
    terminate: (uid, grace) => void calls.push(`terminate ${uid} ${grace}`),
    forget: () => undefined,
    idle: async () => undefined,
  };
  const loop = createSyncLoop({
    desired: pods,
    manager,
    sourcesSynced: takenIn.writer,
    signals,
    worker: columnOf(() => [...phases].map(([uid, phase]) => [uid, { phase, pod: undefined }] as const)),
    workers,
    podCache: { get: (uid) => (running.has(uid) ? observe([aSandbox()], []) : undefined), list: () => [] },
    events,
    resizes: { ...noResizes, ...resizes },
    runtimeErrors: () => runtimeErrors,
    isPlaceholder: ({ status }) => isPlaceholder(status),
    managers: [{ release: (uid) => void calls.push(`release ${uid}`) }],
    log: silentLog(),
    measures: {
      seen: (added) => void counts.push(`seen ${added.map(({ metadata }) => metadata.uid).join()}`),
      forget: (uid) => void counts.push(`forget ${uid}`),
      rejected: (reason) => void counts.push(`rejected ${reason}`),
    },
    clock,
    nowText: () => "2026-01-01T00:00:00Z",
    admission: {
      admit: async (pod, others) => (
        calls.push(`admit ${pod.metadata.uid} beside ${others.map(({ metadata }) => metadata.uid).join()}`),
        admit(pod, others)
      ),
    },
    statuses: {
      get: () => undefined,
      set(pod, status) {
        statuses.push(status);
        phasesThen.push(phases.get(pod.metadata.uid));
      },
      terminated: ({ metadata }) => void calls.push(`terminated ${metadata.uid}`),
      reconcile: ({ metadata }, afterMs) =>
        void calls.push(`reconcile ${metadata.uid}${afterMs === undefined ? "" : ` after ${afterMs}`}`),
    },
  });
  const stop = new AbortController();
  const done = loop.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  const push = async (op: "ADD" | "UPDATE" | "DELETE" | "REMOVE" | "RECONCILE", ...list: readonly TestPod[]) => {
    loop.push({ op, source: "api", pods: list });
    for (let turn = 0; !loop.isIdle() || turn < 2; turn++) await new Promise(setImmediate);
  };
  return {
    calls,
    counts,
    runtimeErrors,
    phases,
    running,
    events,
    statuses,
    phasesThen,
    told,
    pods,
    manager,
    signals,
    takenIn: takenIn.reader,
    clock,
    loop,
    push,
  };
}
