import {
  type Container,
  ContainerFilter,
  ContainerState,
  type ContainerStatus,
  PodSandboxFilter,
  type PodSandbox,
} from "../gen/cri.ts";
import { removeLogs } from "../host/container-logs.ts";
import type { TargetClock } from "../host/target-clock.ts";
import { throwIfAborted, ignoreNotFound, hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Tracer } from "../lib/tracer.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { EventSink, PodCache, PodInspector, PodStore, WaitForTarget } from "../pipeline.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { podTerminationGraceAnnotation } from "../pod/labels.ts";
import { nodeReference } from "../pod/reference.ts";
import type { HostFs, FileChange } from "../seams/host.ts";
import type { Containers, Sandboxes } from "../seams/runtime.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import { type ContainerLimits, deadContainers, deadSandboxes } from "./dead-containers.ts";

export interface ContainerCollectionDeps extends ClockAndLog {
  readonly runtime: Pick<Containers, "listContainers" | "containerStatus" | "stopContainer" | "removeContainer"> &
    Pick<Sandboxes, "listPodSandbox" | "stopPodSandbox" | "removePodSandbox">;
  readonly fs: HostFs;
  readonly desired: Pick<PodStore, "get">;
  readonly podCache: PodCache;
  readonly worker: Pick<Column<WorkerView>, "get">;
  readonly inspector: Pick<PodInspector, "inspect" | "needsInspection">;
  /** True once all pod sources have reported; until then no pod counts as unknown. */
  readonly allSourcesReady: () => boolean;
  /** Labels of this node's containers and sandboxes on a shared runtime; otherwise empty. */
  readonly ownerLabels: Readonly<Record<string, string>>;
  readonly waitForTarget: WaitForTarget | undefined;
  /** Directory of pod logs on the target: KubeletConfiguration.podLogsDir. */
  readonly podLogsDir: string;
  /** Directory of the links for log collectors, one per container. */
  readonly containerLogsDir: string;
  readonly limits: ContainerLimits;
  readonly nodeName: string;
  readonly events: EventSink;
  readonly targetClock: Pick<TargetClock, "now">;
  readonly tracer: Tracer;
}

export type ContainerCollection = ReturnType<typeof createContainerCollection>;

/** The kubelet's container garbage collection period. */
const periodMs = 60_000;
/** Maximum concurrent removals of containers or sandboxes. */
const maxConcurrentRemovals = 8;
/** Minimum seconds between SIGTERM and SIGKILL. (kubelet) */
const minGraceSeconds = 2;

/** Removes dead containers and sandboxes, and their logs.
 *  @see https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-garbage-collection */
