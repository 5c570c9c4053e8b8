import { aggregated } from "../lib/aggregate.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, codeOf, messageOf, throwIfAborted } from "../lib/errors.ts";

/** Attempts, and delays between them in milliseconds: the kubelet's. */
const maxAttempts = 4;
const initialDelayMs = 10;
const factor = 5;
const jitter = 1.1;

/** Retries a piece of work up to four times within half a second.
 *  @param what the work, for the message. @throws CodedError with all failures. */
export async function retryWithBackoff<T>(
  clock: Clock,
  what: string,
  work: () => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const failures: unknown[] = [];
  for (let ms = initialDelayMs; failures.length < maxAttempts; ms *= factor) {
    if (failures.length > 0) await clock.sleep(ms * clock.jitter(1, jitter), signal);
    try {
      return await work();
    } catch (error) {
      throwIfAborted(signal);
      failures.push(error);
    }
  }
  const why = aggregated(failures);
  const message = `${what}: timed out waiting for the condition; caused by: ${messageOf(why)}`;
  throw new CodedError(codeOf(why), message, { cause: why });
}
