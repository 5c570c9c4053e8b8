import type { Clock } from "../lib/clock.ts";
import { coalesce } from "../lib/coalesce.ts";
import { type CpuSet, formatCpus } from "../lib/cpu-set.ts";
import { messageOf } from "../lib/errors.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { type ResourceManager, noAdditions } from "../resource-manager.ts";
import type { AllocatedPod } from "../roles.ts";
import type { HostFs } from "../seams/host.ts";
import { type CpusetUpdaterDeps, createCpusetUpdater } from "./reconcile.ts";
import { writeState } from "./state-file.ts";
import { sharesCache } from "./topology.ts";
import {
  type Assignments,
  type StaticPolicy,
  SmtAlignmentError,
  assignPod,
  assignedCpus,
  sharedPool,
} from "./static-policy.ts";

export interface CpuManagerDeps extends Omit<CpusetUpdaterDeps, "cpusOf"> {
  readonly fs: Pick<HostFs, "apply">;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  readonly policy: StaticPolicy;
  /** Assignments from before a restart. */
  readonly assigned: Assignments;
  /** KubeletConfiguration.cpuManagerReconcilePeriod, milliseconds. */
  readonly reconcileMs: number;
  readonly measures: CpuMeasures;
  /** True once every source has listed its pods. */
  readonly allSourcesReady: () => boolean;
  /** True while a source wants the pod or a worker handles it. */
  readonly isKnown: (uid: string) => boolean;
  readonly clock: Clock;
}

/** Records assignments of exclusive CPUs. */
export interface CpuMeasures {
  /** A container's exclusive CPUs are requested, at each admission of its pod. */
  requested(): void;
  /** They could not be assigned. @param wholeCores the policy only assigns whole cores. */
  failed(wholeCores: boolean): void;
  wholeCores(): void;
  /** New ones share an L3 cache. */
  sharedCache(): void;
}

export interface CpuManager extends ResourceManager {
  /** Exclusive CPUs of a container; empty if it has none. */
  exclusiveCpus(uid: string, container: string): CpuSet;
  /** True if a container has exclusive CPUs, or any container of the pod. */
  hasExclusiveCpus(uid: string, container?: string): boolean;
  /** CPUs that containers can get exclusively. */
  allocatableCpus(): CpuSet;
  /** Shared CPUs that can become exclusive, and exclusive CPUs by NUMA node. */
  counts(): CpuCounts;
}

export interface CpuCounts {
  readonly shared: number;
  readonly exclusiveByNumaNode: ReadonlyMap<number, number>;
}

const writeTimeoutMs = 30_000;

/** CPU manager with the static policy: a container of a Guaranteed pod that requests whole CPUs gets CPUs that no other container uses; all
 *  other containers share the rest.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/ */
export function createCpuManager(deps: CpuManagerDeps): CpuManager {
  const { policy, log } = deps;
  const assigned = new Map(deps.assigned);
  const store = createStore(deps, assigned);
  const shared = () => sharedPool(policy, assigned);
  const exclusiveCpus = (uid: string, name: string): CpuSet => assigned.get(uid)?.get(name) ?? new Set();
  const cpusOf = (uid: string, name: string) => {
    const cpus = assigned.get(uid)?.get(name) ?? shared();
    // With strict-cpu-reservation all CPUs that are not reserved can be exclusive.
    return cpus.size > 0 ? cpus : policy.reserved;
  };
  const updater = createCpusetUpdater({ ...deps, cpusOf });
  const changed = createTrigger();
  const saveLater = () => {
    changed.fire();
    store.save().catch((err: unknown) => log.warn({ err }, "cannot save the state of the CPU manager; retrying"));
  };
  /** Releases CPUs of pods that ended while graftlet did not run. */
  const releaseUnknown = () => {
    if (!deps.allSourcesReady()) return;
    const unknown = [...assigned.keys()].filter((uid) => !deps.isKnown(uid));
    for (const uid of unknown) assigned.delete(uid);
    if (unknown.length > 0) saveLater();
  };
  const reconciling = runPeriodically(
    { ...deps, name: "cpu-manager", intervalMs: deps.reconcileMs, changed: changed.fired },
    async (signal) => {
      releaseUnknown();
      if (store.isUnsaved()) await store.save();
      await updater.update(signal);
    },
  );
  return {
    name: "cpus",
    services: [reconciling],
    async allocate(pod) {
      releaseUnknown();
      const { uid } = pod.metadata;
      const before = assigned.get(uid)?.size ?? 0;
      const own = assignOrReject(deps, assigned, pod);
      if ("reason" in own) return own;
      if (own.size === before) return undefined;
      assigned.set(uid, own);
      changed.fire();
      // The pod starts without its record, as in a kubelet: after a restart its CPUs may be others.
      await store
        .save()
        .catch((err: unknown) => log.warn({ err, uid }, "cannot save a pod's exclusive CPUs; retrying"));
      return undefined;
    },
    allocatable: () => ({}),
    async prepareContainer({ metadata: { uid } }: Pod, { name }) {
      const cpus = formatCpus(cpusOf(uid, name));
      updater.created(uid, name, cpus);
      return { ...noAdditions, cpus };
    },
    release(uid) {
      updater.forget(uid);
      if (assigned.delete(uid)) saveLater();
    },
    exclusiveCpus,
    hasExclusiveCpus: (uid, container) =>
      container === undefined ? assigned.has(uid) : exclusiveCpus(uid, container).size > 0,
    allocatableCpus: () => policy.topology.ids.difference(policy.reserved),
    counts() {
      const exclusive = assignedCpus(assigned);
      const nodes = Map.groupBy(policy.topology.cpus, ({ numaNode }) => numaNode);
      return {
        shared: shared().difference(policy.reserved).size,
        exclusiveByNumaNode: new Map(
          [...nodes].map(([node, cpus]) => [node, cpus.filter(({ id }) => exclusive.has(id)).length]),
        ),
      };
    },
  };
}

/** Assigns CPUs to a pod. @returns them by container, or why the pod cannot be admitted. */
function assignOrReject(
  { policy, measures }: Pick<CpuManagerDeps, "policy" | "measures">,
  assigned: Assignments,
  pod: AllocatedPod,
): ReadonlyMap<string, CpuSet> | Rejection {
  const { fullCores } = policy.options;
  const before = assigned.get(pod.metadata.uid);
  try {
    const own = assignPod(policy, assigned, pod, measures.requested);
    for (const [name, cpus] of own) {
      if (fullCores) measures.wholeCores();
      if (!before?.has(name) && sharesCache(policy.topology, cpus)) measures.sharedCache();
    }
    return own;
  } catch (error) {
    measures.failed(fullCores);
    const message = messageOf(error);
    if (error instanceof SmtAlignmentError) return { reason: "SMTAlignmentError", message };
    return {
      reason: "UnexpectedAdmissionError",
      message: `Allocate failed due to ${message}, which is unexpected`,
    };
  }
}

/** Saves the state on the target. */
function createStore({ fs, rootDir, policy, clock }: CpuManagerDeps, assigned: Assignments) {
  let unsaved = true;
  const save = coalesce(async () => {
    unsaved = false;
    const state = { policy: "static", shared: sharedPool(policy, assigned), assigned };
    try {
      await writeState(fs, rootDir, state, clock.within(writeTimeoutMs));
    } catch (error) {
      unsaved = true;
      throw error;
    }
  });
  return { save, isUnsaved: () => unsaved };
}
