import type { Timer } from "../../lib/clock.ts";
import { createBackoff } from "../../lib/backoff.ts";
import { messageOf } from "../../lib/errors.ts";
import { createSemaphore } from "../../lib/semaphore.ts";
import type { Node } from "../../objects.ts";
import type { PersistentVolumeUnmounter, UnmounterDeps } from "./unmounter.ts";

/** Delays before unstaging is retried, milliseconds: a driver that starts with the node is ready soon. */
const initialRetryDelayMs = 500;
const maxRetryDelayMs = 5_000;
/** Poll interval for the Node object at start-up, milliseconds. */
const nodePollIntervalMs = 100;

/** State of persistent volumes on the node, shared by their pods. A volume is identified by the ID that its plugin gives it. */
export type PersistentVolumeStates = ReturnType<typeof createPersistentVolumeStates>;

export interface PersistentVolumeStatesDeps extends Omit<UnmounterDeps, "serialize"> {
  readonly node: () => Node | undefined;
  /** Called with the names of attached volumes that are in use, whenever they change. */
  readonly onInUseChange: (names: readonly string[]) => void;
}

export function createPersistentVolumeStates(
  given: PersistentVolumeStatesDeps,
  unmounters: readonly PersistentVolumeUnmounter[],
) {
  const serialize = createKeyedLock();
  const deps = { ...given, serialize };
  const publishedPods = createPodSets();
  const reservations = createPodSets();
  const inUse = createInUseTracker(deps.onInUseChange);
  const staged = new Set<string>();
  /** Volumes released by pods, until it is known which of them are staged: the target may be unreachable meanwhile. */
  const pendingReleases = new Map<string, readonly string[]>();
  const stopped = new AbortController();
  const unstage = async (unmounter: PersistentVolumeUnmounter, id: string, signal: AbortSignal): Promise<boolean> => {
    staged.delete(id);
    return unmounter.unstage(deps, id, signal);
  };
  const unstaging = createUnstageRetries(deps, stopped.signal, async (unmounter, id, signal) => {
    await serialize(id, async () => {
      if (reservations.hasOtherPod(id, "")) return;
      if (await unstage(unmounter, id, signal)) inUse.markUnstaged(id);
    });
  });
  const stagedOf = async (known: readonly string[], signal: AbortSignal) => {
    const found = unmounters.map(async (unmounter) =>
      (await unmounter.listStaged(deps, known, signal)).map((id) => ({ unmounter, id })),
    );
    return (await Promise.all(found)).flat();
  };

  /** Of the volumes left by an earlier process, only those in the Node's volumesAttached count: drivers of the others apparently
   *  require no attachment. */
  const reportInUse = async () => {
    let node = deps.node();
    for (; node === undefined; node = deps.node()) await deps.clock.sleep(nodePollIntervalMs, stopped.signal);
    inUse.confirmRestored(new Set(node.status?.volumesAttached?.map(({ name }) => name)));
  };

  return {
    /** Runs work on one volume: never concurrently for the same volume, concurrently for different ones. */
    serialize,
    /** True if a pod other than this one uses the volume. */
    isUsedByOtherPod: publishedPods.hasOtherPod,
    /** The pod is going to use the volume, even if attempts fail: the volume is not unstaged until the pod releases it. */
    reserve: reservations.add,
    markPublished: publishedPods.add,
    /** True if this process has staged the volume, and it has not been unstaged since. */
    isStaged: (id: string): boolean => staged.has(id),
    /** The volume is staged now. */
    markStaged: (id: string): void => void staged.add(id),
    /** Unstages a volume that no pod uses; call it within `serialize`. @returns false if a pod uses it. */
    unstage,
    /** The pod is going to use an attached volume: it counts as in use until it is unstaged.
     *  @param name the cluster's name of the volume. */
    markInUse: inUse.markInUse,
    /** The volume's driver requires no attachment: it is not reported as in use, even if a pod uses it. */
    clearInUse: inUse.clear,
    /** Reconstructs staged volumes left by a previous process. @throws if the target cannot be read. */
    async recover(signal: AbortSignal) {
      await Promise.all(unmounters.flatMap((unmounter) => unmounter.removeIncomplete?.(deps, signal) ?? []));
      const found = await stagedOf([], signal);
      for (const { unmounter, id } of found)
        if (unmounter.attachedNames) inUse.restore(id, unmounter.attachedNames(id));
      reportInUse().catch(() => undefined);
      for (const { unmounter, id } of found) void unstaging.tryUnstage(unmounter, id, stopped.signal);
    },
    /** A pod's volumes are unmounted: unstages those that no other pod uses. Failures are logged and retried, and do not delay the
     *  pod.
     *  @param whole false if the pod may have had volumes that this process does not know. */
    async releasePod(uid: string, whole: boolean, signal: AbortSignal) {
      const own = [
        ...new Set([
          ...(pendingReleases.get(uid) ?? []),
          ...publishedPods.removePod(uid),
          ...reservations.removePod(uid),
          ...inUse.removePod(uid),
        ]),
      ];
      if (whole && own.length === 0) return;
      pendingReleases.set(uid, own);
      const released = (await stagedOf(own, signal)).filter(({ id }) => !whole || own.includes(id));
      await Promise.all(released.map(({ unmounter, id }) => unstaging.tryUnstage(unmounter, id, signal)));
      const ids = new Set(released.map(({ id }) => id));
      for (const id of own) if (!ids.has(id)) inUse.markUnstaged(id);
      pendingReleases.delete(uid);
    },
    stop() {
      stopped.abort();
      unstaging.stop();
    },
  };
}

