import type { Clock } from "../lib/clock.ts";
import { pause } from "../lib/pause.ts";
import { createSemaphore } from "../lib/semaphore.ts";

/** Runs the creation of a sandbox once it is its turn. @param signal ends the wait. @returns what the creation returns.
 *  @throws like the creation, or the signal's reason. */
export type SandboxPacing = <T>(create: () => Promise<T>, signal: AbortSignal) => Promise<T>;

/** Sandboxes that are created concurrently for each processor of the target. With more, a runtime takes longer for all of them together,
 *  and the first pods run almost as late as the last. */
const sandboxesPerProcessor = 2;

/** Time for which a creation counts, milliseconds: one that takes longer waits for something other than a processor, such as a network
 *  plugin that hangs, and must not keep other pods from starting. */
const countedMs = 2_000;

/** Creates the pacing of a node's pod starts: in a burst, pods start in order, as many at once as the target's processors can run.
 *  @param cpus number of the target's processors. */
export function createSandboxPacing({ clock, cpus }: { readonly clock: Clock; readonly cpus: number }): SandboxPacing {
  const takeTurn = createSemaphore(Math.max(1, sandboxesPerProcessor * cpus));
  return async (create, signal) => {
    const { created } = await takeTurn(async () => {
      const created = create();
      await pause(
        clock,
        countedMs,
        created.catch(() => undefined),
      );
      return { created };
    }, signal);
    return created;
  };
}
