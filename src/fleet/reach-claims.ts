import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { createTrigger } from "../lib/trigger.ts";
import { type GraftedNode, isDeleted } from "./grafted-node.ts";
import { createKeptObjects } from "./kept-objects.ts";
import { keepOnly } from "./known-objects.ts";
import { rankOf } from "./placement.ts";

export interface ReachClaimsDeps {
  readonly clock: Pick<Clock, "monotonic" | "sleep" | "within">;
  readonly log: Pick<Logger, "info">;
  /** UID of this replica. */
  readonly self: string;
  /** The objects that are served, as they are in the cluster. */
  readonly objects: () => readonly GraftedNode[];
  /** UIDs of the replicas that accept the object; none while this replica may not take any. */
  readonly accepting: (object: GraftedNode) => readonly string[];
  /** Connects to the object's machine and runs a command there. @throws if that fails. */
  readonly reach: (object: GraftedNode, signal: AbortSignal) => Promise<void>;
  /** Called when an object is due. */
  readonly onDue: () => void;
}

/** Decides when a replica takes an object from an owner that is alive but cannot reach the machine. */
export interface ReachClaims<T> {
  /** True if this replica should take the object: it reaches the machine, and the owner does not. */
  isDue(object: T): boolean;
  /** To be called when this replica has taken such an object. */
  taken(object: T): void;
  /** True for an object that a replica took for that reason not long ago. It is not given away because of the number of objects. */
  isKept(object: T): boolean;
  /** Returns the UID of the replica from which such an object was taken; undefined for any other object. */
  formerOwner(object: T): string | undefined;
  /** Returns the UIDs of the replicas from which such objects were taken: they may not reach other machines either, and get no objects as
   *  long as there are other replicas. */
  doubtful(objects: readonly T[]): ReadonlySet<string>;
}

/** Claims that connect to machines while they run. */
export interface RunningReachClaims extends ReachClaims<GraftedNode>, Runnable {
  /** To be called when replicas, or all objects, have changed. */
  check(): void;
  /** To be called when an object has changed. */
  changed(object: GraftedNode): void;
}

/** How long the owner's link must be down before another replica connects to the machine, and how much longer before the next one in turn
 *  does, milliseconds. */
const [unlinkedMs, turnMs] = [60_000, 120_000];
/** How long a replica must have reached the machine before it takes the object, milliseconds. */
const reachedMs = 60_000;
/** Interval of the connections: after a success, and after failures, where it doubles up to a maximum, milliseconds. */
const [repeatMs, firstRetryMs, longestRetryMs] = [20_000, 60_000, 600_000];
/** Minimum interval between two takes of one object by one replica, milliseconds. */
const againMs = 600_000;
/** Connections at the same time, and the time limit of each, milliseconds. */
const [connectionsAtOnce, connectionMs] = [4, 30_000];

/** An object whose owner cannot reach the machine. */
interface Unlinked {
  readonly epoch: number;
  /** Since when this replica has known it, monotonic milliseconds. */
  readonly since: number;
  /** When this replica reached the machine for the first and the last time since it last failed to. */
  reached: { readonly first: number; readonly last: number } | undefined;
  failures: number;
  /** When to connect again. */
  next: number;
  isConnecting: boolean;
}

/** Creates the claims of a replica to objects whose owners cannot reach their machines although other replicas can, for example because the
 *  network of a cluster node is broken. The replica that ranks the object highest tries first. A machine that no replica reaches stays with
 *  its owner. */
