import type { CpuSet } from "../../../src/lib/cpu-set.ts";
import { createPodAssigner } from "../../../src/cpus/pod-assigner.ts";
import type { Assignments, StaticPolicy, StaticPolicyOptions } from "../../../src/cpus/static-policy.ts";
import { type Cpu, type CpuTopology, topologyOf } from "../../../src/cpus/topology.ts";
import type { Container, Pod } from "../../../src/objects.ts";

export const noOptions: StaticPolicyOptions = {
  fullCores: false,
  distributeAcrossNuma: false,
  spreadAcrossCores: false,
  alignBySocket: false,
  strictReservation: false,
  alignCaches: false,
};

export interface MachineDraft {
  readonly sockets?: number;
  /** NUMA nodes per socket. */
  readonly nodes?: number;
  /** L3 caches per NUMA node; without them the socket counts. */
  readonly caches?: number;
  /** Cores per cache. */
  readonly cores?: number;
  readonly threads?: number;
}

/** A regular machine; second threads of cores are numbered after all first ones, as on x86. */
export function machine({ sockets = 1, nodes = 1, caches = 1, cores = 4, threads = 1 }: MachineDraft): CpuTopology {
  const total = sockets * nodes * caches * cores;
  const cpus = Array.from({ length: total * threads }, (_, id): Cpu => {
    const core = id % total;
    const cache = Math.floor(core / cores);
    const numaNode = Math.floor(cache / caches);
    const socket = Math.floor(numaNode / nodes);
    return { id, core, cache: caches > 1 ? cache : socket, numaNode, socket };
  });
  return topologyOf(cpus);
}

export const cpus = (...ids: readonly number[]): CpuSet => new Set(ids);

/** A container that requests as much as it may use. */
export function asking(name: string, cpu: string, more: Partial<Container> = {}): Container {
  const amounts = { cpu, memory: "1Gi" };
  return { name, image: "i", resources: { requests: amounts, limits: amounts }, ...more };
}

export function podOf(uid: string, containers: readonly Container[], more: Partial<Pod["spec"]> = {}): Pod {
  return {
    metadata: { uid, name: uid, namespace: "default" },
    spec: { containers: [...containers], ...more },
  };
}

/** Assigns exclusive CPUs to all containers of a pod, from any NUMA nodes. @returns the CPUs of each container that has some. */
export function assignPod(policy: StaticPolicy, assigned: Assignments, pod: Pod): ReadonlyMap<string, CpuSet> {
  const { initContainers = [], containers } = pod.spec;
  const assigner = createPodAssigner(policy, assigned, pod);
  for (const container of [...initContainers, ...containers]) assigner.assign(container);
  return assigner.own;
}
