import { ContainerState, PodSandboxState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { LatestSlot } from "../lib/latest-slot.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { PodCache, RuntimeIds, RuntimePod } from "../pipeline.ts";
import type { ColumnWriter } from "../state/records.ts";
import type { Sends } from "../state/signals.ts";
import {
  type KnownBefore,
  type ObserveDeps,
  type PodListing,
  listAndObserve,
  listingFingerprint,
  observePod,
  podFingerprint,
} from "./observe.ts";

/** Relists, inspections and the event stream. */
export interface PlegMeasures {
  /** @param sinceLastMs since the start of the last successful relist; undefined before the first. */
  relistStarted(sinceLastMs: number | undefined): void;
  relisted(ms: number): void;
  inspected(ms: number): void;
  /** The event stream of the runtime was established. */
  eventStreamOpened(): void;
  /** An event arrived. @param ms since it happened, by the target's clock. */
  eventArrived(ms: number): void;
  eventStreamFailed(): void;
}

export interface InspectorDeps extends ObserveDeps {
  readonly log: Logger;
  /** Column written by the PLEG. */
  readonly podCache: ColumnWriter<RuntimePod>;
  readonly signals: Sends<"wakeWorker">;
  readonly measures: PlegMeasures;
}

/** What the PLEG does when an inspection has failed. */
export interface InspectionRetry {
  /** Called when an inspection has failed, or takes longer than a relist waits: the next relist repeats it. */
  readonly onFailedInspection: () => void;
}

/** Inspects pods in the runtime, updates the pod cache, and wakes the workers of pods that changed. */
export type PlegInspector = ReturnType<typeof createInspector>;

/** containerd sends an exit event about 25 ms before its status shows the exit: pauses between inspections until they agree, milliseconds. */
const exitRecheckMs = [10, 20, 40, 80, 160, 320, 640, undefined];

/** Time that a relist waits for the inspection of one pod, milliseconds. */
const inspectTimeoutMs = 5_000;
/** Delay of scheduled inspections, milliseconds: an actor that changes a pod inspects it itself, soon after the event. */
const scheduledInspectDelayMs = 1_000;

/** Creates the pod inspector. @param stop aborts running inspections. */
export function createInspector(options: InspectorDeps & InspectionRetry, stop: AbortSignal) {
  const { clock, log, podCache, signals } = options;
  const deps: InspectorDeps & InspectionRetry = { ...options, known: podCache.get };
  const podOfId = new Map<string, string>();
  const failures = createFailures(deps);
  const expectedExits = new Set<string>();

  const record = (pod: RuntimePod) => {
    for (const id of idsOf(podCache.get(pod.uid))) podOfId.delete(id);
    cacheNewest(podCache, pod);
    for (const id of idsOf(podCache.get(pod.uid))) podOfId.set(id, pod.uid);
    for (const id of expectedExits) if (podOfId.get(id) === pod.uid) inspectNow(pod.uid, id);
  };
  /** Records an observation, and wakes the pod's worker if the pod has changed. */
  const inspectAndWake = async (uid: string, observing: Promise<RuntimePod>) => {
    const [before, since] = [podCache.get(uid), clock.monotonic()];
    const after = await observing;
    deps.measures.inspected(clock.monotonic() - since);
    record(after);
    failures.clear(uid);
    if (!before || podFingerprint(before) !== podFingerprint(after)) signals.wakeWorker.send(uid, "pleg");
  };
  const observe = (uid: string, signal: AbortSignal, ended: ReadonlySet<string>, made?: RuntimeIds) =>
    listAndObserve(deps, uid, knownBefore(podCache.get(uid), ended, made), signal);

  /** Repeats the inspection while the runtime's status shows exited containers as running. */
  const inspectUntilExited = async (uid: string, ids: ReadonlySet<string>) => {
    for (const pause of exitRecheckMs) {
      await inspectAndWake(uid, observe(uid, stop, ids));
      if (pause === undefined || !isAnyAlive(podCache.get(uid), ids)) return;
      await clock.sleep(pause, stop);
    }
  };
  const onError = (uid: string, error: unknown) => {
    failures.markFailed(uid);
    if (!stop.aborted) log.debug({ err: error, uid }, "cannot inspect pod; retrying at the next relist");
  };
  const enqueue = createMailboxes(inspectUntilExited, onError);
  const inspectNow = (uid: string, exited: string | undefined) => {
    if (exited !== undefined) expectedExits.delete(exited);
    enqueue(uid, exited);
  };

  const { later: scheduleInspect, drop } = createInspectQueue(clock, podCache, (uid) => inspectNow(uid, undefined));
  stop.addEventListener("abort", drop, { once: true });

  return {
    /** Records another actor's observation of a pod. */
    recordObservation: record,
    /** Inspects a pod now; inspections of one pod are serialized. @param exited ID of a container or sandbox that an event reported as exited. */
    inspectNow,
    /** Schedules an inspection, which is skipped if the pod has been inspected by then. */
    scheduleInspect,
    /** Registers the exit of an unknown container or sandbox: its pod is inspected as soon as it is known. */
    expectExit: (id: string): void => void expectedExits.add(id),
    /** Completes a relist: forgets expected exits, and failures of pods that no longer exist. */
    completeRelist(listed: ReadonlyMap<string, PodListing>) {
      expectedExits.clear();
      failures.keepOnly(listed);
    },
    needsInspection: (uid: string) => failures.has(uid) && !podCache.get(uid),
    podUidOf: (id: string): string | undefined => podOfId.get(id),
    async inspect(uid: string, signal: AbortSignal, made?: RuntimeIds) {
      const pod = await observe(uid, signal, new Set(), made);
      record(pod);
      return pod;
    },
    /** Inspects a pod if its listing differs from the cache; the next relist retries a failed inspection. A slow inspection continues
     *  in the background: a container that hangs the runtime must not block the relist. */
    async inspectIfChanged(listing: PodListing, signal: AbortSignal) {
      const { uid } = listing;
      if (failures.isRunning(uid) || !mayDiffer(listing, podCache.get(uid), failures.has(uid))) return;
      const looking = inspectAndWake(uid, observePod(deps, listing, signal)).catch((error: unknown) =>
        onError(uid, error),
      );
      await failures.wait(uid, looking);
    },
  };
}

/** Creates a mailbox per pod while it has work: exits since the last inspection are handled by one inspection. */
function createMailboxes(
  inspect: (uid: string, ended: ReadonlySet<string>) => Promise<void>,
  onError: (uid: string, error: unknown) => void,
): (uid: string, ended: string | undefined) => void {
  const mailboxes = new Map<string, LatestSlot<ReadonlySet<string>>>();
  return (uid, ended) => {
    const mailbox =
      mailboxes.get(uid) ??
      new LatestSlot<ReadonlySet<string>>(
        (ids) => inspect(uid, ids),
        (error) => onError(uid, error),
      );
    mailboxes.set(uid, mailbox);
    mailbox.put(new Set([...(mailbox.pending ?? []), ...(ended === undefined ? [] : [ended])]));
    void mailbox.idle().then(() => void (mailbox.busy || mailboxes.delete(uid)));
  };
}

/** True if a listing may differ from the cache. @param lastFailed the last inspection of the pod failed. */
function mayDiffer(listing: PodListing, known: RuntimePod | undefined, lastFailed: boolean): boolean {
  if (!known) return true;
  if (known.observedAt > listing.listedAt) return false;
  return lastFailed || podFingerprint(known) !== listingFingerprint(listing);
}

/** Tracks pods whose last inspection failed, or takes longer than a relist waits. */
function createFailures({ clock, log, onFailedInspection }: InspectorDeps & InspectionRetry) {
  const failed = new Set<string>();
  const running = new Set<string>();
  const markFailed = (uid: string) => {
    failed.add(uid);
    onFailedInspection();
  };
  return {
    has: (uid: string) => failed.has(uid),
    isRunning: (uid: string) => running.has(uid),
    markFailed,
    clear: (uid: string) => void failed.delete(uid),
    keepOnly(listed: ReadonlyMap<string, PodListing>) {
      for (const uid of failed) if (!listed.has(uid)) failed.delete(uid);
    },
    /** Waits for an inspection, up to the timeout. @param looking the inspection; never rejects. */
    async wait(uid: string, looking: Promise<void>): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = clock.after(inspectTimeoutMs, () => {
        log.warn({ uid }, "pod inspection is slow; continuing the relist without it");
        markFailed(uid);
        running.add(uid);
        resolve();
      });
      void looking.then(() => {
        timer.cancel();
        running.delete(uid);
        resolve();
      });
      await promise;
    },
  };
}