export function createContainerCollection(deps: ContainerCollectionDeps) {
  const { runtime, fs, podCache, worker, podLogsDir, log } = deps;
  const serialize = createSemaphore(1);
  const isTerminated = (uid: string) => ["terminated", "finished"].includes(worker.get(uid)?.phase ?? "");
  /** True for an evicted or preempted pod that has ended: none of its containers are kept. */
  const isEvicted = (uid: string) => isTerminated(uid) && worker.get(uid)?.evicted === true;

  const collect = async (isFinished: (uid: string) => boolean, signal: AbortSignal) => {
    const { containers, sandboxes } = await listOwn(deps, signal);
    const { limits, targetClock } = deps;
    const dead = deadContainers({ containers, limits, now: targetClock.now(), isFinished });
    const gone = await removeContainers(deps, dead, signal);
    const used = new Set(containers.flatMap(({ id, podSandboxId }) => (gone.has(id) ? [] : [podSandboxId])));
    await removeSandboxes(deps, deadSandboxes(sandboxes, used, isFinished), signal);
    await removePodLogs(deps, (uid) => isEvicted(uid) || isUnknown(deps, uid), signal);
    // Another program may have removed a container together with its log.
    await sweepLinks(signal);
  };

  const sweepLinks = (signal: AbortSignal) => {
    const living = podCache
      .list()
      .flatMap(({ containers }) => containers.filter(({ state }) => state !== ContainerState.CONTAINER_EXITED));
    return removeDanglingLinks(fs, deps.containerLogsDir, new Set(living.map(({ id }) => id)), signal);
  };

  const round = async (signal: AbortSignal) => {
    try {
      await serialize(() =>
        deps.tracer.span("Containers/GarbageCollect", { parent: "none" }, () => collect(isEvicted, signal)),
      );
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error }, "Container garbage collection failed");
      deps.events.event(nodeReference(deps.nodeName), "Warning", "ContainerGCFailed", runtimeErrorText(error));
    }
  };

  const removePodLeftovers = async (uid: string, signal: AbortSignal) => {
    const pod = await deps.inspector.inspect(uid, signal);
    await removeLogs(
      fs,
      pod.containers.flatMap(({ logPath }) => (logPath ? [logPath] : [])),
      signal,
    );
    for (const { id } of pod.containers) await ignoreNotFound(runtime.removeContainer(id, signal));
    for (const { id } of pod.sandboxes) await removeSandbox(deps, id, signal);
    await deps.inspector.inspect(uid, signal);
    const logs = await podLogsToRemove(fs, podLogsDir, (other) => other === uid, signal);
    if (logs.length > 0) await fs.apply(logs, signal);
    await sweepLinks(signal);
  };

  const service = runPeriodically(
    { ...deps, name: "garbage-collection", intervalMs: periodMs, initialDelayMs: periodMs },
    round,
  );
  const deleteUnusedContainers = (signal: AbortSignal) => serialize(() => collect(isTerminated, signal));
  return {
    ...service /** Removes the leftovers of a deleted pod: containers, sandboxes, logs. */,
    removePodLeftovers,
    deleteUnusedContainers,
  };
}

/** This node's containers and sandboxes, as the runtime lists them now. */
async function listOwn({ runtime, ownerLabels }: ContainerCollectionDeps, signal: AbortSignal) {
  const filter = Object.keys(ownerLabels).length > 0 ? { labelSelector: { ...ownerLabels } } : undefined;
  const [containers, sandboxes] = await Promise.all([
    runtime.listContainers(filter && ContainerFilter.fromPartial(filter), signal),
    runtime.listPodSandbox(filter && PodSandboxFilter.fromPartial(filter), signal),
  ]);
  return { containers, sandboxes };
}

async function removePodLogs(
  { fs, podLogsDir, log }: ContainerCollectionDeps,
  isFinished: (uid: string) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const changes = await podLogsToRemove(fs, podLogsDir, isFinished, signal);
  if (changes.length === 0) return;
  await fs.apply(changes, signal).catch((error: unknown) => {
    throwIfAborted(signal);
    log.warn({ err: error }, "Failed to remove pod logs directories");
  });
}

/** True if no source wants the pod and the runtime does not have it: only its logs are left. Always false on a shared runtime, where
 *  such logs may belong to another node. */
function isUnknown(
  { desired, podCache, worker, inspector, ownerLabels, allSourcesReady }: ContainerCollectionDeps,
  uid: string,
): boolean {
  const isKnown =
    uid === "" || desired.get(uid) || worker.get(uid) || podCache.get(uid) || inspector.needsInspection(uid);
  return !isKnown && Object.keys(ownerLabels).length === 0 && allSourcesReady();
}

