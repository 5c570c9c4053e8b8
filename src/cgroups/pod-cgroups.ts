import type { CgroupLimits } from "../host/cgroups.ts";
import { hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { runConcurrently } from "../lib/run-concurrently.ts";
import type { Pod } from "../objects.ts";
import { podCgroup } from "../pod/cgroup-path.ts";
import { type MemoryQos, podMemoryProtection } from "../pod/memory-qos.ts";
import { type QosClass, qosClass } from "../pod/qos.ts";
import { quantityMilli, quantityValue } from "../pod/quantity.ts";
import { type PodSwapTarget, podSwap } from "../pod/swap.ts";
import {
  type ResourceSettings,
  hugepagesOf,
  milliCpuToQuota,
  milliCpuToShares,
  minShares,
  isPodLimited,
  podLimits,
  podRequests,
} from "../pod/resources.ts";
import type { NodeCgroups } from "./node-cgroups.ts";
import type { QosCgroups } from "./qos-cgroups.ts";

export interface PodCgroupsDeps extends Pick<NodeCgroups, "cgroups" | "layout" | "former"> {
  readonly qosCgroups: QosCgroups;
  readonly settings: ResourceSettings;
  /** KubeletConfiguration.podPidsLimit; -1 for no limit. */
  readonly podPidsLimit: number;
  /** Set if feature gate MemoryQoS is on. */
  readonly memoryQos?: Pick<MemoryQos, "reserves"> | undefined;
  /** The target's huge page sizes, as named by cgroups. */
  readonly pageSizes: readonly string[];
  /** Set if swap is limited on the pod's cgroup, because the runtime cannot limit it per container. */
  readonly swap?: PodSwapTarget | undefined;
  readonly log: Logger;
}

export interface PodCgroups {
  /** Creates or updates a pod's cgroup. @param empty true if the runtime has no sandbox or container of the pod yet. */
  ensure(pod: Pod, empty: boolean, signal: AbortSignal): Promise<void>;
  /** Removes a pod's cgroup; kills any processes left in it. */
  remove(uid: string, signal: AbortSignal): Promise<void>;
  /** Sets the limits again on cgroups that were removed by others and possibly re-created by a runtime. */
  reapplyLimits(signal: AbortSignal): Promise<void>;
  /** True if the pod's cgroup was created by this manager. */
  has(pod: Pod): boolean;
  /** True if the limits of the pod's cgroup differ from the intended ones. */
  isStale(pod: Pod): boolean;
  intendedLimits(pod: Pod): CgroupLimits;
  /** Sets limits on the existing cgroup of a pod. */
  setLimits(pod: Pod, limits: CgroupLimits, signal: AbortSignal): Promise<void>;
}

const noCgroups: PodCgroups = {
  ensure: async () => {},
  remove: async () => {},
  reapplyLimits: async () => {},
  has: () => false,
  isStale: () => false,
  intendedLimits: () => ({}),
  setLimits: async () => {},
};

/** Limits that a resize changes. */
const resizable = [
  "cpuShares",
  "cpuQuotaUs",
  "cpuPeriodUs",
  "memoryBytes",
  "swapBytes",
  "memoryMinBytes",
  "memoryLowBytes",
] as const;

/** Limits in `resizable` that also change the sums for the pod's QoS class. */
const summed = ["cpuShares", "memoryMinBytes", "memoryLowBytes"] as const;

const classes: readonly QosClass[] = ["Guaranteed", "Burstable", "BestEffort"];

/** Creates the manager of pod cgroups: one per pod, in the cgroup of its QoS class, with the limits of the whole pod.
 *  If the target's user may not create cgroups, there are none, and only container limits apply.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/ */
export function createPodCgroups(deps: PodCgroupsDeps): PodCgroups {
  const { cgroups, layout, former, qosCgroups, log } = deps;
  if (!layout.perQos) return noCgroups;
  /** Pods' cgroups, with their limits. */
  const made = new Map<string, CgroupLimits>();
  const pathOf = ({ metadata, spec }: Pod) => podCgroup(metadata.uid, qosClass(spec), layout);
  const ensure = async (pod: Pod, empty: boolean, signal: AbortSignal) => {
    const path = pathOf(pod);
    if (made.has(path) || !qosCgroups.exist()) await qosCgroups.ensure(signal);
    if (made.has(path)) return;
    const limits = podLimitsOf(pod, deps);
    // An existing QoS cgroup is updated meanwhile: its limits matter only once the pod has processes.
    const [, isComplete] = await runConcurrently(
      [
        (stop) => qosCgroups.ensure(stop),
        (stop) => (empty ? cgroups.create(path, limits, stop) : cgroups.ensure(path, limits, stop).then(() => true)),
      ],
      signal,
    );
    if (!isComplete) await qosCgroups.reapplyLimits(signal);
    made.set(path, limits);
  };
  const removeAll = async (paths: readonly string[], signal: AbortSignal) => {
    try {
      await cgroups.remove(paths, signal);
    } catch (error) {
      if (!hasCode(error, "failed_precondition")) throw error;
      const killed = await cgroups.kill(paths, signal);
      if (killed.length > 0) log.info({ paths, killed }, "killed leftover processes in a terminated pod's cgroup");
      await cgroups.remove(paths, signal);
    }
  };
  const remove = async (uid: string, signal: AbortSignal) => {
    const possible = classes.map((qos) => podCgroup(uid, qos, layout));
    const known = possible.filter((path) => made.has(path));
    for (const path of known) made.delete(path);
    await removeAll(known.length > 0 ? known : possible, signal);
    await former?.remove(uid, signal);
    await qosCgroups.ensure(signal);
  };
  let logged = false;
  const ignorePermissionDenied = (error: unknown) => {
    if (!hasCode(error, "permission_denied")) throw error;
    if (!logged) log.warn({ err: error }, "cannot create pod cgroups: permission denied");
    logged = true;
  };
  return {
    ensure: (pod, empty, signal) => ensure(pod, empty, signal).catch(ignorePermissionDenied),
    remove: (uid, signal) => remove(uid, signal).catch(ignorePermissionDenied),
    reapplyLimits: createLimitRepair(cgroups, made),
    has: (pod) => made.has(pathOf(pod)),
    isStale(pod) {
      const has = made.get(pathOf(pod));
      if (!has) return false;
      const wanted = podLimitsOf(pod, deps);
      return resizable.some((name) => wanted[name] !== undefined && wanted[name] !== has[name]);
    },
    intendedLimits: (pod) => podLimitsOf(pod, deps),
    async setLimits(pod, limits, signal) {
      const path = pathOf(pod);
      const before = made.get(path);
      made.set(path, { ...before, ...limits });
      try {
        await cgroups.ensure(path, limits, signal);
      } catch (error) {
        if (before) made.set(path, before);
        else made.delete(path);
        throw error;
      }
      if (summed.some((name) => limits[name] !== undefined)) await qosCgroups.ensure(signal);
    },
  };
}

/** @param made live map of cgroups and their limits. */
function createLimitRepair(
  cgroups: Pick<PodCgroupsDeps["cgroups"], "identities" | "ensure" | "remove">,
  made: ReadonlyMap<string, CgroupLimits>,
): PodCgroups["reapplyLimits"] {
  /** Identities of the cgroups on which limits were set, by path. */
  let known: ReadonlyMap<string, string> = new Map();
  return async (signal) => {
    const found = await cgroups.identities([...made.keys()], signal);
    for (const path of made.keys()) {
      if (found.has(path) && found.get(path) === known.get(path)) continue;
      await cgroups.ensure(path, made.get(path) ?? {}, signal);
      if (!made.has(path)) await cgroups.remove([path], signal);
    }
    known = found;
  };
}

/** Intended limits of a pod's cgroup. Huge pages that are not requested are limited to 0. */
function podLimitsOf(pod: Pod, { settings, podPidsLimit, memoryQos, pageSizes, swap }: PodCgroupsDeps): CgroupLimits {
  const qos = qosClass(pod.spec);
  const requests = podRequests(pod, { overhead: true });
  const limits = podLimits(pod, { overhead: true });
  const quota = milliCpuToQuota(quantityMilli(limits["cpu"] ?? "0"), settings.cpuCfsPeriodUs);
  return {
    cpuShares: qos === "BestEffort" ? minShares : milliCpuToShares(quantityMilli(requests["cpu"] ?? "0")),
    ...(isPodLimited(pod, "cpu") &&
      settings.cpuCfsQuota &&
      !settings.hasExclusiveCpus?.(pod) && { cpuPeriodUs: settings.cpuCfsPeriodUs, cpuQuotaUs: quota }),
    ...(isPodLimited(pod, "memory") && { memoryBytes: quantityValue(limits["memory"] ?? "0") }),
    ...(memoryQos?.reserves && podMemoryProtection(pod, quantityValue(requests["memory"] ?? "0"))),
    ...(swap && { swapBytes: podSwap(pod, swap) }),
    ...(podPidsLimit > 0 && { pids: podPidsLimit }),
    ...(pageSizes.length > 0 && {
      hugepages: { ...Object.fromEntries(pageSizes.map((size) => [size, 0])), ...hugepagesOf(requests) },
    }),
  };
}
