import { createHash } from "node:crypto";
import { createBoundedMap } from "../lib/bounded-map.ts";
import type { Clock } from "../lib/clock.ts";
import type { User, AccessReview } from "../api/access.ts";
import type { Authenticator, Authorizer } from "./ports.ts";
import { createRateLimit } from "../lib/token-bucket.ts";
import type { TokenSigners } from "../api/token-signers.ts";
import { type FairQueue, createFairQueue } from "../lib/fair-queue.ts";

/** Maximum number of cached results of a kind; the least recently used one is dropped. */
const maxEntries = 4096;

interface CacheEntry<T> {
  readonly value: T;
  readonly until: number;
}

/** Caches results for a limited time. Positive and negative results are kept apart, so that rejected requests evict no positive result.
 *  @param isGood true for a positive result. */
function createResultCache<T>(
  clock: Clock,
  isGood: (value: T) => boolean,
): {
  get(key: string): T | undefined;
  put(key: string, value: T, ttlMs: number): void;
} {
  const good = createBoundedMap<CacheEntry<T>>(maxEntries);
  const bad = createBoundedMap<CacheEntry<T>>(maxEntries);
  const valid = (found: CacheEntry<T> | undefined) => (found && clock.monotonic() < found.until ? found : undefined);
  return {
    get: (key) => (valid(good.get(key)) ?? valid(bad.get(key)))?.value,
    put(key, value, ttlMs) {
      const [into, outOf] = isGood(value) ? [good, bad] : [bad, good];
      outOf.delete(key);
      into.set(key, { value, until: clock.monotonic() + ttlMs });
    },
  };
}

/** A fixed-length key that does not reveal its input. */
function digest(of: string): string {
  return createHash("sha256").update(of).digest("base64");
}

/** Lookups in the cache of tokens. */
export interface TokenCacheMeasures {
  looked(isHit: boolean, ms: number): void;
  /** A token that is not cached is being reviewed. @returns a function to call with whether the token is valid. */
  fetching(): (isValid: boolean) => void;
}

/** Caches the users of tokens, including invalid ones; failures and the tokens themselves are not cached. @param ttlMs
 *  KubeletConfiguration.authentication.webhook.cacheTTL, milliseconds. */
export function cachedAuthenticator(
  inner: Authenticator,
  clock: Clock,
  ttlMs: number,
  measures: TokenCacheMeasures,
): Authenticator {
  const answers = createResultCache<{ readonly user: User | undefined }>(clock, ({ user }) => user !== undefined);
  return {
    async byToken(token, from, signal) {
      const since = clock.monotonic();
      const key = digest(token);
      const known = answers.get(key);
      if (known) {
        measures.looked(true, clock.monotonic() - since);
        return known.user;
      }
      const fetched = measures.fetching();
      let isValid = false;
      try {
        const user = await inner.byToken(token, from, signal);
        isValid = user !== undefined;
        answers.put(key, { user }, ttlMs);
        return user;
      } finally {
        fetched(isValid);
        measures.looked(false, clock.monotonic() - since);
      }
    },
  };
}

/** Lifetimes of positive and negative authorization results, milliseconds: KubeletConfiguration.authorization.webhook.cacheAuthorizedTTL
 *  and cacheUnauthorizedTTL. */
export interface AuthorizerTtl {
  readonly allowedMs: number;
  readonly deniedMs: number;
}

/** Caches authorization results; failures are not cached. The path is not part of the key, because the node's subresources do not depend
 *  on it. */
export function cachedAuthorizer(inner: Authorizer, clock: Clock, ttl: AuthorizerTtl): Authorizer {
  const answers = createResultCache<boolean>(clock, (allowed) => allowed);
  return {
    async allowed(...question) {
      const [user, verb, subresource] = question;
      const key = digest(JSON.stringify([user.name, user.uid, user.groups, user.extra, verb, subresource]));
      const known = answers.get(key);
      if (known !== undefined) return known;
      const allowed = await inner.allowed(...question);
      answers.put(key, allowed, allowed ? ttl.allowedMs : ttl.deniedMs);
      return allowed;
    },
  };
}

/** A review costs the API server about a millisecond and writes nothing. */
const rate = { qps: 400, burst: 400 };
const maxConcurrent = 16;
const maxWaiting = { perClient: 256, total: 1024 };
/** Maximum time that a caller waits for a review, milliseconds: responses come within two seconds, even if only 429. */
const maxWaitMs = 1500;

/** Fair queue for reviews of this node's callers, independent of its other API requests. */
function createReviewQueue(clock: Clock): FairQueue {
  const { take: nextDelayMs } = createRateLimit(clock, rate);
  return createFairQueue({ clock, maxConcurrent, maxWaiting, maxWaitMs, nextDelayMs });
}

/** Limits the number of token reviews, concurrent and per second, so that forged tokens delay neither the node nor a caller with a valid
 *  token: addresses take turns, and within an address the classes of tokens. @param signers records valid tokens. @returns an
 *  Authenticator's `byToken`, which throws CodedError resource_exhausted beyond the limit. */
export function boundedTokens(
  { byToken }: Pick<AccessReview, "byToken">,
  signers: TokenSigners,
  clock: Clock,
): (token: string, from: string, signal: AbortSignal) => Promise<User | undefined> {
  const turns = createReviewQueue(clock);
  return async (token, from, signal) => {
    const user = await turns(`${signers.kindOf(token)} ${from}`, () => byToken(token, signal), signal);
    if (user) signers.recordValid(token);
    return user;
  };
}

/** Limits the number of access reviews; users take turns. @returns an Authorizer's `allowed`, which throws CodedError resource_exhausted
 *  beyond the limit. */
export function boundedAccess({ allowed }: Authorizer, clock: Clock): Authorizer["allowed"] {
  const turns = createReviewQueue(clock);
  return (user, verb, subresource, path, signal) =>
    turns(user.name, () => allowed(user, verb, subresource, path, signal), signal);
}
