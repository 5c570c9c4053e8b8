import type { Clock } from "../../../src/lib/clock.ts";
import { createTokenBucket } from "../../../src/lib/token-bucket.ts";

/** A login attempt in progress. Only the first call of either method counts. */
export interface LoginAttempt {
  loggedIn(): void;
  /** To be called when the connection has been closed or rejected without a login. */
  failed(): void;
}

/** Limits login attempts. */
export type LoginLimiter = ReturnType<typeof createLoginLimiter>;

/** Limit of concurrent login attempts. */
const maxAttempts = 128;
/** Limit of concurrent attempts of an address whose last login did not fail. Many machines behind one address connect at once when their
 *  replica has ended: more attempts than these would delay each other until none is in time. */
const maxAttemptsPerAddress = 64;
/** Rate and burst of attempts, per second, shared by all addresses whose last login failed. */
const [failingRate, failingBurst] = [30, 60];
/** Time for which an address counts as failing after a failed login, milliseconds. */
const failureMemoryMs = 60_000;
/** Limit of remembered addresses; the oldest are forgotten first. */
const maxRememberedAddresses = 4096;

interface PendingAttempt {
  readonly from: string;
  readonly close: () => void;
}

/** Bounds the CPU time and memory that unauthenticated peers can consume. Addresses whose last login failed share a low rate of attempts,
 *  and are evicted in favour of other addresses. An attempt above the limit of its address is rejected, which does not count as failed. */
export function createLoginLimiter(clock: Pick<Clock, "monotonic" | "jitter">) {
  const pending = new Set<PendingAttempt>();
  const failures = new Map<string, number>();
  let refusals = 0;
  const takeToken = createTokenBucket(clock, failingRate, failingBurst);
  const isFailing = (from: string) => {
    const failedAt = failures.get(from);
    return failedAt !== undefined && clock.monotonic() - failedAt < failureMemoryMs;
  };
  const attemptsOf = (from: string) => [...pending].filter((attempt) => attempt.from === from).length;
  const ensureRoom = (from: string): boolean => {
    const failing = isFailing(from);
    if (failing ? !takeToken() : attemptsOf(from) >= maxAttemptsPerAddress) return false;
    if (pending.size < maxAttempts) return true;
    const failingAttempts = [...pending].filter((attempt) => isFailing(attempt.from));
    if (failingAttempts.length === 0 && failing) return false;
    const candidates = failingAttempts.length > 0 ? failingAttempts : [...pending];
    const evicted = candidates[Math.floor(clock.jitter(0, candidates.length))];
    if (evicted) pending.delete(evicted);
    evicted?.close();
    return true;
  };
  const rememberFailure = (from: string) => {
    failures.delete(from);
    failures.set(from, clock.monotonic());
    const [oldest] = failures.keys();
    if (failures.size > maxRememberedAddresses && oldest !== undefined) failures.delete(oldest);
  };
  return {
    /** Total number of connections that were rejected or did not log in. */
    rejections: () => refusals,
    /** Admits a new connection. @param from the peer's address. @param close closes the connection, which may be evicted for another one.
     *  @returns undefined if the connection has to be rejected at once. */
    admit(from: string, close: () => void): LoginAttempt | undefined {
      if (!ensureRoom(from)) {
        refusals += 1;
        return undefined;
      }
      const guest: PendingAttempt = { from, close };
      pending.add(guest);
      let over = false;
      const end = (failed: boolean) => {
        if (over) return;
        over = true;
        pending.delete(guest);
        if (!failed) return void failures.delete(from);
        refusals += 1;
        rememberFailure(from);
      };
      return { loggedIn: () => end(false), failed: () => end(true) };
    },
  };
}
