import type { NodeView } from "../metrics/node-gauges.ts";
import { countResizes } from "../allocation/resize-states.ts";
import { isFinished } from "../state/worker-phases.ts";
import type { NodeContext, ObservedTarget } from "./deps.ts";
import type { PodPipeline } from "./pods.ts";
import type { NodeServer } from "./server.ts";

interface NodeViewParts extends Pick<ObservedTarget, "agent" | "cpus"> {
  readonly pipeline: Pick<PodPipeline, "manager" | "volumes">;
  readonly server: Pick<NodeServer, "certificate">;
}

/** The node's state for gauges. */
export function createNodeView(
  { target, clientCertificate, hand }: NodeContext,
  { agent, cpus, pipeline, server }: NodeViewParts,
): NodeView {
  const { desired, podCache, worker, resize, reachable } = hand("metrics");
  return {
    pods: desired,
    mirrors: pipeline.manager.mirrorPods,
    cache: podCache,
    workers: () => worker.entries().map(([uid, view]) => ({ uid, ...view })),
    mounted: pipeline.volumes.mounted,
    resizes: () =>
      countResizes(resize.entries().flatMap(([uid, state]) => (isFinished(worker.get(uid)?.phase) ? [] : [state]))),
    cpus,
    cgroupVersion: agent.facts.cgroupVersion,
    servingCertificate: server.certificate,
    clientCertificate,
    ...(target.link && { link: target.link }),
    reachable: () => {
      const verdict = reachable.get();
      return verdict && verdict.status !== "Unknown" ? verdict.status === "True" : undefined;
    },
  };
}
