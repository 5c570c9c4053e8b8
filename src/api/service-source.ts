import type { Service } from "../objects.ts";

/** Watched Services of the cluster. */
export interface ServiceSource {
  /** Returns undefined until the first list has completed. */
  list(): readonly Service[] | undefined;
  /** Calls the listener after every change. @returns removes the listener. */
  onChange(listener: () => void): () => void;
}
