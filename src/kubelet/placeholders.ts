import { daemonSetChoices } from "../config/node-config.ts";
import { type Service, onceThenIdle } from "../lib/service-group.ts";
import { podNetworkAnnotation } from "../network/decision.ts";
import type { NodeSource, RuntimePod } from "../pipeline.ts";
import { type DaemonSets, type Standing, daemonSetsAnnotation, standingOf } from "../pod/daemon-sets.ts";
import type { AskedPod } from "../roles.ts";
import { type Target, hasOwnNetwork } from "../seams/provider.ts";
import type { Cluster, NodeContext } from "./deps.ts";

/** Which pods of DaemonSets the node runs, and for which it shows placeholders. */
export interface Placeholders {
  /** @param seen the pod as the runtime has it. */
  standingOf(pod: AskedPod, seen: RuntimePod | undefined): Standing;
  /** A placeholder stands for the pod. */
  standsFor(pod: AskedPod): boolean;
  /** The pods that are none. */
  without(pods: readonly AskedPod[]): readonly AskedPod[];
  readonly running: readonly Service[];
}

/** Annotations with which a Node is registered: where its pods have no network of the cluster's, or where that is not known, it begins
 *  without DaemonSets; where they are isolated it says so. */
export function registeredAnnotations(target: Pick<Target, "network"> | undefined): Readonly<Record<string, string>> {
  return {
    ...((!target || hasOwnNetwork(target.network)) && { [daemonSetsAnnotation]: "none" }),
    ...(target?.network?.isolated && { [podNetworkAnnotation]: "isolated" }),
  };
}

/** The choice is the configuration's, else the Node's own, so that an upgrade changes nothing at Nodes that there are. */
export function choosePods(context: NodeContext, { nodes }: Cluster): Placeholders {
  const { config, target, log, hand } = context;
  const { seen: cache, status: statuses } = hand("placeholders");
  const isTold = config.daemonSets !== undefined || !hasOwnNetwork(target.network);
  const choice = isTold ? () => config.daemonSets ?? "all" : () => choiceOf(nodes);
  const standing: Placeholders["standingOf"] = (pod, seen) =>
    standingOf({
      pod,
      status: statuses.get(pod.metadata.uid) ?? pod.status,
      exists: seen !== undefined && seen.sandboxes.length + seen.containers.length > 0,
      choice: choice(),
      rootDir: config.rootDir,
    });
  const tell = onceThenIdle("daemon-sets", async (signal) => {
    await nodes.ready(signal);
    if (choiceOf(nodes) === "all")
      log.warn(
        {},
        "pods of all DaemonSets run on the machine, as before: set nodes[].daemonSets to none, selected or all",
      );
  });
  const standsFor = (pod: AskedPod) => standing(pod, cache.get(pod.metadata.uid)).is === "placeholder";
  return {
    standingOf: standing,
    standsFor,
    without: (pods) => pods.filter((pod) => !standsFor(pod)),
    running: isTold ? [] : [tell],
  };
}

/** The choice that the Node's annotation says; all where it says none; undefined while the Node is not known. */
function choiceOf(nodes: NodeSource): DaemonSets | undefined {
  const node = nodes.node();
  const said = node?.metadata.annotations?.[daemonSetsAnnotation];
  return node && (daemonSetChoices.find((one) => one === said) ?? "all");
}