/** Removes containers, each after its logs, so that a failed removal is retried. @returns IDs of the removed containers. */
async function removeContainers(
  deps: ContainerCollectionDeps,
  dead: readonly Container[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const logs = await logPaths(deps, dead, signal);
  // Remove all logs in one batch; on failure, one at a time.
  const logsGone = await removeLogs(deps.fs, [...logs.values()], signal).then(
    () => true,
    () => false,
  );
  const gone = new Set<string>();
  const remove = async (container: Container) => {
    const { id, state, annotations } = container;
    try {
      const path = logs.get(id);
      if (path !== undefined && !logsGone) await removeLogs(deps.fs, [path], signal);
      if (state === ContainerState.CONTAINER_UNKNOWN)
        await ignoreNotFound(deps.runtime.stopContainer(id, gracePeriodOf(annotations), signal));
      await ignoreNotFound(deps.runtime.removeContainer(id, signal));
      gone.add(id);
    } catch (error) {
      throwIfAborted(signal);
      deps.log.warn({ err: error, containerID: id }, "Failed to remove container");
    }
  };
  const limit = createSemaphore(maxConcurrentRemovals);
  await Promise.all(dead.map((container) => limit(() => remove(container))));
  return gone;
}

/** Log paths by container ID. */
async function logPaths(
  { runtime, podCache }: ContainerCollectionDeps,
  dead: readonly Container[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  if (dead.length === 0) return new Map();
  const cached = new Map(podCache.list().flatMap(({ containers }) => containers.map((status) => [status.id, status])));
  const pathOf = async ({ id }: Container): Promise<readonly [string, string][]> => {
    const status: Pick<ContainerStatus, "logPath"> | undefined =
      cached.get(id) ?? (await ignoreNotFound(runtime.containerStatus(id, signal)))?.status;
    return status?.logPath ? [[id, status.logPath]] : [];
  };
  return new Map((await Promise.all(dead.map(pathOf))).flat());
}

/** A container in an unknown state may be running, so it is stopped first. */
function gracePeriodOf(annotations: Readonly<Record<string, string>>): number {
  const seconds = Number.parseInt(annotations[podTerminationGraceAnnotation] ?? "", 10);
  return Math.max(minGraceSeconds, Number.isNaN(seconds) ? 0 : seconds);
}

async function removeSandboxes(
  deps: ContainerCollectionDeps,
  dead: readonly PodSandbox[],
  signal: AbortSignal,
): Promise<void> {
  const limit = createSemaphore(maxConcurrentRemovals);
  const remove = async ({ id }: PodSandbox) => {
    try {
      await removeSandbox(deps, id, signal);
    } catch (error) {
      throwIfAborted(signal);
      deps.log.warn({ err: error, sandboxID: id }, "Failed to remove sandbox");
    }
  };
  await Promise.all(dead.map((sandbox) => limit(() => remove(sandbox))));
}

async function removeSandbox({ runtime }: ContainerCollectionDeps, id: string, signal: AbortSignal): Promise<void> {
  await ignoreNotFound(runtime.stopPodSandbox(id, signal));
  await ignoreNotFound(runtime.removePodSandbox(id, signal));
}

/** Changes that remove the log directories of pods for which `isFinished` holds.
 *  @param directory KubeletConfiguration.podLogsDir, which may not exist. @throws in the kubelet's words if it cannot be read. */
async function podLogsToRemove(
  fs: Pick<HostFs, "list">,
  directory: string,
  isFinished: (uid: string) => boolean,
  signal: AbortSignal,
): Promise<readonly FileChange[]> {
  const entries = await ignoreNotFound(fs.list(directory, signal)).catch((error: unknown) => {
    throw new Error(`failed to read podLogsDirectory ${JSON.stringify(directory)}: ${messageOf(error)}`, {
      cause: error,
    });
  });
  const finished = (entries ?? []).filter(({ name }) => isFinished(/^[^_]+_[^_]+_([^_]+)$/.exec(name)?.[1] ?? ""));
  return finished.map(({ name }) => ({ kind: "remove", path: `${directory}/${name}`, recursive: true }));
}

/** Removes dangling links for log collectors, except those of containers in `living` (the end of the link's name is the container ID): a
 *  running container's log is missing for a moment during rotation. */
async function removeDanglingLinks(
  fs: HostFs,
  directory: string,
  living: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<void> {
  for (const { name, kind } of await fs.list(directory, signal).catch(() => [])) {
    const path = `${directory}/${name}`;
    if (kind !== "symlink" || living.has(/-([^-]+)\.log$/.exec(name)?.[1] ?? "")) continue;
    const dangling = await fs.stat(path, signal).then(
      () => false,
      (error: unknown) => hasCode(error, "not_found"),
    );
    if (dangling) await fs.apply([{ kind: "remove", path }], signal);
  }
}
