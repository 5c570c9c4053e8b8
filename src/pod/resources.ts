import { HugepageLimit, LinuxContainerResources } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "./containers.ts";
import { type MemoryQos, containerMemoryQos } from "./memory-qos.ts";
import { qosClass } from "./qos.ts";
import { canonicalAmount, quantityMilli, quantityNumber, quantityValue } from "./quantity.ts";
import { effectiveResources } from "./resize.ts";
import { limitedSwap } from "./swap.ts";

/** Quantities by resource name. */
export type ResourceList = Readonly<Record<string, string>>;

/** Node settings for the conversion of amounts into runtime settings. */
export interface ResourceSettings {
  /** KubeletConfiguration.cpuCFSQuota: false leaves CPU limits unenforced. */
  readonly cpuCfsQuota: boolean;
  /** KubeletConfiguration.cpuCFSQuotaPeriod, microseconds. */
  readonly cpuCfsPeriodUs: number;
}

/** Facts of the target. */
export interface TargetResources {
  readonly memoryBytes: number;
  readonly swapBytes: number;
  /** Sizes of huge pages that the target has, as cgroups name them: `2MB`, `1GB`. */
  readonly hugePageSizes: readonly string[];
  readonly cgroupV2: boolean;
  /** Memory plus swap can be limited. */
  readonly swapController: boolean;
}

export interface Amounts {
  /** Undefined: not requested, the limit stands in. */
  readonly cpuRequest: string | undefined;
  readonly cpuLimit: string | undefined;
  readonly memoryLimit: string | undefined;
}

/** CPU shares of what asks for none: the least that the kernel takes. */
export const minShares = 2;
const maxShares = 262_144;
const minQuotaUs = 1000;

/** CPU shares for thousandths of a CPU, within what the kernel takes. */
export function milliCpuToShares(milliCpu: number): number {
  return Math.min(maxShares, Math.max(minShares, Math.trunc((milliCpu * 1024) / 1000)));
}

/** Microseconds of CPU time in each period; 0 for no limit. */
export function milliCpuToQuota(milliCpu: number, periodUs: number): number {
  return milliCpu === 0 ? 0 : Math.max(minQuotaUs, Math.trunc((milliCpu * periodUs) / 1000));
}

/** Amounts of CPU and memory in the runtime's terms.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run */
export function cpuAndMemory(
  amounts: Amounts,
  { cpuCfsQuota, cpuCfsPeriodUs }: ResourceSettings,
): LinuxContainerResources {
  const limit = quantityMilli(amounts.cpuLimit ?? "0");
  const request = amounts.cpuRequest === undefined ? limit : quantityMilli(amounts.cpuRequest);
  return LinuxContainerResources.fromPartial({
    cpuShares: BigInt(milliCpuToShares(request)),
    memoryLimitInBytes: BigInt(quantityValue(amounts.memoryLimit ?? "0")),
    ...(cpuCfsQuota && { cpuQuota: BigInt(milliCpuToQuota(limit, cpuCfsPeriodUs)), cpuPeriod: BigInt(cpuCfsPeriodUs) }),
  });
}

export interface ContainerResourcesInput extends ResourceSettings {
  readonly pod: Pod;
  readonly container: Container;
  readonly target: TargetResources;
  /** KubeletConfiguration.singleProcessOOMKill: on cgroup v2 the whole container dies unless it is true. */
  readonly singleProcessOomKill: boolean;
  /** KubeletConfiguration.memorySwap.swapBehavior is LimitedSwap: containers may use some of the target's swap. */
  readonly limitedSwap: boolean;
  /** Feature gate MemoryQoS, when it is on. */
  readonly memoryQos?: ContainerMemoryQos | undefined;
}

/** @see containerMemoryQos */
export interface ContainerMemoryQos extends MemoryQos {
  /** Bytes that are kept for the target's other processes. */
  readonly reservedBytes: number;
}

/** The resource settings of one container.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/ */
export function containerResources(input: ContainerResourcesInput): LinuxContainerResources {
  const { pod, container, target } = input;
  const { requests = {}, limits: own = {} } = container.resources ?? {};
  // A container without a limit has its pod's; a limit of 0 is none.
  const whole = Object.entries(pod.spec.resources?.limits ?? {}).filter(([name]) => isOfPods(name));
  const effective = effectiveResources(container.resources, pod.spec.resources).limits;
  const limits: ResourceList = { ...Object.fromEntries(whole), ...own, ...effective };
  const base = cpuAndMemory({ cpuRequest: requests.cpu, cpuLimit: limits.cpu, memoryLimit: limits.memory }, input);
  const unified: Record<string, string> = {};
  if (target.cgroupV2 && !input.singleProcessOomKill) unified["memory.oom.group"] = "1";
  if (target.cgroupV2 && target.swapController)
    unified["memory.swap.max"] = String(input.limitedSwap ? limitedSwap(pod, container, target) : 0);
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
  const share = unsharedRequest(pod);
  const own = score(memoryRequest(container) + share);
  const sidecar = pod.spec.initContainers?.some((init) => init.name === container.name && isSidecar(init)) === true;
  const least = sidecar ? score(Math.min(...pod.spec.containers.map(memoryRequest)) + share) : own;
  return Math.min(999, Math.max(3, Math.min(own, least)));
}

