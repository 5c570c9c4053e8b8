import { daemonSetChoices } from "../config/node-config.ts";
import { type Service, onceThenIdle } from "../lib/service-group.ts";
import { podNetworkAnnotation } from "../service-tunnel/network-mode.ts";
import type { NodeSource, RuntimePod } from "../pipeline.ts";
import {
  type DaemonSets,
  type DaemonSetDecision,
  daemonSetsAnnotation,
  decideDaemonSetPod,
} from "../pod/daemon-sets.ts";
import type { DesiredPod } from "../roles.ts";
import { type Target, hasOwnNetwork } from "../seams/provider.ts";
import type { Cluster, NodeContext } from "./deps.ts";

/** Decides which DaemonSet pods the node runs, and for which it shows placeholders. */
export interface Placeholders {
  /** @param seen the pod's observation in the runtime. */
  daemonSetDecision(pod: DesiredPod, seen: RuntimePod | undefined): DaemonSetDecision;
  /** True if the pod is shown as a placeholder. */
  isPlaceholder(pod: DesiredPod): boolean;
  /** Filters out placeholders. */
  without(pods: readonly DesiredPod[]): readonly DesiredPod[];
  readonly running: readonly Service[];
}

/** Annotations of a newly registered Node: without DaemonSets if its pods are not on the cluster network, or that is not known;
 *  with the pod network mode if they are isolated. */
export function registeredAnnotations(target: Pick<Target, "network"> | undefined): Readonly<Record<string, string>> {
  return {
    ...((!target || hasOwnNetwork(target.network)) && { [daemonSetsAnnotation]: "none" }),
    ...(target?.network?.isolated && { [podNetworkAnnotation]: "isolated" }),
  };
}

/** Creates the DaemonSet policy: from the configuration, otherwise from the Node's annotation, so that an upgrade does not change existing
 *  Nodes. */
export function createPlaceholders(context: NodeContext, { nodes }: Cluster): Placeholders {
  const { config, target, log, hand } = context;
  const { podCache: cache, status: statuses } = hand("placeholders");
  const isConfigured = config.daemonSets !== undefined || !hasOwnNetwork(target.network);
  const choice = isConfigured ? () => config.daemonSets ?? "all" : () => choiceOf(nodes);
  const daemonSetDecision: Placeholders["daemonSetDecision"] = (pod, seen) =>
    decideDaemonSetPod({
      pod,
      status: statuses.get(pod.metadata.uid) ?? pod.status,
      existsInRuntime: seen !== undefined && seen.sandboxes.length + seen.containers.length > 0,
      setting: choice(),
      rootDir: config.rootDir,
    });
  const warning = onceThenIdle("daemon-sets", async (signal) => {
    await nodes.ready(signal);
    if (choiceOf(nodes) === "all")
      log.warn({}, "running pods of all DaemonSets, as before: set nodes[].daemonSets to none, selected or all");
  });
  const isPlaceholder = (pod: DesiredPod) => daemonSetDecision(pod, cache.get(pod.metadata.uid)).kind === "placeholder";
  return {
    daemonSetDecision: daemonSetDecision,
    isPlaceholder,
    without: (pods) => pods.filter((pod) => !isPlaceholder(pod)),
    running: isConfigured ? [] : [warning],
  };
}

/** The choice in the Node's annotation; `all` without one; undefined while the Node is not known. */
function choiceOf(nodes: NodeSource): DaemonSets | undefined {
  const node = nodes.node();
  const said = node?.metadata.annotations?.[daemonSetsAnnotation];
  return node && (daemonSetChoices.find((one) => one === said) ?? "all");
}
