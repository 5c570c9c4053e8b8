import type { NodeView } from "../metrics/view.ts";
import { countResizes } from "../resources/resize-states.ts";
import { isFinished } from "../state/worker-ends.ts";
import type { NodeContext, Observed } from "./deps.ts";
import type { PodWork } from "./pods.ts";
import type { NodeServer } from "./server.ts";

interface Shown extends Pick<Observed, "agent"> {
  readonly work: Pick<PodWork, "manager" | "volumes">;
  readonly server: Pick<NodeServer, "certificate">;
}

/** The node's state for gauges. */
export function nodeView({ target, clientCertificate, hand }: NodeContext, { agent, work, server }: Shown): NodeView {
  const { asked, seen, worker, resize, reachable } = hand("metrics");
  return {
    pods: asked,
    mirrors: work.manager.mirrors,
    cache: seen,
    workers: () => worker.entries().map(([uid, view]) => ({ uid, ...view })),
    mounted: work.volumes.mounted,
    resizes: () =>
      countResizes(resize.entries().flatMap(([uid, state]) => (isFinished(worker.get(uid)?.phase) ? [] : [state]))),
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
