import { ContainerState, PodSandboxState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { Mailbox } from "../lib/mailbox.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { PlegMeasures } from "../measures.ts";
import type { PodCache, PodInspector, RuntimeIds, RuntimePod } from "../pipeline.ts";
import type { ColumnWriter } from "../state/rows.ts";
import type { Sends } from "../state/signals.ts";
import {
  type BeforeLook,
  type ObserveDeps,
  type PodListing,
  listAndObserve,
  listingFingerprint,
  observePod,
  podFingerprint,
} from "./observe.ts";
import { keepNewest } from "./pod-cache.ts";

export interface LookerDeps extends ObserveDeps {
  readonly log: Logger;
  /** Column written by the PLEG. */
  readonly seen: ColumnWriter<RuntimePod>;
  readonly signals: Sends<"wake">;
  readonly measures: PlegMeasures;
}

/** Inspects pods in the runtime, updates the pod cache, and wakes the workers of pods that changed. */
export interface Looker extends PodInspector {
  /** Inspects a pod if its listing differs from the cache; the next relist retries a failed inspection. A slow inspection continues
   *  in the background: a container that hangs the runtime must not block the relist. */
  check(listing: PodListing, signal: AbortSignal): Promise<void>;
  /** Records another actor's observation of a pod. */
  learn(pod: RuntimePod): void;
  /** Inspects a pod now; inspections of one pod are serialized. @param exited ID of a container or sandbox that an event reported as exited. */
  soon(uid: string, exited: string | undefined): void;
  /** Schedules an inspection, which is skipped if the pod has been inspected by then. */
  later(uid: string): void;
  /** Registers the exit of an unknown container or sandbox: its pod is inspected as soon as it is known. */
  expect(id: string): void;
  /** Completes a relist: forgets expected exits, and failures of pods that no longer exist. */
  settle(listed: ReadonlyMap<string, PodListing>): void;
  podOf(id: string): string | undefined;
}

/** containerd sends an exit event about 25 ms before its status shows the exit: pauses between inspections until they agree, milliseconds. */
const lookAgainMs = [10, 20, 40, 80, 160, 320, 640, undefined];

/** Time that a relist waits for the inspection of one pod, milliseconds. */
const patienceMs = 5_000;
/** Delay of scheduled inspections, milliseconds: an actor that changes a pod inspects it itself, soon after the event. */
const laterMs = 1_000;

/** Creates the pod inspector. @param stop aborts running inspections. */
export function createLooker(given: LookerDeps, stop: AbortSignal): Looker {
  const { clock, log, seen, signals } = given;
  const deps: LookerDeps = { ...given, known: seen.get };
  const podOfId = new Map<string, string>();
  const misses = createMisses(deps);
  const expected = new Set<string>();

  const keep = (pod: RuntimePod) => {
    for (const id of idsOf(seen.get(pod.uid))) podOfId.delete(id);
    keepNewest(seen, pod);
    for (const id of idsOf(seen.get(pod.uid))) podOfId.set(id, pod.uid);
    for (const id of expected) if (podOfId.get(id) === pod.uid) soon(pod.uid, id);
  };
  /** Records an observation, and wakes the pod's worker if the pod has changed. */
  const look = async (uid: string, observing: Promise<RuntimePod>) => {
    const [before, since] = [seen.get(uid), clock.monotonic()];
    const after = await observing;
    deps.measures.looked(clock.monotonic() - since);
    keep(after);
    misses.clear(uid);
    if (!before || podFingerprint(before) !== podFingerprint(after)) signals.wake.send(uid, "pleg");
  };
  const observe = (uid: string, signal: AbortSignal, ended: ReadonlySet<string>, made?: RuntimeIds) =>
    listAndObserve(deps, uid, beforeLook(seen.get(uid), ended, made), signal);

  /** Repeats the inspection while the runtime's status shows exited containers as running. */
  const lookUntilEnded = async (uid: string, ids: ReadonlySet<string>) => {
    for (const pause of lookAgainMs) {
      await look(uid, observe(uid, stop, ids));
      if (pause === undefined || !isAnyAlive(seen.get(uid), ids)) return;
      await clock.sleep(pause, stop);
    }
  };
  const onError = (uid: string, error: unknown) => {
    misses.note(uid);
    if (!stop.aborted) log.debug({ err: error, uid }, "cannot inspect pod; retrying at the next relist");
  };
  const put = createBoxes(lookUntilEnded, onError);
  const soon = (uid: string, exited: string | undefined) => {
    if (exited !== undefined) expected.delete(exited);
    put(uid, exited);
  };

  const { later, drop } = createLater(clock, seen, (uid) => soon(uid, undefined));
  stop.addEventListener("abort", drop, { once: true });

  return {
    learn: keep,
    soon,
    later,
    expect: (id) => void expected.add(id),
    settle(listed) {
      expected.clear();
      misses.keepOnly(listed);
    },
    isUnseen: (uid) => misses.has(uid) && !seen.get(uid),
    podOf: (id) => podOfId.get(id),
    async inspect(uid, signal, made) {
      const pod = await observe(uid, signal, new Set(), made);
      keep(pod);
      return pod;
    },
    async check(listing, signal) {
      const { uid } = listing;
      if (misses.isUnderWay(uid) || !isNews(listing, seen.get(uid), misses.has(uid))) return;
      const looking = look(uid, observePod(deps, listing, signal)).catch((error: unknown) => onError(uid, error));
      await misses.wait(uid, looking);
    },
  };
}

/** Creates a mailbox per pod while it has work: exits since the last inspection are handled by one inspection. */
function createBoxes(
  look: (uid: string, ended: ReadonlySet<string>) => Promise<void>,
  onError: (uid: string, error: unknown) => void,
): (uid: string, ended: string | undefined) => void {
  const boxes = new Map<string, Mailbox<ReadonlySet<string>>>();
  return (uid, ended) => {
    const box =
      boxes.get(uid) ??
      new Mailbox<ReadonlySet<string>>(
        (ids) => look(uid, ids),
        (error) => onError(uid, error),
      );
    boxes.set(uid, box);
    box.put(new Set([...(box.waiting ?? []), ...(ended === undefined ? [] : [ended])]));
    void box.idle().then(() => void (box.busy || boxes.delete(uid)));
  };
}

/** True if a listing may differ from the cache. @param missed the last inspection of the pod failed. */
function isNews(listing: PodListing, known: RuntimePod | undefined, missed: boolean): boolean {
  if (!known) return true;
  if (known.observedAt > listing.listedAt) return false;
  return missed || podFingerprint(known) !== listingFingerprint(listing);
}

/** Tracks pods whose last inspection failed, or takes longer than a relist waits. */
function createMisses({ clock, log }: LookerDeps) {
  const missed = new Set<string>();
  const underWay = new Set<string>();
  return {
    has: (uid: string) => missed.has(uid),
    isUnderWay: (uid: string) => underWay.has(uid),
    note: (uid: string) => void missed.add(uid),
    clear: (uid: string) => void missed.delete(uid),
    keepOnly(listed: ReadonlyMap<string, PodListing>) {
      for (const uid of missed) if (!listed.has(uid)) missed.delete(uid);
    },
    /** @param looking never rejects. */
    async wait(uid: string, looking: Promise<void>): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = clock.after(patienceMs, () => {
        log.warn({ uid }, "pod inspection is slow; continuing the relist without it");
        missed.add(uid);
        underWay.add(uid);
        resolve();
      });
      void looking.then(() => {
        timer.cancel();
        underWay.delete(uid);
        resolve();
      });
      await promise;
    },
  };
}

/** Creates the queue of scheduled inspections. @param look is called when one is due, unless the pod was inspected meanwhile. */
function createLater(clock: Clock, cache: Pick<PodCache, "get">, look: (uid: string) => void) {
  const told = new Map<string, { readonly at: number; readonly wasKnown: boolean }>();
  const queue = createWorkQueue(clock, (uid) => {
    const newest = told.get(uid);
    told.delete(uid);
    if (!newest) return;
    // A pod that is no longer cached was observed to be gone.
    const observedAt = cache.get(uid)?.observedAt ?? (newest.wasKnown ? Number.POSITIVE_INFINITY : 0);
    if (observedAt <= newest.at) look(uid);
  });
  const later = (uid: string) => {
    told.set(uid, { at: clock.monotonic(), wasKnown: cache.get(uid) !== undefined });
    queue.add(uid, laterMs);
  };
  return { later, drop: () => queue.stop() };
}

function beforeLook(pod: RuntimePod | undefined, ended: ReadonlySet<string>, made?: RuntimeIds): BeforeLook {
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
