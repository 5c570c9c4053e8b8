import { isRestartingAll } from "../pod/restart-all.ts";
import type { Probes } from "../probes/probes.ts";
import { createCrashLoop } from "../runtime/crash-loop.ts";
import { createHooks } from "../runtime/hooks.ts";
import { createImagePuller } from "../runtime/images/puller.ts";
import { createPodRuntime } from "../runtime/pod-runtime.ts";
import { createPreparer } from "../runtime/prepare.ts";
import type { PodRuntime } from "../sync/ports.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { AllocationStages } from "./allocation.ts";
import { type CgroupStages, createCgroupStages } from "./cgroups.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { type ImageRecords, pullDeps, createImageRecords } from "./images.ts";
import type { Placeholders } from "./placeholders.ts";
import { exclusiveCpuSettings } from "./resource-managers.ts";
import { podSettings } from "./settings.ts";
import { createNodeVolumes } from "./volumes.ts";

export interface RuntimeStages extends Pick<CgroupStages, "hostResources" | "nodeAllocatable">, ImageRecords {
  readonly volumes: Volumes;
  readonly podRuntime: PodRuntime;
}

interface RuntimeParts extends AllocationStages {
  readonly probes: Probes;
  readonly placeholders: Placeholders;
}

/** Creates the components that create a pod's volumes, cgroups, images and containers on the target. */
export function createRuntimeStages(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  parts: RuntimeParts,
): RuntimeStages {
  const { config, target, clock, log, hand } = context;
  const { agent, targetClock, managers, waitForTarget, serviceTunnel } = observed;
  const { objects, tokens, services, runtimeClasses, events } = cluster;
  const { allocations } = parts;
  const { measures } = context.metrics;
  const { host, runtime } = target;
  const { kubelet } = config;
  const { allocatable } = agent;
  const { status, starts } = hand("podRuntime");
  const ownImages = createImageRecords(context);
  const images = ownImages.pulled?.images ?? runtime;
  const world = { host, runtime, fs: host.fs, images, waitForTarget, clock, targetClock, log };
  const common = { ...world, objects, tokens, services, runtimeClasses, events, managers };
  const volumes = createNodeVolumes(context, cluster, observed);
  const { network } = target;
  const settings = {
    ...podSettings(config, observed.ownerLabels),
    ...exclusiveCpuSettings(context, observed.cpus),
    ...(network && { network }),
  };
  const preparer = createPreparer({
    ...common,
    settings,
    addresses: agent,
    volumes,
    async handlerFeatures({ spec: { runtimeClassName } }, signal) {
      // The default handler has an empty name.
      const handler = runtimeClassName ? await runtimeClasses.handler(runtimeClassName, signal) : "";
      return observed.health.handlers()?.find(({ name }) => name === handler)?.features;
    },
    facts: parts.facts,
    cgroups: observed.cgroups.layout,
    allocatable,
  });
  const puller = createImagePuller({ ...common, ...pullDeps(context, cluster, ownImages) });
  const { hostResources, nodeAllocatable } = createCgroupStages(context, cluster, observed, { ...parts, settings });
  const podRuntime = createPodRuntime({
    ...common,
    ...preparer,
    withStableFiles: volumes.withStableFiles,
    starts,
    probes: parts.probes,
    isRestartingAll: (uid) => isRestartingAll(status.get(uid)),
    measures: measures.starts,
    hooks: createHooks(common),
    ...(serviceTunnel && { tunnel: serviceTunnel }),
    inForce: allocations,
    resizes: measures.resizes,
    groups: hostResources.groups,
    uninterrupted: new AbortController().signal,
    crashLoop: createCrashLoop({
      clock,
      targetClock,
      events,
      maxMs: kubelet.crashLoopBackOff.maxContainerRestartPeriod,
    }),
    findPresentImage: puller.findPresent,
    ensureImages: async ({ pod, container, sandbox, presentImage }, signal) => ({
      volumes: await puller.ensureVolumes(pod, container, sandbox.config, signal),
      ...(await puller.ensure(pod, container, sandbox.config, signal, presentImage)),
    }),
  });
  return { volumes, hostResources, nodeAllocatable, podRuntime, ...ownImages };
}
