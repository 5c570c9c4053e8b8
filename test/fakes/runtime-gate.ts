import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import { onAbort } from "../../src/lib/runnables.ts";
import type { Runtime } from "../../src/seams/runtime.ts";

/** Operations that can be scripted and recorded. */
export type Verb = Exclude<keyof Runtime, symbol | "events" | "logs">;

export interface Call {
  readonly verb: Verb;
  /** The request message, or the arguments as an array. */
  readonly request: unknown;
}

/** What every call of the fake goes through before it does anything. */
export interface Gate {
  readonly calls: readonly Call[];
  failNext(verb: Verb, error: Error, times?: number): void;
  hold(verb: Verb): () => void;
  setDown(down: boolean): void;
  /** Records the call, waits while it is held, and throws what was scripted. */
  enter(verb: Verb, request: unknown, signal: AbortSignal): Promise<void>;
}

/** @param isRecorded whether calls are kept. */
export function createGate(isRecorded: boolean): Gate {
  const calls: Call[] = [];
  const failures = new Map<Verb, Error[]>();
  const holds = new Map<Verb, { readonly done: Promise<void>; readonly release: () => void }>();
  let isDown = false;
  return {
    calls,
    failNext(verb, error, times = 1) {
      failures.set(verb, [...(failures.get(verb) ?? []), ...Array.from({ length: times }, () => error)]);
    },
    hold(verb) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const held = {
        done: promise,
        release: () => {
          if (holds.get(verb) === held) holds.delete(verb);
          resolve();
        },
      };
      holds.set(verb, held);
      return held.release;
    },
    setDown: (down) => void (isDown = down),
    async enter(verb, request, signal) {
      if (isRecorded) calls.push({ verb, request });
      throwIfAborted(signal);
      await released(holds.get(verb)?.done, signal);
      if (isDown) throw new CodedError("unavailable", "the fake runtime is down");
      const failure = failures.get(verb)?.shift();
      if (failure) throw failure;
    },
  };
}

async function released(done: Promise<void> | undefined, signal: AbortSignal): Promise<void> {
  if (!done) return;
  const settled = new AbortController();
  await Promise.race([done, onAbort(signal, settled.signal)]);
  settled.abort();
  throwIfAborted(signal);
}
