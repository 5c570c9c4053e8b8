import type { Clock } from "../lib/clock.ts";
import type { GraftedNode } from "./grafted-node.ts";

/** How long an object is kept, milliseconds. */
const keptMs = 3_600_000;

/** The objects that replicas took from owners that did not reach them. For a while they stay where they are, whatever number of objects their
 *  owners have: their former owners may still not reach them. */
export function createKeptObjects(clock: Pick<Clock, "monotonic">) {
  /** Epochs of the owners, by the UIDs of objects, and since when this replica has known them, monotonic milliseconds. */
  const known = new Map<string, { readonly epoch: number; readonly since: number }>();
  const sinceOf = (uid: string, epoch: number): number => {
    const before = known.get(uid);
    if (before?.epoch === epoch) return before.since;
    const since = clock.monotonic();
    known.set(uid, { epoch, since });
    return since;
  };
  const isKept = ({ metadata: { uid }, status }: GraftedNode): boolean => {
    const { epoch, unreachedBy } = status?.owner ?? {};
    if (epoch === undefined || unreachedBy?.epoch !== epoch) return false;
    return clock.monotonic() - sinceOf(uid, epoch) < keptMs;
  };
  return {
    /** True for an object that any replica took in this way not long ago. */
    isKept,
    /** Returns the UIDs of the replicas from which such objects were taken. */
    formerOwners: (objects: readonly GraftedNode[]): ReadonlySet<string> =>
      new Set(objects.filter(isKept).flatMap(({ status }) => status?.owner?.unreachedBy?.uid ?? [])),
    /** Forgets the objects with other UIDs. */
    keepOnly(uids: ReadonlySet<string>): void {
      for (const uid of known.keys()) if (!uids.has(uid)) known.delete(uid);
    },
  };
}
