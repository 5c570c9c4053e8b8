import { type LinuxContainerResources, UpdateContainerResourcesRequest } from "../gen/cri.ts";
import type { CgroupLimits } from "../host/cgroups.ts";
import { CodedError, codeOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Container, Pod } from "../objects.ts";
import type { AllocatedPod } from "../roles.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { type ResizableResource, amountsOf, combineResources, sameAmounts } from "../pod/pod-resources.ts";
import type { Containers } from "../seams/runtime.ts";
import { type ContainerResize, inResizeOrder } from "./plan-resize.ts";
import type { ActuatedResources } from "./ports.ts";
import { type SandboxLimitsDeps, type SetPodLimits, createPodLimits } from "./sandbox-limits.ts";

export interface ActuationMeasures {
  /** The actuation of allocated resources has ended, successfully or not. */
  actuated(ms: number, success: boolean): void;
}

/** Limits and memory usage of a pod's cgroups. */
export interface CgroupReading {
  /** Limits set on the pod's own cgroup; undefined if graftlet does not manage it. */
  readonly limits?: CgroupLimits;
  /** Memory usage of the pod, bytes. */
  readonly memory?: number;
  /** Memory usage by container ID, bytes. */
  readonly containers: ReadonlyMap<string, number>;
}

export interface PodCgroupLimits {
  /** The desired limits of a pod with these resources. */
  wanted(pod: Pod): CgroupLimits;
  /** True if the limits last set differ from the desired ones. */
  isStale(pod: Pod): boolean;
  /** @param containerIds running containers whose usage is read. */
  read(pod: Pod, containerIds: readonly string[], signal: AbortSignal): Promise<CgroupReading>;
  /** Sets the given limits; others stay unchanged. */
  set(pod: Pod, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
}

export interface ResizeDeps extends ClockAndLog, Omit<SandboxLimitsDeps, "runtime" | "groups"> {
  readonly runtime: Pick<Containers, "updateContainerResources"> & SandboxLimitsDeps["runtime"];
  readonly groups: PodCgroupLimits;
  readonly actuatedResources: Pick<ActuatedResources, "setContainerResources" | "setPodResources" | "podResources">;
  /** The runtime configuration for a container with these resources. */
  readonly configureResources: (
    pod: Pod,
    container: Container,
    signal: AbortSignal,
  ) => Promise<LinuxContainerResources>;
  /** Signal for calls that must not be interrupted. */
  readonly uninterrupted: AbortSignal;
  readonly resizes: ActuationMeasures;
}

/** A running pod with its allocation, and the container resizes to actuate. */
export interface PodResize {
  readonly pod: AllocatedPod;
  /** The newest sandbox; undefined if there is none. */
  readonly sandboxId: string | undefined;
  readonly containers: readonly ContainerResize[];
  /** The pod-level limits change too. */
  readonly wholePod: boolean;
}

/** Actuates a pod's allocation: memory first, then CPU. A growing pod-level limit is raised before its containers' limits, a shrinking
 *  one is lowered after them. A failure ends the resize; the next pass resumes it.
 *  @throws Error in the kubelet's words. @see
 *  https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources */
export async function resizePod(deps: ResizeDeps, resizing: PodResize, signal: AbortSignal): Promise<void> {
  const since = deps.clock.monotonic();
  let success = false;
  try {
    await actuate(deps, resizing, signal);
    success = true;
  } finally {
    deps.resizes.actuated(deps.clock.monotonic() - since, success);
  }
}

async function actuate(deps: ResizeDeps, resizing: PodResize, signal: AbortSignal): Promise<void> {
  const { pod, sandboxId, containers, wholePod } = resizing;
  // Containers that restart for the resize have been killed by now, and runtimes may fail for them, so they are left out.
  const ids = containers.map(({ containerId }) => containerId);
  const reading = await deps.groups.read(pod, ids, signal);
  const wanted: CgroupLimits = reading.limits ? deps.groups.wanted(pod) : {};
  const setPodLimits = createPodLimits(deps, pod, sandboxId, { ...wanted, ...reading.limits });
  const changesMemory = wholePod || inResizeOrder(containers, "memory").length > 0;
  if (changesMemory) checkMemoryUsage(resizing, wanted, reading);
  let remaining = containers;
  if (changesMemory) {
    const { limits: has } = reading;
    const limits = memoryLimits.flatMap((name) => limitChange(name, wanted[name], has?.[name]));
    remaining = await changeResource(
      deps,
      { ...resizing, resource: "memory", remaining, limits, setPodLimits },
      signal,
    );
  }
  if (wholePod || inResizeOrder(remaining, "cpu").length > 0) {
    const { cpuQuotaUs: quota, cpuPeriodUs: period, cpuShares: shares } = wanted;
    const { limits: has } = reading;
    const quotas = limitChange("cpuQuotaUs", quota, has?.cpuQuotaUs).map((limit) => ({
      ...limit,
      set: { ...limit.set, ...(period !== undefined && { cpuPeriodUs: period }) },
    }));
    await changeResource(
      deps,
      {
        ...resizing,
        resource: "cpu",
        remaining,
        setPodLimits,
        limits: [...quotas, ...limitChange("cpuShares", shares, has?.cpuShares)],
      },
      signal,
    );
  }
}

/** Memory limits, and memory.min and memory.low, of a pod's cgroup. */
const memoryLimits = ["memoryBytes", "swapBytes", "memoryMinBytes", "memoryLowBytes"] as const;

/** A change of one limit of the pod's cgroup. */
interface LimitChange {
  readonly increases: boolean;
  readonly set: CgroupLimits;
}

/** The change of one limit; empty if the limit is unchanged, or no longer desired. */
function limitChange(
  name: keyof CgroupLimits,
  wanted: number | undefined,
  has: number | undefined,
): readonly LimitChange[] {
  if (wanted === undefined || wanted === has) return [];
  return [{ increases: has !== undefined && wanted > has, set: { [name]: wanted } }];
}

interface ResourceChange extends PodResize {
  readonly resource: ResizableResource;
  /** Container resizes not completed yet. */
  readonly remaining: readonly ContainerResize[];
  /** Changes of the pod's cgroup, limits before requests. */
  readonly limits: readonly LimitChange[];
  readonly setPodLimits: SetPodLimits;
}

/** Changes one resource. @returns the remaining container resizes for the other. */
async function changeResource(
  deps: ResizeDeps,
  { pod, resource, remaining, limits, setPodLimits }: ResourceChange,
  signal: AbortSignal,
) {
  for (const { increases, set } of limits) if (increases) await setPodLimits(resource, set, signal);
  const done = new Map<string, ContainerResize>();
  for (const resize of inResizeOrder(remaining, resource)) {
    const { container, containerId, from, to } = resize;
    const now = resource === "memory" ? combineResources(from, to) : combineResources(to, from);
    const resources = { ...container.resources, ...now };
    const linux = await deps.configureResources(pod, { ...container, resources }, signal);
    const request = UpdateContainerResourcesRequest.fromPartial({ containerId, linux });
    await deps.runtime.updateContainerResources(request, deps.uninterrupted).catch((error: unknown) => {
      throw new CodedError(codeOf(error), runtimeErrorText(error), { cause: error });
    });
    await checkpoint(deps, () => deps.actuatedResources.setContainerResources(pod.metadata.uid, containerId, now));
    done.set(containerId, { ...resize, from: now });
  }
  // A request must never exceed its limit, not even briefly.
  for (const { increases, set } of [...limits].reverse()) if (!increases) await setPodLimits(resource, set, signal);
  const [before, whole] = [deps.actuatedResources.podResources(pod) ?? {}, pod.spec.resources ?? {}];
  const now = resource === "memory" ? combineResources(before, whole) : combineResources(whole, before);
  if (!sameAmounts(amountsOf(before), amountsOf(now)))
    await checkpoint(deps, () => deps.actuatedResources.setPodResources(pod.metadata.uid, now));
  return remaining.map((resize) => done.get(resize.containerId) ?? resize);
}

/** Checkpoints an actuated change; without the checkpoint it is at worst actuated once more. */
async function checkpoint({ log }: ResizeDeps, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (error) {
    log.warn({ err: error }, "cannot checkpoint actuated resources");
  }
}

/** Rejects a memory limit below current usage, which would OOM-kill the container, before anything changes. */
function checkMemoryUsage({ containers }: PodResize, wanted: CgroupLimits, reading: CgroupReading): void {
  const problems: string[] = [];
  const { memoryBytes: limit } = wanted;
  if (limit !== undefined && limit < (reading.limits?.memoryBytes ?? Number.POSITIVE_INFINITY)) {
    const { memory } = reading;
    if (memory === undefined) problems.push("missing pod memory usage");
    else if (memory >= limit)
      problems.push(`attempting to set pod memory limit (${limit}) below current usage (${memory})`);
  }
  for (const { container, containerId, from, to } of containers) {
    const [before, after] = [amountsOf(from).memoryLimit, amountsOf(to).memoryLimit];
    if (after === 0 || (before !== 0 && after >= before)) continue;
    const used = reading.containers.get(containerId);
    const name = JSON.stringify(container.name);
    if (used === undefined) problems.push(`missing container ${name} memory usage`);
    else if (used >= after)
      problems.push(`attempting to set container ${name} memory limit (${after}) below current usage (${used})`);
  }
  const text = problems.length > 1 ? `[${problems.join(", ")}]` : problems[0];
  if (text !== undefined) throw new Error(`cannot decrease memory limits: ${text}`);
}
