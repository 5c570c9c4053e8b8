/** A bounded number of slots, such as open connections, shared fairly by several owners. */
export interface Shares {
  /** Acquires a slot for an owner, which succeeds while the owner holds fewer slots than are free: a single owner gets half of
   *  all slots, so a new owner always finds some.
   *  @returns a function that releases the slot (idempotent); undefined if the owner has reached its share. */
  take(owner: string): (() => void) | undefined;
}

/** @param places number of slots. @param outer acquires a slot of a wider limit for each slot acquired here. */
export function createShares(places: number, outer?: () => (() => void) | undefined): Shares {
  const held = new Map<string, number>();
  let taken = 0;
  const add = (owner: string, change: 1 | -1) => {
    const now = (held.get(owner) ?? 0) + change;
    taken += change;
    if (now === 0) held.delete(owner);
    else held.set(owner, now);
  };
  return {
    take(owner) {
      if ((held.get(owner) ?? 0) >= places - taken) return undefined;
      const giveBackOuter = outer ? outer() : () => undefined;
      if (!giveBackOuter) return undefined;
      add(owner, 1);
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        add(owner, -1);
        giveBackOuter();
      };
    },
  };
}
