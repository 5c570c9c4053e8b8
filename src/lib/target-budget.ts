import type { Readable } from "node:stream";
import type { Clock } from "./clock.ts";
import { CodedError } from "./errors.ts";

/** How much a target may make this process decode: one process serves all nodes, so a target that floods its own node with data must
 *  not take the others' time and memory. */
export interface TargetBudget {
  /** Charges decoded data, in bytes of the memory that it takes.
   *  @throws CodedError resource_exhausted when the target is over its budget, and for a while afterwards. */
  spend(bytes: number): void;
  /** A sentence for the node's Ready condition while the target is over its budget. */
  exceeded(): string | undefined;
}

/** Decoded bytes a second in the long run, and at once. A node with 500 pods and 5,000 images that is relisted every second takes
 *  about a third of it; decoding all of it takes a fifth of one processor. */
const perSecond = 64 * 1024 * 1024;
const burst = 512 * 1024 * 1024;
/** Time that a target stays over its budget, milliseconds. */
const penaltyMs = 30_000;

export interface TargetBudgetOptions {
  readonly clock: Pick<Clock, "monotonic">;
  /** Called when the target exceeds its budget, with a sentence that says so. */
  readonly onExceeded?: (message: string) => void;
}

/** A token bucket of decoded bytes. */
export function createTargetBudget({ clock, onExceeded }: TargetBudgetOptions): TargetBudget {
  let tokens = burst;
  let filledAt = clock.monotonic();
  let overUntil = Number.NEGATIVE_INFINITY;
  const exceeded = () => (clock.monotonic() < overUntil ? message : undefined);
  const refuse = () => new CodedError("resource_exhausted", message);
  return {
    exceeded,
    spend(bytes) {
      const now = clock.monotonic();
      if (now < overUntil) throw refuse();
      tokens = Math.min(burst, tokens + ((now - filledAt) / 1000) * perSecond) - bytes;
      filledAt = now;
      if (tokens >= 0) return;
      tokens = burst;
      overUntil = now + penaltyMs;
      filledAt = overUntil;
      onExceeded?.(message);
      throw refuse();
    },
  };
}

const message =
  `the target sends more data than graftlet decodes for one node (${perSecond / 2 ** 20} MiB a second): ` +
  "its container runtime, or a plugin, answers with far more than a node's pods and images need; look for the process on it that does.";

/** Charges a target for each byte of a stream of its own, whatever becomes of it: frames of a protocol cost time, too. A target over its
 *  budget loses the stream. The stream's reader has to be there already, or come at once. */
export function chargeStream(stream: Readable, budget: TargetBudget | undefined): void {
  if (!budget) return;
  stream.on("data", (chunk: Buffer) => {
    try {
      budget.spend(chunk.length);
    } catch (error) {
      stream.destroy(error instanceof Error ? error : undefined);
    }
  });
}
