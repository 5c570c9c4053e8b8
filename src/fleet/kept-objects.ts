import type { Clock } from "../lib/clock.ts";
import type { GraftedNode } from "./grafted-node.ts";
import { createEpochSightings } from "./known-objects.ts";

/** How long an object is kept, milliseconds. */
const keptMs = 3_600_000;

/** The objects that replicas took from owners that did not reach them. For a while they stay where they are, whatever number of objects their
 *  owners have, because their former owners may still be unable to reach them. */
export function createKeptObjects(clock: Pick<Clock, "monotonic">) {
  const epochs = createEpochSightings(clock);
  const isKept = ({ metadata: { uid }, status }: GraftedNode): boolean => {
    const { epoch, unreachedBy } = status?.owner ?? {};
    if (epoch === undefined || unreachedBy?.epoch !== epoch) return false;
    return clock.monotonic() - epochs.since(uid, epoch) < keptMs;
  };
  const formerOwner = (object: GraftedNode): string | undefined =>
    isKept(object) ? object.status?.owner?.unreachedBy?.uid : undefined;
  return {
    /** True for an object that any replica took in this way not long ago. */
    isKept,
    /** Returns the UID of the replica from which such an object was taken; undefined for any other object. */
    formerOwner,
    /** Returns the UIDs of the replicas from which such objects were taken. */
    formerOwners: (objects: readonly GraftedNode[]): ReadonlySet<string> =>
      new Set(objects.flatMap((object) => formerOwner(object) ?? [])),
    /** Forgets the objects that are gone. */
    keepOnly: epochs.keepOnly,
  };
}
