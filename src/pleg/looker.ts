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
  /** Column that the PLEG writes. */
  readonly seen: ColumnWriter<RuntimePod>;
  readonly signals: Sends<"wake">;
  readonly measures: PlegMeasures;
}

/** Looks at pods in the runtime, keeps the pod cache true, and wakes the workers of pods that changed. */
export interface Looker extends PodInspector {
  /** Looks at a pod whose listing differs from the cache; a failed look is tried again by the next relist. One that takes long
   *  goes on by itself: a container on which the runtime is silent holds up nothing. */
  check(listing: PodListing, signal: AbortSignal): Promise<void>;
  /** Keeps another actor's observation of a pod. */
  learn(pod: RuntimePod): void;
  /** Looks at a pod now, one look after another. @param exited a container or sandbox whose end was announced. */
  soon(uid: string, exited: string | undefined): void;
  /** Looks at a pod in a while, unless it was looked at by then. */
  later(uid: string): void;
  /** The end of an unknown container or sandbox was announced: its pod is looked at as soon as it is known. */
  expect(id: string): void;
  /** Drops what was expected, and pods that are no more: a relist has seen everything. */
  settle(listed: ReadonlyMap<string, PodListing>): void;
  podOf(id: string): string | undefined;
}

/** containerd announces an exit some 25 ms before its status shows it: looks after an exit event, until they agree. */
const lookAgainMs = [10, 20, 40, 80, 160, 320, 640, undefined];

/** A relist waits so long for the look at one pod, milliseconds. */
const patienceMs = 5_000;
/** An actor that creates or removes something of a pod looks at it at once: an event of it comes before. */
const laterMs = 1_000;

/** @param stop ends the looks under way. */
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
  /** Keeps what a look shows, and wakes the worker of a pod that changed. */
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

  /** Looks again while the runtime shows as running what it has announced the end of. */
  const lookUntilEnded = async (uid: string, ids: ReadonlySet<string>) => {
    for (const pause of lookAgainMs) {
      await look(uid, observe(uid, stop, ids));
      if (pause === undefined || !isAnyAlive(seen.get(uid), ids)) return;
      await clock.sleep(pause, stop);
    }
  };
  const onError = (uid: string, error: unknown) => {
    misses.note(uid);
    if (!stop.aborted) log.debug({ err: error, uid }, "pod could not be inspected, the relist will look again");
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

/** A mailbox for each pod, there while it has work: what has ended since the last look is looked at together. */
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

/** True if a listing shows something that may not be known. @param missed the last look at the pod failed. */
function isNews(listing: PodListing, known: RuntimePod | undefined, missed: boolean): boolean {
  if (!known) return true;
  if (known.observedAt > listing.listedAt) return false;
  return missed || podFingerprint(known) !== listingFingerprint(listing);
}

/** Pods at which the last look failed, or takes longer than a relist waits for it. */
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
        log.warn({ uid }, "the runtime is slow to say how a pod is, going on without");
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

/** Keeps what to look at later. @param look is called once the time has come, unless there was a look since. */
function createLater(clock: Clock, cache: Pick<PodCache, "get">, look: (uid: string) => void) {
  const told = new Map<string, { readonly at: number; readonly wasKnown: boolean }>();
  const queue = createWorkQueue(clock, (uid) => {
    const newest = told.get(uid);
    told.delete(uid);
    if (!newest) return;
    // A pod that is not there any more was seen to be gone.
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

/** True when any of the containers or sandboxes of these IDs is shown as running. */
function isAnyAlive(pod: RuntimePod | undefined, ids: ReadonlySet<string>): boolean {
  const containers = pod?.containers.some(({ id, state }) => ids.has(id) && state === ContainerState.CONTAINER_RUNNING);
  return (
    containers ||
    (pod?.sandboxes.some(({ id, state }) => ids.has(id) && state === PodSandboxState.SANDBOX_READY) ?? false)
  );
}
