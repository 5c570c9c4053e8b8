import type { PersistentVolumeStates } from "./volume-states.ts";

/** Expansion state of a volume, kept as long as pods of the node use it. */
export interface ExpansionState {
  /** Size after the last expansion by this node, as a quantity. */
  size: string;
  /** The driver refuses to expand the volume while it is in use: it is not asked again. */
  isInUse: boolean;
  /** An attempt has failed, not counting an unregistered driver. */
  hasFailed: boolean;
}

/** Expansion states by volume identity. */
export type ExpansionStates = ReturnType<typeof createExpansionStates>;

export function createExpansionStates(volumeStates: Pick<PersistentVolumeStates, "isUsedByOtherPod">) {
  const known = new Map<string, ExpansionState>();
  return {
    /** The state of a volume. @param size from the claim's status, used only if the volume has no state yet. */
    stateOf(id: string, size: string) {
      const state = known.get(id) ?? { size, isInUse: false, hasFailed: false };
      known.set(id, state);
      return state;
    },
    /** Forgets volumes that are no longer used by any pod. */
    forgetUnused() {
      for (const id of known.keys()) if (!volumeStates.isUsedByOtherPod(id, "")) known.delete(id);
    },
  };
}
