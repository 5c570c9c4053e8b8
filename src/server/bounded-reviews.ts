import { createRateLimit } from "../api/rate-limit.ts";
import type { TokenSigners } from "../api/token-signers.ts";
import type { Clock } from "../lib/clock.ts";
import { type FairTurns, createFairTurns } from "../lib/fair-turns.ts";
import type { Authorizer, User } from "./ports.ts";

/** Asks about callers without bounds, and without knowing where they call from. */
export interface Reviews extends Authorizer {
  byToken(token: string, signal: AbortSignal): Promise<User | undefined>;
}

/** A review costs the API server about a millisecond and writes nothing. */
const rate = { qps: 400, burst: 400 };
const atOnce = 16;
const waiting = { each: 256, all: 1024 };
/** So that a caller has an answer within two seconds, if only that it should come again. */
const waitMs = 1500;

/** Turns for the questions about this node's callers, apart from all else that it asks of the API server. */
function createReviewTurns(clock: Clock): FairTurns {
  const { take } = createRateLimit(clock, rate);
  return createFairTurns({ clock, atOnce, waiting, waitMs, take });
}

/** Bounds how many tokens are asked about, at once and a second, so that made-up ones hold up neither the node nor a caller whose
 *  token is good: addresses take turns, and of one address the kinds of tokens.
 *  @param signers told of good tokens.
 *  @returns an Authenticator's `byToken`, which throws CodedError resource_exhausted for one question too many. */
export function boundedTokens(
  { byToken }: Pick<Reviews, "byToken">,
  signers: TokenSigners,
  clock: Clock,
): (token: string, from: string, signal: AbortSignal) => Promise<User | undefined> {
  const turns = createReviewTurns(clock);
  return async (token, from, signal) => {
    const user = await turns(`${signers.kindOf(token)} ${from}`, () => byToken(token, signal), signal);
    if (user) signers.good(token);
    return user;
  };
}

/** Bounds how much is asked about what callers may do, of whom each user has their turn.
 *  @returns an Authorizer's `allowed`, which throws CodedError resource_exhausted for one question too many. */
export function boundedAccess({ allowed }: Authorizer, clock: Clock): Authorizer["allowed"] {
  const turns = createReviewTurns(clock);
  return (user, verb, subresource, path, signal) =>
    turns(user.name, () => allowed(user, verb, subresource, path, signal), signal);
}
