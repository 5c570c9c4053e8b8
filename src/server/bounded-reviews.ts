import { createRateLimit } from "../lib/token-bucket.ts";
import type { AccessReview, User } from "../api/access.ts";
import type { TokenSigners } from "../api/token-signers.ts";
import type { Clock } from "../lib/clock.ts";
import { type FairQueue, createFairQueue } from "../lib/fair-queue.ts";
import type { Authorizer } from "./ports.ts";

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
