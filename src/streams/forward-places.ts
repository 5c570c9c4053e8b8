import type { Clock } from "../lib/clock.ts";

/** Maximum numbers of concurrently forwarded connections. containerd uses four descriptors and a thread for each (measured), and may be
 *  limited to 1024 descriptors; a provider that forwards by itself needs up to three processes. */
export const mostForwarded = { toPod: 64, toNode: 128 } as const;

/** Slots for connections forwarded to the pods of one node. */
export interface ForwardPlaces {
  /** Acquires slots for connections to a pod, all or none. */
  take(podUid: string, connections: number): Taken;
}

export type Taken = { readonly is: "taken"; readonly place: Place } | { readonly is: "full"; readonly text: string };

export interface Place {
  /** Releases the slot, once. @param afterMs time for which the runtime may still need it. */
  free(afterMs: number): void;
}

interface Held {
  readonly podUid: string;
  readonly connections: number;
  /** Release time on the monotonic clock; undefined while in use. */
  until?: number;
}

/** The slots of one node, all free. */
export function createForwardPlaces(clock: Pick<Clock, "monotonic">): ForwardPlaces {
  const held = new Set<Held>();

  function inUse(podUid?: string): number {
    let sum = 0;
    for (const each of held) {
      if (each.until !== undefined && each.until <= clock.monotonic()) held.delete(each);
      else if (podUid === undefined || each.podUid === podUid) sum += each.connections;
    }
    return sum;
  }

  return {
    take(podUid, connections) {
      const { toPod, toNode } = mostForwarded;
      const full = (whom: string, most: number): Taken => ({
        is: "full",
        text: `no more than ${most} connections are forwarded to ${whom} at a time: close some, then try again`,
      });
      if (inUse() + connections > toNode) return full("pods of this node", toNode);
      if (inUse(podUid) + connections > toPod) return full("this pod", toPod);
      const mine: Held = { podUid, connections };
      held.add(mine);
      return {
        is: "taken",
        place: {
          free(afterMs) {
            if (mine.until === undefined) mine.until = clock.monotonic() + afterMs;
          },
        },
      };
    },
  };
}
