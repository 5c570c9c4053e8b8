import type { Clock } from "../../../src/lib/clock.ts";

/** A login attempt in progress. Only the first call of either method counts. */
export interface Visit {
  loggedIn(): void;
  /** The connection was closed or rejected without a login. */
  failed(): void;
}

/** Limits login attempts. */
export interface Doorkeeper {
  /** Admits a new connection. @param from the peer's address. @param close closes the connection, which may be evicted for another one.
   *  @returns undefined if the connection has to be rejected at once. */
  enter(from: string, close: () => void): Visit | undefined;
  /** Total number of connections that were rejected or did not log in. */
  refusals(): number;
}

/** Limit of concurrent login attempts. */
const mostGuests = 128;
/** Rate and burst of attempts, per second, shared by all addresses whose last login failed. */
const [failingRate, failingBurst] = [30, 60];
/** Time for which an address counts as failing after a failed login, milliseconds. */
const forgetMs = 60_000;
/** Limit of remembered addresses; the oldest are forgotten first. */
const mostKept = 4096;

interface Guest {
  readonly from: string;
  readonly close: () => void;
}

/** Bounds the CPU time and memory that unauthenticated peers can consume. Addresses whose last login failed share a low rate of attempts,
 *  and are evicted in favour of other addresses. */
export function createDoorkeeper(clock: Pick<Clock, "monotonic" | "jitter">): Doorkeeper {
  const guests = new Set<Guest>();
  const failures = new Map<string, number>();
  let refusals = 0;
  let [tokens, filledAt] = [failingBurst, clock.monotonic()];
  const isFailing = (from: string) => {
    const failedAt = failures.get(from);
    return failedAt !== undefined && clock.monotonic() - failedAt < forgetMs;
  };
  const takeToken = (): boolean => {
    const now = clock.monotonic();
    tokens = Math.min(failingBurst, tokens + ((now - filledAt) / 1000) * failingRate);
    filledAt = now;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  };
  const hasRoom = (from: string): boolean => {
    const failing = isFailing(from);
    if (failing && !takeToken()) return false;
    if (guests.size < mostGuests) return true;
    const worse = [...guests].filter((guest) => isFailing(guest.from));
    if (worse.length === 0 && failing) return false;
    const among = worse.length > 0 ? worse : [...guests];
    const one = among[Math.floor(clock.jitter(0, among.length))];
    if (one) guests.delete(one);
    one?.close();
    return true;
  };
  const remember = (from: string) => {
    failures.delete(from);
    failures.set(from, clock.monotonic());
    const [oldest] = failures.keys();
    if (failures.size > mostKept && oldest !== undefined) failures.delete(oldest);
  };
  return {
    refusals: () => refusals,
    enter(from, close) {
      if (!hasRoom(from)) {
        refusals += 1;
        return undefined;
      }
      const guest: Guest = { from, close };
      guests.add(guest);
      let over = false;
      const leave = (failed: boolean) => {
        if (over) return;
        over = true;
        guests.delete(guest);
        if (!failed) return void failures.delete(from);
        refusals += 1;
        remember(from);
      };
      return { loggedIn: () => leave(false), failed: () => leave(true) };
    },
  };
}
