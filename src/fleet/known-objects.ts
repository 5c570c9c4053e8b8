import type { Clock } from "../lib/clock.ts";
import type { NamespacedMeta } from "../objects.ts";

/** Removes the entries of objects that no longer exist. @param byUid entries by the UIDs of objects. */
export function keepOnly(byUid: Map<string, unknown>, all: readonly { readonly metadata: NamespacedMeta }[]): void {
  if (byUid.size === 0) return;
  const uids = new Set(all.map(({ metadata: { uid } }) => uid));
  for (const uid of byUid.keys()) if (!uids.has(uid)) byUid.delete(uid);
}

/** Remembers since when this replica has known the present epoch of each object. */
export function createEpochSightings(clock: Pick<Clock, "monotonic">) {
  const sightings = new Map<string, { readonly epoch: number; readonly since: number }>();
  return {
    /** Returns since when the object with this UID has been known to have this epoch, monotonic milliseconds. */
    since(uid: string, epoch: number): number {
      const known = sightings.get(uid);
      if (known?.epoch === epoch) return known.since;
      const since = clock.monotonic();
      sightings.set(uid, { epoch, since });
      return since;
    },
    /** Forgets the objects that are gone. */
    keepOnly: (all: readonly { readonly metadata: NamespacedMeta }[]): void => keepOnly(sightings, all),
  };
}
