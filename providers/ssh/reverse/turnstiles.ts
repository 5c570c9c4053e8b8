import type { Clock } from "../../../src/lib/clock.ts";
import { createTokenBucket } from "../../../src/lib/token-bucket.ts";

/** Admission of connections that have logged in with a key of a node's machine: the key may be stolen. */
export interface Turnstiles {
  /** @param node whose machine has the key. @param close ends the connection: it may have to make room for another.
   *  @returns undefined for one that comes too soon after others. */
  enter(node: string, close: () => void): Place | undefined;
}

/** The place of a connection that forwards nothing yet. */
export interface Place {
  /** It forwards now, or is closed. */
  leave(): void;
}

/** Logins of one node's machine, a second and at once. */
const [loginRate, loginBurst] = [1, 20];
/** Its connections that forward nothing yet; the oldest makes room for another. */
const mostWaiting = 4;

interface Turnstile {
  readonly mayEnter: () => boolean;
  readonly waiting: Set<() => void>;
}

/** Creates them. */
export function createTurnstiles(clock: Pick<Clock, "monotonic">): Turnstiles {
  const turnstiles = new Map<string, Turnstile>();
  const of = (node: string): Turnstile => {
    const known = turnstiles.get(node);
    if (known) return known;
    const made = { mayEnter: createTokenBucket(clock, loginRate, loginBurst), waiting: new Set<() => void>() };
    turnstiles.set(node, made);
    return made;
  };
  return {
    enter(node, close) {
      const { mayEnter, waiting } = of(node);
      if (!mayEnter()) return undefined;
      const [oldest] = waiting;
      if (waiting.size >= mostWaiting && oldest) {
        waiting.delete(oldest);
        oldest();
      }
      waiting.add(close);
      return { leave: () => void waiting.delete(close) };
    },
  };
}
