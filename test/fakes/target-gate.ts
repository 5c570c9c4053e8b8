import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import { onAbort } from "../../src/lib/runnables.ts";
import type { WaitForTarget } from "../../src/pipeline.ts";

/** A target that a test takes away and gives back. */
export interface FakePresence {
  readonly present: WaitForTarget;
  lose(): void;
  find(): void;
}

export function fakeTargetGate(): FakePresence {
  let here = new AbortController();
  let back: PromiseWithResolvers<void> | undefined;
  return {
    async present(signal) {
      for (let wait = back; wait && !signal.aborted; wait = back) await Promise.race([wait.promise, onAbort(signal)]);
      throwIfAborted(signal);
      return here.signal;
    },
    lose() {
      back = Promise.withResolvers<void>();
      here.abort(new CodedError("unavailable", "the target is lost"));
    },
    find() {
      here = new AbortController();
      back?.resolve();
      back = undefined;
    },
  };
}
