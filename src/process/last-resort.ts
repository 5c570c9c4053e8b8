import { AsyncLocalStorage } from "node:async_hooks";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import { visibleLine } from "../lib/visible-text.ts";

/** What happens to errors that nothing handles: an `error` event without a listener, an exception in a callback, a rejected promise. Each
 *  is a bug, and one process serves all nodes: where it is known which node's work it arose in, that node alone is ended and run again. */
export interface LastResort extends Disposable {
  /** Runs a node's work. @param work gets a signal that aborts when the signal does, or when an error of this work is not handled.
   *  @throws that error, once the work has ended; what the work throws. */
  run<T>(node: string, work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T>;
}

export interface LastResortDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Ends the process, with a code other than 0. */
  readonly exit: () => void;
}

/** Errors a minute that cost a node only, and at once. Beyond them something is wrong that a new start of a node does not mend. */
const [errorsPerMinute, errorBurst] = [10, 20];
/** Time for a node's work to end after an error, milliseconds. What the error cut off may never end. */
const endWithinMs = 60_000;

interface Scope {
  readonly node: string;
  readonly failed: (error: unknown) => void;
}

/** Handles what nothing else handles, until it is disposed of. The node is known by an AsyncLocalStorage that begins with its work: all
 *  callbacks, timers and sockets that come of it carry it. The process ends, with one line on standard error, when no node is known, when
 *  the error says that the process itself is unsound, when errors do not end, and when a node's work does not end after one. */
export function createLastResort({ clock, log, exit }: LastResortDeps): LastResort {
  const scopes = new AsyncLocalStorage<Scope>();
  const mayGoOn = createTokenBucket(clock, errorsPerMinute / 60, errorBurst);
  const endProcess = (reason: string) => {
    process.stderr.write(`graftlet: ${visibleLine(reason)}\n`);
    exit();
  };
  const onError = (error: unknown) => {
    const scope = scopes.getStore();
    const about = scope ? ` (node ${scope.node})` : "";
    const reason = `an error that nothing handles${about}: ${describe(error)}`;
    log.error(
      { err: error, stack: stackOf(error), ...(scope && { node: scope.node }) },
      "an error that nothing handles",
    );
    if (!scope || isOfProcess(error) || !mayGoOn()) return endProcess(reason);
    scope.failed(error);
  };
  process.on("uncaughtException", onError);
  process.on("unhandledRejection", onError);
  return {
    async run(node, work, signal) {
      const stop = new AbortController();
      let failure: { readonly error: unknown } | undefined;
      let late: ReturnType<Clock["after"]> | undefined;
      const failed = (error: unknown) => {
        if (failure) return;
        failure = { error };
        late = clock.after(endWithinMs, () =>
          endProcess(`node ${node} does not end after an error that nothing handles: ${describe(error)}`),
        );
        stop.abort(
          new CodedError("cancelled", `the node ends after an error that nothing handles: ${messageOf(error)}`),
        );
      };
      try {
        const result = await scopes.run({ node, failed }, () => work(AbortSignal.any([signal, stop.signal])));
        if (failure && !signal.aborted) throw failure.error;
        return result;
      } catch (error) {
        throw failure && !signal.aborted ? failure.error : error;
      } finally {
        late?.cancel();
      }
    },
    [Symbol.dispose]() {
      process.off("uncaughtException", onError);
      process.off("unhandledRejection", onError);
    },
  };
}

/** True for errors after which no part of the process is to be trusted: Node's own assertions, and memory that is not to be had. */
function isOfProcess(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ERR_INTERNAL_ASSERTION" || code === "ERR_OUT_OF_MEMORY" || code === "ENOMEM") return true;
  return error instanceof RangeError && /allocation failed/i.test(error.message);
}

/** An error in one line, with the place where it arose. */
function describe(error: unknown): string {
  const place = /^ +(at .*:\d+:\d+\)?)$/m.exec(stackOf(error) ?? "")?.[1];
  const name = error instanceof Error ? `${error.name}: ` : "";
  return `${name}${messageOf(error)}${place === undefined ? "" : ` ${place}`}`;
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
