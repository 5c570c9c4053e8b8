import { createBoundedMap } from "../lib/bounded-map.ts";
import type { Clock } from "../lib/clock.ts";

/** Kind of a bearer token by its looks: a JWT with the head of one that was good (`signed`), another JWT that is in force, or anything else.
 *  It says whose turn it is to be asked about, and nothing of whether it is good. */
export type TokenKind = "signed" | "jwt" | "other";

/** The heads of good tokens, which name the key that they are signed with: the same in all tokens of that key. */
export interface TokenSigners {
  /** A token is good: the API server has made it for a pod, or says whose it is. */
  good(token: string): void;
  kindOf(token: string): TokenKind;
}

/** Keys of the cluster that tokens are signed with, in force and before. */
const remembered = 16;
/** Longer heads and payloads, characters, are not looked at. */
const longest = { head: 1024, payload: 8192 };

/** @see https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims */
export function createTokenSigners(clock: Pick<Clock, "now">): TokenSigners {
  const heads = createBoundedMap<true>(remembered);
  return {
    good(token) {
      const head = partsOf(token)?.head;
      if (head !== undefined) heads.set(head, true);
    },
    kindOf(token) {
      const parts = partsOf(token);
      if (!parts || !isInForce(parts.payload, clock.now())) return "other";
      return heads.get(parts.head) ? "signed" : "jwt";
    },
  };
}

function partsOf(token: string): { readonly head: string; readonly payload: string } | undefined {
  const [head = "", payload = "", ...rest] = token.split(".", 4);
  const fits = head.length <= longest.head && payload.length <= longest.payload;
  return rest.length === 1 && fits ? { head, payload } : undefined;
}

/** True for the payload of a token that has an issuer and has not expired. */
function isInForce(payload: string, now: number): boolean {
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
    if (typeof claims !== "object" || claims === null || !("iss" in claims)) return false;
    return "exp" in claims && typeof claims.exp === "number" && claims.exp * 1000 > now;
  } catch {
    return false;
  }
}
