import type { NodeConfig } from "../config/node-config.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Measures } from "../measures.ts";
import type { NodeAgent } from "../node/node-agent.ts";
import type { RuntimeHealth } from "../node/runtime-health.ts";
import { podSettings } from "./settings.ts";
import type {
  DeviceSource,
  EventSink,
  ObjectCache,
  PodRuntime,
  PodStore,
  Presence,
  RuntimeClasses,
  ServiceLister,
  TokenSource,
} from "../pipeline.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { Allocations } from "../resources/allocations.ts";
import { createCgroupLayout } from "../resources/cgroup-layout.ts";
import { createPodGround } from "../resources/pod-ground.ts";
import { createCrashLoop } from "../runtime/crash-loop.ts";
import { createHooks } from "../runtime/hooks.ts";
import { createImagePuller } from "../runtime/images/puller.ts";
import { type PodRuntimeDeps, createPodRuntime } from "../runtime/pod-runtime.ts";
import { createPreparer } from "../runtime/prepare.ts";
import { createTargetFacts } from "../runtime/target-facts.ts";
import type { Target } from "../seams/provider.ts";
import type { PodGround } from "../sync/passes.ts";
import { type Volumes, createVolumes } from "../volumes/volumes.ts";

export interface RuntimeParts {
  readonly config: NodeConfig;
  readonly target: Target;
  readonly ownerLabels: Readonly<Record<string, string>>;
  readonly objects: ObjectCache;
  readonly tokens: TokenSource;
  readonly services: ServiceLister;
  readonly runtimeClasses: RuntimeClasses;
  readonly health: Pick<RuntimeHealth, "handlers">;
  readonly devices: DeviceSource;
  readonly agent: NodeAgent;
  readonly pods: PodStore;
  readonly allocations: Allocations;
  readonly events: EventSink;
  readonly presence?: Presence;
  readonly probes: PodRuntimeDeps["probes"];
  readonly isRestartingAll: PodRuntimeDeps["isRestartingAll"];
  readonly clock: Clock;
  readonly targetClock: TargetClock;
  readonly measures: Measures;
  readonly log: Logger;
}

export interface RuntimeStages {
  readonly volumes: Volumes;
  readonly ground: PodGround;
  readonly podRuntime: PodRuntime & { forget(uid: string): void };
  /** Where pods' cgroups lie. */
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
}

/** What turns a pod's spec into volumes, cgroups, images and containers on the target. */
export function composeRuntime(parts: RuntimeParts): RuntimeStages {
  const { config, target, agent, allocations, events, clock, targetClock, measures, log } = parts;
  const { host, runtime } = target;
  const { kubelet, nodeName, rootDir } = config;
  const { allocatable } = agent;
  const common = { ...parts, host, runtime, fs: host.fs, images: runtime };
  const volumes = createVolumes({ ...common, measures: measures.volumes, nodeName, rootDir, allocatable });
  const layout = createCgroupLayout({ runtime, kubelet, clock, log });
  const { network } = target;
  const settings = {
    ...podSettings(config, parts.ownerLabels),
    ...(network && { network }),
  };
  const preparer = createPreparer({
    ...common,
    settings,
    addresses: agent,
    volumes,
    async handlerFeatures({ spec: { runtimeClassName } }, signal) {
      // The default handler has no name.
      const handler = runtimeClassName ? await parts.runtimeClasses.handler(runtimeClassName, signal) : "";
      return parts.health.handlers().find(({ name }) => name === handler)?.features;
    },
    facts: createTargetFacts(host.fs),
    cgroups: layout,
    allocatable,
  });
  const puller = createImagePuller({
    ...common,
    measures: measures.pulls,
    serialize: kubelet.serializeImagePulls,
    maxParallel: kubelet.maxParallelImagePulls,
    qps: kubelet.registryPullQPS,
    burst: kubelet.registryBurst,
  });
  const ground = createPodGround({
    host,
    runtime,
    allocated: allocations.of,
    rootDir,
    layout,
    settings,
    podPidsLimit: kubelet.podPidsLimit,
    pods: parts.pods,
    measures: measures.cgroups,
    clock,
    log,
  });
  const podRuntime = createPodRuntime({
    ...common,
    ...preparer,
    measures: measures.starts,
    hooks: createHooks(common),
    inForce: allocations,
    resizes: measures.resizes,
    groups: ground.groups,
    uninterrupted: new AbortController().signal,
    crashLoop: createCrashLoop({
      clock,
      targetClock,
      events,
      maxMs: kubelet.crashLoopBackOff.maxContainerRestartPeriod,
    }),
    lookForImage: puller.look,
    ensureImages: async ({ pod, container, sandbox, seenImage }, signal) => ({
      volumes: await puller.ensureVolumes(pod, container, sandbox.config, signal),
      ...(await puller.ensure(pod, container, sandbox.config, signal, seenImage)),
    }),
  });
  return { volumes, ground, podRuntime, layout };
}
