import type { PersistentVolume, PersistentVolumeClaim } from "../objects.ts";

/** Claims of pods and the volumes that they are bound to, read from the API server. Every call throws in its words. */
export interface Claims {
  claim(namespace: string, name: string, signal: AbortSignal): Promise<PersistentVolumeClaim>;
  persistentVolume(name: string, signal: AbortSignal): Promise<PersistentVolume>;
  /** Patches the status of a claim with a strategic merge patch. @returns the updated claim. */
  patchStatus(claim: PersistentVolumeClaim, patch: object, signal: AbortSignal): Promise<PersistentVolumeClaim>;
}
