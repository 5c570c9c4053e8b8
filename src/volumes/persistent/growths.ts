import type { Staging } from "./staging.ts";

/** Expansion state of a volume, kept as long as pods of the node use it. */
export interface Growth {
  /** Size after the last expansion by this node, as a quantity. */
  size: string;
  /** The driver refuses to expand the volume while it is in use: it is not asked again. */
  isInUse: boolean;
  /** An attempt has failed, not counting an unregistered driver. */
  hasFailed: boolean;
}

/** Expansion states by volume identity. */
export interface Growths {
  /** The state of a volume. @param size from the claim's status, used only if the volume has no state yet. */
  of(id: string, size: string): Growth;
  /** Forgets volumes that are no longer used by any pod. */
  collect(): void;
}

export function createGrowths(staging: Pick<Staging, "isElsewhere">): Growths {
  const known = new Map<string, Growth>();
  return {
    of(id, size) {
      const growth = known.get(id) ?? { size, isInUse: false, hasFailed: false };
      known.set(id, growth);
      return growth;
    },
    collect() {
      for (const id of known.keys()) if (!staging.isElsewhere(id, "")) known.delete(id);
    },
  };
}
