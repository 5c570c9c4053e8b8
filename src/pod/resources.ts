import { HugepageLimit, LinuxContainerResources } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "./containers.ts";
import { type MemoryQos, containerMemoryQos } from "./memory-qos.ts";
import { qosClass } from "./qos.ts";
import { canonicalAmount, quantityMilli, quantityNumber, quantityValue } from "./quantity.ts";
import { effectiveResources } from "./pod-resources.ts";
import { swapLimit, type SwapTarget } from "./swap.ts";

/** Quantities by resource name. */
export type ResourceList = Readonly<Record<string, string>>;

/** Node settings for the conversion of amounts into runtime settings. */
export interface ResourceSettings {
  /** KubeletConfiguration.cpuCFSQuota: if false, CPU limits are not enforced. */
  readonly cpuCfsQuota: boolean;
  /** KubeletConfiguration.cpuCFSQuotaPeriod, microseconds. */
  readonly cpuCfsPeriodUs: number;
  /** True if the CPU time of a container, or of a pod, is not limited because of its exclusive CPUs. Undefined if none can have them. */
  readonly hasExclusiveCpus?: ((pod: Pod, container?: Container) => boolean) | undefined;
}

/** Resource facts about the target. */
export interface TargetResources extends SwapTarget {
  /** Huge page sizes of the target, as cgroups name them: `2MB`, `1GB`. */
  readonly hugePageSizes: readonly string[];
}

export interface CpuMemoryQuantities {
  /** Undefined if not requested: the limit is used. */
  readonly cpuRequest: string | undefined;
  readonly cpuLimit: string | undefined;
  readonly memoryLimit: string | undefined;
  /** True for exclusive CPUs, whose time is not limited. */
  readonly exclusive?: boolean | undefined;
}

/** Quota without a limit. */
const unlimitedQuota = -1n;

/** CPU shares without a request: the kernel's minimum. */
export const minShares = 2;
const maxShares = 262_144;
const minQuotaUs = 1000;

/** CPU shares for millicores, within the kernel's limits. */
export function milliCpuToShares(milliCpu: number): number {
  return Math.min(maxShares, Math.max(minShares, Math.trunc((milliCpu * 1024) / 1000)));
}

/** Microseconds of CPU time per period; 0 for no limit. */
export function milliCpuToQuota(milliCpu: number, periodUs: number): number {
  return milliCpu === 0 ? 0 : Math.max(minQuotaUs, Math.trunc((milliCpu * periodUs) / 1000));
}

/** CPU and memory in CRI terms.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run */
export function cpuAndMemory(
  amounts: CpuMemoryQuantities,
  { cpuCfsQuota, cpuCfsPeriodUs }: ResourceSettings,
): LinuxContainerResources {
  const limit = quantityMilli(amounts.cpuLimit ?? "0");
  const request = amounts.cpuRequest === undefined ? limit : quantityMilli(amounts.cpuRequest);
  return LinuxContainerResources.fromPartial({
    cpuShares: BigInt(milliCpuToShares(request)),
    memoryLimitInBytes: BigInt(quantityValue(amounts.memoryLimit ?? "0")),
    ...(cpuCfsQuota && {
      cpuQuota: amounts.exclusive ? unlimitedQuota : BigInt(milliCpuToQuota(limit, cpuCfsPeriodUs)),
      cpuPeriod: BigInt(cpuCfsPeriodUs),
    }),
  });
}

export interface ContainerResourcesInput extends ResourceSettings {
  readonly pod: Pod;
  readonly container: Container;
  readonly target: TargetResources;
  /** KubeletConfiguration.singleProcessOOMKill: on cgroup v2 an OOM kills the whole container unless true. */
  readonly singleProcessOomKill: boolean;
  /** KubeletConfiguration.memorySwap.swapBehavior is LimitedSwap: containers may use some of the target's swap. */
  readonly limitedSwap: boolean;
  /** Set if the feature gate MemoryQoS is on. */
  readonly memoryQos?: ContainerMemoryQos | undefined;
}

/** @see containerMemoryQos */
export interface ContainerMemoryQos extends MemoryQos {
  /** Bytes reserved for the target's other processes. */
  readonly reservedBytes: number;
}

