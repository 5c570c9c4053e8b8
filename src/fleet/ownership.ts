import type { ApiClient } from "../api/client.ts";
import { hasCode, ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createFailureLog } from "../lib/retry.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { NamespacedMeta } from "../objects.ts";
import type { Claims } from "./claims.ts";
import type { OwnerStatus } from "./grafted-node.ts";
import { keepOnly } from "./known-objects.ts";
import type { Membership } from "./membership.ts";
import type { Replica } from "./own-lease.ts";
import type { ReachClaims } from "./reach-claims.ts";
import { type PlacedObject, placementOf, surplusOf } from "./placement.ts";

/** An object that names its owner in its status. */
export interface OwnedObject {
  readonly metadata: NamespacedMeta;
  readonly status?: { readonly owner?: OwnerStatus };
}

export interface OwnershipDeps<T extends OwnedObject> extends ClockAndLog {
  readonly client: Pick<ApiClient, "get" | "patch">;
  readonly self: Replica;
  readonly membership: Pick<Membership, "isAlive" | "accepting" | "isOutside" | "mayTake">;
  /** The objects to be served, as they are in the cluster. */
  readonly objects: () => readonly T[];
  /** Claims to objects that the number of a replica's objects does not decide about; without them there are none. */
  readonly claims?: Claims<T>;
  /** Claims to objects whose owners do not reach them. */
  readonly reachClaims?: ReachClaims<T>;
  /** Path of an object. */
  readonly path: (namespace: string, name: string) => string;
  /** Stops serving an object. Resolves once nothing of this process uses its machine. */
  readonly stop: (name: string) => Promise<void>;
  /** Serves an object again that could not be handed over. */
  readonly resume: (name: string) => void;
  /** True if the object's owner serves it. */
  readonly isServed: (object: T) => boolean;
  /** True if only Pods can serve the object, and no replica outside the cluster; without it, any replica serves any object. */
  readonly needsPod?: (object: T) => boolean;
}

export interface Ownership<T extends OwnedObject> extends Runnable {
  /** True if this replica serves the object. */
  owns(object: T): boolean;
  /** Number of objects that no living replica owns. */
  unowned(): number;
  /** Takes an object again that this replica owns, in the next epoch. */
  takeAgain(object: T, signal: AbortSignal): void;
  /** To be called when objects or replicas have changed. */
  check(): void;
  /** Hands over all objects of this replica, a few at a time. Ends early when the signal aborts. */
  handOverAll(signal: AbortSignal): Promise<void>;
}

/** Time after which any replica takes an object that its preferred replica has not taken, milliseconds. */
const abandonedMs = 5_000;
/** Time for which a machine that chooses its replica may connect to one before its object is placed like others, so that its status says
 *  that the machine is not connected, milliseconds. An object that never had an owner is placed at once. */
const arrivalMs = 10_000;
/** Minimum interval between two passes over all objects, milliseconds. */
const passIntervalMs = 50;
/** Delay before a failed change of owner is tried again, milliseconds. */
const retryMs = 1_000;
/** Number of objects whose owner changes at the same time: when they are taken, and when this replica shuts down. */
const [takenAtOnce, handedOverAtOnce] = [16, 4];
/** Longest wait until an object that was handed over is served again, and the interval at which that is looked at, milliseconds. The next
 *  objects are handed over only then: replicas that get more than they can start at once would serve none of them for longer. */
const [servedAgainMs, lookMs] = [10_000, 100];
/** Share of all objects that a replica with too many gives away at the same time. */
const balancedAtOnce = 0.02;

/** Decides which objects this replica serves. Each object names its owner in its status, which replicas change by compare-and-swap. An
 *  object without owner, or whose owner has died, is taken by the replica that `placementOf` chooses, or after a while by any. Only its
 *  owner gives an object away; objects that `claims` concern are taken by the replica to which their machines have connected, and are not
 *  given away because of their number. One that only its owner does not reach is taken by a replica that does. The owner's epoch grows each
 *  time that a replica takes the object. */
