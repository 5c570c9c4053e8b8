import type { Clock } from "../lib/clock.ts";
import type { PodStatus } from "../objects.ts";
import type { Eviction, PodStore, RuntimePod, StartFailure } from "../pipeline.ts";
import { podFullName } from "../pod/reference.ts";
import type { DesiredPod, ApiPod } from "../roles.ts";
import { type Column, type ColumnPair, type ColumnWriter, type PrivateColumn, createRecords } from "./records.ts";

/** Progress of a pod's resize, as shown by its conditions. */
export interface ResizeState {
  /** The requested resources do not fit yet, or cannot be changed in place at all. */
  readonly pending?: {
    readonly reason: "Deferred" | "Infeasible";
    readonly message: string;
    readonly generation: number;
    /** Milliseconds since the epoch. */
    readonly since: number;
  };
  /** The allocation is being actuated. */
  readonly inProgress?: {
    readonly error?: string;
    /** Generation of the spec that requested it. */
    readonly generation: number;
  };
}

/** Phase of a pod's worker; it only moves forward:
 *  - `syncing`: each pass makes the runtime's pod match the spec and reports the status. Passes follow updates, wakes and the
 *    sync period. A deletion, the end of all containers, an eviction or a preemption leads to `terminating`.
 *  - `terminating`: containers and sandbox are stopped within the grace period, which may be shortened. The pass is repeated until
 *    nothing of the pod is alive.
 *  - `terminated`: volumes are unmounted, resources released, the cgroup and directories removed. The pass is repeated until it succeeds.
 *  - `finished`: there are no more passes. A changed object gets the final status again, and may be deleted. */
export type WorkerPhase = "syncing" | "terminating" | "terminated" | "finished";

/** State of a pod worker that other actors may read. */
export interface WorkerView {
  readonly phase: WorkerPhase;
  /** Latest version that the worker received; undefined for a pod that only the runtime knows. */
  readonly pod: DesiredPod | undefined;
  /** Set if the node evicted or preempted the pod: its dead containers need not be kept. */
  readonly evicted?: true;
}

/** How a pod is terminated. */
export interface Ending {
  /** Undefined: the pod's own grace period. */
  readonly graceSeconds: number | undefined;
  /** Set if the node ended the pod: its phase is then Failed, whatever its containers report. */
  readonly eviction: Eviction | undefined;
}

/** Container starts of a pod. */
export interface ContainerStarts {
  /** Names of containers that are being started: they may run already, but their postStart hooks have not finished. */
  readonly inProgress: ReadonlySet<string>;
  /** Errors of containers that could not be started, by container name. */
  readonly failures: ReadonlyMap<string, StartFailure>;
}

/** Desired pods, by UID and by name. */
export type DesiredColumn = PodStore & Column<DesiredPod>;

/** A node's pods, one record each. A record exists while a source wants the pod or a worker handles it; a pod that only the
 *  runtime has gets a record with nothing but `podCache`. */
export interface PodTable {
  /** The pod as its source wants it. Written by the pod manager. */
  readonly desired: { readonly reader: DesiredColumn; readonly writer: ColumnWriter<DesiredPod> & PodStore };
  /** The API server's copy of the pod; absent for a static pod without a current mirror pod. Written by the pod manager. */
  readonly apiPods: ColumnPair<ApiPod>;
  /** Last observation of the pod in the runtime. Written by the PLEG. */
  readonly podCache: ColumnPair<RuntimePod>;
  /** State of the pod's worker. Written by the pod workers. */
  readonly worker: ColumnPair<WorkerView>;
  /** Latest status, whether or not the API server has it. Written by the status manager. */
  readonly status: ColumnPair<PodStatus>;
  /** Container starts. Written by the runtime stage. */
  readonly starts: ColumnPair<ContainerStarts>;
  /** Progress of the pod's resize. Written by the resize manager. */
  readonly resize: ColumnPair<ResizeState>;
  readonly privateColumn: PrivateColumn;
  /** Calls back when the work on a pod has ended and its record is freed, except for the pod object. */
  onEnd(listener: (uid: string) => void): void;
}

/** Creates an empty pod table. */
export function createPodTable(clock: Pick<Clock, "monotonic">): PodTable {
  const records = createRecords(clock);
  const desired = records.owner<DesiredPod>("object");
  const byName = createNameIndex(desired.reader);
  return {
    desired: { reader: { ...desired.reader, byName }, writer: { ...desired.writer, byName } },
    apiPods: records.column("object"),
    worker: records.owner("work"),
    podCache: records.observations(),
    status: records.column(),
    starts: records.column(),
    resize: records.column(),
    privateColumn: <T>() => records.column<T>().writer,
    onEnd: records.onEnd,
  };
}

/** Creates a lookup by name. If several sources want a pod of the same name, the latest one wins. */
function createNameIndex(desired: Column<DesiredPod>): PodStore["byName"] {
  const names = new Map<string, string>();
  const uids = new Map<string, string>();
  desired.onChange((uid) => {
    const pod = desired.get(uid);
    if (pod) {
      names.set(uid, podFullName(pod));
      uids.set(podFullName(pod), uid);
      return;
    }
    const name = names.get(uid);
    names.delete(uid);
    if (name === undefined || uids.get(name) !== uid) return;
    uids.delete(name);
    for (const [other, otherName] of names) if (otherName === name) uids.set(name, other);
  });
  return (namespace, name) => desired.get(uids.get(`${namespace}/${name}`) ?? "");
}
