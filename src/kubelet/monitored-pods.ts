import type { PodsProvider } from "../devices/pod-resources-server.ts";
import type { PodStatus } from "../objects.ts";
import type { PodStore } from "../pipeline.ts";
import { isTerminal } from "../pod/phase.ts";

/** The node's pods for device monitoring agents. @param status the latest statuses. */
export function monitoredPods(
  asked: Pick<PodStore, "list" | "byName">,
  status: { get(uid: string): PodStatus | undefined },
): PodsProvider {
  const all = () => asked.list();
  const hasEnded = (uid: string, shown: PodStatus | undefined) => isTerminal((status.get(uid) ?? shown)?.phase);
  return {
    all,
    byName: (namespace, name) => asked.byName(namespace, name),
    active: () => all().filter((pod) => !hasEnded(pod.metadata.uid, pod.status)),
  };
}