/** Creates the queue of scheduled inspections. @param inspect is called when one is due, unless the pod was inspected meanwhile. */
function createInspectQueue(clock: Clock, cache: Pick<PodCache, "get">, inspect: (uid: string) => void) {
  const scheduled = new Map<string, { readonly at: number; readonly wasKnown: boolean }>();
  const queue = createWorkQueue(clock, (uid) => {
    const newest = scheduled.get(uid);
    scheduled.delete(uid);
    if (!newest) return;
    // A pod that is no longer cached was observed to be gone.
    const observedAt = cache.get(uid)?.observedAt ?? (newest.wasKnown ? Number.POSITIVE_INFINITY : 0);
    if (observedAt <= newest.at) inspect(uid);
  });
  const scheduleInspect = (uid: string) => {
    scheduled.set(uid, { at: clock.monotonic(), wasKnown: cache.get(uid) !== undefined });
    queue.add(uid, scheduledInspectDelayMs);
  };
  return { later: scheduleInspect, drop: () => queue.stop() };
}

function knownBefore(pod: RuntimePod | undefined, ended: ReadonlySet<string>, made?: RuntimeIds): KnownBefore {
  const all = (seen: readonly { readonly id: string }[] = [], more: readonly string[] = []) => [
    ...new Set([...seen.map(({ id }) => id), ...more]),
  ];
  return {
    known: {
      sandboxes: all(pod?.sandboxes, made?.sandboxes),
      containers: all(pod?.containers, made?.containers),
    },
    ended: (pod?.containers ?? []).filter(
      ({ id, state }) => ended.has(id) && state !== ContainerState.CONTAINER_EXITED,
    ),
  };
}

function idsOf(pod: RuntimePod | undefined): readonly string[] {
  return [...(pod?.sandboxes ?? []), ...(pod?.containers ?? [])].map(({ id }) => id);
}

/** True if any of these containers or sandboxes is running in the observation. */
function isAnyAlive(pod: RuntimePod | undefined, ids: ReadonlySet<string>): boolean {
  const containers = pod?.containers.some(({ id, state }) => ids.has(id) && state === ContainerState.CONTAINER_RUNNING);
  return (
    containers ||
    (pod?.sandboxes.some(({ id, state }) => ids.has(id) && state === PodSandboxState.SANDBOX_READY) ?? false)
  );
}

/** Caches an observation unless a newer one is cached. A pod with neither sandboxes nor containers is dropped; one whose
 *  sandbox has lost its addresses keeps the previous ones. */
function cacheNewest(podCache: ColumnWriter<RuntimePod>, pod: RuntimePod): void {
  const known = podCache.get(pod.uid);
  if (known && known.observedAt > pod.observedAt) return;
  if (pod.sandboxes.length === 0 && pod.containers.length === 0) podCache.delete(pod.uid);
  else podCache.set(pod.uid, pod.ips.length === 0 && known ? { ...pod, ips: known.ips } : pod);
}
