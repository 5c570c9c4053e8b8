import { type CpuSet, formatCpus } from "../lib/cpu-set.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { ownRequests, podLevelRequests } from "../pod/pinned-resources.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { distributeCpus } from "./distribute-cpus.ts";
import { takeCpus } from "./take-cpus.ts";
import { type CpuTopology, cpusPer } from "./topology.ts";

/** Options of the static policy, by the names of cpuManagerPolicyOptions.
 *  @see https://kubernetes.io/docs/reference/node/node-kubelet-config/cpu-policies/ */
export interface StaticPolicyOptions {
  /** full-pcpus-only: containers never share a physical core. */
  readonly fullCores: boolean;
  /** distribute-cpus-across-numa */
  readonly distributeAcrossNuma: boolean;
  /** distribute-cpus-across-cores */
  readonly spreadAcrossCores: boolean;
  /** align-by-socket: affects only the hints for a topology manager. */
  readonly alignBySocket: boolean;
  /** strict-cpu-reservation: no pod uses reserved CPUs. */
  readonly strictReservation: boolean;
  /** prefer-align-cpus-by-uncorecache */
  readonly alignCaches: boolean;
}

export interface StaticPolicy {
  readonly topology: CpuTopology;
  readonly options: StaticPolicyOptions;
  /** CPUs that are never assigned exclusively. */
  readonly reserved: CpuSet;
}

/** Exclusive CPUs by pod UID and container name. The CPUs of a pod with pod-level resources as a whole are under `wholePod`; its
 *  containers without exclusive CPUs are then listed with the CPUs that they share. */
export type Assignments = ReadonlyMap<string, ReadonlyMap<string, CpuSet>>;

/** Error for a pod that cannot get whole physical cores. */
export class SmtAlignmentError extends Error {}

/** @param reserved reservedSystemCPUs; if empty, CPUs of the first cores are reserved for `reservedMilli`.
 *  @param reservedMilli reserved CPU time, millicores. @throws Error in the kubelet's words. */
export function createStaticPolicy({
  topology,
  options,
  reserved,
  reservedMilli,
}: Pick<StaticPolicy, "topology" | "options" | "reserved"> & { readonly reservedMilli: number }): StaticPolicy {
  if (!reserved.isSubsetOf(topology.ids)) {
    const online = formatCpus(topology.ids);
    throw new Error(`reserved-cpus: ${formatCpus(reserved)} is not a subset of online-cpus: ${online}`);
  }
  if (options.alignBySocket && topology.count.socket > topology.count.numaNode)
    throw new Error(
      "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA",
    );
  if (reserved.size > 0) return { topology, options, reserved };
  const count = Math.ceil(reservedMilli / 1000);
  if (count > topology.cpus.length)
    throw new Error(
      `[cpumanager] unable to reserve the required amount of CPUs (size of ${formatCpus(new Set())} did not equal ${count})`,
    );
  return { topology, options, reserved: takeByPolicy({ topology, options }, topology.ids, count) };
}

/** CPUs of containers without exclusive CPUs. */
export function sharedPool({ topology, options, reserved }: StaticPolicy, assigned: Assignments): CpuSet {
  const shared = new Set(topology.ids);
  for (const cpu of options.strictReservation ? reserved : []) shared.delete(cpu);
  for (const cpu of assignedCpus(assigned)) shared.delete(cpu);
  return shared;
}

/** All exclusive CPUs. */
export function assignedCpus(assigned: Assignments): CpuSet {
  return new Set([...assigned.values()].flatMap((containers) => [...containers.values()].flatMap((cpus) => [...cpus])));
}

/** Number of exclusive CPUs of a container: its CPU request if that is a whole number, otherwise 0. In a pod with pod-level resources,
 *  the container's requests must also equal its limits. @param pod a pod that `isPinned`. */
export function exclusiveCpuCount(pod: Pod, container: Container): number {
  return wholeCpus(ownRequests(pod, container)["cpu"]);
}

/** Maximum number of exclusive CPUs that a pod needs at one time: init containers run one after another, together with the sidecars
 *  that were started before them. @param pod a pod that `isPinned`. */
export function podCpuCount(pod: Pod): number {
  const ofPod = podLevelRequests(pod);
  if (ofPod) return wholeCpus(ofPod["cpu"]);
  let [sidecars, most] = [0, 0];
  for (const container of pod.spec.initContainers ?? []) {
    const count = exclusiveCpuCount(pod, container);
    if (isSidecar(container)) sidecars += count;
    else most = Math.max(most, sidecars + count);
  }
  const running = pod.spec.containers.reduce((sum, container) => sum + exclusiveCpuCount(pod, container), sidecars);
  return Math.max(most, running);
}

function wholeCpus(request = "0"): number {
  return quantityMilli(request) % 1000 === 0 ? quantityValue(request) : 0;
}

/** Takes CPUs according to the options. @throws Error in the kubelet's words if too few are available. */
export function takeByPolicy(
  { topology, options }: Pick<StaticPolicy, "topology" | "options">,
  available: CpuSet,
  count: number,
): CpuSet {
  if (!options.distributeAcrossNuma) return takeCpus(topology, available, count, options);
  return distributeCpus(topology, available, count, {
    ...options,
    groupSize: options.fullCores ? cpusPer(topology, "core") : 1,
  });
}

/** With full-pcpus-only, checks that a request is for whole cores. @throws SmtAlignmentError */
export function checkAlignment({ topology, options }: StaticPolicy, count: number): void {
  const threads = cpusPer(topology, "core");
  if (options.fullCores && count % threads !== 0)
    throw new SmtAlignmentError(`SMT Alignment Error: requested ${count} cpus not multiple cpus per core = ${threads}`);
}

/** With full-pcpus-only, checks that enough cores are free; a core with a reserved CPU is not free. @throws SmtAlignmentError */
export function checkFreeCores(policy: StaticPolicy, assigned: Assignments, count: number): void {
  const { topology, options, reserved } = policy;
  if (!options.fullCores) return;
  const cores = new Set(topology.cpus.filter(({ id }) => reserved.has(id)).map(({ core }) => core));
  const shared = sharedPool(policy, assigned);
  const available = topology.cpus.filter(({ id, core }) => shared.has(id) && !cores.has(core)).length;
  if (count > available) {
    const threads = cpusPer(topology, "core");
    throw new SmtAlignmentError(
      `SMT Alignment Error: not enough free physical CPUs: available physical CPUs = ${available}, requested CPUs = ${count}, CPUs per core = ${threads}`,
    );
  }
}
