import type { Clock, Timer } from "./clock.ts";
import { abortError, CodedError } from "./errors.ts";

/** Queues a task of a client and runs it. @throws CodedError resource_exhausted at once if too many tasks are queued, and when
 *  a task has waited too long; the signal's reason. */
export type FairTurns = <T>(party: string, work: () => Promise<T>, signal: AbortSignal) => Promise<T>;

export interface FairTurnsOptions {
  readonly clock: Clock;
  /** Tasks that run concurrently. */
  readonly atOnce: number;
  /** Maximum number of queued tasks: per client, and in total. */
  readonly waiting: { readonly each: number; readonly all: number };
  /** Maximum time in the queue, milliseconds. */
  readonly waitMs: number;
  /** Milliseconds until the next task may start; 0 starts it now. */
  readonly take: () => number;
}

interface Waiter {
  readonly go: () => void;
  readonly refuse: () => void;
}

/** A fair queue for tasks of untrusted clients: clients are served round-robin, so a client with many requests delays only
 *  itself. */
export function createFairTurns({ clock, atOnce, waiting, waitMs, take }: FairTurnsOptions): FairTurns {
  const lines = createLines(waiting);
  let running = 0;
  let timer: Timer | undefined;
  const serve = () => {
    while (running < atOnce && lines.size() > 0) {
      const inMs = take();
      if (inMs > 0) {
        timer ??= clock.after(inMs, () => {
          timer = undefined;
          serve();
        });
        return;
      }
      running += 1;
      lines.next()?.go();
    }
  };
  const turn = async (party: string, signal: AbortSignal) => {
    if (signal.aborted) throw abortError(signal);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // Leave the queue at once: a slot given to a waiter that has left would never be released.
    const leave = (error: CodedError) => {
      lines.leave(party, waiter);
      reject(error);
    };
    const refuse = () => leave(new CodedError("resource_exhausted", "too many requests are queued"));
    const waiter: Waiter = { go: resolve, refuse };
    if (!lines.join(party, waiter)) refuse();
    const gone = () => leave(abortError(signal));
    const patience = clock.after(waitMs, refuse);
    signal.addEventListener("abort", gone, { once: true });
    serve();
    try {
      await promise;
    } finally {
      patience.cancel();
      signal.removeEventListener("abort", gone);
    }
  };
  return async (party, work, signal) => {
    await turn(party, signal);
    try {
      return await work();
    } finally {
      running -= 1;
      serve();
    }
  };
}

/** One queue per waiting client; the client to be served next comes first. */
function createLines({ each, all }: FairTurnsOptions["waiting"]) {
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
    longest[1].at(-1)?.refuse();
    return true;
  };
  return {
    size: () => size,
    /** @returns false if the queue is full. */
    join(party: string, waiter: Waiter): boolean {
      const line = lines.get(party) ?? [];
      if (line.length >= each || (size >= all && !makeRoom(line.length))) return false;
      line.push(waiter);
      lines.set(party, line);
      size += 1;
      return true;
    },
    next(): Waiter | undefined {
      const [first] = lines;
      if (!first) return undefined;
      const [party, line] = first;
      const waiter = line.shift();
      size -= 1;
      put(party, line);
      return waiter;
    },
    /** Removes a waiter; does nothing if it has left already. */
    leave(party: string, waiter: Waiter): void {
      const line = lines.get(party) ?? [];
      const at = line.indexOf(waiter);
      if (at < 0) return;
      line.splice(at, 1);
      size -= 1;
      if (line.length === 0) lines.delete(party);
    },
  };
}
