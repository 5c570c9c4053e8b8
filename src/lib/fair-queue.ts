import type { Clock, Timer } from "./clock.ts";
import { abortError, CodedError } from "./errors.ts";

/** Queues a task of a client and runs it. @throws CodedError resource_exhausted at once if too many tasks are queued, and when
 *  a task has waited too long; the signal's reason. */
export type FairQueue = <T>(party: string, work: () => Promise<T>, signal: AbortSignal) => Promise<T>;

export interface FairQueueOptions {
  readonly clock: Clock;
  /** Tasks that run concurrently. */
  readonly maxConcurrent: number;
  /** Maximum number of queued tasks: per client, and in total. */
  readonly maxWaiting: { readonly perClient: number; readonly total: number };
  /** Maximum time in the queue, milliseconds. */
  readonly maxWaitMs: number;
  /** Milliseconds until the next task may start; 0 starts it now. */
  readonly nextDelayMs: () => number;
}

interface Waiter {
  readonly start: () => void;
  readonly reject: () => void;
}

/** A fair queue for tasks of untrusted clients: clients are served round-robin, so a client with many requests delays only
 *  itself. */
export function createFairQueue({
  clock,
  maxConcurrent,
  maxWaiting,
  maxWaitMs,
  nextDelayMs,
}: FairQueueOptions): FairQueue {
  const queues = createQueues(maxWaiting);
  let running = 0;
  let timer: Timer | undefined;
  const startNext = () => {
    while (running < maxConcurrent && queues.size() > 0) {
      const inMs = nextDelayMs();
      if (inMs > 0) {
        timer ??= clock.after(inMs, () => {
          timer = undefined;
          startNext();
        });
        return;
      }
      running += 1;
      queues.dequeue()?.start();
    }
  };
  const waitForSlot = async (party: string, signal: AbortSignal) => {
    if (signal.aborted) throw abortError(signal);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // Leave the queue at once: a slot given to a waiter that has left would never be released.
    const leave = (error: CodedError) => {
      queues.remove(party, waiter);
      reject(error);
    };
    const refuse = () => leave(new CodedError("resource_exhausted", "too many requests are queued"));
    const waiter: Waiter = { start: resolve, reject: refuse };
    if (!queues.enqueue(party, waiter)) refuse();
    const gone = () => leave(abortError(signal));
    const timeout = clock.after(maxWaitMs, refuse);
    signal.addEventListener("abort", gone, { once: true });
    startNext();
    try {
      await promise;
    } finally {
      timeout.cancel();
      signal.removeEventListener("abort", gone);
    }
  };
  return async (party, work, signal) => {
    await waitForSlot(party, signal);
    try {
      return await work();
    } finally {
      running -= 1;
      startNext();
    }
  };
}

/** One queue per waiting client; the client to be served next comes first. */
function createQueues({ perClient, total }: FairQueueOptions["maxWaiting"]) {
  const lines = new Map<string, Waiter[]>();
  let size = 0;
  const put = (party: string, line: Waiter[]) => {
    lines.delete(party);
    if (line.length > 0) lines.set(party, line);
  };
  /** Drops the last entry of the longest queue in favour of a client with a much shorter one. */
  const makeRoom = (length: number): boolean => {
    const longest = [...lines].reduce((one, other) => (other[1].length > one[1].length ? other : one));
    if (longest[1].length <= length + 1) return false;
    longest[1].at(-1)?.reject();
    return true;
  };
  return {
    size: () => size,
    /** @returns false if the queue is full. */
    enqueue(party: string, waiter: Waiter): boolean {
      const line = lines.get(party) ?? [];
      if (line.length >= perClient || (size >= total && !makeRoom(line.length))) return false;
      line.push(waiter);
      lines.set(party, line);
      size += 1;
      return true;
    },
    dequeue(): Waiter | undefined {
      const [first] = lines;
      if (!first) return undefined;
      const [party, line] = first;
      const waiter = line.shift();
      size -= 1;
      put(party, line);
      return waiter;
    },
    /** Removes a waiter; does nothing if it has left already. */
    remove(party: string, waiter: Waiter): void {
      const line = lines.get(party) ?? [];
      const at = line.indexOf(waiter);
      if (at < 0) return;
      line.splice(at, 1);
      size -= 1;
      if (line.length === 0) lines.delete(party);
    },
  };
}
