import { CodedError, codeOf } from "../../lib/errors.ts";

/** Why a volume does not grow: its driver is away, or cannot do that; not while the volume is used; never to that size. */
export type ExpandRefusal = "away" | "unsupported" | "inUse" | "infeasible";

/** A failure to grow that is more than one of the try. */
export class ExpandError extends CodedError {
  readonly refusal: ExpandRefusal;
  constructor(refusal: ExpandRefusal, message: string, why?: unknown) {
    super(why === undefined ? "failed_precondition" : codeOf(why), message, { cause: why });
    this.name = "ExpandError";
    this.refusal = refusal;
  }
}

/** True for an error that is that refusal. */
export function isRefusal(error: unknown, ...refusals: readonly ExpandRefusal[]): boolean {
  return error instanceof ExpandError && refusals.includes(error.refusal);
}
