import { readySandboxIPs } from "../pod/sandbox.ts";
import {
  type Container,
  ContainerFilter,
  ContainerState,
  type ContainerStatus,
  type PodSandbox,
  PodSandboxFilter,
  type PodSandboxStatus,
} from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { RuntimeIds, RuntimePod } from "../pipeline.ts";
import { podNameLabel, podNamespaceLabel, podUidLabel } from "../pod/labels.ts";
import type { Containers, Sandboxes } from "../seams/runtime.ts";

export interface ObserveDeps {
  readonly runtime: Sandboxes & Containers;
  readonly clock: Clock;
  /** Labels of this node's pods in a shared runtime; empty in an exclusive one. */
  readonly ownerLabels: Readonly<Record<string, string>>;
  /** Termination message of a container, including the runtime's own message. @param written result of writtenMessage. */
  readonly terminationMessage: (status: ContainerStatus, signal: AbortSignal, written?: string) => Promise<string>;
  /** Termination message that a container has written; undefined if unknown. */
  readonly writtenMessage: (status: ContainerStatus, signal: AbortSignal) => Promise<string | undefined>;
  /** Last observation of a pod: the message of an exited container is read only once. */
  readonly known?: (uid: string) => RuntimePod | undefined;
}

/** Result of the list calls for one pod: enough to detect a change. */
export interface PodListing {
  readonly uid: string;
  readonly sandboxes: readonly PodSandbox[];
  readonly containers: readonly Container[];
  /** Clock.monotonic() before the list calls. */
  readonly listedAt: number;
}