/** Creates one lock per key; a lock without users is dropped. */
function createKeyedLock() {
  const locks = new Map<string, { users: number; readonly acquire: ReturnType<typeof createSemaphore> }>();
  return async <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const lock = locks.get(key) ?? { users: 0, acquire: createSemaphore(1) };
    locks.set(key, lock);
    lock.users += 1;
    try {
      return await lock.acquire(work);
    } finally {
      lock.users -= 1;
      if (lock.users === 0) locks.delete(key);
    }
  };
}

/** Pods by volume. */
function createPodSets() {
  const podsByVolume = new Map<string, Set<string>>();
  return {
    hasOtherPod: (id: string, uid: string) => [...(podsByVolume.get(id) ?? [])].some((other) => other !== uid),
    add: (id: string, uid: string) => void podsByVolume.set(id, (podsByVolume.get(id) ?? new Set()).add(uid)),
    /** Removes the pod. @returns the volumes that it had. */
    removePod(uid: string): readonly string[] {
      const own = [...podsByVolume].filter(([, pods]) => pods.has(uid)).map(([id]) => id);
      for (const id of own) {
        podsByVolume.get(id)?.delete(uid);
        if (podsByVolume.get(id)?.size === 0) podsByVolume.delete(id);
      }
      return own;
    },
  };
}

/** Attached volumes that pods are going to use, or that are staged. Leftovers of an earlier process count once the Node is
 *  known. */
function createInUseTracker(onChange: (names: readonly string[]) => void) {
  const names = new Map<string, string>();
  /** Volumes of an earlier process, with the names that each may have in the Node's status. */
  const restored = new Map<string, readonly string[]>();
  const users = createPodSets();
  let isKnown = false;
  const report = () => {
    if (isKnown) onChange([...new Set(names.values())].toSorted());
  };
  const add = (id: string, name: string) => {
    if (names.get(id) === name) return;
    names.set(id, name);
    report();
  };
  return {
    markInUse(id: string, uid: string, name: string) {
      users.add(id, uid);
      add(id, name);
    },
    restore: (id: string, possible: readonly string[]) => void restored.set(id, possible),
    /** @param attached names of the volumes that the cluster has attached. */
    confirmRestored(attached: ReadonlySet<string>) {
      for (const [id, possible] of restored) {
        const name = possible.find((one) => attached.has(one));
        if (name !== undefined && !names.has(id)) names.set(id, name);
      }
      restored.clear();
      isKnown = true;
      report();
    },
    removePod: users.removePod,
    clear(id: string) {
      restored.delete(id);
      if (names.delete(id)) report();
    },
    /** The volume is no longer staged. */
    markUnstaged(id: string) {
      if (!users.hasOtherPod(id, "")) restored.delete(id);
      if (!users.hasOtherPod(id, "") && names.delete(id)) report();
    },
  };
}

/** Unstages volumes with retries, until they are gone or in use again. */
function createUnstageRetries(
  { clock, log }: Pick<PersistentVolumeStatesDeps, "clock" | "log">,
  stopped: AbortSignal,
  unstage: (unmounter: PersistentVolumeUnmounter, id: string, signal: AbortSignal) => Promise<void>,
) {
  const timers = new Map<string, Timer>();
  const lastErrors = new Map<string, string>();
  const retries = createBackoff({ clock, initialMs: initialRetryDelayMs, maxMs: maxRetryDelayMs });
  const tryUnstage = async (unmounter: PersistentVolumeUnmounter, id: string, signal: AbortSignal): Promise<void> => {
    timers.get(id)?.cancel();
    timers.delete(id);
    try {
      await unstage(unmounter, id, signal);
      lastErrors.delete(id);
      retries.reset(id);
    } catch (error) {
      if (stopped.aborted) return;
      const why = messageOf(error);
      if (lastErrors.get(id) !== why) log.warn({ err: error, volume: id }, "cannot unstage volume; retrying");
      lastErrors.set(id, why);
      const again = clock.after(retries.next(id), () => void tryUnstage(unmounter, id, stopped));
      timers.set(id, again);
    }
  };
  const stop = () => {
    for (const timer of timers.values()) timer.cancel();
  };
  return { tryUnstage, stop };
}
