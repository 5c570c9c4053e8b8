import type { Clock } from "../lib/clock.ts";

/** Maximum numbers of concurrently forwarded connections. containerd uses four descriptors and a thread for each (measured), and may be
 *  limited to 1024 descriptors; a provider that forwards by itself needs up to three processes. */
export const maxForwarded = { toPod: 64, toNode: 128 } as const;

/** Time for which a client waits for a slot, and the polling interval, milliseconds. A runtime keeps each connection for a second after its
 *  client ends it, so that quick successive connections add up. */
const slotTimeoutMs = 2000;
const slotPollIntervalMs = 50;
/** Time for which a runtime may keep a connection that its client has aborted, milliseconds: containerd gives each side a
 *  second. */
export const releaseDelayMs = 2000;

/** Slots for connections forwarded to the pods of one node. */
export type ForwardSlots = ReturnType<typeof createForwardSlots>;

export type SlotResult =
  | { readonly kind: "taken"; readonly slot: ForwardSlot }
  | { readonly kind: "full"; readonly text: string };

export interface ForwardSlot {
  /** Releases the slot, once. @param afterMs time for which the runtime may still need it. */
  release(afterMs: number): void;
}

interface HeldSlots {
  readonly podUid: string;
  readonly connections: number;
  /** Release time on the monotonic clock; undefined while in use. */
  releasedAt?: number;
}

/** Acquires a slot for one connection to a pod; waits for a moment if all are taken. @throws the signal's reason. */
export async function waitForSlot(
  slots: ForwardSlots,
  podUid: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<SlotResult> {
  const until = clock.monotonic() + slotTimeoutMs;
  for (;;) {
    const result = slots.acquire(podUid, 1);
    if (result.kind === "taken" || clock.monotonic() >= until) return result;
    await clock.sleep(slotPollIntervalMs, signal);
  }
}

/** Creates the slots of one node, all free. */
export function createForwardSlots(clock: Pick<Clock, "monotonic">) {
  const held = new Set<HeldSlots>();

  function inUse(podUid?: string): number {
    let sum = 0;
    for (const each of held) {
      if (each.releasedAt !== undefined && each.releasedAt <= clock.monotonic()) held.delete(each);
      else if (podUid === undefined || each.podUid === podUid) sum += each.connections;
    }
    return sum;
  }

  return {
    /** Acquires slots for connections to a pod, all or none. */
    acquire(podUid: string, connections: number): SlotResult {
      const { toPod, toNode } = maxForwarded;
      const full = (whom: string, max: number): SlotResult => ({
        kind: "full",
        text: `no more than ${max} connections are forwarded to ${whom} at a time: close some, then try again`,
      });
      if (inUse() + connections > toNode) return full("pods of this node", toNode);
      if (inUse(podUid) + connections > toPod) return full("this pod", toPod);
      const mine: HeldSlots = { podUid, connections };
      held.add(mine);
      return {
        kind: "taken",
        slot: {
          release(afterMs) {
            if (mine.releasedAt === undefined) mine.releasedAt = clock.monotonic() + afterMs;
          },
        },
      };
    },
  };
}
