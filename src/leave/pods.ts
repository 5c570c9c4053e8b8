import type { ApiClient } from "../api/client.ts";
import { listAll } from "../api/list-all.ts";
import { deletePod } from "../api/pod-deletion.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { Node, Pod } from "../objects.ts";
import { migratedTypeOf } from "../pod/migrated-volume.ts";
import { isMirrorPod } from "../pod/containers.ts";

export interface DeletePodsDeps {
  readonly client: Pick<ApiClient, "get" | "list" | "delete">;
  readonly clock: Clock;
  readonly nodeName: string;
  /** Timeout for pods to terminate. */
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
}

/** Poll interval while they terminate. */
const pollIntervalMs = 1_000;
/** A node that has been unready for this long is not expected to terminate pods. */
const unreadyTimeoutMs = 30_000;

/** Deletes the node's pods with their own grace periods and waits until they are gone, the timeout expires, or no agent is there
 *  to terminate them. Pods with volumes come first, for half of the time: one of the others may be the volumes' driver. Mirror
 *  pods stay, and so do pods of DaemonSets, which would be recreated at once; cleaning the target terminates them. */
export async function deletePods(deps: DeletePodsDeps, signal: AbortSignal): Promise<void> {
  const { clock, nodeName, say } = deps;
  const deadline = clock.monotonic() + deps.timeoutMs;
  const deleteOthersAt = deadline - deps.timeoutMs / 2;
  const deleted = new Set<string>();
  for (let readyAt = clock.monotonic(); ; ) {
    const pods = (await listPods(deps, signal)).filter(shouldDelete);
    if (pods.length === 0) return say(deleted.size === 0 ? "no pods to delete" : "pods have terminated");
    const withVolumes = pods.filter(hasStorage);
    const onlyWithVolumes = withVolumes.length > 0 && clock.monotonic() < deleteOthersAt;
    const pending = (onlyWithVolumes ? withVolumes : pods).filter(({ metadata }) => !deleted.has(metadata.uid));
    if (!onlyWithVolumes && withVolumes.length > 0 && pending.length > 0)
      say(`deleting the other pods while pods with volumes are still terminating: ${podNames(withVolumes)}`);
    for (const pod of pending) deleted.add(pod.metadata.uid);
    await Promise.all(
      pending
        .filter(({ metadata }) => !metadata.deletionTimestamp)
        .map((pod) => deletePod(deps.client, pod.metadata, {}, signal)),
    );
    if (pending.length > 0) say(`deleting pods: ${podNames(pending)}`);
    const ready = await readyStatus(deps, signal);
    if (ready === "True") readyAt = clock.monotonic();
    const why =
      ready === "gone" || ready === "Unknown" || clock.monotonic() - readyAt >= unreadyTimeoutMs
        ? `no agent terminates pods there (node ${nodeName} is ${ready === "gone" ? "not in the cluster" : "not Ready"})`
        : clock.monotonic() >= deadline && `pods have not terminated within ${goDuration(deps.timeoutMs)}`;
    if (why) return say(`${why}; leaving them to the cleanup of the target: ${podNames(pods)}`);
    await clock.sleep(pollIntervalMs, signal);
  }
}

/** Force-deletes the remaining pods of the node. Only for a node whose target is clean: none of them may be running.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-forced */
export async function forceDeletePods(deps: DeletePodsDeps, signal: AbortSignal): Promise<void> {
  const pods = await listPods(deps, signal);
  await Promise.all(pods.map((pod) => deletePod(deps.client, pod.metadata, { gracePeriodSeconds: 0 }, signal)));
  if (pods.length > 0) deps.say(`force-deleted its remaining pods: ${podNames(pods)}`);
}

/** Selects pods as kubectl drain does. @see https://kubernetes.io/docs/reference/kubectl/generated/kubectl_drain/ */
function shouldDelete(pod: Pod): boolean {
  const owner = pod.metadata.ownerReferences?.find(({ controller }) => controller);
  return !isMirrorPod(pod) && owner?.kind !== "DaemonSet";
}

/** Any claim counts: it may be bound to a CSI volume. */
function hasStorage({ spec }: Pod): boolean {
  return (spec.volumes ?? []).some((volume) => {
    const { persistentVolumeClaim, ephemeral, csi } = volume;
    return (persistentVolumeClaim ?? ephemeral ?? csi ?? migratedTypeOf(volume)) !== undefined;
  });
}

function listPods({ client, nodeName }: DeletePodsDeps, signal: AbortSignal): Promise<readonly Pod[]> {
  return listAll<Pod>(client, "/api/v1/pods", { fieldSelector: `spec.nodeName=${nodeName}` }, signal);
}

/** Status of the node's Ready condition, or `gone`. */
async function readyStatus({ client, nodeName }: DeletePodsDeps, signal: AbortSignal): Promise<string> {
  const node = await ignoreNotFound(client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal }));
  if (!node) return "gone";
  return node.status?.conditions?.find(({ type }) => type === "Ready")?.status ?? "Unknown";
}

function podNames(pods: readonly Pod[]): string {
  return pods.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`).join(", ");
}
