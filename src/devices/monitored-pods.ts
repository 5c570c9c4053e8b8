import type { PodsProvider } from "./pod-resources-server.ts";
import type { PodStatus } from "../objects.ts";
import type { PodStore, StatusReader } from "../pipeline.ts";
import { isTerminal } from "../pod/phase.ts";

export interface MonitoredPodsOptions {
  /** The latest statuses. */
  readonly status: StatusReader;
  /** False to list pods that have ended, too (feature gate KubeletPodResourcesListUseActivePods). */
  readonly onlyActive: boolean;
}

/** The node's pods for device monitoring agents. */
export function monitoredPods(
  desired: Pick<PodStore, "list" | "byName">,
  { status, onlyActive }: MonitoredPodsOptions,
): PodsProvider {
  const all = () => desired.list();
  const hasEnded = (uid: string, shown: PodStatus | undefined) => isTerminal((status.get(uid) ?? shown)?.phase);
  const active = () => all().filter((pod) => !hasEnded(pod.metadata.uid, pod.status));
  return {
    all,
    byName: (namespace, name) => desired.byName(namespace, name),
    listed: onlyActive ? active : all,
  };
}
