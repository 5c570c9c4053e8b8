/** Numbers by chance that come again with the same seed. */
export interface Chance {
  readonly seed: number;
  /** Evenly from [low, high). */
  between(low: number, high: number): number;
  /** One of them. */
  pick<T>(of: readonly T[]): T;
}

/** @param seed of `GRAFTLET_CHAOS_SEED` unless given; a new one where neither is. */
export function createChance(
  seed = Number(process.env.GRAFTLET_CHAOS_SEED ?? Math.floor(Math.random() * 2 ** 31)),
): Chance {
  let state = seed >>> 0;
  // mulberry32: as many different numbers as there are states, evenly spread.
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (low: number, high: number): number => low + next() * (high - low);
  return {
    seed,
    between,
    pick<T>(of: readonly T[]): T {
      const found = of[Math.floor(between(0, of.length))];
      if (found === undefined) throw new Error("nothing to pick from");
      return found;
    },
  };
}
