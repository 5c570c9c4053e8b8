import { type CgroupLimits, type Cgroups, openCgroups } from "../host/cgroups.ts";
import { cgroupVersion } from "../host/exists.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { createSharedWork } from "../lib/shared-work.ts";
import { timed } from "../lib/timed.ts";
import type { CgroupMeasures, CgroupOperation } from "../measures.ts";
import type { Pod } from "../objects.ts";
import type { PodStore, RuntimePod } from "../pipeline.ts";
import { type CgroupLayout, podCgroup } from "../pod/cgroup-path.ts";
import { qosClass } from "../pod/qos.ts";
import type { ResourceSettings } from "../pod/resources.ts";
import type { AskedPod, GivenPod } from "../roles.ts";
import type { FileChange, Host } from "../seams/host.ts";
import type { Stats } from "../seams/runtime.ts";
import { readPodGroup } from "./group-reading.ts";
import { type PodCgroups, createPodCgroups } from "./pod-cgroups.ts";

export interface PodGroundDeps {
  readonly host: Host;
  readonly rootDir: string;
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly settings: ResourceSettings;
  readonly podPidsLimit: number;
  readonly pods: PodStore;
  readonly runtime: Pick<Stats, "containerStats">;
  /** The pod with what it has been given in place of what it asks for. */
  readonly allocated: (pod: AskedPod) => GivenPod;
  readonly measures: CgroupMeasures;
  readonly clock: Clock;
  readonly log: Logger;
}

const podMode = 0o750;
/** The runtime may take so long to tell its cgroup driver, milliseconds. */
const longestMs = 120_000;

/** A pod's directories and cgroup on the target. */
export function createPodGround(deps: PodGroundDeps) {
  const { host, rootDir, layout } = deps;
  let cgroups: PodCgroups | undefined;
  const made = new Set<string>();
  const opening = createSharedWork<PodCgroups>(deps.clock, longestMs);
  const openOnce = async (signal: AbortSignal): Promise<PodCgroups> => {
    const opened = measured(await openCgroups(host, await cgroupVersion(host.fs, signal), signal), deps);
    cgroups = createPodCgroups({ ...deps, cgroups: opened, layout: await layout(signal) });
    return cgroups;
  };
  // Those that pods make side by side are known to one and the same.
  const open = async (signal: AbortSignal): Promise<PodCgroups> => cgroups ?? opening(openOnce, signal);
  return {
    /** Makes them; does nothing for a pod whose ground stands. @param empty nothing of the pod runs yet. */
    async prepare(pod: GivenPod, empty: boolean, signal: AbortSignal): Promise<void> {
      const { uid } = pod.metadata;
      if (made.has(uid)) return;
      const directory = `${rootDir}/pods/${uid}`;
      const directories = ["", "/volumes", "/plugins", "/containers"].map(
        (below): FileChange => ({ do: "mkdir", path: directory + below, mode: podMode, parents: true }),
      );
      await Promise.all([
        host.fs.apply(directories, signal),
        open(signal).then((groups) => groups.ensure(pod, empty, signal)),
      ]);
      made.add(uid);
    },
    /** Gives back the cgroup of a pod whose containers are gone. Safe to repeat. */
    async release(uid: string, signal: AbortSignal): Promise<void> {
      made.delete(uid);
      await (await open(signal)).remove(uid, signal);
    },
    /** Cgroups of pods that have one. */
    groups: {
      wanted: (pod: Pod) => cgroups?.wanted(pod) ?? {},
      isStale: (pod: Pod) => cgroups?.isStale(pod) === true,
      async read(pod: Pod, observed: RuntimePod, signal: AbortSignal) {
        const groups = await open(signal);
        const version = await cgroupVersion(host.fs, signal);
        const path = podCgroup(pod.metadata.uid, qosClass(pod.spec), await layout(signal));
        const { isThere, limits, ...reading } = await readPodGroup({ ...deps, version }, path, observed, signal);
        return { ...reading, ...(isThere && groups.has(pod) && { limits }) };
      },
      set: async (pod: Pod, limits: CgroupLimits, signal: AbortSignal) => (await open(signal)).set(pod, limits, signal),
    },
  };
}

/** The same cgroups; how long changes of them take is told. */
function measured(cgroups: Cgroups, { measures, clock }: Pick<PodGroundDeps, "measures" | "clock">): Cgroups {
  const timing = (operation: CgroupOperation, change: () => Promise<void>): Promise<void> =>
    timed(clock, change, (ms) => measures.changed(operation, ms));
  return {
    ...cgroups,
    make: (...of) => timing("create", () => cgroups.make(...of)),
    ensure: (...of) => timing("update", () => cgroups.ensure(...of)),
    remove: (...of) => timing("destroy", () => cgroups.remove(...of)),
  };
}
