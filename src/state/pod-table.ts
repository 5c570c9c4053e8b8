import type { Clock } from "../lib/clock.ts";
import type { PodStatus } from "../objects.ts";
import type { Eviction, PodStore, RuntimePod, StartFailure } from "../pipeline.ts";
import { fullName } from "../pod/reference.ts";
import type { ResizeState } from "../resizes.ts";
import type { AskedPod, ShownPod } from "../roles.ts";
import { type Column, type ColumnPair, type ColumnWriter, createRows } from "./rows.ts";

/** Progress of a pod's worker: it keeps the pod running, then stops its containers, then gives back what the pod used. */
export type WorkerPhase = "syncing" | "terminating" | "terminated" | "finished";

/** A pod's worker, as others see it. */
export interface WorkerView {
  readonly phase: WorkerPhase;
  /** Newest version that the worker was told of; undefined for a pod that only the runtime knows. */
  readonly pod: AskedPod | undefined;
  /** The node ended the pod to make room: nothing of it is of use once it has ended. */
  readonly evicted?: true;
}

/** Terms on which a pod ends. */
export interface Ending {
  /** Undefined leaves the pod's own grace period. */
  readonly graceSeconds: number | undefined;
  /** Reason for which the node ended the pod, if it did: then the pod has failed, whatever its containers say. */
  readonly eviction: Eviction | undefined;
}

/** Container starts of a pod. */
export interface Starts {
  /** Names of containers that are being started: they may run, and their postStart hooks have not ended. */
  readonly underWay: ReadonlySet<string>;
  /** Reasons for which containers could not be started, by name. */
  readonly failures: ReadonlyMap<string, StartFailure>;
}

/** Pods that the sources want, by UID and by name. */
export type AskedColumn = PodStore & Column<AskedPod>;

/** A node's pods, a row each. A row lives while a source wants the pod or a worker has it; pods that only the
 *  runtime has get a row of which `seen` is all. */
export interface PodTable {
  /** Pod as its source wants it. Written by the pod manager. */
  readonly asked: { readonly reader: AskedColumn; readonly writer: ColumnWriter<AskedPod> & PodStore };
  /** Pod as the API server has it; absent for a static pod without a current mirror pod. Written by the pod manager. */
  readonly shown: ColumnPair<ShownPod>;
  /** Pod as the runtime was last seen to have it. Written by the PLEG. */
  readonly seen: ColumnPair<RuntimePod>;
  /** Progress of the pod's worker. Written by the pod workers. */
  readonly worker: ColumnPair<WorkerView>;
  /** Newest status, whether or not the API server has it. Written by the status manager. */
  readonly status: ColumnPair<PodStatus>;
  /** Container starts. Written by the runtime stage. */
  readonly starts: ColumnPair<Starts>;
  /** Progress of a resize. Written by the resize manager. */
  readonly resize: ColumnPair<ResizeState>;
  /** Makes a column that one actor alone reads and writes. */
  field<T>(): ColumnWriter<T>;
  /** Calls back when the work on a pod is over and its row, but for the object, is freed. */
  onEnd(hear: (uid: string) => void): void;
}

/** An empty pod table. */
export function createPodTable(clock: Pick<Clock, "monotonic">): PodTable {
  const rows = createRows(clock);
  const asked = rows.root<AskedPod>("object");
  const byName = createNames(asked.reader);
  return {
    asked: { reader: { ...asked.reader, byName }, writer: { ...asked.writer, byName } },
    shown: rows.column("object"),
    worker: rows.root("work"),
    seen: rows.sighting(),
    status: rows.column(),
    starts: rows.column(),
    resize: rows.column(),
    field: <T>() => rows.column<T>().writer,
    onEnd: rows.onEnd,
  };
}

/** Finds pods by name. Of several with one name, from different sources, the one that came last counts. */
function createNames(asked: Column<AskedPod>): PodStore["byName"] {
  const names = new Map<string, string>();
  const uids = new Map<string, string>();
  asked.onChange((uid) => {
    const pod = asked.get(uid);
    if (pod) {
      names.set(uid, fullName(pod));
      uids.set(fullName(pod), uid);
      return;
    }
    const name = names.get(uid);
    names.delete(uid);
    if (name === undefined || uids.get(name) !== uid) return;
    uids.delete(name);
    for (const [other, itsName] of names) if (itsName === name) uids.set(name, other);
  });
  return (namespace, name) => asked.get(uids.get(`${namespace}/${name}`) ?? "");
}
