import type { Clock } from "../lib/clock.ts";
import { CodedError, codeOf, hasCode, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import { TargetError } from "../seams/provider.ts";
import { type DeploymentName, stopDeployment } from "./deployment.ts";
import type { ApiClient } from "../api/client.ts";
import { listAll } from "../api/list-all.ts";
import { deletePod } from "../api/pod-deletion.ts";
import type { Node, Pod } from "../objects.ts";
import { migratedTypeOf } from "../pod/migrated-volume.ts";
import { isMirrorPod } from "../pod/containers.ts";

export interface LeaveDeps {
  /** A client that may cordon and delete the nodes, list and delete their pods, and scale the Deployment. */
  readonly client: LeaveClient;
  /** Client that may delete the Nodes, if the other one may not: a node cannot delete its own. */
  readonly nodeDeleter?: Pick<LeaveClient, "delete">;
  readonly clock: Clock;
  readonly nodes: readonly string[];
  /** graftlet's Deployment; undefined if someone else stops it. */
  readonly deployment: DeploymentName | undefined;
  /** Stops the nodes if they run in this process; otherwise absent. */
  readonly stop?: (signal: AbortSignal) => Promise<void>;
  /** Timeout for pods to terminate, and again for graftlet to stop and release its targets. */
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
  /** Removes everything that the node created on its target, and reports it.
   *  @returns true if nothing is left. @throws TargetError RuntimeInUse while another agent uses the target; CodedError
   *  unavailable while it is unreachable. */
  clean(nodeName: string, signal: AbortSignal): Promise<boolean>;
}

/** Retry delay while a target is in use or unreachable, milliseconds. */
const retryDelayMs = 2_000;
const unreachableTimeoutMs = 30_000;

/** Removes nodes from the cluster: cordons them, has graftlet terminate their pods, stops graftlet, cleans the targets, deletes
 *  the Node objects. Safe to repeat after an interruption at any step. A failed node is reported and left as it is; the others
 *  continue.
 *  @returns the nodes that failed. */
export async function leave(given: LeaveDeps, signal: AbortSignal): Promise<readonly string[]> {
  const { nodes, deployment, say } = given;
  const client = retryingClient(given.client, given.clock, say);
  const nodeDeleter = given.nodeDeleter && retryingClient({ ...given.client, ...given.nodeDeleter }, given.clock, say);
  const deps = { ...given, client, ...(nodeDeleter && { nodeDeleter }) };
  const failed = new Set<string>();
  const forEachNode = async (step: (nodeName: string) => Promise<void>) =>
    void (await Promise.all(
      nodes
        .filter((nodeName) => !failed.has(nodeName))
        .map((nodeName) =>
          step(nodeName).catch((error: unknown) => {
            throwIfAborted(signal);
            failed.add(nodeName);
            say(`cannot remove node ${nodeName}: ${reasonOf(error)}`);
          }),
        ),
    ));
  // All nodes are cordoned first, so that pods do not move from one to another.
  await forEachNode((nodeName) => cordon(deps, nodeName, signal));
  await forEachNode((nodeName) => deletePods(podsDeps(deps, nodeName), signal));
  if (failed.size === nodes.length) return nodes;
  if (deployment) {
    try {
      await stopDeployment({ ...deps, deployment }, signal);
    } catch (error) {
      throwIfAborted(signal);
      say(`Deployment ${deployment.namespace}/${deployment.name} cannot be stopped: ${reasonOf(error)}`);
      return nodes;
    }
  }
  await given.stop?.(signal);
  await forEachNode((nodeName) => removeNode(deps, nodeName, signal));
  return nodes.filter((nodeName) => failed.has(nodeName));
}

async function cordon(deps: LeaveDeps, nodeName: string, signal: AbortSignal): Promise<void> {
  const { say } = podsDeps(deps, nodeName);
  const cordoning = { type: "merge", body: { spec: { unschedulable: true } } } as const;
  const node = await ignoreNotFound(deps.client.patch(nodePath(nodeName), cordoning, { signal }));
  say(node === undefined ? "not found in the cluster" : "cordoned");
}

/** The Node is deleted only after its target is clean: the cluster then starts its pods elsewhere. */
async function removeNode(deps: LeaveDeps, nodeName: string, signal: AbortSignal): Promise<void> {
  const pods = podsDeps(deps, nodeName);
  if (!(await cleanWhenReleased(deps, nodeName, pods.say, signal)))
    throw new CodedError(
      "failed_precondition",
      "its target is not clean (see above); keeping its Node object, as its pods may still be running",
    );
  await clearVolumesInUse(deps, nodeName, signal);
  await ignoreNotFound((deps.nodeDeleter ?? deps.client).delete(nodePath(nodeName), undefined, { signal }));
  await forceDeletePods(pods, signal);
  pods.say("removed: its target is clean, its Node object is deleted");
}

/** Clears volumesInUse: otherwise the cluster waits for six minutes before it detaches the volumes. */
async function clearVolumesInUse({ client }: LeaveDeps, nodeName: string, signal: AbortSignal): Promise<void> {
  const patch = { type: "merge", body: { status: { volumesInUse: null } } } as const;
  await ignoreNotFound(client.patch(`${nodePath(nodeName)}/status`, patch, { signal }));
}

/** Cleans the target once graftlet has released it. */
async function cleanWhenReleased(
  { clock, timeoutMs, deployment, stop, clean }: LeaveDeps,
  nodeName: string,
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const startedAt = clock.monotonic();
  for (let isReported = false; ; isReported = true) {
    try {
      return await clean(nodeName, signal);
    } catch (error) {
      throwIfAborted(signal);
      const inUse = error instanceof TargetError && error.reason === "RuntimeInUse";
      const timeLimitMs = inUse
        ? timeoutMs
        : hasCode(error, "unavailable")
          ? Math.min(unreachableTimeoutMs, timeoutMs)
          : 0;
      if (clock.monotonic() - startedAt >= timeLimitMs) {
        say(messageOf(error));
        return false;
      }
      const action = inUse && !deployment && !stop ? "stop this node's graftlet now; waiting" : "retrying";
      if (!isReported) say(`${messageOf(error).replace(/\.$/, "")}; ${action} for up to ${goDuration(timeLimitMs)}`);
    }
    await clock.sleep(retryDelayMs, signal);
  }
}

function podsDeps(deps: LeaveDeps, nodeName: string): DeletePodsDeps {
  return { ...deps, nodeName, say: (line) => deps.say(`node ${nodeName}: ${line}`) };
}

/** Path of a Node. */
export function nodePath(nodeName: string): string {
  return `/api/v1/nodes/${nodeName}`;
}

function reasonOf(error: unknown): string {
  const text = messageOf(error);
  return codeOf(error) === "permission_denied" ? `${text}; use an account with this permission` : text;
}

/** The API requests of `graftlet leave`; all may be repeated. */
export type LeaveClient = Pick<ApiClient, "get" | "list" | "patch" | "delete">;

const requestRetryDelayMs = 2_000;
/** Timeout of an outage, milliseconds: enough to restart an API server, or to switch to another one behind a load balancer. */
const outageTimeoutMs = 60_000;

/** Adds retries to a client: requests to an API server that does not answer are repeated for a minute.
 *  @param say called once per outage. */
export function retryingClient(client: LeaveClient, clock: Clock, say: (line: string) => void): LeaveClient {
  const until = async <T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> => {
    const deadline = clock.monotonic() + outageTimeoutMs;
    for (let isReported = false; ; isReported = true) {
      try {
        return await ask();
      } catch (error) {
        if (!hasCode(error, "unavailable") || clock.monotonic() >= deadline) throw error;
        if (!isReported) say(`the API server does not answer; retrying: ${messageOf(error)}`);
      }
      await clock.sleep(requestRetryDelayMs, signal);
    }
  };
  return {
    get: (path, options) => until(() => client.get(path, options), options.signal),
    list: (path, options) => until(() => client.list(path, options), options.signal),
    patch: (path, patch, options) => until(() => client.patch(path, patch, options), options.signal),
    delete: (path, body, options) => until(() => client.delete(path, body, options), options.signal),
  };
}

interface DeletePodsDeps {
  readonly client: Pick<ApiClient, "get" | "list" | "delete">;
  readonly clock: Clock;
  readonly nodeName: string;
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
}

/** Poll interval while the node's pods terminate, milliseconds. */
const pollIntervalMs = 1_000;
/** A node that has been unready for this long is not expected to terminate pods. */
const unreadyTimeoutMs = 30_000;

/** Deletes the node's pods with their own grace periods and waits until they are gone, the timeout expires, or no agent is there to
 *  terminate them. Pods with volumes are deleted first and get half of the timeout, because another pod may be the volumes' driver.
 *  Mirror pods stay, and so do pods of DaemonSets, which would be recreated at once; cleaning the target terminates them. */
async function deletePods(deps: DeletePodsDeps, signal: AbortSignal): Promise<void> {
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
        ? `no agent is running there to terminate pods (node ${nodeName} is ${ready === "gone" ? "not in the cluster" : "not Ready"})`
        : clock.monotonic() >= deadline && `pods have not terminated within ${goDuration(deps.timeoutMs)}`;
    if (why) return say(`${why}; leaving them to the target's cleanup: ${podNames(pods)}`);
    await clock.sleep(pollIntervalMs, signal);
  }
}

/** Force-deletes the remaining pods of the node. Only for a node whose target is clean: none of them may be running.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-forced */
async function forceDeletePods(deps: DeletePodsDeps, signal: AbortSignal): Promise<void> {
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
  const node = await ignoreNotFound(client.get<Node>(nodePath(nodeName), { signal }));
  if (!node) return "gone";
  return node.status?.conditions?.find(({ type }) => type === "Ready")?.status ?? "Unknown";
}

function podNames(pods: readonly Pod[]): string {
  return pods.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`).join(", ");
}
