import { createHash } from "node:crypto";
import { createBoundedMap } from "../lib/bounded-map.ts";
import type { Clock } from "../lib/clock.ts";
import type { Authenticator, Authorizer, User } from "./ports.ts";

/** More answers of a kind than this are not kept: the one that was asked for least recently goes. */
const most = 4096;

interface Kept<T> {
  readonly value: T;
  readonly until: number;
}

/** Answers that hold for a while. Good ones and bad ones are kept apart: whoever asks in vain drives out none of the good.
 *  @param isGood of an answer. */
function createAnswers<T>(
  clock: Clock,
  isGood: (value: T) => boolean,
): {
  get(key: string): T | undefined;
  put(key: string, value: T, ttlMs: number): void;
} {
  const good = createBoundedMap<Kept<T>>(most);
  const bad = createBoundedMap<Kept<T>>(most);
  const valid = (found: Kept<T> | undefined) => (found && clock.monotonic() < found.until ? found : undefined);
  return {
    get: (key) => (valid(good.get(key)) ?? valid(bad.get(key)))?.value,
    put(key, value, ttlMs) {
      const [into, outOf] = isGood(value) ? [good, bad] : [bad, good];
      outOf.delete(key);
      into.set(key, { value, until: clock.monotonic() + ttlMs });
    },
  };
}

/** A key of one length, from which what it stands for cannot be told. */
function digest(of: string): string {
  return createHash("sha256").update(of).digest("base64");
}

/** Remembers whose a token is, also that it is nobody's; failures are not remembered, nor are the tokens themselves.
 *  @param ttlMs KubeletConfiguration.authentication.webhook.cacheTTL, milliseconds. */
export function cachedAuthenticator(inner: Authenticator, clock: Clock, ttlMs: number): Authenticator {
  const answers = createAnswers<{ readonly user: User | undefined }>(clock, ({ user }) => user !== undefined);
  return {
    async byToken(token, from, signal) {
      const key = digest(token);
      const known = answers.get(key);
      if (known) return known.user;
      const user = await inner.byToken(token, from, signal);
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
  const answers = createAnswers<boolean>(clock, (allowed) => allowed);
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
