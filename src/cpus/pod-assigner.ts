import type { CpuSet } from "../lib/cpu-set.ts";
import { type NumaNodes, hasNode } from "../lib/numa-nodes.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { emptySharedPool, wholePod } from "../pod/pinned-resources.ts";
import { hasPodLevelResources } from "../pod/resources.ts";
import {
  type Assignments,
  type StaticPolicy,
  checkAlignment,
  checkFreeCores,
  exclusiveCpuCount,
  podCpuCount,
  sharedPool,
  takeByPolicy,
} from "./static-policy.ts";

/** Assigns exclusive CPUs to the containers of one pod, in the order in which they start. */
export type PodAssigner = ReturnType<typeof createPodAssigner>;

/** @param assigned CPUs of all pods; not changed. */
export function createPodAssigner(policy: StaticPolicy, assigned: Assignments, pod: Pod) {
  /** CPUs of each container of the pod with exclusive CPUs. */
  const own = new Map(assigned.get(pod.metadata.uid));
  const initContainers = new Set(pod.spec.initContainers ?? []);
  let reusable: CpuSet = new Set();
  const all = () => new Map(assigned).set(pod.metadata.uid, own);
  /** CPUs that no container has exclusively, without reserved ones. */
  const free = () => sharedPool(policy, all()).difference(policy.reserved);
  return {
    own,
    free,
    /** CPUs of the pod's init containers, which have ended before the next container starts: it can reuse them. */
    reusable: () => reusable,
    /** Assigns CPUs to the next container, which keeps CPUs that it already has.
     *  @param nodes NUMA nodes whose CPUs are taken first; undefined for any. @returns undefined for a container without exclusive CPUs.
     *  @throws SmtAlignmentError; Error in the kubelet's words. */
    assign(container: Container, nodes?: NumaNodes) {
      const count = exclusiveCpuCount(pod, container);
      if (count === 0) return undefined;
      checkAlignment(policy, count);
      let cpus = own.get(container.name);
      if (!cpus) {
        checkFreeCores(policy, all(), count);
        cpus = takeAligned(policy, free().union(reusable), count, nodes);
        own.set(container.name, cpus);
      }
      const endsEarly = initContainers.has(container) && !isSidecar(container);
      reusable = endsEarly ? reusable.union(cpus) : reusable.difference(cpus);
      return cpus;
    },
    /** Assigns CPUs to a pod with pod-level resources as a whole, and divides them among its containers. A pod keeps CPUs that it already
     *  has.
     *  @returns undefined for a pod that has some already, or requests none. @throws as `assign`. */
    assignWhole(nodes?: NumaNodes) {
      const count = podCpuCount(pod);
      if (count === 0 || own.size > 0) return undefined;
      checkAlignment(policy, count);
      checkFreeCores(policy, all(), count);
      const cpus = takeAligned(policy, free(), count, nodes);
      for (const [name, share] of dividePod(policy, pod, cpus)) own.set(name, share);
      return cpus;
    },
    /** Rejection of a pod with pod-level resources whose containers without exclusive CPUs would get no CPUs; undefined if they get
     *  some. */
    emptySharedPool() {
      if (!hasPodLevelResources(pod.spec)) return undefined;
      const exclusive = (container: Container) => exclusiveCpuCount(pod, container);
      return emptySharedPool(pod, new Map([["cpu", podCpuCount(pod)]]), (container) => {
        return new Map(exclusive(container) > 0 ? [["cpu", exclusive(container)]] : []);
      });
    },
  };
}

/** Takes CPUs of these NUMA nodes first, and only the missing ones from others. (kubelet, cm/cpumanager/policy_static.go) */
function takeAligned(policy: StaticPolicy, available: CpuSet, count: number, nodes: NumaNodes | undefined): CpuSet {
  if (nodes === undefined) return takeByPolicy(policy, available, count);
  const near = available.intersection(alignedCpus(policy, nodes));
  const aligned = takeByPolicy(policy, near, Math.min(count, near.size));
  return aligned.union(takeByPolicy(policy, available.difference(aligned), count - aligned.size));
}

/** CPUs of NUMA nodes; with align-by-socket all CPUs of their sockets. */
function alignedCpus({ topology, options }: StaticPolicy, nodes: NumaNodes): CpuSet {
  const inNodes = topology.cpus.filter(({ numaNode }) => hasNode(nodes, numaNode));
  const sockets = new Set(inNodes.map(({ socket }) => socket));
  const aligned = options.alignBySocket ? topology.cpus.filter(({ socket }) => sockets.has(socket)) : inNodes;
  return new Set(aligned.map(({ id }) => id));
}

/** Divides the CPUs of a pod with pod-level resources among its containers: containers that request whole CPUs, with requests equal to
 *  limits, get exclusive CPUs; the others share the rest. An init container can use CPUs that later containers get; CPUs of sidecars are
 *  not reused.
 *  @returns CPUs by container name, and those of the whole pod. @throws Error in the kubelet's words.
 *  (kubelet, cm/cpumanager/policy_static.go) */
export function dividePod(policy: StaticPolicy, pod: Pod, all: CpuSet): ReadonlyMap<string, CpuSet> {
  const { initContainers = [], containers } = pod.spec;
  const shares = new Map([[wholePod, all]]);
  let left = all;
  for (const container of [...initContainers, ...containers]) {
    const endsEarly = initContainers.includes(container) && !isSidecar(container);
    const count = exclusiveCpuCount(pod, container);
    if (count > 0) {
      const own = takeByPolicy(policy, left, count);
      shares.set(container.name, own);
      if (!endsEarly) left = left.difference(own);
    } else if (endsEarly) shares.set(container.name, left);
  }
  for (const { name } of [...initContainers, ...containers]) if (!shares.has(name)) shares.set(name, left);
  return shares;
}
