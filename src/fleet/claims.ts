import type { Clock } from "../lib/clock.ts";
import type { Arrival } from "../seams/machine-listeners.ts";
import type { FleetCondition, GraftedNode } from "./grafted-node.ts";
import { createEpochSightings, keepOnly } from "./known-objects.ts";

export interface ClaimsDeps {
  readonly clock: Pick<Clock, "monotonic">;
  /** True if the object's machine opens a reverse tunnel. */
  dialsIn(object: GraftedNode): boolean;
  /** The connection of an object's machine to this replica; undefined if there is none. */
  arrival(name: string): Arrival | undefined;
}

/** Decides when a replica takes an object because its machine has connected to this replica. */
export interface Claims<T> {
  /** True for an object whose machine chooses the replica by connecting to it. */
  concerns(object: T): boolean;
  /** Returns when this replica may take the object, milliseconds from now; undefined if its machine is not connected here, or prefers the
   *  owner. @param isOwned true if its owner is alive; it is another replica. */
  delayMs(object: T, isOwned: boolean): number | undefined;
  /** To be called when this replica takes an object from an owner that is alive. */
  taken(object: T): void;
  /** Forgets objects that are gone. */
  keepOnly(objects: readonly T[]): void;
}

/** Time for which a connection lasts before it counts against an owner that is linked, milliseconds. */
const lastingMs = 10_000;
/** Minimum interval between two takes of one object by one replica from owners that are alive, milliseconds. */
const intervalMs = 60_000;
/** Time that an owner has to connect to the machine, milliseconds. */
const connectMs = 20_000;

/** Creates the claims of a replica to objects with reverse tunnels. A connection that is older than the owner's epoch does not count against
 *  an owner that is linked: of two connections to different replicas, the newer one decides, and the object does not move back. */
export function createClaims({ clock, dialsIn, arrival: arrivalOf }: ClaimsDeps): Claims<GraftedNode> {
  const epochs = createEpochSightings(clock);
  const takenAt = new Map<string, number>();
  return {
    concerns: dialsIn,
    delayMs(object, isOwned) {
      const { name, uid } = object.metadata;
      const since = epochs.since(uid, object.status?.owner?.epoch ?? 0);
      const arrival = arrivalOf(name);
      if (!arrival) return undefined;
      if (!isOwned) return 0;
      const due = claimAt({ arrival, since, linked: linkedCondition(object), takenAt: takenAt.get(uid) });
      return due === undefined ? undefined : Math.max(0, due - clock.monotonic());
    },
    taken: ({ metadata: { uid } }) => void takenAt.set(uid, clock.monotonic()),
    keepOnly(objects) {
      epochs.keepOnly(objects);
      keepOnly(takenAt, objects);
    },
  };
}

interface Claim {
  readonly arrival: Arrival;
  /** Since when the owner's epoch has been known, monotonic milliseconds. */
  readonly since: number;
  /** What the owner says about its connection. */
  readonly linked: FleetCondition | undefined;
  /** When this replica took the object the last time. */
  readonly takenAt: number | undefined;
}

/** Returns when an object may be taken from an owner that is alive, monotonic milliseconds; undefined if it may not. Pure. */
function claimAt({ arrival, since, linked, takenAt = -intervalMs }: Claim): number | undefined {
  const again = takenAt + intervalMs;
  if (linked?.status === "True") {
    // A stolen key must not take the machine away from its owner.
    if (arrival.at <= since || arrival.isDoubtful) return undefined;
    return Math.max(arrival.at + lastingMs, again);
  }
  // The owner has no connection at all: the machine has chosen this replica.
  if (linked?.reason === "ReverseTunnelDown") return 0;
  return linked?.status === "False" ? again : Math.max(since + connectMs, again);
}

/** The condition Linked, unless it is still the previous owner's. */
function linkedCondition({ status }: GraftedNode): FleetCondition | undefined {
  if (status?.observedEpoch !== status?.owner?.epoch) return undefined;
  return status?.conditions?.find(({ type }) => type === "Linked");
}
