import type { Staging } from "./staging.ts";

/** Knowledge of a volume that may grow, for as long as pods of the node have it. */
export interface Growth {
  /** Size that the node has given it, as a quantity. */
  size: string;
  /** Its driver refuses as long as it is used: it is not asked again. */
  isInUse: boolean;
  /** A try has failed, and not for want of a driver. */
  hasFailed: boolean;
}

/** What the node knows of volumes that may grow. A volume goes by the identity that its type gives it. */
export interface Growths {
  /** Knowledge of a volume. @param size that its claim shows: what is known of it counts more. */
  of(id: string, size: string): Growth;
  /** Forgets volumes that no pod has any more. */
  collect(): void;
}

/** Knowledge of volumes for as long as a pod has them. */
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