/** The CRI resources of a container.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/ */
export function containerResources(input: ContainerResourcesInput): LinuxContainerResources {
  const { pod, container, target } = input;
  const { requests = {}, limits: own = {} } = container.resources ?? {};
  // A container without a limit gets the pod-level one; a limit of 0 means none.
  const whole = Object.entries(pod.spec.resources?.limits ?? {}).filter(([name]) => isPodLevelResource(name));
  const effective = effectiveResources(container.resources, pod.spec.resources).limits;
  const limits: ResourceList = { ...Object.fromEntries(whole), ...own, ...effective };
  const exclusive = input.hasExclusiveCpus?.(pod, container);
  const amounts = { cpuRequest: requests.cpu, cpuLimit: limits.cpu, memoryLimit: limits.memory, exclusive };
  const base = cpuAndMemory(amounts, input);
  const unified: Record<string, string> = {};
  if (target.cgroupV2 && !input.singleProcessOomKill) unified["memory.oom.group"] = "1";
  if (target.cgroupV2 && target.swapController)
    unified["memory.swap.max"] = String(input.limitedSwap ? swapLimit(pod, container, target) : 0);
  const { memoryQos } = input;
  if (target.cgroupV2 && memoryQos)
    Object.assign(unified, containerMemoryQos(pod, container, memoryQos, target.memoryBytes - memoryQos.reservedBytes));
  return {
    ...base,
    oomScoreAdj: BigInt(oomScoreAdjust(pod, container, target.memoryBytes)),
    hugepageLimits: hugepageLimits(target.hugePageSizes, limits),
    memorySwapLimitInBytes: !target.cgroupV2 && target.swapController ? base.memoryLimitInBytes : 0n,
    unified,
  };
}

/** The OOM score adjustment: when memory runs out, the kernel first kills the processes of containers that exceed their requests
 *  the most.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior */
export function oomScoreAdjust(pod: Pod, container: Container, memoryBytes: number): number {
  const qos = qosClass(pod.spec);
  if (pod.spec.priorityClassName === "system-node-critical" || qos === "Guaranteed") return -997;
  if (qos === "BestEffort") return 1000;
  const score = (requestBytes: number) => 1000 - Math.trunc((1000 * requestBytes) / memoryBytes);
  const share = unassignedRequest(pod);
  const own = score(memoryRequest(container) + share);
  const sidecar = pod.spec.initContainers?.some((init) => init.name === container.name && isSidecar(init)) === true;
  const least = sidecar ? score(Math.min(...pod.spec.containers.map(memoryRequest)) + share) : own;
  return Math.min(999, Math.max(3, Math.min(own, least)));
}

/** The part of the pod-level memory request that no container requests, divided by the number of all containers, bytes. */
function unassignedRequest(pod: Pod): number {
  const { containers, initContainers = [], resources } = pod.spec;
  const whole = quantityValue(resources?.requests?.["memory"] ?? "0");
  const rest = whole - quantityValue(podTotal(pod, requestsOf)["memory"] ?? "0");
  return Math.max(0, Math.trunc(rest / (containers.length + initContainers.length)));
}

function memoryRequest({ resources }: Container): number {
  return quantityValue(resources?.requests?.memory ?? "0");
}

/** All huge page sizes are limited, to 0 if the container requests none. */
function hugepageLimits(sizes: readonly string[], limits: ResourceList): HugepageLimit[] {
  const named = hugepagesOf(limits);
  return sizes.map((pageSize) => HugepageLimit.fromPartial({ pageSize, limit: BigInt(named[pageSize] ?? 0) }));
}

/** Bytes of huge pages by page size, as cgroups name it. */
export function hugepagesOf(resources: ResourceList): Readonly<Record<string, number>> {
  const pages = Object.entries(resources).filter(([name]) => isHugePages(name));
  return Object.fromEntries(
    pages.map(([name, amount]) => [
      pageSizeName(quantityValue(name.slice("hugepages-".length))),
      quantityValue(amount),
    ]),
  );
}

