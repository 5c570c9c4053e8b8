import { type Runnable, onceThenIdle, runGroup, untilAborted } from "../lib/runnables.ts";
import { measuredRuntime } from "../metrics/runtime-calls.ts";
import type { Tunnels } from "../remotedialer/tunnels.ts";
import { createReachability } from "../node/reachability.ts";
import { createSignals } from "../state/signals.ts";
import { createApiServerTunnels, createEndpointPublishing, observeCluster } from "./cluster.ts";
import type { KubeletDeps, NodeContext } from "./deps.ts";
import { type PodPipeline, createPodPipeline } from "./pods.ts";
import { type NodeServer, createNodeIntrospection, createNodeServer, createNodeView } from "./server.ts";
import { sourceNames } from "./settings.ts";
import { observeTarget } from "./target.ts";
import { tracedRuntime } from "../tracing/runtime-calls.ts";
import { createNodeState, wireActors } from "./wiring.ts";

/** Runs one node until the signal aborts, or until a remote target has rebooted, has changed, or was used by another node while it was
 *  unreachable. State and signals are created first; kubelet/wiring.ts lists the parts of each actor. Pods keep running afterwards.
 *  @returns `again` if the node should be restarted.
 *  @throws the first failure of a service, such as a port in use, in one sentence. */
export async function runKubelet(deps: KubeletDeps, stop: AbortSignal): Promise<"stopped" | "again"> {
  const { target, metrics, tracer, report, clock } = deps;
  const restart = new AbortController();
  const signal = AbortSignal.any([stop, restart.signal]);
  const { state, privateColumn, onEnd } = createNodeState(clock, sourceNames(deps));
  const calls = tracer.isOn ? tracedRuntime(target.runtime, tracer) : target.runtime;
  const runtime = measuredRuntime(calls, metrics.measures.runtime, clock);
  const partsOf = wireActors(state, createSignals(), deps);
  const context: NodeContext = { ...deps, target: { ...target, runtime }, partsOf, privateColumn, onEnd, signal };

  const cluster = observeCluster(context);
  const observed = await observeTarget(context, cluster, () => restart.abort());
  const pipeline = createPodPipeline(context, cluster, observed);
  const { stats } = pipeline;
  const server = await createNodeServer(context, cluster, observed, pipeline);
  metrics.show(createNodeView(context, cluster, observed, pipeline, server));
  report.onRunning(createNodeIntrospection(context, cluster, observed, stats, server));

  const stages = [
    ...cluster.running,
    ...pipeline.eviction,
    ...observed.running,
    ...pipeline.running,
    ...createEndpointPublishing(context, cluster),
  ];
  const tunnels = createApiServerTunnels(context);
  const reporting = [readiness(context, server), ...liveness(context, pipeline), ...selfTest(context, server, tunnels)];
  try {
    await runGroup([...server.running, ...(tunnels ? [tunnels] : []), ...stages, ...reporting], signal);
  } finally {
    report.onRunning(undefined);
  }
  return restart.signal.aborted && !stop.aborted ? "again" : "stopped";
}

/** Marks the node as ready once the kubelet API can answer requests about pods. */
function readiness({ config, readiness: process, partsOf }: NodeContext, { certified }: NodeServer): Runnable {
  const { sourcesSynced } = partsOf("kubeletServer");
  return onceThenIdle("readiness", async (signal) => {
    await untilAborted(Promise.all([sourcesSynced.reached, certified]), signal);
    process.markReady(config.nodeName);
  });
}

/** Adds the sync loop of a node on this machine to the liveness check of the process. */
function liveness(
  { target: { link }, liveness: process }: NodeContext,
  { syncLoopHealth }: Pick<PodPipeline, "syncLoopHealth">,
): readonly Runnable[] {
  return link ? [] : [onceThenIdle("liveness", () => process.watch(syncLoopHealth))];
}

/** Creates the self-test of the connection from the API server to the kubelet API; only in a Pod, whose service account may run it. */
function selfTest(
  { account, config, partsOf }: NodeContext,
  { pendingCertificateRequest }: NodeServer,
  tunnels: Tunnels | undefined,
): readonly Runnable[] {
  if (!account || !config.kubelet.enableServer) return [];
  const reachability = createReachability({
    ...partsOf("selfTest"),
    client: account.client,
    nodeName: config.nodeName,
    waiting: pendingCertificateRequest,
    tunnels: () => tunnels?.connected() ?? [],
  });
  return [reachability];
}
