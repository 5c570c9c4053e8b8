import { createRateLimit } from "../api/rate-limit.ts";
import { createBoundedMap } from "../lib/bounded-map.ts";
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
/** Those of one party have their turn, or are refused, within a second while the API server answers. */
const waiting = { each: 128, all: 1024 };
const waitMs = 1500;
/** Keys of the cluster that tokens are signed with, in force and before. */
const rememberedSigners = 16;

/** Turns for the questions about this node's callers, apart from all else that it asks of the API server. */
function createReviewTurns(clock: Clock): FairTurns {
  const { take } = createRateLimit(clock, rate);
  return createFairTurns({ clock, atOnce, waiting, waitMs, take });
}

/** Bounds how many tokens are asked about, at once and a second, so that made-up ones hold up neither the node nor a caller whose
 *  token is good: addresses take turns, and of one address tokens of a kind that was good before, other JWTs, and the rest.
 *  @returns an Authenticator's `byToken`, which throws CodedError resource_exhausted for one question too many. */
export function boundedTokens(
  { byToken }: Pick<Reviews, "byToken">,
  clock: Clock,
): (token: string, from: string, signal: AbortSignal) => Promise<User | undefined> {
  const turns = createReviewTurns(clock);
  const signers = createBoundedMap<true>(rememberedSigners);
  return async (token, from, signal) => {
    const signer = signerOf(token);
    const kind = signer === undefined ? "opaque" : signers.get(signer) ? "signed" : "jwt";
    const user = await turns(`${kind} ${from}`, () => byToken(token, signal), signal);
    if (user && signer !== undefined) signers.set(signer, true);
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

/** The head of a JWT, which names the key: the same in all tokens that are signed with it; undefined for what is no JWT. */
function signerOf(token: string): string | undefined {
  const [head, ...rest] = token.split(".", 4);
  return rest.length === 2 && head !== undefined && head.length <= 1024 ? head : undefined;
}
