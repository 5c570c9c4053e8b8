import { createAdmission } from "../admission/chain.ts";
import { createPreemption } from "../admission/preemption.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { Node } from "../objects.ts";
import type { Admission } from "../pipeline.ts";
import type { ResizeDecider, Resizes } from "../resizes.ts";
import { type Allocations, createAllocations } from "../resources/allocations.ts";
import { createResizes } from "../resources/resizes.ts";
import { createTargetFacts } from "../runtime/target-facts.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import { limitedSwap } from "./settings.ts";

/** Delay and interval of retries of pending resizes: the kubelet's, milliseconds. */
const firstRetryMs = 30_000;
const retryMs = 180_000;

/** Admission, allocations and resizes of pods. */
export interface Allocating {
  readonly admission: Admission;
  readonly allocations: Allocations;
  readonly resizes: Resizes & ResizeDecider;
  /** Facts about the target, read once. */
  readonly facts: ReturnType<typeof createTargetFacts>;
}

/** Creates admission, allocations and resizes. */
export function allocateResources(context: NodeContext, cluster: Cluster, observed: Observed): Allocating {
  const { config, target, metrics, clock, log, hand } = context;
  const { events } = cluster;
  const admission = createNodeAdmission(context, cluster, observed);
  const { seen, allocation } = hand("allocations");
  const allocations = createAllocations({
    fs: target.host.fs,
    rootDir: config.rootDir,
    cache: seen,
    entries: allocation,
    clock,
    log,
  });
  const { asked: pods, ...columns } = hand("resizes");
  const { resizes: measures } = metrics.measures;
  const facts = createTargetFacts(target.host.fs);
  const swaps = async (signal: AbortSignal): Promise<boolean> => {
    if (!limitedSwap(config.kubelet)) return false;
    const { cgroupV2, swapController } = await facts(signal);
    return cgroupV2 && swapController;
  };
  const resizes = createResizes({ ...columns, pods, allocations, admission, swaps, events, measures, clock, log });
  return { admission, allocations, resizes, facts };
}

/** Creates the admission chain, which admits pods and resizes. */
function createNodeAdmission(
  { config: { kubelet, nodeName }, client, metrics: { measures }, clock, log, hand }: NodeContext,
  { nodes, events }: Cluster,
  { agent, managers }: Observed,
): Admission {
  const freshNode = (signal: AbortSignal) => client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal });
  const { pressure: cell, goingDown } = hand("admission");
  const pressure = () => cell.get()?.pressure;
  const makeRoom = createPreemption({ ...hand("preemption"), events, measures, clock, log });
  return createAdmission({
    ...kubelet,
    ...agent,
    pressure,
    node: nodes,
    freshNode,
    managers,
    makeRoom,
    goingDown,
    log,
  });
}

/** Retries pending resizes periodically. */
export function retryResizes({ hand, clock, log }: NodeContext): Service {
  const { weigh } = hand("resizeRetry").signals;
  const options = { name: "resizes", everyMs: retryMs, firstMs: firstRetryMs, clock, log };
  return patrol(options, () => weigh.send("periodic_retry"));
}
