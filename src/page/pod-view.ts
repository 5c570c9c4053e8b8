import type { ContainerStatus, Pod } from "../objects.ts";
import type { PodView } from "./messages.ts";

/** Builds the page's view of a pod. Pure. */
export function podView(pod: Pod): PodView {
  const { metadata, spec, status } = pod;
  const containers = status?.containerStatuses ?? [];
  const all = [...(status?.initContainerStatuses ?? []), ...containers];
  const shown = podStatusText(pod, containers);
  const since = status?.startTime ?? metadata.creationTimestamp;
  return {
    uid: metadata.uid,
    namespace: metadata.namespace,
    name: metadata.name,
    status: shown,
    bad: !normalStatuses.has(shown),
    ready: containers.filter(({ ready }) => ready).length,
    of: spec.containers.length,
    restarts: all.reduce((sum, { restartCount }) => sum + restartCount, 0),
    since: since === undefined ? 0 : Date.parse(since),
  };
}

/** Statuses that need no attention. */
const normalStatuses: ReadonlySet<string> = new Set([
  "Running",
  "Succeeded",
  "Completed",
  "Pending",
  "ContainerCreating",
  "PodInitializing",
  "Terminating",
]);

/** As kubectl's STATUS column, without the progress of init containers.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/ */
function podStatusText({ metadata, status }: Pod, containers: readonly ContainerStatus[]): string {
  if (metadata.deletionTimestamp !== undefined) return "Terminating";
  if (status?.reason) return status.reason;
  const all = [
    ...(status?.initContainerStatuses ?? []).filter(({ state }) => state?.terminated?.exitCode !== 0),
    ...containers,
  ];
  const waits = all.map(({ state }) => state?.waiting?.reason).find(Boolean);
  if (waits !== undefined) return waits;
  const running = containers.some(({ state }) => state?.running);
  const ended = containers.map(({ state }) => state?.terminated?.reason).find(Boolean);
  return (running ? undefined : ended) ?? status?.phase ?? "Pending";
}
