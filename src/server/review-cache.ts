import { createHash } from "node:crypto";
import type { Clock } from "../lib/clock.ts";
import type { Authenticator, Authorizer, User } from "./ports.ts";

/** More answers than this are not kept: the oldest goes. */
const most = 4096;

interface Kept<T> {
  readonly value: T;
  readonly until: number;
}

/** Answers that hold for a while. */
function createAnswers<T>(clock: Clock): {
  get(key: string): T | undefined;
  put(key: string, value: T, ttlMs: number): void;
} {
  const kept = new Map<string, Kept<T>>();
  return {
    get(key) {
      const found = kept.get(key);
      return found && clock.monotonic() < found.until ? found.value : undefined;
    },
    put(key, value, ttlMs) {
      kept.delete(key);
      kept.set(key, { value, until: clock.monotonic() + ttlMs });
      const [oldest] = kept.keys();
      if (kept.size > most && oldest !== undefined) kept.delete(oldest);
    },
  };
}

/** Remembers whose a token is, also that it is nobody's; failures are not remembered, nor are the tokens themselves.
 *  @param ttlMs KubeletConfiguration.authentication.webhook.cacheTTL, milliseconds. */
export function cachedAuthenticator(inner: Authenticator, clock: Clock, ttlMs: number): Authenticator {
  const answers = createAnswers<{ readonly user: User | undefined }>(clock);
  return {
    async byToken(token, signal) {
      const key = createHash("sha256").update(token).digest("base64");
      const known = answers.get(key);
      if (known) return known.user;
      const user = await inner.byToken(token, signal);
      answers.put(key, { user }, ttlMs);
      return user;
    },
  };
}

/** How long an authorizer's yes and no hold, milliseconds: KubeletConfiguration.authorization.webhook.cacheAuthorizedTTL and
 *  cacheUnauthorizedTTL. */
export interface AuthorizerTtl {
  readonly allowedMs: number;
  readonly deniedMs: number;
}

/** Remembers what was allowed and what was not; failures are not remembered. The path plays no part, for the node's
 *  subresources do not depend on it. */
export function cachedAuthorizer(inner: Authorizer, clock: Clock, ttl: AuthorizerTtl): Authorizer {
  const answers = createAnswers<boolean>(clock);
  return {
    async allowed(...question) {
      const [user, verb, subresource] = question;
      const key = JSON.stringify([user.name, user.uid, user.groups, user.extra, verb, subresource]);
      const known = answers.get(key);
      if (known !== undefined) return known;
      const allowed = await inner.allowed(...question);
      answers.put(key, allowed, allowed ? ttl.allowedMs : ttl.deniedMs);
      return allowed;
    },
  };
}
