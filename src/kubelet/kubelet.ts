import { type Service, onceThenIdle, runGroup, untilAborted } from "../lib/service-group.ts";
import { measuredRuntime } from "../metrics/runtime-calls.ts";
import type { Tunnels } from "../egress/tunnels.ts";
import { createReachability } from "../node/reachability.ts";
import { createSignals } from "../state/signals.ts";
import { observeCluster } from "./cluster.ts";
import type { KubeletDeps, NodeContext, Observed } from "./deps.ts";
import { egressOf } from "./egress.ts";
import { nodeView } from "./view.ts";
import { createNodeState } from "./node-state.ts";
import { workOnPods } from "./pods.ts";
import { publishing } from "./publishing.ts";
import { type NodeServer, createNodeServer } from "./server.ts";
import { sourceNames, syncLoopPatience } from "./settings.ts";
import { observeTarget } from "./target.ts";
import { tracedRuntime } from "../tracing/runtime-calls.ts";
import { handOut } from "./wiring.ts";
import { nodeWork } from "./work.ts";

/** Runs one node until the signal aborts, or until a remote target has rebooted, or has changed or been used by another node while it
 *  was unreachable. State and signals are created first; kubelet/wiring.ts says which actor gets which. Pods keep running when
 *  it ends.
 *  @returns `again` if the node should be restarted.
 *  @throws the first failure of a service, such as a port in use, in one sentence. */
export async function runKubelet(deps: KubeletDeps, given: AbortSignal): Promise<"stopped" | "again"> {
  const { target, metrics, tracer, report, clock } = deps;
  const anew = new AbortController();
  const signal = AbortSignal.any([given, anew.signal]);
  const { state, onEnd } = createNodeState(clock, sourceNames(deps));
  const calls = tracer.isOn ? tracedRuntime(target.runtime, tracer) : target.runtime;
  const runtime = measuredRuntime(calls, metrics.measures.runtime, clock);
  const hand = handOut(state, createSignals());
  const context: NodeContext = { ...deps, target: { ...target, runtime }, hand, onEnd, signal };

  const cluster = observeCluster(context);
  const observed = await observeTarget(context, cluster, () => anew.abort());
  const work = workOnPods(context, cluster, observed);
  const server = await createNodeServer(context, { cluster, observed, stats: work.stats });
  metrics.show(nodeView(context, { agent: observed.agent, work, server }));
  report.works(nodeWork(context, { cluster, observed, stats: work.stats, server }));

  const stages = [...cluster.running, ...observed.running, ...work.running, ...publishing(context, cluster)];
  const egress = egressOf(context);
  const telling = [readiness(context, server), ...liveness(context, observed), ...selfTest(context, server, egress)];
  try {
    await runGroup([...server.running, ...(egress ? [egress] : []), ...stages, ...telling], signal);
  } finally {
    report.works(undefined);
  }
  return anew.signal.aborted && !given.aborted ? "again" : "stopped";
}

/** Marks the node as ready once the kubelet API can answer requests about pods. */
function readiness({ config, readiness: process, hand }: NodeContext, { certified }: NodeServer): Service {
  const { takenIn } = hand("kubeletServer");
  return onceThenIdle("readiness", async (signal) => {
    await untilAborted(Promise.all([takenIn.reached, certified]), signal);
    process.settled(config.nodeName);
  });
}

/** Adds the sync loop of a node on this machine to the liveness check of the process. */
function liveness(
  { config, target: { link }, liveness: process }: NodeContext,
  { pleg }: Observed,
): readonly Service[] {
  return link ? [] : [onceThenIdle("liveness", () => process.watch(() => pleg.stalled(syncLoopPatience(config))))];
}

/** Creates the self-test of the connection from the API server to the kubelet API; only in a Pod, whose service account may run it. */
function selfTest(
  { account, config, clock, log, hand }: NodeContext,
  { waiting }: NodeServer,
  egress: Tunnels | undefined,
): readonly Service[] {
  if (!account || !config.kubelet.enableServer) return [];
  const { client } = account;
  const { nodeName } = config;
  const tunnels = () => egress?.standing() ?? [];
  return [createReachability({ ...hand("selfTest"), client, nodeName, waiting, tunnels, clock, log })];
}
