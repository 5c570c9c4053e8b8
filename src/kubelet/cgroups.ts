import type { Service } from "../lib/service-group.ts";
import { createNodeAllocatable } from "../resources/node-allocatable.ts";
import { createNodeCgroups } from "../resources/node-cgroups.ts";
import { pageSizes } from "../resources/node-share.ts";
import { createPodGround } from "../resources/pod-ground.ts";
import type { PodSettings } from "../runtime/prepare.ts";
import type { CgroupLayout } from "../pod/cgroup-path.ts";
import type { Allocating } from "./allocation.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import { enforcement } from "./settings.ts";

/** The node's cgroups. */
export interface ComposedCgroups {
  /** Directories and cgroups of pods. */
  readonly ground: ReturnType<typeof createPodGround>;
  /** Shares of all pods together, and of the machine's other processes. */
  readonly nodeAllocatable: Service;
}

interface CgroupParts extends Pick<Allocating, "allocations"> {
  readonly layout: (signal: AbortSignal) => Promise<CgroupLayout>;
  readonly settings: PodSettings;
}

/** Builds the cgroups of pods, of their quality of service classes, and of all of them. */
export function composeCgroups(
  { config, target, metrics, clock, log, hand }: NodeContext,
  { events }: Cluster,
  { agent, presence }: Observed,
  { allocations, layout, settings }: CgroupParts,
): ComposedCgroups {
  const { host, runtime } = target;
  const { kubelet, nodeName, rootDir } = config;
  const { asked, worker } = hand("cgroups");
  const sizes = pageSizes(agent.facts);
  const cgroups = createNodeCgroups({
    host,
    layout,
    pods: asked,
    worker,
    allocated: allocations.of,
    pageSizes: sizes,
    measures: metrics.measures.cgroups,
    clock,
  });
  const { podPidsLimit } = kubelet;
  const ground = createPodGround({
    host,
    rootDir,
    cgroups,
    settings,
    podPidsLimit,
    pageSizes: sizes,
    runtime,
    log,
  });
  const nodeAllocatable = createNodeAllocatable({
    cgroups,
    capacity: agent.facts,
    enforcement: enforcement(config),
    nodeName,
    events,
    ...(presence && { presence }),
    clock,
    log,
  });
  return { ground, nodeAllocatable };
}
