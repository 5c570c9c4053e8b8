import type { CgroupLimits } from "../host/cgroups.ts";
import { hasCode, messageOf, ignoreCode } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { cgroupNames, podCgroup } from "../pod/cgroup-path.ts";
import type { MemoryQos } from "../pod/memory-qos.ts";
import { qosClass } from "../pod/qos.ts";
import { podReference } from "../pod/reference.ts";
import type { PodSwapTarget } from "../pod/swap.ts";
import type { AllocatedPod } from "../roles.ts";
import type { FileChange, Host } from "../seams/host.ts";
import type { Runtime, Stats } from "../seams/runtime.ts";
import type { OpenNodeCgroups } from "./node-cgroups.ts";
import { type PodCgroups, createPodCgroups, type PodCgroupsDeps } from "./pod-cgroups.ts";
import { readCgroups } from "../host/cgroup-readings.ts";
import { type GroupUsage, groupUsage } from "../host/cgroup-usage.ts";
import { podDirectory } from "../host/layout.ts";

export interface PodHostResourcesDeps
  extends Pick<PodCgroupsDeps, "qosCgroups" | "settings" | "podPidsLimit" | "pageSizes" | "log"> {
  readonly host: Host;
  readonly rootDir: string;
  readonly cgroups: OpenNodeCgroups;
  /** Set if feature gate MemoryQoS is on. */
  readonly memoryQos?: MemoryQos | undefined;
  /** The target's memory and swap, and whether pods may use swap. */
  readonly swap: PodSwapTarget;
  readonly runtime: Pick<Runtime, "containerStats" | "unsupportedReason">;
  readonly events: EventSink;
}

const podMode = 0o750;

/** Creates the manager of pods' data directories and cgroups on the target. */
export function createPodHostResources(deps: PodHostResourcesDeps) {
  const { host, rootDir, runtime } = deps;
  let cgroups: PodCgroups | undefined;
  const made = new Set<string>();
  const open = async (signal: AbortSignal): Promise<PodCgroups> => {
    const opened = await deps.cgroups(signal);
    if (cgroups) return cgroups;
    const isShared = opened.version === 2 && (await runtime.unsupportedReason?.("swapLimit", signal)) !== undefined;
    // Concurrent calls share one manager.
    cgroups ??= createPodCgroups({ ...deps, ...opened, swap: isShared ? deps.swap : undefined });
    return cgroups;
  };
  const makeCgroup = async (pod: AllocatedPod, empty: boolean, signal: AbortSignal) => {
    const groups = await open(signal);
    try {
      await groups.ensure(pod, empty, signal);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) throw error;
      const { layout } = await deps.cgroups(signal);
      const names = cgroupNames(podCgroup(pod.metadata.uid, qosClass(pod.spec), layout), layout.driver).join(" ");
      const message = `unable to ensure pod container exists: failed to create container for [${names}] : ${messageOf(error)}`;
      deps.events.event(podReference(pod), "Warning", "FailedCreatePodContainer", message);
      throw error;
    }
  };
  const makeDirectories = async (pod: AllocatedPod, signal: AbortSignal) => {
    const directory = podDirectory(rootDir, pod.metadata.uid);
    const directories = ["", "/volumes", "/plugins", "/containers"].map(
      (below): FileChange => ({ kind: "mkdir", path: directory + below, mode: podMode, parents: true }),
    );
    await host.fs.apply(directories, signal).catch((error: unknown) => {
      const message = `error making pod data directories: ${messageOf(error)}`;
      if (!signal.aborted && !hasCode(error, "unavailable"))
        deps.events.event(podReference(pod), "Warning", "Failed", message);
      throw error;
    });
  };
  return {
    /** Creates a pod's directories and cgroup, once. @param empty true if the runtime has no sandbox or container of the pod yet. */
    async prepare(pod: AllocatedPod, empty: boolean, signal: AbortSignal): Promise<void> {
      const { uid } = pod.metadata;
      if (made.has(uid)) return;
      await Promise.all([makeDirectories(pod, signal), makeCgroup(pod, empty, signal)]);
      made.add(uid);
    },
    /** Removes the cgroup of a pod whose containers are gone. Idempotent. */
    async release(uid: string, signal: AbortSignal): Promise<void> {
      made.delete(uid);
      await (await open(signal)).remove(uid, signal);
    },
    /** Sets the limits again on pod cgroups that were removed by others and possibly re-created by a runtime. */
    reapplyLimits: async (signal: AbortSignal) => cgroups?.reapplyLimits(signal),
    /** Access to pod cgroups for resizes. */
    groups: {
      wanted: (pod: Pod) => cgroups?.intendedLimits(pod) ?? {},
      isStale: (pod: Pod) => cgroups?.isStale(pod) === true,
      async read(pod: Pod, containerIds: readonly string[], signal: AbortSignal) {
        const groups = await open(signal);
        const { version, layout } = await deps.cgroups(signal);
        const path = podCgroup(pod.metadata.uid, qosClass(pod.spec), layout);
        const { isThere, limits, ...reading } = await readPodCgroup({ ...deps, version }, path, containerIds, signal);
        return { ...reading, ...(isThere && groups.has(pod) && { limits }) };
      },
      set: async (pod: Pod, limits: CgroupLimits, signal: AbortSignal) =>
        (await open(signal)).setLimits(pod, limits, signal),
    },
  };
}

interface PodCgroupReaderDeps {
  readonly host: Pick<Host, "run">;
  readonly runtime: Pick<Stats, "containerStats">;
  readonly version: 1 | 2;
}

/** Reads the limits of a pod's cgroup, and the memory usage of the pod and its containers, in one command; for a container whose cgroup is
 *  elsewhere, the runtime is asked. @param path absolute path of the pod's cgroup. @param ids of running containers. */
async function readPodCgroup(
  { host, runtime, version }: PodCgroupReaderDeps,
  path: string,
  ids: readonly string[],
  signal: AbortSignal,
) {
  const { groups } = await readCgroups(host, version, [{ path, containerIds: ids }], signal);
  const usage = (name: string): GroupUsage => groupUsage(groups.get(name) ?? new Map(), version);
  const used = new Map<string, number>();
  for (const id of ids) {
    const ends = [`/${id}`, `-${id}`, `-${id}.scope`];
    const own = [...groups.keys()].find((name) => ends.some((end) => name.endsWith(end)));
    const bytes =
      (own === undefined ? undefined : usage(own).memory?.usage) ?? (await reportedUsage(runtime, id, signal));
    if (bytes !== undefined) used.set(id, bytes);
  }
  const { memory, cpu } = usage(path);
  const limits: CgroupLimits = {
    ...(memory?.limit !== undefined && { memoryBytes: memory.limit }),
    ...(memory?.swapLimit !== undefined && { swapBytes: memory.swapLimit }),
    ...(cpu?.quotaUs !== undefined && { cpuQuotaUs: cpu.quotaUs }),
    ...(cpu?.periodUs !== undefined && { cpuPeriodUs: cpu.periodUs }),
    ...(cpu?.shares !== undefined && { cpuShares: cpu.shares }),
  };
  return { isThere: groups.has(path), limits, ...(memory && { memory: memory.usage }), containers: used };
}

async function reportedUsage(runtime: PodCgroupReaderDeps["runtime"], id: string, signal: AbortSignal) {
  const stats = await ignoreCode(runtime.containerStats(id, signal), "not_found", "unimplemented");
  const bytes = stats?.memory?.usageBytes ?? stats?.memory?.workingSetBytes;
  return bytes && Number(bytes.value);
}
