import { AsyncLocalStorage } from "node:async_hooks";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import { visibleLine } from "../lib/visible-text.ts";

/** Handler of unhandled errors: an `error` event without a listener, an exception in a callback, a rejected promise. Each is a
 *  bug. As one process runs all nodes, only the node that caused the error is stopped and restarted, if it is known. */
export type UnhandledErrorHandler = ReturnType<typeof createUnhandledErrorHandler>;

export interface UnhandledErrorHandlerDeps extends ClockAndLog {
  /** Ends the process with a non-zero exit code. */
  readonly exit: () => void;
}

/** Rate (per minute) and burst of unhandled errors that only restart a node. Beyond that, restarting nodes does not help. */
const [errorsPerMinute, errorBurst] = [10, 20];
/** Time for a node's work to end after an unhandled error, milliseconds. Work that the error interrupted may never end. */
const stopTimeoutMs = 60_000;

/** Handles unhandled errors until it is disposed of. The node is identified by an AsyncLocalStorage, which all its callbacks,
 *  timers and sockets inherit. The process exits with one line on standard error if the node is unknown, if the error shows that
 *  the whole process is unsound, if there are too many errors, or if the node's work does not end after an error. */
export function createUnhandledErrorHandler({ clock, log, exit }: UnhandledErrorHandlerDeps) {
  const scopes = new AsyncLocalStorage<{ readonly node: string; readonly failed: (error: unknown) => void }>();
  const mayContinue = createTokenBucket(clock, errorsPerMinute / 60, errorBurst);
  const endProcess = (reason: string) => {
    process.stderr.write(`graftlet: ${visibleLine(reason)}\n`);
    exit();
  };
  const onError = (error: unknown) => {
    const scope = scopes.getStore();
    const about = scope ? ` (node ${scope.node})` : "";
    const reason = `unhandled error${about}: ${describe(error)}`;
    log.error({ err: error, stack: stackOf(error), ...(scope && { node: scope.node }) }, "unhandled error");
    if (!scope || isProcessError(error) || !mayContinue()) return endProcess(reason);
    scope.failed(error);
  };
  process.on("uncaughtException", onError);
  process.on("unhandledRejection", onError);
  return {
    /** Runs a node. @param work gets a signal that aborts with the given signal, or on an unhandled error of this work.
     *  @throws the unhandled error, once the work has ended; errors of the work. */
    async run<T>(node: string, work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
      const stop = new AbortController();
      let failure: { readonly error: unknown } | undefined;
      let isOver = false;
      let late: ReturnType<Clock["after"]> | undefined;
      const failed = (error: unknown) => {
        // The node's work has ended: a late callback's error leaves nothing to stop.
        if (failure || isOver) return;
        failure = { error };
        late = clock.after(stopTimeoutMs, () =>
          endProcess(`node ${node} did not stop after an unhandled error: ${describe(error)}`),
        );
        stop.abort(new CodedError("cancelled", `the node is stopped after an unhandled error: ${messageOf(error)}`));
      };
      try {
        const result = await scopes.run({ node, failed }, () => work(AbortSignal.any([signal, stop.signal])));
        if (failure && !signal.aborted) throw failure.error;
        return result;
      } catch (error) {
        throw failure && !signal.aborted ? failure.error : error;
      } finally {
        isOver = true;
        late?.cancel();
      }
    },
    [Symbol.dispose]() {
      process.off("uncaughtException", onError);
      process.off("unhandledRejection", onError);
    },
  };
}

/** True for errors after which the whole process is unsound: Node's own assertions, and failed memory allocations. */
function isProcessError(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ERR_INTERNAL_ASSERTION" || code === "ERR_OUT_OF_MEMORY" || code === "ENOMEM") return true;
  return error instanceof RangeError && /allocation failed/i.test(error.message);
}

/** Formats an error as one line, with its first stack frame. */
function describe(error: unknown): string {
  const place = /^ +(at .*:\d+:\d+\)?)$/m.exec(stackOf(error) ?? "")?.[1];
  const name = error instanceof Error ? `${error.name}: ` : "";
  return `${name}${messageOf(error)}${place === undefined ? "" : ` ${place}`}`;
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
