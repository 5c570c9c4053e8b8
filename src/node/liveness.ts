/** Liveness of the process: whether its nodes make progress, so that a supervisor can restart it. Nodes on other machines do not
 *  count, as a restart would not fix an unreachable target. */
export type Liveness = ReturnType<typeof createLiveness>;

/** Creates a liveness without registered nodes. */
export function createLiveness() {
  const checks = new Set<() => string | undefined>();
  return {
    /** Registers a node's liveness check.
     *  @param check returns why the node makes no progress, in one sentence; undefined if it does.
     *  @returns unregisters the check. */
    watch(check: () => string | undefined) {
      checks.add(check);
      return () => void checks.delete(check);
    },
    /** Why no node makes progress; undefined while at least one does, or none is registered. */
    trouble() {
      const troubles = [...checks].map((check) => check());
      return troubles.includes(undefined) ? undefined : troubles[0];
    },
  };
}
