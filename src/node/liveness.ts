/** Whether the nodes of a process get on with their work, for whoever would start the process again. Nodes of other machines do not count:
 *  a new start of graftlet would not mend a target that is not there. */
export interface Liveness {
  /** Has a node's check asked from now on. @param check why it does not get on, in one sentence; undefined when it does.
   *  @returns what ends this. */
  watch(check: () => string | undefined): () => void;
  /** Why no node gets on; undefined while one does, or none is watched. */
  trouble(): string | undefined;
}

/** The liveness of a process of which no node is watched yet. */
export function createLiveness(): Liveness {
  const checks = new Set<() => string | undefined>();
  return {
    watch(check) {
      checks.add(check);
      return () => void checks.delete(check);
    },
    trouble() {
      const troubles = [...checks].map((check) => check());
      return troubles.includes(undefined) ? undefined : troubles[0];
    },
  };
}
