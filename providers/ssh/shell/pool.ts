import { throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import type { Shell } from "./shell.ts";

/** The most shells that are counted; whoever comes then waits. */
const mostShells = 12;
/** More than that are not kept while nobody asks. */
const mostIdle = 4;

type Kept = Pick<Shell, "usable" | "close">;

export interface Pool<T extends Kept> {
  /** One that waits to be asked, if there is. */
  takeIdle(): T | undefined;
  /** One that may be asked. @throws what starting it threw, when no other came free first; the signal's reason. */
  take(signal: AbortSignal): Promise<T>;
  /** To be called for each that was taken. */
  giveBack(shell: T): void;
}

/** The shells that are counted: those at work, and those that wait to be asked. Whoever finds none free has one more started, and
 *  takes that or the first that is given back: most questions are answered sooner than a shell has started. */
export function createPool<T extends Kept>(start: () => Promise<T>): Pool<T> {
  type Waiter = PromiseWithResolvers<T>;
  const idle: T[] = [];
  const waiting = new Set<Waiter>();
  let shells = 0;
  const takeIdle = (): T | undefined => {
    for (let shell = idle.pop(); shell; shell = idle.pop()) {
      if (shell.usable()) return shell;
      shells -= 1;
    }
    return undefined;
  };
  const grow = async (waiter: Waiter): Promise<void> => {
    shells += 1;
    try {
      giveBack(await start());
    } catch (error) {
      shells -= 1;
      waiting.delete(waiter);
      waiter.reject(error);
      // With nothing left that could be given back, the next one waits for a start of its own.
      const [next] = waiting;
      if (next && shells === 0) await grow(next);
    }
  };
  const giveBack = (shell: T) => {
    const [next] = waiting;
    if (!shell.usable()) {
      shells -= 1;
      if (next) void grow(next);
    } else if (next) {
      waiting.delete(next);
      next.resolve(shell);
    } else if (idle.length < mostIdle) idle.push(shell);
    else {
      shells -= 1;
      shell.close();
    }
  };
  const take = async (signal: AbortSignal): Promise<T> => {
    throwIfAborted(signal);
    const free = takeIdle();
    if (free) return free;
    const waiter = Promise.withResolvers<T>();
    waiting.add(waiter);
    if (shells < mostShells) void grow(waiter);
    try {
      return await untilAborted(waiter.promise, signal);
    } catch (error) {
      // What was given to one who no longer waits is the next one's.
      if (!waiting.delete(waiter)) void waiter.promise.then(giveBack, () => undefined);
      throw error;
    }
  };
  return { takeIdle, take, giveBack };
}
