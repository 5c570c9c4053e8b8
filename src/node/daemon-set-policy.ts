import type { Logger } from "../lib/log.ts";
import { onceThenIdle } from "../lib/runnables.ts";
import type { RuntimePod, NodeSource, PodCache, StatusReader } from "../pipeline.ts";
import { type DaemonSets, annotatedDaemonSets, decideDaemonSetPod } from "../pod/daemon-sets.ts";
import type { DesiredPod } from "../roles.ts";

export interface DaemonSetPolicyDeps {
  /** The configured setting; if undefined, the Node's annotation decides, so that an upgrade does not change existing Nodes. */
  readonly setting: DaemonSets | undefined;
  readonly nodes: NodeSource & {
    /** Resolves once it is known whether the Node exists. */
    ready(signal: AbortSignal): Promise<void>;
  };
  readonly podCache: PodCache;
  readonly status: StatusReader;
  /** The node's root directory. */
  readonly rootDir: string;
  readonly log: Logger;
}

/** Decides which DaemonSet pods the node runs, and for which it shows placeholders. */
export type DaemonSetPolicy = ReturnType<typeof createDaemonSetPolicy>;

/** Creates the DaemonSet policy. */
export function createDaemonSetPolicy(deps: DaemonSetPolicyDeps) {
  const { setting, nodes, podCache, status, rootDir, log } = deps;
  const annotated = () => {
    const node = nodes.node();
    return node && annotatedDaemonSets(node);
  };
  const daemonSetDecision = (pod: DesiredPod, seen: RuntimePod | undefined) =>
    decideDaemonSetPod({
      pod,
      status: status.get(pod.metadata.uid) ?? pod.status,
      existsInRuntime: seen !== undefined && seen.sandboxes.length + seen.containers.length > 0,
      setting: setting ?? annotated(),
      rootDir,
    });
  const warning = onceThenIdle("daemon-sets", async (signal) => {
    await nodes.ready(signal);
    if (annotated() === "all")
      log.warn({}, "running pods of all DaemonSets, as before: set nodes[].daemonSets to none, selected or all");
  });
  const isPlaceholder = (pod: DesiredPod) =>
    daemonSetDecision(pod, podCache.get(pod.metadata.uid)).kind === "placeholder";
  return {
    /** @param seen the pod's observation in the runtime. */
    daemonSetDecision,
    /** True if the pod is shown as a placeholder. */
    isPlaceholder,
    withoutPlaceholders: (pods: readonly DesiredPod[]): readonly DesiredPod[] =>
      pods.filter((pod) => !isPlaceholder(pod)),
    runnables: setting === undefined ? [warning] : [],
  };
}
