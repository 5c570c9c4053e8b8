import { setTimeout as sleep } from "node:timers/promises";
import { isGuest } from "../matrix.ts";

/** What a poll found: a value when done; `undefined`, `null` or `false` for "not yet". */
export type Polled<T> = T | undefined | null | false;

/** How a wait ends early, and what it adds to its failure. */
export interface WaitOptions {
  readonly timeoutMs?: number;
  readonly everyMs?: number;
  /** Called once when time is up; its text is added to the failure (a log's tail, a listing). */
  readonly explain?: () => string | Promise<string>;
}

/** How many times longer than tests say they wait where the target is a guest, whose kernel runs on an emulated processor. */
const guestFactor = 6;

/** How long is really waited for what a test gives so long, milliseconds: pods, daemons and commands of a slow target. */
export function patience(milliseconds: number): number {
  const slow = isGuest(process.env.GRAFTLET_TEST_PROVIDER);
  return slow ? milliseconds * guestFactor : milliseconds;
}

/** The flag by which kubectl waits so long. @param seconds as a test says it. */
export function kubectlTimeout(seconds: number): string {
  return `--timeout=${patience(seconds)}s`;
}

/** Thrown by a poll that will never succeed: the wait ends at once with this error. */
export class Hopeless extends Error {}

/**
 * Calls `poll` until it returns something, and returns that.
 * Throws after the `patience` for `timeoutMs` (default 60 s) with the description, the last error and the explanation.
 */
export async function waitFor<T>(
  description: string,
  poll: () => Promise<Polled<T>> | Polled<T>,
  options: WaitOptions | number = {},
): Promise<T> {
  const {
    timeoutMs: given = 60_000,
    everyMs = 100,
    explain,
  } = typeof options === "number" ? { timeoutMs: options } : options;
  const timeoutMs = patience(given);
  const deadline = performance.now() + timeoutMs;
  let last = "nothing yet";
  for (;;) {
    try {
      const found = await poll();
      if (found !== undefined && found !== null && found !== false) return found;
    } catch (error) {
      if (error instanceof Hopeless) throw error;
      last = error instanceof Error ? error.message : String(error);
    }
    if (performance.now() >= deadline) break;
    await sleep(everyMs);
  }
  const why = explain ? `\n${await explain()}` : "";
  throw new Error(`waited ${Math.round(timeoutMs / 1000)} s in vain for: ${description} (last: ${last})${why}`);
}
