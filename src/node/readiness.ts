import type { Clock } from "../lib/clock.ts";

/** How long a node that neither serves nor says why holds the others' readiness up, milliseconds. */
const patienceMs = 20_000;

/** Readiness of a process that runs nodes: it is ready once each of them is served, or has said why it cannot be. A node that has
 *  got so far does not become unready again: it is its Node's condition that tells of trouble. */
export interface Readiness {
  /** The node serves its pods, or has told the cluster why it does not. */
  settled(nodeName: string): void;
  /** Reason for which the process is not ready yet, in one sentence; undefined when it is. */
  unready(): string | undefined;
}

export function createReadiness(nodeNames: readonly string[], clock: Pick<Clock, "monotonic">): Readiness {
  const starting = new Set(nodeNames);
  const since = clock.monotonic();
  return {
    settled: (nodeName) => void starting.delete(nodeName),
    unready() {
      if (starting.size === 0 || clock.monotonic() - since >= patienceMs) return undefined;
      return `not served yet: ${[...starting].join(", ")}`;
    },
  };
}