export function createReachClaims(deps: ReachClaimsDeps): RunningReachClaims {
  const { clock, log, self, objects, accepting, reach, onDue } = deps;
  const changed = createTrigger();
  const unlinked = createUnlinkedObjects(deps);
  const takenAt = new Map<string, number>();
  const kept = createKeptObjects(clock);
  const inTurn = createSemaphore(connectionsAtOnce);
  const forgetOthers = (all: readonly GraftedNode[]): void => {
    keepOnly(takenAt, all);
    kept.keepOnly(all);
  };
  const isMine = (object: GraftedNode, known: Unlinked): boolean => {
    const { metadata, status } = object;
    const others = accepting(object).filter((uid) => uid !== status?.owner?.uid);
    const rank = rankOf(metadata.name, others, self);
    return rank !== undefined && clock.monotonic() >= known.since + unlinkedMs + rank * turnMs;
  };
  const connect = async (object: GraftedNode, known: Unlinked, signal: AbortSignal): Promise<void> => {
    const { name } = object.metadata;
    known.isConnecting = true;
    try {
      await inTurn(() => reach(object, clock.within(connectionMs, signal)), signal);
      const now = clock.monotonic();
      if (!known.reached) log.info({ object: name }, "connected to a machine that its owner cannot reach");
      known.failures = 0;
      known.reached = { first: known.reached?.first ?? now, last: now };
      known.next = now + repeatMs;
    } catch (error) {
      if (!signal.aborted)
        log.info({ err: error, object: name }, "cannot connect to a machine that its owner cannot reach");
      known.reached = undefined;
      known.next = clock.monotonic() + Math.min(firstRetryMs * 2 ** known.failures, longestRetryMs);
      known.failures += 1;
    } finally {
      known.isConnecting = false;
    }
    changed.fire();
  };
  const isDue = ({ metadata: { uid }, status }: GraftedNode): boolean => {
    const known = unlinked.get(uid);
    if (!known?.reached || known.epoch !== status?.owner?.epoch) return false;
    const sinceTaken = clock.monotonic() - (takenAt.get(uid) ?? Number.NEGATIVE_INFINITY);
    return known.reached.last - known.reached.first >= reachedMs && sinceTaken >= againMs;
  };
  return {
    name: "machines that their owners do not reach",
    isDue,
    taken: ({ metadata: { uid } }) => void takenAt.set(uid, clock.monotonic()),
    isKept: kept.isKept,
    formerOwner: kept.formerOwner,
    doubtful: kept.formerOwners,
    check: changed.fire,
    changed(object) {
      if (isUnlinked(object, self) !== unlinked.has(object.metadata.uid)) changed.fire();
    },
    async run(signal) {
      while (!signal.aborted) {
        const all = objects();
        forgetOthers(all);
        unlinked.follow(all);
        let due: number | undefined;
        for (const object of all) {
          const known = unlinked.get(object.metadata.uid);
          if (!known || known.isConnecting) continue;
          if (isDue(object)) onDue();
          else if (known.next > clock.monotonic() || !isMine(object, known)) {
            const at = Math.max(known.next, clock.monotonic() + repeatMs);
            due = Math.min(due ?? at, at);
          } else void connect(object, known, signal);
        }
        const waitMs = due === undefined ? undefined : Math.max(0, due - clock.monotonic());
        await changed.firedWithin(clock, waitMs, signal);
      }
    },
  };
}

/** What a replica knows of the objects whose owners cannot reach their machines, by their UIDs. */
function createUnlinkedObjects({ clock, self }: Pick<ReachClaimsDeps, "clock" | "self">) {
  const known = new Map<string, Unlinked>();
  return {
    get: (uid: string) => known.get(uid),
    has: (uid: string) => known.has(uid),
    follow(all: readonly GraftedNode[]): void {
      const lost = new Map(
        all.filter((object) => isUnlinked(object, self)).map((object) => [object.metadata.uid, object]),
      );
      for (const [uid, { epoch }] of known) if (lost.get(uid)?.status?.owner?.epoch !== epoch) known.delete(uid);
      for (const [uid, { status }] of lost) {
        if (known.has(uid)) continue;
        const now = clock.monotonic();
        const fresh = { since: now, reached: undefined, failures: 0, next: now + unlinkedMs, isConnecting: false };
        known.set(uid, { epoch: status?.owner?.epoch ?? 0, ...fresh });
      }
    },
  };
}

/** True if another replica owns the object, and says that its connection to the machine is down although the machine did not refuse it. */
function isUnlinked(object: GraftedNode, self: string): boolean {
  const { spec, status } = object;
  if (spec.paused || isDeleted(object) || !status?.owner?.uid || status.owner.uid === self) return false;
  if (status.observedEpoch !== status.owner.epoch) return false;
  const linked = status.conditions?.find(({ type }) => type === "Linked");
  return linked?.status === "False" && linked.reason === "LinkDown";
}
