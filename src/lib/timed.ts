import type { Clock } from "./clock.ts";

/** Runs work and reports its duration in milliseconds and whether it failed. @returns the work's result. @throws the work's
 *  error. */
export async function timed<T>(
  clock: Pick<Clock, "monotonic">,
  work: () => Promise<T>,
  onDone: (ms: number, failed: boolean) => void,
): Promise<T> {
  const since = clock.monotonic();
  let failed = true;
  try {
    const done = await work();
    failed = false;
    return done;
  } finally {
    onDone(clock.monotonic() - since, failed);
  }
}
