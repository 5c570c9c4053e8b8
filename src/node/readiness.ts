import type { Clock } from "../lib/clock.ts";

/** Maximum time that a node without a result delays the readiness of the others, milliseconds. */
const startupTimeoutMs = 20_000;

/** Readiness of a process that runs several nodes: ready once each node is served, or has reported why it cannot be. A node does not
 *  become unready again: its Node condition reports later failures. */
export type Readiness = ReturnType<typeof createReadiness>;

export function createReadiness(nodeNames: readonly string[], clock: Pick<Clock, "monotonic">) {
  const starting = new Set(nodeNames);
  const since = clock.monotonic();
  return {
    /** Waits for another node too. */
    expect: (nodeName: string) => void starting.add(nodeName),
    /** Marks a node as serving its pods, or as having reported to the cluster why it does not. */
    markReady: (nodeName: string) => void starting.delete(nodeName),
    /** Why the process is not ready yet, in one sentence; undefined if it is. */
    unready() {
      if (starting.size === 0 || clock.monotonic() - since >= startupTimeoutMs) return undefined;
      return `not served yet: ${[...starting].join(", ")}`;
    },
  };
}