/** Bytes of memory per container that the pod requests beyond its containers' own requests; they count for all of them alike. */
function unsharedRequest(pod: Pod): number {
  const { containers, initContainers = [], resources } = pod.spec;
  const whole = quantityValue(resources?.requests?.["memory"] ?? "0");
  const rest = whole - quantityValue(podTotal(pod, requestsOf)["memory"] ?? "0");
  return Math.max(0, Math.trunc(rest / (containers.length + initContainers.length)));
}

function memoryRequest({ resources }: Container): number {
  return quantityValue(resources?.requests?.memory ?? "0");
}

/** Every size of huge pages is limited, to 0 where the container names none. */
function hugepageLimits(sizes: readonly string[], limits: ResourceList): HugepageLimit[] {
  const named = hugepagesOf(limits);
  return sizes.map((pageSize) => HugepageLimit.fromPartial({ pageSize, limit: BigInt(named[pageSize] ?? 0) }));
}

/** Bytes of huge pages among resources, by the page's size as cgroups name it. */
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

/** Requests of a pod. Init containers run one after the other before the rest, so the largest counts.
 *  @param options.overhead adds what the sandbox itself needs.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers */
export function podRequests(pod: Pod, { overhead }: { readonly overhead: boolean }): ResourceList {
  const total = { ...podTotal(pod, requestsOf), ...ofWholePod(pod.spec.resources?.requests) };
  return overhead ? sum([total, pod.spec.overhead ?? {}]) : total;
}

/** Request of a pod for one resource as it counts where pods have to go for it: of a pod with resources of its own those of its containers
 *  count nothing, and its overhead counts beside a request alone. (kubernetes, GetResourceRequestQuantity) */
export function requestToFree(pod: Pod, name: string): string {
  const { requests = {}, limits = {} } = pod.spec.resources ?? {};
  const isWhole = Object.keys({ ...requests, ...limits }).some(isOfPods);
  const all = isWhole ? ofWholePod(requests) : podRequests(pod, { overhead: false });
  const own = all[name] ?? "0";
  const overhead = pod.spec.overhead?.[name];
  if (overhead === undefined || quantityNumber(own) === 0) return own;
  return sum([{ [name]: own }, { [name]: overhead }])[name] ?? own;
}

/** Limits of a pod. A resource is present when any container limits it.
 *  @param options.overhead adds what the sandbox itself needs, to what is limited. */
export function podLimits(pod: Pod, { overhead }: { readonly overhead: boolean }): ResourceList {
  const total: ResourceList = {
    ...podTotal(pod, ({ resources }) => resources?.limits ?? {}),
    ...ofWholePod(pod.spec.resources?.limits),
  };
  const limited = Object.entries(pod.spec.overhead ?? {}).filter(([name]) => quantityNumber(total[name] ?? "0") > 0);
  return overhead ? sum([total, Object.fromEntries(limited)]) : total;
}

/** True where a limit holds for a whole pod: it is the pod's own, or every container has one. An init container has one, too, where a
 *  sidecar before it has: a kubelet sums them up.
 *  @see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run */
export function limitsWhole({ spec }: Pod, name: "cpu" | "memory"): boolean {
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
function ofWholePod(amounts: ResourceList | undefined): ResourceList {
  return sum([Object.fromEntries(Object.entries(amounts ?? {}).filter(([name]) => isOfPods(name)))]);
}

/** True for a resource that a pod may have as a whole. */
export function isOfPods(name: string): boolean {
  return name === "cpu" || name === "memory" || isHugePages(name);
}

/** True for huge pages of any size. */
export function isHugePages(name: string): boolean {
  return name.startsWith("hugepages-");
}

/** Sidecars run beside the main containers and beside the init containers that follow them. */
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

/** Two amounts in one, written as the first that is not zero. */
function joined(known: Amount, next: Amount, join: (a: number, b: number) => number): Amount {
  const amount = join(known.amount, next.amount);
  if (amount === known.amount) return known;
  if (amount === next.amount) return next;
  return { amount, text: canonicalAmount(amount, known.text) };
}
