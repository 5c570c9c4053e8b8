import { throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import type { Shell } from "./shell.ts";

/** Limit of pooled shells; beyond it, callers wait. */
const maxShells = 12;
const maxIdle = 4;

type Poolable = Pick<Shell, "usable" | "close">;

export interface Pool<T extends Poolable> {
  /** Acquires an idle shell, if there is one. */
  acquireIdle(): T | undefined;
  /** Acquires a shell. @throws the error of starting one, if no other became free first; the signal's reason. */
  acquire(signal: AbortSignal): Promise<T>;
  /** Returns an acquired shell to the pool. */
  release(shell: T): void;
}

/** Pool of busy and idle shells. For a caller that finds no idle shell another one is started; the caller gets that one or the first
 *  one released, since most questions take less time than starting a shell. */
export function createPool<T extends Poolable>(start: () => Promise<T>): Pool<T> {
  type Waiter = PromiseWithResolvers<T>;
  const idle: T[] = [];
  const waiting = new Set<Waiter>();
  let shells = 0;
  const acquireIdle = (): T | undefined => {
    for (let shell = idle.pop(); shell; shell = idle.pop()) {
      if (shell.usable()) return shell;
      shells -= 1;
    }
    return undefined;
  };
  const startFor = async (waiter: Waiter): Promise<void> => {
    shells += 1;
    try {
      release(await start());
    } catch (error) {
      shells -= 1;
      waiting.delete(waiter);
      waiter.reject(error);
      // If no shell is left that could be released, the next waiter needs one to be started.
      const [next] = waiting;
      if (next && shells === 0) await startFor(next);
    }
  };
  const release = (shell: T) => {
    const [next] = waiting;
    if (!shell.usable()) {
      shells -= 1;
      if (next) void startFor(next);
    } else if (next) {
      waiting.delete(next);
      next.resolve(shell);
    } else if (idle.length < maxIdle) idle.push(shell);
    else {
      shells -= 1;
      shell.close();
    }
  };
  const acquire = async (signal: AbortSignal): Promise<T> => {
    throwIfAborted(signal);
    const free = acquireIdle();
    if (free) return free;
    const waiter = Promise.withResolvers<T>();
    waiting.add(waiter);
    if (shells < maxShells) void startFor(waiter);
    try {
      return await untilAborted(waiter.promise, signal);
    } catch (error) {
      // A shell assigned to a caller that has given up goes to the next one.
      if (!waiting.delete(waiter)) void waiter.promise.then(release, () => undefined);
      throw error;
    }
  };
  return { acquireIdle, acquire, release };
}