export function createOwnership<T extends OwnedObject>(deps: OwnershipDeps<T>): Ownership<T> {
  const { membership, objects, clock } = deps;
  const changed = createTrigger();
  const takes = createTakes(deps, changed.fire);
  const handOvers = createHandOvers(deps, changed.fire);
  return {
    name: "ownership",
    owns: handOvers.owns,
    unowned: () =>
      objects()
        .map(placedObject(membership))
        .filter(({ owner }) => owner === undefined).length,
    takeAgain(object, signal) {
      if (handOvers.owns(object) && membership.mayTake()) takes.take(object, signal);
    },
    check: changed.fire,
    async run(signal) {
      while (!signal.aborted) {
        let againMs: number | undefined;
        if (membership.mayTake()) {
          const all = objects();
          againMs = soonest(takes.takeClaimed(all, signal), takes.takeUnowned(all, signal));
          takes.takeUnreached(all, signal);
          handOvers.balance(all, signal);
        }
        // Hundreds of changes may arrive at once; one pass handles those of an interval.
        await clock.sleep(passIntervalMs, signal).catch(() => undefined);
        await changed.firedWithin(clock, againMs, signal);
      }
    },
    handOverAll: handOvers.handOverAll,
  };
}

interface TakeReason {
  /** UID of the owner, if the object is taken because only that one does not reach it. */
  readonly unreachedBy?: string | undefined;
  readonly onTaken?: () => unknown;
}

/** Takes objects without a living owner, those that this replica claims, and those that it reaches in place of their owners. */
function createTakes<T extends OwnedObject>(deps: OwnershipDeps<T>, onChange: () => void) {
  const { self, membership, claims, reachClaims, clock } = deps;
  const takes = createChanges(deps, onChange);
  const inTurn = createSemaphore(takenAtOnce);
  /** Since when objects have had no owner, monotonic milliseconds. */
  const unowned = new Map<string, number>();
  /** Epochs in which this replica has taken objects, by their UIDs: it may see its own change later than it was made. */
  const taken = new Map<string, number>();
  const placed = placedObject(membership);
  const isClaimed = (object: T) => claims?.concerns(object) ?? false;
  const start = (object: T, signal: AbortSignal, { unreachedBy, onTaken = () => {} }: TakeReason = {}) => {
    if (!mayServe(deps, self.uid, object)) return;
    const { name, uid } = object.metadata;
    const epoch = (object.status?.owner?.epoch ?? 0) + 1;
    if ((taken.get(uid) ?? 0) >= epoch) return;
    const former = unreachedBy !== undefined &&
      unreachedBy !== self.uid && { unreachedBy: { uid: unreachedBy, epoch } };
    const work = () => inTurn(() => take(deps, object, { epoch, ...former }, signal), signal);
    const workAndRecord = async () => {
      taken.set(uid, await work());
      onTaken();
    };
    void takes.start(name, workAndRecord, signal);
  };
  /** Replicas for the objects without owner, by their names. Objects that are claimed are placed among themselves: replicas have as many of
   *  them as machines have chosen. */
  const targetsOf = (all: readonly T[]) => {
    const others = all.filter((object) => !isClaimed(object));
    // As in `balance`, owned objects that are kept do not count: the next owner would otherwise give the object away again.
    const counted = others.filter((object) => !reachClaims?.isKept(object) || placed(object).owner === undefined);
    const groups = [
      ...groupsOf(deps, all.filter(isClaimed)),
      ...groupsOf(deps, counted, reachClaims?.doubtful(others)),
    ];
    return new Map(groups.flatMap((group) => [...placementOf(group.objects.map(placed), group.replicas)]));
  };
  return {
    take: (object: T, signal: AbortSignal) => start(object, signal),
    /** Takes the objects that are this replica's turn. @returns when to look again, milliseconds; undefined if no other object is without
     *  owner. */
    takeUnowned(all: readonly T[], signal: AbortSignal): number | undefined {
      const now = clock.monotonic();
      const targets = targetsOf(all);
      for (const name of unowned.keys()) if (!targets.has(name)) unowned.delete(name);
      keepOnly(taken, all);
      let againMs: number | undefined;
      for (const object of all) {
        const { name } = object.metadata;
        const target = targets.get(name);
        if (target === undefined) continue;
        const since = unowned.get(name) ?? now;
        unowned.set(name, since);
        const waitMs = isClaimed(object) && object.status?.owner ? arrivalMs : 0;
        const leftMs = since + waitMs + (target === self.uid ? 0 : abandonedMs) - now;
        // It stays kept if its new owner is lost as well.
        if (leftMs <= 0) start(object, signal, { unreachedBy: reachClaims?.formerOwner(object) });
        else againMs = soonest(againMs, leftMs);
      }
      return againMs;
    },
    /** Takes the objects whose machines have connected to this replica. @returns as `takeUnowned` does. */
    takeClaimed(all: readonly T[], signal: AbortSignal): number | undefined {
      claims?.keepOnly(all);
      let againMs: number | undefined;
      for (const object of all) {
        if (!claims?.concerns(object) || object.status?.owner?.uid === self.uid) continue;
        const isOwned = placed(object).owner !== undefined;
        const leftMs = claims.delayMs(object, isOwned);
        if (leftMs === 0) start(object, signal, { onTaken: () => isOwned && claims.taken(object) });
        else againMs = soonest(againMs, leftMs);
      }
      return againMs;
    },
    /** Takes the objects whose owners do not reach them. */
    takeUnreached(all: readonly T[], signal: AbortSignal): void {
      for (const object of all) {
        if (!reachClaims?.isDue(object)) continue;
        start(object, signal, {
          unreachedBy: object.status?.owner?.uid,
          onTaken: () => reachClaims.taken(object),
        });
      }
    },
  };
}

