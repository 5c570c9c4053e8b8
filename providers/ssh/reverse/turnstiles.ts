import type { Clock } from "../../../src/lib/clock.ts";
import { createTokenBucket } from "../../../src/lib/token-bucket.ts";

/** Limits connections that have logged in with a node's key, which may have been stolen. */
export interface Turnstiles {
  /** Admits a connection after its login. @param node name of the key's node. @param close closes the connection, which may be evicted for
   *  another one. @returns undefined if the login rate is exceeded. */
  enter(node: string, close: () => void): Place | undefined;
}

/** The slot of a connection that has not requested its forward yet. */
export interface Place {
  /** Frees the slot: the connection has requested its forward, or is closed. */
  leave(): void;
}

/** Rate per second and burst of logins per node. */
const [loginRate, loginBurst] = [1, 20];
/** Limit of connections per node that have not requested their forward yet; the oldest is evicted for a new one. */
const mostWaiting = 4;

interface Turnstile {
  readonly mayEnter: () => boolean;
  readonly waiting: Set<() => void>;
}

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
