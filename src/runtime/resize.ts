import { type LinuxContainerResources, UpdateContainerResourcesRequest } from "../gen/cri.ts";
import type { CgroupLimits } from "../host/cgroups.ts";
import { CodedError, codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Clock } from "../lib/clock.ts";
import type { ResizeMeasures } from "../measures.ts";
import type { Container, Pod } from "../objects.ts";
import type { AllocatedPod } from "../roles.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { type ResizableResource, amountsOf, mixedResources, sameAmounts } from "../pod/resize.ts";
import type { ActuatedResources } from "../resizes.ts";
import type { Containers } from "../seams/runtime.ts";
import { type ContainerResize, inResizeOrder } from "./plan-resize.ts";

/** Limits and memory usage of a pod's cgroups. */
export interface GroupReading {
  /** Limits set on the pod's own cgroup; undefined if graftlet does not manage it. */
  readonly limits?: CgroupLimits;
  /** Memory usage of the pod, bytes. */
  readonly memory?: number;
  /** Memory usage by container ID, bytes. */
  readonly containers: ReadonlyMap<string, number>;
}

/** The cgroups of pods. */
export interface PodGroups {
  /** The desired limits of a pod with these resources. */
  wanted(pod: Pod): CgroupLimits;
  /** True if the limits last set differ from the desired ones. */
  isStale(pod: Pod): boolean;
  /** @param containerIds running containers whose usage is read. */
  read(pod: Pod, containerIds: readonly string[], signal: AbortSignal): Promise<GroupReading>;
  /** Sets the given limits; others stay unchanged. */
  set(pod: Pod, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
}

export interface ResizeDeps {
  readonly runtime: Pick<Containers, "updateContainerResources">;
  readonly groups: PodGroups;
  readonly inForce: Pick<ActuatedResources, "setContainerResources" | "setPodResources" | "podResources">;
  /** The runtime configuration for a container with these resources. */
  readonly configureResources: (
    pod: Pod,
    container: Container,
    signal: AbortSignal,
  ) => Promise<LinuxContainerResources>;
  /** Signal for calls that must not be interrupted. */
  readonly uninterrupted: AbortSignal;
  readonly resizes: Pick<ResizeMeasures, "actuated">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A running pod with its allocation, and the container resizes to actuate. */
export interface Resizing {
  readonly pod: AllocatedPod;
  readonly containers: readonly ContainerResize[];
  /** The pod-level limits change too. */
  readonly wholePod: boolean;
}

/** Actuates a pod's allocation: memory first, then CPU. A growing pod-level limit is raised before its containers' limits, a shrinking
 *  one is lowered after them. A failure ends the resize; the next pass resumes it.
 *  @throws Error in the kubelet's words. @see
 *  https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources */
export async function resizePod(deps: ResizeDeps, resizing: Resizing, signal: AbortSignal): Promise<void> {
  const since = deps.clock.monotonic();
  let success = false;
  try {
    await putInForce(deps, resizing, signal);
    success = true;
  } finally {
    deps.resizes.actuated(deps.clock.monotonic() - since, success);
  }
}

async function putInForce(deps: ResizeDeps, resizing: Resizing, signal: AbortSignal): Promise<void> {
  const { pod, containers, wholePod } = resizing;
  // Containers that restart for the resize have been killed by now, and runtimes may fail for them, so they are left out.
  const ids = containers.map(({ containerId }) => containerId);
  const reading = await deps.groups.read(pod, ids, signal);
  const wanted: CgroupLimits = reading.limits ? deps.groups.wanted(pod) : {};
  const changesMemory = wholePod || inResizeOrder(containers, "memory").length > 0;
  if (changesMemory) refuseTooLittle(resizing, wanted, reading);
  let left = containers;
  if (changesMemory) {
    const { limits: has } = reading;
    const limits = memoryLimits.flatMap((name) => bound(name, wanted[name], has?.[name]));
    left = await change(deps, { ...resizing, of: "memory", left, limits }, signal);
  }
  if (wholePod || inResizeOrder(left, "cpu").length > 0) {
    const { cpuQuotaUs: quota, cpuPeriodUs: period, cpuShares: shares } = wanted;
    const { limits: has } = reading;
    const quotas = bound("cpuQuotaUs", quota, has?.cpuQuotaUs).map((limit) => ({
      ...limit,
      set: { ...limit.set, ...(period !== undefined && { cpuPeriodUs: period }) },
    }));
    await change(
      deps,
      { ...resizing, of: "cpu", left, limits: [...quotas, ...bound("cpuShares", shares, has?.cpuShares)] },
      signal,
    );
  }
}

/** Memory limits, and memory.min and memory.low, of a pod's cgroup. */
const memoryLimits = ["memoryBytes", "swapBytes", "memoryMinBytes", "memoryLowBytes"] as const;

/** A change of one limit of the pod's cgroup. */
interface Limit {
  readonly widens: boolean;
  readonly set: CgroupLimits;
}

/** Empty if the limit is unchanged, or no longer desired. */
function bound(name: keyof CgroupLimits, wanted: number | undefined, has: number | undefined): readonly Limit[] {
  if (wanted === undefined || wanted === has) return [];
  return [{ widens: has !== undefined && wanted > has, set: { [name]: wanted } }];
}

interface Change extends Resizing {
  readonly of: ResizableResource;
  /** Container resizes not completed yet. */
  readonly left: readonly ContainerResize[];
  /** Limits before requests. */
  readonly limits: readonly Limit[];
}

/** Changes one resource. @returns the remaining container resizes for the other. */
async function change(deps: ResizeDeps, { pod, of, left, limits }: Change, signal: AbortSignal) {
  for (const { widens, set } of limits) if (widens) await deps.groups.set(pod, set, signal);
  const done = new Map<string, ContainerResize>();
  for (const resize of inResizeOrder(left, of)) {
    const { container, containerId, from, to } = resize;
    const now = of === "memory" ? mixedResources(from, to) : mixedResources(to, from);
    const resources = { ...container.resources, ...now };
    const linux = await deps.configureResources(pod, { ...container, resources }, signal);
    const request = UpdateContainerResourcesRequest.fromPartial({ containerId, linux });
    await deps.runtime.updateContainerResources(request, deps.uninterrupted).catch((error: unknown) => {
      throw new CodedError(codeOf(error), runtimeErrorText(error), { cause: error });
    });
    await record(deps, () => deps.inForce.setContainerResources(pod.metadata.uid, containerId, now));
    done.set(containerId, { ...resize, from: now });
  }
  // A request must never exceed its limit, not even briefly.
  for (const { widens, set } of [...limits].reverse()) if (!widens) await deps.groups.set(pod, set, signal);
  const [before, whole] = [deps.inForce.podResources(pod) ?? {}, pod.spec.resources ?? {}];
  const now = of === "memory" ? mixedResources(before, whole) : mixedResources(whole, before);
  if (!sameAmounts(amountsOf(before), amountsOf(now)))
    await record(deps, () => deps.inForce.setPodResources(pod.metadata.uid, now));
  return left.map((resize) => done.get(resize.containerId) ?? resize);
}

/** Checkpoints an actuated change; without the checkpoint it is at worst actuated once more. */
async function record({ log }: ResizeDeps, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (error) {
    log.warn({ err: error }, "cannot checkpoint actuated resources");
  }
}

/** Rejects a memory limit below current usage, which would OOM-kill the container, before anything changes. */
function refuseTooLittle({ containers }: Resizing, wanted: CgroupLimits, reading: GroupReading): void {
  const complaints: string[] = [];
  const { memoryBytes: limit } = wanted;
  if (limit !== undefined && limit < (reading.limits?.memoryBytes ?? Number.POSITIVE_INFINITY)) {
    const { memory } = reading;
    if (memory === undefined) complaints.push("missing pod memory usage");
    else if (memory >= limit)
      complaints.push(`attempting to set pod memory limit (${limit}) below current usage (${memory})`);
  }
  for (const { container, containerId, from, to } of containers) {
    const [before, after] = [amountsOf(from).memoryLimit, amountsOf(to).memoryLimit];
    if (after === 0 || (before !== 0 && after >= before)) continue;
    const used = reading.containers.get(containerId);
    const name = JSON.stringify(container.name);
    if (used === undefined) complaints.push(`missing container ${name} memory usage`);
    else if (used >= after)
      complaints.push(`attempting to set container ${name} memory limit (${after}) below current usage (${used})`);
  }
  const text = complaints.length > 1 ? `[${complaints.join(", ")}]` : complaints[0];
  if (text !== undefined) throw new Error(`cannot decrease memory limits: ${text}`);
}