/** Gives this replica's objects away. */
function createHandOvers<T extends OwnedObject>(deps: OwnershipDeps<T>, onChange: () => void) {
  const { self, membership, objects, claims, reachClaims, clock } = deps;
  const handOvers = createChanges(deps, onChange);
  const isOwn = ({ status }: T) => status?.owner?.uid === self.uid;
  /** Epochs in which this replica has handed over objects, by their UIDs: it may see its own change later than it was made. */
  const handedOver = new Map<string, number>();
  const owns = (object: T) =>
    isOwn(object) &&
    !handOvers.has(object.metadata.name) &&
    handedOver.get(object.metadata.uid) !== object.status?.owner?.epoch;
  const hasOthers = (object: T) =>
    membership.accepting().some((uid) => uid !== self.uid && mayServe(deps, uid, object));
  const untilServedAgain = async (uid: string, signal: AbortSignal) => {
    const limit = clock.monotonic() + servedAgainMs;
    const isWaiting = () => {
      const object = objects().find(({ metadata }) => metadata.uid === uid);
      return object !== undefined && (isOwn(object) || !deps.isServed(object)) && hasOthers(object);
    };
    while (isWaiting() && clock.monotonic() < limit) await clock.sleep(lookMs, signal);
  };
  const handOver = async (object: T, signal: AbortSignal) => {
    const { name, uid } = object.metadata;
    const wasServed = deps.isServed(object);
    const work = async () => {
      await deps.stop(name);
      handedOver.set(uid, await release(deps, object, signal));
      if (wasServed) await untilServedAgain(uid, signal);
    };
    await handOvers.start(name, work, signal);
    deps.resume(name);
  };
  return {
    owns,
    /** Gives some of the objects away if this replica has more than its share, or may no longer serve them. */
    balance(all: readonly T[], signal: AbortSignal): void {
      keepOnly(handedOver, all);
      const atOnce = Math.max(1, Math.floor(all.length * balancedAtOnce)) - handOvers.count();
      if (atOnce <= 0) return;
      const unclaimed = all.filter((object) => !claims?.concerns(object));
      const balanced = unclaimed.filter((object) => !reachClaims?.isKept(object));
      const misplaced = balanced.filter(
        (object) => isOwn(object) && !mayServe(deps, self.uid, object) && hasOthers(object),
      );
      const surplus = groupsOf(deps, balanced, reachClaims?.doubtful(unclaimed)).flatMap((group) =>
        surplusOf(group.objects.map(placedObject(membership)), group.replicas, self.uid),
      );
      const wanted = [...misplaced.map(({ metadata }) => metadata.name), ...surplus];
      const given = new Set(wanted.filter((name) => !handOvers.has(name)).slice(0, atOnce));
      for (const object of balanced) if (given.has(object.metadata.name) && owns(object)) void handOver(object, signal);
    },
    async handOverAll(signal: AbortSignal): Promise<void> {
      const turn = createSemaphore(handedOverAtOnce);
      const given = objects().filter(isOwn);
      await Promise.all(given.map((object) => turn(() => handOver(object, signal), signal).catch(() => undefined)));
    },
  };
}

/** True if the replica with this UID may serve the object. */
export function mayServe<T extends OwnedObject>(
  { membership, needsPod }: Pick<OwnershipDeps<T>, "needsPod"> & { readonly membership: Pick<Membership, "isOutside"> },
  uid: string,
  object: T,
): boolean {
  return !membership.isOutside(uid) || !needsPod?.(object);
}

