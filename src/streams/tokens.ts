import { randomBytes } from "node:crypto";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { tokenTimeoutMs } from "./timeouts.ts";

/** Values that can be fetched once, each by a secret token. */
export interface Tokens<T> {
  /** @returns the token, url-safe. @throws CodedError resource_exhausted if 1000 values are unfetched. */
  put(value: T): string;
  /** The value, once and within a minute. */
  take(token: string): T | undefined;
}

const maxTokens = 1000;

/** The kubelet's streaming server's limits. */
export function createTokens<T>(clock: Clock): Tokens<T> {
  // In order of age, because all have the same lifetime.
  const waiting = new Map<string, { readonly value: T; readonly until: number }>();
  return {
    put(value) {
      for (const [token, { until }] of waiting) {
        if (until > clock.monotonic()) break;
        waiting.delete(token);
      }
      if (waiting.size >= maxTokens)
        throw new CodedError("resource_exhausted", "maximum number of in-flight requests exceeded");
      const token = randomBytes(12).toString("base64url");
      waiting.set(token, { value, until: clock.monotonic() + tokenTimeoutMs });
      return token;
    },
    take(token) {
      const entry = waiting.get(token);
      waiting.delete(token);
      return entry && entry.until > clock.monotonic() ? entry.value : undefined;
    },
  };
}
