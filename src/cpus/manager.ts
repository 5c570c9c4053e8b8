import { createStateStore } from "../host/saved-state.ts";
import type { Clock } from "../lib/clock.ts";
import { type CpuSet, formatCpus } from "../lib/cpu-set.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { Container, Pod } from "../objects.ts";
import { isPinned } from "../pod/pinned-resources.ts";
import { hasPodLevelResources } from "../pod/resources.ts";
import { type PodAllocator, type ResourceManager, noAdditions } from "../resource-manager.ts";
import type { AllocatedPod } from "../roles.ts";
import type { HostFs } from "../seams/host.ts";
import { type CpuMeasures, createCpuAllocator } from "./pod-allocator.ts";
import { writeCpuState } from "./state-file.ts";
import { type Assignments, type StaticPolicy, assignedCpus, exclusiveCpuCount, sharedPool } from "./static-policy.ts";
import { UpdateContainerResourcesRequest } from "../gen/cri.ts";
import { hasCode, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { PodCache } from "../pipeline.ts";
import { containerNameOf, isRunning } from "../pod/runs.ts";
import type { Containers } from "../seams/runtime.ts";

export interface CpuManagerDeps extends Omit<CpusetUpdaterDeps, "cpusOf"> {
  readonly fs: Pick<HostFs, "apply">;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  readonly policy: StaticPolicy;
  /** Assignments from before a restart. */
  readonly assigned: Assignments;
  /** KubeletConfiguration.cpuManagerReconcilePeriod, milliseconds. */
  readonly reconcileMs: number;
  /** Feature gate PodLevelResourceManagers. */
  readonly podLevel: boolean;
  readonly measures: CpuMeasures;
  /** True once every source has listed its pods. */
  readonly allSourcesReady: () => boolean;
  /** True while a source wants the pod or a worker handles it. */
  readonly isKnown: (uid: string) => boolean;
  readonly clock: Clock;
}

export interface CpuManager extends ResourceManager {
  /** Exclusive CPUs of a container; empty for a container without exclusive CPUs. */
  exclusiveCpus(uid: string, container: string): CpuSet;
  /** True if a container has exclusive CPUs. @param container undefined for the whole pod: true if any of its containers has exclusive
   *  CPUs, or, with pod-level resources, if all have. */
  hasExclusiveCpus(pod: Pod, container?: Container): boolean;
  /** CPUs that containers can get exclusively. */
  allocatableCpus(): CpuSet;
  /** Shared CPUs that can become exclusive, and exclusive CPUs by NUMA node. */
  counts(): CpuCounts;
}

export interface CpuCounts {
  readonly shared: number;
  readonly exclusiveByNumaNode: ReadonlyMap<number, number>;
}

/** CPU manager with the static policy: a container of a Guaranteed pod that requests whole CPUs gets CPUs that no other container uses; all
 *  other containers share the rest.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/ */
export function createCpuManager(deps: CpuManagerDeps): CpuManager {
  const { policy, log } = deps;
  deps.measures.enabled();
  const assigned = new Map(deps.assigned);
  const shared = () => sharedPool(policy, assigned);
  const store = createStateStore(deps.clock, (signal) =>
    writeCpuState(deps.fs, deps.rootDir, { policy: "static", shared: shared(), assigned }, signal),
  );
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
  const podAllocator = (pod: AllocatedPod): PodAllocator => {
    releaseUnknown();
    const commit = async (own: ReadonlyMap<string, CpuSet>) => {
      const { uid } = pod.metadata;
      if (own.size === (assigned.get(uid)?.size ?? 0)) return;
      assigned.set(uid, own);
      changed.fire();
      // As in the kubelet, the pod starts even if its CPUs could not be recorded: after a restart it may get other CPUs.
      await store
        .save()
        .catch((err: unknown) => log.warn({ err, uid }, "cannot save a pod's exclusive CPUs; retrying"));
    };
    return createCpuAllocator({ ...deps, assigned, commit }, pod);
  };
  return {
    name: "cpus",
    runnables: [reconciling],
    podAllocator: async (pod) => (isPinned(pod, deps.podLevel) ? podAllocator(pod) : undefined),
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
    hasExclusiveCpus: (pod, container) => hasExclusiveCpus(assigned, pod, container),
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

function hasExclusiveCpus(assigned: Assignments, pod: Pod, container: Container | undefined): boolean {
  const own = assigned.get(pod.metadata.uid);
  const all = container ? [container] : [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const isExclusive = (one: Container) => own?.has(one.name) === true && exclusiveCpuCount(pod, one) > 0;
  return hasPodLevelResources(pod.spec) ? all.every(isExclusive) : all.some(isExclusive);
}

interface CpusetUpdaterDeps {
  readonly runtime: Pick<Containers, "updateContainerResources">;
  readonly podCache: Pick<PodCache, "list">;
  /** CPUs that a container may use now. */
  readonly cpusOf: (uid: string, container: string) => CpuSet;
  readonly log: Logger;
}

/** Creates the updater of running containers: containers without exclusive CPUs lose CPUs that became exclusive, and get back CPUs
 *  that were released. */
function createCpusetUpdater({ runtime, podCache, cpusOf, log }: CpusetUpdaterDeps) {
  /** CPUs of the newest container by pod UID and container name. */
  const created = new Map<string, Map<string, string>>();
  /** CPUs last set by container ID. */
  const applied = new Map<string, string>();
  const running = () =>
    podCache
      .list()
      .flatMap(({ uid, containers }) =>
        containers.filter(isRunning).map((run) => ({ uid, id: run.id, name: containerNameOf(run) })),
      );
  return {
    /** Records the CPUs with which a container is about to be created. */
    created(uid: string, container: string, cpus: string) {
      const ofPod = created.get(uid) ?? new Map<string, string>();
      created.set(uid, ofPod.set(container, cpus));
    },
    forget: (uid: string) => void created.delete(uid),
    /** Sets the CPUs of running containers that do not have them yet. After a restart, the CPUs of all containers are set once, because
     *  not every runtime reports them.
     *  @throws unavailable. */
    async update(signal: AbortSignal) {
      const runs = running();
      const ids = new Set(runs.map(({ id }) => id));
      for (const id of applied.keys()) if (!ids.has(id)) applied.delete(id);
      for (const { uid, id, name } of runs) {
        const cpus = formatCpus(cpusOf(uid, name));
        if ((applied.get(id) ?? created.get(uid)?.get(name)) === cpus) continue;
        try {
          const request = { containerId: id, linux: { cpusetCpus: cpus } };
          await runtime.updateContainerResources(UpdateContainerResourcesRequest.fromPartial(request), signal);
          applied.set(id, cpus);
        } catch (error) {
          throwIfAborted(signal);
          if (hasCode(error, "unavailable", "deadline_exceeded")) throw error;
          // A container that has ended meanwhile needs no CPUs.
          if (!hasCode(error, "not_found"))
            log.warn({ err: error, uid, container: name, cpus }, "cannot set the CPUs of a container; retrying");
        }
      }
    },
  };
}