/** Groups objects by the replicas that accept them. Each group is placed by itself, so that all replicas of a group have the same choice.
 *  @param doubtful UIDs of replicas that get objects only if a group has no others. */
function groupsOf<T extends OwnedObject>(
  { membership, needsPod }: OwnershipDeps<T>,
  all: readonly T[],
  doubtful: ReadonlySet<string> = new Set(),
) {
  const accepting = membership.accepting();
  const pods = accepting.filter((uid) => !membership.isOutside(uid));
  const preferred = (replicas: readonly string[]) => {
    const certain = replicas.filter((uid) => !doubtful.has(uid));
    return certain.length > 0 ? certain : replicas;
  };
  if (!needsPod || pods.length === accepting.length) return [{ objects: all, replicas: preferred(accepting) }];
  return [
    { objects: all.filter(needsPod), replicas: preferred(pods) },
    { objects: all.filter((object) => !needsPod(object)), replicas: preferred(accepting) },
  ];
}

function soonest(...delaysMs: readonly (number | undefined)[]): number | undefined {
  const given = delaysMs.filter((ms) => ms !== undefined);
  return given.length > 0 ? Math.min(...given) : undefined;
}

/** Changes of owners that are under way, at most one for each object. */
function createChanges({ clock, log }: ClockAndLog, onChange: () => void) {
  const failures = createFailureLog(log, "cannot change the owner of an object; retrying");
  const underWay = new Set<string>();
  return {
    has: (name: string) => underWay.has(name),
    count: () => underWay.size,
    /** Does the work unless such a change of the object is under way. After a failure it waits for a moment; the caller is then called back. */
    async start(name: string, work: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
      if (underWay.has(name)) return;
      underWay.add(name);
      try {
        await work();
        failures.succeeded();
      } catch (error) {
        if (!signal.aborted && !hasCode(error, "conflict", "not_found")) failures.failed(error, { object: name });
        await clock.sleep(retryMs, signal).catch(() => undefined);
      }
      underWay.delete(name);
      onChange();
    },
  };
}

/** The object with its owner, if that is alive. */
function placedObject({ isAlive }: Pick<Membership, "isAlive">) {
  return ({ metadata: { name }, status }: OwnedObject): PlacedObject => {
    const uid = status?.owner?.uid ?? "";
    return { name, owner: uid !== "" && isAlive(uid) ? uid : undefined };
  };
}

/** Makes this replica the owner of an object. @returns the epoch. @throws conflict if the object has changed meanwhile. */
async function take<T extends OwnedObject>(
  deps: OwnershipDeps<T>,
  object: T,
  taken: Pick<OwnerStatus, "epoch" | "unreachedBy">,
  signal: AbortSignal,
): Promise<number> {
  const { name: replica, uid } = deps.self;
  await writeOwner(deps, object, { replica, uid, since: rfc3339(deps.clock.now()), ...taken }, signal);
  return taken.epoch;
}

/** Leaves an object without owner, unless it has another one by now. @returns the epoch in which this replica owned it.
 *  @throws conflict if the object has changed meanwhile. */
async function release<T extends OwnedObject>(deps: OwnershipDeps<T>, object: T, signal: AbortSignal): Promise<number> {
  const { client, self, clock } = deps;
  const { name, namespace } = object.metadata;
  const now = await ignoreNotFound(client.get<T>(deps.path(namespace, name), { signal }));
  const { uid, epoch } = now?.status?.owner ?? {};
  if (!now || epoch === undefined || uid !== self.uid) return object.status?.owner?.epoch ?? 0;
  await writeOwner(deps, now, { replica: "", uid: "", epoch, since: rfc3339(clock.now()) }, signal);
  return epoch;
}

/** Compare-and-swap: the object must still have the version that was read. */
async function writeOwner<T extends OwnedObject>(
  { client, path }: OwnershipDeps<T>,
  { metadata: { name, namespace, resourceVersion } }: T,
  owner: OwnerStatus,
  signal: AbortSignal,
): Promise<void> {
  const body = { metadata: { resourceVersion }, status: { owner } };
  const query = { fieldManager: "graftlet-owner" };
  await client.patch(`${path(namespace, name)}/status`, { type: "merge", body }, { signal, query });
}
