import { type CgroupReadings, readCgroups, type CgroupRequest } from "../host/cgroup-readings.ts";
import type { TargetClock } from "../host/target-clock.ts";
import { throwIfAborted } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { PodCache } from "../pipeline.ts";
import { type CgroupLayout, podCgroup, qosCgroup } from "../pod/cgroup-path.ts";
import type { QosClass } from "../pod/qos.ts";
import type { Host } from "../seams/host.ts";
import type { Stats } from "../seams/runtime.ts";
import { bootTime, deviceNames, type Rate, sampleOf } from "./parse-sample.ts";
import { type RunningPod, runningPods } from "./running-pods.ts";
import { type RuntimeUsage, readRuntimeUsage } from "./runtime-usage.ts";
import type { Sample } from "./sample.ts";

export interface SamplerDeps extends ClockAndLog {
  readonly host: Pick<Host, "run">;
  readonly runtime: Stats;
  readonly podCache: PodCache;
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly cgroupVersion: 1 | 2;
  readonly targetClock: Pick<TargetClock, "toOurs">;
}

const qosClasses: readonly QosClass[] = ["Guaranteed", "Burstable", "BestEffort"];
const nothing: RuntimeUsage = { containers: new Map(), pods: new Map(), networks: new Map() };

/** Measures the machine, pods and containers. Most values are read from the target's cgroups with one command; the runtime is
 *  queried for containers whose cgroups are not found. */
export function createSampler(deps: SamplerDeps): (signal: AbortSignal) => Promise<Sample> {
  const { host, podCache, cgroupVersion: version, clock } = deps;
  const rates = createRates();
  let bootedAt: number | undefined;
  return async (signal) => {
    const layout = await deps.layout(signal);
    const running = runningPods(podCache);
    const shared = qosClasses.map((tier) => qosCgroup(tier, layout));
    const begun = clock.monotonic();
    const wanted = [...["/", ...shared].map((path) => ({ path })), ...running.flatMap((pod) => groupsOf(pod, layout))];
    const readings = await readCgroups(host, version, wanted, signal);
    const at = clock.now();
    const between = (begun + clock.monotonic()) / 2;
    const containers = containerGroups(running, readings);
    const missing = running.some((pod) => pod.containers.some(({ id }) => !containers.has(id)));
    const runtimeUsage = missing ? await queryRuntime(deps, signal) : nothing;
    bootedAt ??= bootTime(readings, at);
    return {
      at,
      bootedAt,
      devices: deviceNames(readings),
      ...sampleOf({
        readings,
        version,
        running,
        podPath: ({ uid }) => pathsOf(uid, layout).find((path) => readings.groups.has(path)),
        containers,
        shared,
        runtimeUsage,
        rate: rates.next(between),
        toOurs: deps.targetClock.toOurs,
      }),
    };
  };
}

/** The runtime's statistics; empty if the query fails, since the values from cgroups are still useful. */
async function queryRuntime({ runtime, log }: SamplerDeps, signal: AbortSignal): Promise<RuntimeUsage> {
  try {
    return await readRuntimeUsage(runtime, signal);
  } catch (error) {
    throwIfAborted(signal);
    log.info({ err: error }, "cannot query the runtime for usage of containers without cgroups");
    return nothing;
  }
}

/** Usage between consecutive samples. */
function createRates(): { next(atMs: number): Rate } {
  let before = { atMs: 0, usageNs: new Map<string, number>() };
  return {
    next(atMs) {
      const last = before;
      const usageNs = new Map<string, number>();
      before = { atMs, usageNs };
      return (key, now) => {
        usageNs.set(key, now);
        const then = last.usageNs.get(key);
        if (then === undefined || now < then || atMs <= last.atMs) return undefined;
        return Math.round(((now - then) / (atMs - last.atMs)) * 1000);
      };
    },
  };
}

/** A pod's QoS class is in its spec, which may be gone, so its cgroup is searched for in each class. */
function groupsOf({ uid, sandbox, containers, onHostNetwork }: RunningPod, layout: CgroupLayout): CgroupRequest[] {
  const containerIds = [...(sandbox ? [sandbox] : []), ...containers].map(({ id }) => id);
  const networkOf = onHostNetwork ? undefined : sandbox?.id;
  return pathsOf(uid, layout).map((path) => ({ path, containerIds, ...(networkOf !== undefined && { networkOf }) }));
}

function pathsOf(uid: string, layout: CgroupLayout): readonly string[] {
  return layout.perQos ? qosClasses.map((tier) => podCgroup(uid, tier, layout)) : [];
}

/** Paths of containers' cgroups by ID: `/…/pod1/ID`, CRI-O's `/…/pod1/crio-ID`, or under systemd `/…/cri-containerd-ID.scope`. */
function containerGroups(pods: readonly RunningPod[], { groups }: CgroupReadings): ReadonlyMap<string, string> {
  const ids = new Set(pods.flatMap(({ sandbox, containers }) => [sandbox?.id, ...containers.map(({ id }) => id)]));
  const found = new Map<string, string>();
  for (const path of groups.keys()) {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const id = ids.has(name) ? name : /-([^-]+?)(?:\.scope)?$/.exec(name)?.[1];
    if (id !== undefined && ids.has(id)) found.set(id, path);
  }
  return found;
}
