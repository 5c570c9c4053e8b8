import { createAdmission } from "../admission/chain.ts";
import { createPreemption } from "../admission/preemption.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Service } from "../lib/service-group.ts";
import type { Node } from "../objects.ts";
import type { Admission } from "../pipeline.ts";
import { type Allocations, createAllocations } from "../allocation/allocations.ts";
import { createResizes } from "../allocation/resizes.ts";
import { createTargetFacts } from "../runtime/target-facts.ts";
import type { ResizeDecider, Resizes } from "../sync/ports.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { limitedSwap } from "./settings.ts";

/** Delay and interval of retries of pending resizes: the kubelet's, milliseconds. */
const firstRetryDelayMs = 30_000;
const retryIntervalMs = 180_000;

/** Admission, allocations and resizes of pods. */
export interface AllocationStages {
  readonly admission: Admission;
  readonly allocations: Allocations;
  readonly resizes: Resizes & ResizeDecider;
  /** Facts about the target, read once. */
  readonly facts: ReturnType<typeof createTargetFacts>;
}

/** Creates admission, allocations and resizes. */
export function createAllocationStages(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
): AllocationStages {
  const { config, target, metrics, clock, log, hand, privateColumn } = context;
  const { events } = cluster;
  const admission = createNodeAdmission(context, cluster, observed);
  const allocations = createAllocations({
    fs: target.host.fs,
    rootDir: config.rootDir,
    cache: hand("allocations").podCache,
    privateColumn,
    clock,
    log,
  });
  const { desired: pods, ...columns } = hand("resizes");
  const { resizes: measures } = metrics.measures;
  const facts = createTargetFacts(target.host.fs);
  const usesSwap = async (signal: AbortSignal): Promise<boolean> => {
    if (!limitedSwap(config.kubelet)) return false;
    const { cgroupV2, swapController } = await facts(signal);
    return cgroupV2 && swapController;
  };
  const resizes = createResizes({
    ...columns,
    privateColumn,
    pods,
    allocations,
    admission,
    usesSwap,
    hasStaticCpus: observed.cpus !== undefined,
    events,
    measures,
    clock,
    log,
  });
  return { admission, allocations, resizes, facts };
}

/** Creates the admission chain, which admits pods and resizes. */
function createNodeAdmission(
  { config: { kubelet, nodeName }, client, metrics: { measures }, clock, log, hand }: NodeContext,
  { nodes, events }: Cluster,
  { agent, managers }: ObservedTarget,
): Admission {
  const fetchNode = (signal: AbortSignal) => client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal });
  const { pressure: cell, shuttingDown } = hand("admission");
  const pressure = () => cell.get()?.pressure;
  const preempt = createPreemption({ ...hand("preemption"), events, measures, clock, log });
  return createAdmission({
    ...kubelet,
    ...agent,
    pressure,
    node: nodes,
    fetchNode,
    managers,
    preempt,
    shuttingDown,
    log,
  });
}

/** Retries pending resizes periodically. */
export function createResizeRetry({ hand, clock, log }: NodeContext): Service {
  const { retryPendingResizes } = hand("resizeRetry").signals;
  const options = { name: "resizes", intervalMs: retryIntervalMs, initialDelayMs: firstRetryDelayMs, clock, log };
  return runPeriodically(options, () => retryPendingResizes.send("periodic_retry"));
}