/** The runtime's pods, by UID, from two list calls. @param uid narrows both to one pod. */
export async function listPods(
  deps: ObserveDeps,
  uid: string | undefined,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, PodListing>> {
  const { runtime, clock, ownerLabels } = deps;
  const listedAt = clock.monotonic();
  const labelSelector = { ...ownerLabels, ...(uid !== undefined && { [podUidLabel]: uid }) };
  const filtered = Object.keys(labelSelector).length > 0;
  const [sandboxes, containers] = await Promise.all([
    runtime.listPodSandbox(filtered ? PodSandboxFilter.fromPartial({ labelSelector }) : undefined, signal),
    runtime.listContainers(filtered ? ContainerFilter.fromPartial({ labelSelector }) : undefined, signal),
  ]);
  const pods = new Map<string, { uid: string; sandboxes: PodSandbox[]; containers: Container[]; listedAt: number }>();
  const podOf = (labels: { [key: string]: string }) => {
    const podUid = labels[podUidLabel];
    if (!podUid) return undefined;
    const known = pods.get(podUid) ?? { uid: podUid, sandboxes: [], containers: [], listedAt };
    pods.set(podUid, known);
    return known;
  };
  for (const sandbox of sandboxes) podOf(sandbox.labels)?.sandboxes.push(sandbox);
  for (const container of containers) podOf(container.labels)?.containers.push(container);
  return pods;
}

/** Known facts about a pod before an inspection. */
export interface KnownBefore {
  readonly known: RuntimeIds;
  /** Last observed statuses of containers that an event reported as exited. */
  readonly ended: readonly ContainerStatus[];
}

/** Inspects one pod: known containers concurrently with the listing, which shows whether there are more. */
export async function listAndObserve(
  deps: ObserveDeps,
  uid: string,
  before: KnownBefore,
  signal: AbortSignal,
): Promise<RuntimePod> {
  const listings = listPods(deps, uid, signal);
  const early = requestEarly(deps, before, signal);
  const none = { uid, sandboxes: [], containers: [], listedAt: deps.clock.monotonic() };
  return observePod(deps, (await listings).get(uid) ?? none, signal, early);
}

/** Statuses that were requested concurrently with a listing, by ID. */
type EarlyStatuses = ReturnType<typeof requestEarly>;

/** Requests the status of known containers and sandboxes without waiting for the listing. Failures are retried after the listing. */
function requestEarly({ runtime, writtenMessage }: ObserveDeps, { known, ended }: KnownBefore, signal: AbortSignal) {
  const ask = <T>(ids: readonly string[], status: (id: string) => Promise<{ readonly status?: T | undefined }>) => {
    const answers = new Map(
      ids.map((id) => [
        id,
        status(id).then(
          (answer) => answer.status,
          () => undefined,
        ),
      ]),
    );
    return (id: string) => answers.get(id);
  };
  const written = new Map(ended.map((status) => [status.id, writtenMessage(status, signal)]));
  return {
    sandbox: ask(known.sandboxes, (id) => runtime.podSandboxStatus(id, signal)),
    container: ask(known.containers, (id) => runtime.containerStatus(id, signal)),
    /** Message written by an exited container. */
    writtenMessage: (id: string) => written.get(id),
  };
}

/** Requests the status of all sandboxes and containers of a listing. Those that are gone by then are omitted.
 *  @param early used where its state agrees with the listing.
 *  @see https://kubernetes.io/docs/concepts/architecture/cri/ */
export async function observePod(
  deps: ObserveDeps,
  listing: PodListing,
  signal: AbortSignal,
  early?: EarlyStatuses,
): Promise<RuntimePod> {
  const { runtime } = deps;
  const sandboxStatus = async ({ id, state }: PodSandbox) => {
    const before = await early?.sandbox(id);
    return before?.state === state ? before : (await ignoreNotFound(runtime.podSandboxStatus(id, signal)))?.status;
  };
  const containerStatus = async ({ id, state }: Container) => {
    const before = await early?.container(id);
    return before?.state === state ? before : (await ignoreNotFound(runtime.containerStatus(id, signal)))?.status;
  };
  const cached = deps.known?.(listing.uid)?.containers ?? [];
  const withMessage = async (status: ContainerStatus | undefined): Promise<ContainerStatus | undefined> => {
    if (status?.state !== ContainerState.CONTAINER_EXITED) return status;
    const before = cached.find(({ id, state }) => id === status.id && state === status.state);
    if (before) return { ...status, message: before.message };
    return {
      ...status,
      message: await deps.terminationMessage(status, signal, await early?.writtenMessage(status.id)),
    };
  };
  const [sandboxes, containers] = await Promise.all([
    Promise.all(listing.sandboxes.map(sandboxStatus)),
    Promise.all(listing.containers.map(async (container) => withMessage(await containerStatus(container)))),
  ]);
  const statuses = sandboxes.filter((status) => status !== undefined).sort(latestFirst);
  const containerStatuses = containers.filter((status) => status !== undefined).sort(newestFirst);
  const labels = statuses[0]?.labels ?? containerStatuses[0]?.labels ?? listing.sandboxes[0]?.labels ?? {};
  return {
    uid: listing.uid,
    name: labels[podNameLabel] ?? "",
    namespace: labels[podNamespaceLabel] ?? "",
    sandboxes: statuses,
    containers: containerStatuses,
    sandboxOf: new Map(listing.containers.map(({ id, podSandboxId }) => [id, podSandboxId])),
    ips: readySandboxIPs(statuses[0]),
    observedAt: listing.listedAt,
  };
}

/** Sorts sandboxes by attempt: on a machine without a hardware clock, a new sandbox may have an older timestamp than the last one.
 *  (kubelet, kuberuntime/helpers.go) */
function latestFirst(a: PodSandboxStatus, b: PodSandboxStatus): number {
  const [ofA, ofB] = [a.metadata?.attempt, b.metadata?.attempt];
  return ofA !== undefined && ofB !== undefined && ofA !== ofB ? ofB - ofA : newestFirst(a, b);
}

function newestFirst(a: { createdAt: bigint; id: string }, b: { createdAt: bigint; id: string }): number {
  if (a.createdAt !== b.createdAt) return a.createdAt < b.createdAt ? 1 : -1;
  return a.id < b.id ? -1 : 1;
}

/** Text of all states in a listing, to compare it with other listings. */
export function listingFingerprint(listing: PodListing): string {
  return fingerprint(listing.sandboxes, listing.containers);
}

/** Text of an observed pod's states, in the format of `listingFingerprint`. */
export function podFingerprint(pod: RuntimePod): string {
  return fingerprint(pod.sandboxes, pod.containers);
}

function fingerprint(
  sandboxes: readonly Pick<PodSandboxStatus, "id" | "state">[],
  containers: readonly Pick<ContainerStatus, "id" | "state">[],
): string {
  return [...sandboxes, ...containers]
    .map(({ id, state }) => `${id}=${state}`)
    .sort()
    .join(" ");
}
