import type { Clock } from "./clock.ts";

/** Runs a piece of work and reports how many milliseconds it took and whether it failed.
 *  @returns what the work does.
 *  @throws what the work does. */
export async function timed<T>(
  clock: Pick<Clock, "monotonic">,
  work: () => Promise<T>,
  told: (ms: number, failed: boolean) => void,
): Promise<T> {
  const since = clock.monotonic();
  let failed = true;
  try {
    const done = await work();
    failed = false;
    return done;
  } finally {
    told(clock.monotonic() - since, failed);
  }
}
