import type { Clock } from "../../../src/lib/clock.ts";

/** A connection that has not logged in yet. Exactly one of its ends is called; the others do nothing then. */
export interface Visit {
  loggedIn(): void;
  /** It was closed, or turned away, without a login. */
  failed(): void;
}

/** Admission of connections that want to log in. */
export interface Doorkeeper {
  /** @param from address of the peer. @param close ends the connection: it may have to make room for another.
   *  @returns undefined for one to be turned away at once. */
  enter(from: string, close: () => void): Visit | undefined;
  /** Connections that were turned away or did not log in, so far. */
  refusals(): number;
}

/** Connections that may be logging in at once. */
const mostGuests = 128;
/** Connections a second of all addresses whose last login failed, and how many of them may come together. */
const [failingRate, failingBurst] = [30, 60];
/** How long a failure is held against an address, milliseconds. */
const forgetMs = 60_000;
/** Addresses that are kept in mind; the oldest go first. */
const mostKept = 4096;

interface Guest {
  readonly from: string;
  readonly close: () => void;
}

/** Creates the doorkeeper. It bounds the work and the memory that those who cannot log in cause. Addresses whose last login failed share
 *  few attempts a second, and make room for the others. */
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
