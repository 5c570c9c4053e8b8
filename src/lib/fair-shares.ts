/** A bounded number of slots, such as open connections, shared fairly by several owners. */
export type FairShares = ReturnType<typeof createFairShares>;

/** @param slots number of slots. @param outer acquires a slot of a wider limit for each slot acquired here. */
export function createFairShares(slots: number, outer?: () => (() => void) | undefined) {
  const held = new Map<string, number>();
  let used = 0;
  const add = (owner: string, change: 1 | -1) => {
    const now = (held.get(owner) ?? 0) + change;
    used += change;
    if (now === 0) held.delete(owner);
    else held.set(owner, now);
  };
  return {
    /** Acquires a slot for an owner, which succeeds while the owner holds fewer slots than are free: a single owner gets half of
     *  all slots, so a new owner always finds some.
     *  @returns a function that releases the slot (idempotent); undefined if the owner has reached its share. */
    acquire(owner: string): (() => void) | undefined {
      if ((held.get(owner) ?? 0) >= slots - used) return undefined;
      const releaseOuter = outer ? outer() : () => undefined;
      if (!releaseOuter) return undefined;
      add(owner, 1);
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        add(owner, -1);
        releaseOuter();
      };
    },
  };
}
