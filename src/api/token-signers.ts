import { createBoundedMap } from "../lib/bounded-map.ts";
import type { Clock } from "../lib/clock.ts";

/** Kind of a bearer token by its form: a JWT with the header of a valid one (`signed`), another unexpired JWT, or anything
 *  else. It only decides the order of reviews, not the token's validity. */
export type TokenKind = "signed" | "jwt" | "other";

/** Headers of valid tokens. A header names the signing key; all tokens signed with that key have the same header. */
export type TokenSigners = ReturnType<typeof createTokenSigners>;

/** Maximum number of remembered signing keys of the cluster, current and former. */
const maxSigners = 16;
/** Longest headers and payloads that are inspected, characters. */
const maxLength = { head: 1024, payload: 8192 };

/** @see https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims */
export function createTokenSigners(clock: Pick<Clock, "now">) {
  const heads = createBoundedMap<true>(maxSigners);
  return {
    /** Records a valid token: the API server issued it for a pod, or authenticated it. */
    recordValid(token: string) {
      const head = partsOf(token)?.head;
      if (head !== undefined) heads.set(head, true);
    },
    kindOf(token: string) {
      const parts = partsOf(token);
      if (!parts || !isUnexpired(parts.payload, clock.now())) return "other";
      return heads.get(parts.head) ? "signed" : "jwt";
    },
  };
}

function partsOf(token: string): { readonly head: string; readonly payload: string } | undefined {
  const [head = "", payload = "", ...rest] = token.split(".", 4);
  const fits = head.length <= maxLength.head && payload.length <= maxLength.payload;
  return rest.length === 1 && fits ? { head, payload } : undefined;
}

/** True for the payload of a token that has an issuer and has not expired. */
function isUnexpired(payload: string, now: number): boolean {
  const claims = claimsOf(payload);
  if (!claims || !("iss" in claims)) return false;
  return "exp" in claims && typeof claims.exp === "number" && claims.exp * 1000 > now;
}

/** Decodes the payload of a JWT, which it does not verify; undefined if that is no JSON object. */
export function claimsOf(payload: string): object | undefined {
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
    return typeof claims === "object" && claims !== null ? claims : undefined;
  } catch {
    return undefined;
  }
}
