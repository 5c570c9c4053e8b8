import type { Readable } from "node:stream";
import type { Clock } from "./clock.ts";
import { CodedError } from "./errors.ts";

/** Limits how much data of a target this process decodes: one process serves all nodes, so a target that floods its node with
 *  data must not use up the time and memory of the others. */
export type TargetBudget = ReturnType<typeof createTargetBudget>;

/** Rate and burst of decoded bytes, per second. Relisting 500 pods and 5,000 images every second takes about a third of the
 *  rate; decoding at the full rate takes a fifth of one CPU. */
const perSecond = 64 * 1024 * 1024;
const burst = 512 * 1024 * 1024;
/** How long a target stays rejected after exceeding its budget, milliseconds. */
const penaltyMs = 30_000;

export interface TargetBudgetOptions {
  readonly clock: Pick<Clock, "monotonic">;
  /** Called with a message when the target exceeds its budget. */
  readonly onExceeded?: (message: string) => void;
}

/** A token bucket of decoded bytes. */
export function createTargetBudget({ clock, onExceeded }: TargetBudgetOptions) {
  let tokens = burst;
  let filledAt = clock.monotonic();
  let overUntil = Number.NEGATIVE_INFINITY;
  const exceeded = () => (clock.monotonic() < overUntil ? message : undefined);
  const refuse = () => new CodedError("resource_exhausted", message);
  return {
    /** Message for the node's Ready condition while the target is over its budget. */
    exceeded,
    /** Charges decoded data, in bytes of the memory that it takes.
     *  @throws CodedError resource_exhausted when the target is over its budget, and for a while afterwards. */
    spend(bytes: number): void {
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
  `the target sends more data than graftlet accepts for one node (${perSecond / 2 ** 20} MiB/s): its container runtime ` +
  "or a plugin sends far more than a node's pods and images need; find that process on the target.";

/** Charges a target for each byte of its stream, even if the bytes are dropped: protocol frames cost time too. The stream is
 *  destroyed when the target exceeds its budget. The stream's reader must be attached before or in the same turn. */
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
