import type { Clock } from "../../../src/lib/clock.ts";
import { createTokenBucket } from "../../../src/lib/token-bucket.ts";

/** Limits connections that have logged in with a node's key, which may have been stolen. */
export type ForwardLimiter = ReturnType<typeof createForwardLimiter>;

/** The slot of a connection that has not requested its forward yet. */
export interface PendingForward {
  /** Frees the slot: the connection has requested its forward, or is closed. */
  release(): void;
}

/** Rate per second and burst of logins per node. */
const [loginRate, loginBurst] = [1, 20];
/** Limit of connections per node that have not requested their forward yet; the oldest is evicted for a new one. */
const maxPending = 4;

interface NodeLimits {
  readonly takeLoginToken: () => boolean;
  readonly waiting: Set<() => void>;
}

export function createForwardLimiter(clock: Pick<Clock, "monotonic">) {
  const limitsByNode = new Map<string, NodeLimits>();
  const of = (node: string): NodeLimits => {
    const known = limitsByNode.get(node);
    if (known) return known;
    const made = { takeLoginToken: createTokenBucket(clock, loginRate, loginBurst), waiting: new Set<() => void>() };
    limitsByNode.set(node, made);
    return made;
  };
  return {
    /** Admits a connection after its login. @param node name of the node that the key belongs to. @param close closes the
     *  connection, which may be evicted for another one. @returns undefined if the login rate is exceeded. */
    admit(node: string, close: () => void): PendingForward | undefined {
      const { takeLoginToken, waiting } = of(node);
      if (!takeLoginToken()) return undefined;
      const [oldest] = waiting;
      if (waiting.size >= maxPending && oldest) {
        waiting.delete(oldest);
        oldest();
      }
      waiting.add(close);
      return { release: () => void waiting.delete(close) };
    },
  };
}