/** A page size as cgroup files name it: 2097152 is `2MB`. */
export function pageSizeName(bytes: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${Math.floor(bytes / 1024 ** unit)}${units[unit]}`;
}

/** Requests of a pod. Init containers run one after another before the rest, so the largest counts.
 *  @param options.overhead adds the pod overhead.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers */
export function podRequests(pod: Pod, { overhead }: { readonly overhead: boolean }): ResourceList {
  const total = { ...podTotal(pod, requestsOf), ...podLevelAmounts(pod.spec.resources?.requests) };
  return overhead ? sum([total, pod.spec.overhead ?? {}]) : total;
}

/** A pod's request as counted for preemption: with pod-level resources those of its containers do not count, and overhead counts only
 *  together with a request. (kubernetes, GetResourceRequestQuantity) */
export function requestForPreemption(pod: Pod, name: string): string {
  const all = hasPodLevelResources(pod.spec)
    ? podLevelAmounts(pod.spec.resources?.requests)
    : podRequests(pod, { overhead: false });
  const own = all[name] ?? "0";
  const overhead = pod.spec.overhead?.[name];
  if (overhead === undefined || quantityNumber(own) === 0) return own;
  return sum([{ [name]: own }, { [name]: overhead }])[name] ?? own;
}

/** Limits of a pod. A resource is included if any container limits it.
 *  @param options.overhead adds the pod overhead to limited resources. */
export function podLimits(pod: Pod, { overhead }: { readonly overhead: boolean }): ResourceList {
  const total: ResourceList = {
    ...podTotal(pod, ({ resources }) => resources?.limits ?? {}),
    ...podLevelAmounts(pod.spec.resources?.limits),
  };
  const limited = Object.entries(pod.spec.overhead ?? {}).filter(([name]) => quantityNumber(total[name] ?? "0") > 0);
  return overhead ? sum([total, Object.fromEntries(limited)]) : total;
}

/** True if a limit applies to the whole pod: a pod-level limit, or one on each container. As the kubelet adds up sidecars, an init
 *  container after a limited sidecar counts as limited.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run */
export function isPodLimited({ spec }: Pod, name: "cpu" | "memory"): boolean {
  const isLimited = ({ resources }: Pick<Container, "resources">) =>
    quantityValue(resources?.limits?.[name] ?? "0") > 0;
  const init = spec.initContainers ?? [];
  const isSummedUp = (one: Container, index: number) =>
    isLimited(one) || init.slice(0, index).some((before) => isSidecar(before) && isLimited(before));
  const all = () => spec.containers.every(isLimited) && init.every(isSummedUp);
  return qosClass(spec) !== "BestEffort" && (isLimited(spec) || all());
}

function requestsOf({ resources }: Container): ResourceList {
  return resources?.requests ?? {};
}

/** Pod-level resources override the sums of the containers'.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification */
function podLevelAmounts(amounts: ResourceList | undefined): ResourceList {
  return sum([Object.fromEntries(Object.entries(amounts ?? {}).filter(([name]) => isPodLevelResource(name)))]);
}

/** True if the pod as a whole requests or limits a resource. */
export function hasPodLevelResources({ resources: { requests = {}, limits = {} } = {} }: Pod["spec"]): boolean {
  return Object.keys({ ...requests, ...limits }).some(isPodLevelResource);
}

/** True for a resource that can be set at pod level. */
export function isPodLevelResource(name: string): boolean {
  return name === "cpu" || name === "memory" || isHugePages(name);
}

/** True for huge pages of any size. */
export function isHugePages(name: string): boolean {
  return name.startsWith("hugepages-");
}

/** Sidecars run alongside the main containers and the init containers that follow them. */
function podTotal(pod: Pod, of: (container: Container) => ResourceList): ResourceList {
  const inits = pod.spec.initContainers ?? [];
  const running = sum([...pod.spec.containers.map(of), ...inits.filter(isSidecar).map(of)]);
  const starting = inits.map((init, index) => sum([...inits.slice(0, index).filter(isSidecar).map(of), of(init)]));
  return largest([running, ...starting]);
}

function sum(lists: readonly ResourceList[]): ResourceList {
  return combine(lists, (a, b) => a + b);
}

function largest(lists: readonly ResourceList[]): ResourceList {
  return combine(lists, Math.max);
}

function combine(lists: readonly ResourceList[], join: (a: number, b: number) => number): ResourceList {
  const amounts = new Map<string, Amount>();
  for (const list of lists) {
    for (const [name, text] of Object.entries(list)) {
      const amount = quantityNumber(text);
      const known = amounts.get(name);
      amounts.set(name, known ? joined(known, { amount, text }, join) : { amount, text });
    }
  }
  return Object.fromEntries([...amounts].map(([name, { text }]) => [name, text]));
}

interface Amount {
  readonly amount: number;
  readonly text: string;
}

/** Combines two amounts, in the notation of the first non-zero one. */
function joined(known: Amount, next: Amount, join: (a: number, b: number) => number): Amount {
  const amount = join(known.amount, next.amount);
  if (amount === known.amount) return known;
  if (amount === next.amount) return next;
  return { amount, text: canonicalAmount(amount, known.text) };
}
