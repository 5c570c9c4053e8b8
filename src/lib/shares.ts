/** A bounded number of places, such as open connections, that several owners share. */
export interface Shares {
  /** Takes a place for an owner. It gets one while it holds fewer than are free: an owner by itself gets half of all places, and a new owner
   *  finds room beside any one of them.
   *  @returns gives the place back, and does nothing when called again; undefined when the owner has its share. */
  take(owner: string): (() => void) | undefined;
}

/** @param places how many there are. @param outer also asked for a place for each place that is taken here: bounds shared more widely. */
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
