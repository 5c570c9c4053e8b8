import { ContainerFilter, ContainerState, type ContainerStatus, PodSandboxState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, unlessGone } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { PodCache, PodInspector, Presence, RuntimePod } from "../pipeline.ts";
import { podUidLabel } from "../pod/labels.ts";
import { containerNameOf, newestRun } from "../pod/runs.ts";
import type { HostFs } from "../seams/host.ts";
import type { Containers, Sandboxes } from "../seams/runtime.ts";

export interface GarbageDeps {
  readonly runtime: Pick<Containers, "removeContainer" | "listContainers"> &
    Pick<Sandboxes, "stopPodSandbox" | "removePodSandbox">;
  readonly fs: HostFs;
  readonly cache: PodCache;
  readonly inspector: Pick<PodInspector, "inspect">;
  readonly presence?: Presence;
  /** Directory of pod logs on the target: KubeletConfiguration.podLogsDir. */
  readonly podLogsDir: string;
  /** Directory of the links for log collectors, one for each container. */
  readonly containerLogsDir: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Garbage extends Service {
  /** Removes the leftovers of a deleted pod: containers, sandboxes, logs. */
  podGone(uid: string, signal: AbortSignal): Promise<void>;
}

/** The kubelet's container garbage collection runs every minute and keeps one dead container of each name. */
const periodMs = 60_000;

/** Removes the leftovers of ended containers and sandboxes.
 *  @see https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-garbage-collection */
export function createGarbage(deps: GarbageDeps): Garbage {
  const { fs, cache, log } = deps;

  const removeContainer = async (status: Pick<ContainerStatus, "id" | "logPath">, signal: AbortSignal) => {
    await unlessGone(deps.runtime.removeContainer(status.id, signal));
    if (status.logPath) await removeLogs(fs, status.logPath, signal);
  };

  /** Removes dangling links. A running container's log is missing for a moment during rotation: its link stays. */
  const sweepLinks = (signal: AbortSignal) => {
    const living = cache
      .list()
      .flatMap(({ containers }) => containers.filter(({ state }) => state !== ContainerState.CONTAINER_EXITED));
    return removeDanglingLinks(fs, deps.containerLogsDir, new Set(living.map(({ id }) => id)), signal);
  };

  const collect = async (pod: RuntimePod, signal: AbortSignal) => {
    const dead = deadContainers(pod);
    for (const status of dead) await removeContainer(status, signal);
    const old = pod.sandboxes.slice(1).filter(({ state }) => state !== PodSandboxState.SANDBOX_READY);
    if (old.length === 0) return;
    const filter = ContainerFilter.fromPartial({ labelSelector: { [podUidLabel]: pod.uid } });
    const inUse = new Set((await deps.runtime.listContainers(filter, signal)).map(({ podSandboxId }) => podSandboxId));
    for (const { id } of old) if (!inUse.has(id)) await unlessGone(deps.runtime.removePodSandbox(id, signal));
  };

  const collectAll = async (signal: AbortSignal) => {
    for (const pod of cache.list()) {
      if (signal.aborted) return;
      await collect(pod, signal).catch((error: unknown) => {
        if (!signal.aborted)
          log.warn(
            { err: error, uid: pod.uid },
            "ContainerGCFailed: dead containers could not be removed, will try again",
          );
      });
    }
    // Other programs may have removed a container with its log.
    await sweepLinks(signal).catch((error: unknown) => {
      if (!signal.aborted) log.debug({ err: error }, "links to logs that are gone could not be removed");
    });
  };

  const podGone = async (uid: string, signal: AbortSignal) => {
    const pod = await deps.inspector.inspect(uid, signal);
    for (const status of pod.containers) await removeContainer(status, signal);
    for (const { id } of pod.sandboxes) {
      await unlessGone(deps.runtime.stopPodSandbox(id, signal));
      await unlessGone(deps.runtime.removePodSandbox(id, signal));
    }
    await deps.inspector.inspect(uid, signal);
    for (const { name } of await fs.list(deps.podLogsDir, signal).catch(() => [])) {
      if (name.endsWith(`_${uid}`))
        await fs.apply([{ do: "remove", path: `${deps.podLogsDir}/${name}`, recursive: true }], signal);
    }
    await sweepLinks(signal);
  };

  const service = patrol({ ...deps, name: "garbage-collection", everyMs: periodMs, firstMs: periodMs }, collectAll);
  return { ...service, podGone };
}

/** Ended containers beyond the newest of each name; newest first in the pod's list. */
function deadContainers(pod: RuntimePod): readonly ContainerStatus[] {
  return pod.containers.filter((run) => isDead(run) && run !== newestRun(pod, containerNameOf(run), isDead));
}

function isDead({ state }: ContainerStatus): boolean {
  return state !== ContainerState.CONTAINER_RUNNING && state !== ContainerState.CONTAINER_CREATED;
}

/** A container's log and its rotated files: `0.log`, `0.log.20240501-123456`, `….gz`. */
async function removeLogs(fs: HostFs, logPath: string, signal: AbortSignal): Promise<void> {
  const directory = logPath.slice(0, logPath.lastIndexOf("/"));
  const file = logPath.slice(directory.length + 1);
  const entries = await fs.list(directory, signal).catch(() => []);
  const own = entries.filter(({ name }) => name === file || name.startsWith(`${file}.`));
  await fs.apply(
    own.map(({ name }) => ({ do: "remove", path: `${directory}/${name}` })),
    signal,
  );
}

/** Removes links for log collectors whose log is gone, and whose container (the end of the name) is not in `living`. */
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
    if (dangling) await fs.apply([{ do: "remove", path }], signal);
  }
}
