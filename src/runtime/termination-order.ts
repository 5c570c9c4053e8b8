import type { Clock } from "../lib/clock.ts";
import type { Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";

/** The termination order of a pod with sidecars. */
export interface TerminationOrder {
  /** Waits until the containers that must stop before this one have stopped. @returns whole seconds waited, at most `seconds`. */
  waitForPredecessors(name: string, seconds: number, signal: AbortSignal): Promise<number>;
  markStopped(name: string): void;
}

/** Sidecars stop after all main containers, in reverse order; containers that are not running are not waited for.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#termination-with-sidecars */
export function terminationOrder(pod: Pod, running: ReadonlySet<string>, clock: Clock): TerminationOrder {
  const stops = new Map([...running].map((name) => [name, Promise.withResolvers<void>()]));
  const sidecars = (pod.spec.initContainers ?? []).filter(isSidecar).map(({ name }) => name);
  const predecessors = (name: string): readonly string[] => {
    const place = sidecars.indexOf(name);
    return place < 0 ? [] : [...pod.spec.containers.map((container) => container.name), ...sidecars.slice(place + 1)];
  };
  return {
    async waitForPredecessors(name, seconds, signal) {
      const waiting = predecessors(name).flatMap((other) => stops.get(other)?.promise ?? []);
      return waiting.length === 0 ? 0 : waitSeconds(clock, Promise.all(waiting), seconds, signal);
    },
    markStopped: (name) => stops.get(name)?.resolve(),
  };
}

/** Waits for a promise, at most `seconds`. @returns whole seconds waited. @throws when the signal aborts. */
export async function waitSeconds(
  clock: Clock,
  what: Promise<unknown>,
  seconds: number,
  signal: AbortSignal,
): Promise<number> {
  const began = clock.monotonic();
  const over = new AbortController();
  const timeout = clock.sleep(seconds * 1000, AbortSignal.any([signal, over.signal]));
  try {
    await Promise.race([what, timeout]);
  } finally {
    over.abort();
    await timeout.catch(() => undefined);
  }
  return Math.min(seconds, Math.floor((clock.monotonic() - began) / 1000));
}
