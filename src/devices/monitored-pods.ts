import type { PodsProvider } from "./pod-resources-server.ts";
import type { PodStatus } from "../objects.ts";
import type { PodStore, StatusReader } from "../pipeline.ts";
import { isTerminal } from "../pod/phase.ts";

/** The node's pods for device monitoring agents. @param status the latest statuses. */
export function monitoredPods(desired: Pick<PodStore, "list" | "byName">, status: StatusReader): PodsProvider {
  const all = () => desired.list();
  const hasEnded = (uid: string, shown: PodStatus | undefined) => isTerminal((status.get(uid) ?? shown)?.phase);
  return {
    all,
    byName: (namespace, name) => desired.byName(namespace, name),
    active: () => all().filter((pod) => !hasEnded(pod.metadata.uid, pod.status)),
  };
}
