import { randomBytes } from "node:crypto";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { tokenMs } from "./patience.ts";

/** Things to be fetched once, each by a secret name. */
export interface Tokens<T> {
  /** @returns the name, url-safe. @throws CodedError resource_exhausted when 1000 wait to be fetched. */
  put(value: T): string;
  /** The value, the first time and within a minute. */
  take(token: string): T | undefined;
}

const mostTokens = 1000;

/** As the kubelet's streaming server keeps them. */
export function createTokens<T>(clock: Clock): Tokens<T> {
  // In order of age, for all live equally long.
  const waiting = new Map<string, { readonly value: T; readonly until: number }>();
  return {
    put(value) {
      for (const [token, { until }] of waiting) {
        if (until > clock.monotonic()) break;
        waiting.delete(token);
      }
      if (waiting.size >= mostTokens)
        throw new CodedError("resource_exhausted", "maximum number of in-flight requests exceeded");
      const token = randomBytes(12).toString("base64url");
      waiting.set(token, { value, until: clock.monotonic() + tokenMs });
      return token;
    },
    take(token) {
      const entry = waiting.get(token);
      waiting.delete(token);
      return entry && entry.until > clock.monotonic() ? entry.value : undefined;
    },
  };
}
