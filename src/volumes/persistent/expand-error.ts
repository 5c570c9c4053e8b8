import { CodedError, codeOf } from "../../lib/errors.ts";

/** Why a volume cannot be expanded: the driver is not registered, does not support it, refuses while the volume is in use, or
 *  refuses that size for good. */
export type ExpandRefusal = "away" | "unsupported" | "inUse" | "infeasible";

/** An expansion failure with a lasting reason. */
export class ExpandError extends CodedError {
  readonly refusal: ExpandRefusal;
  constructor(refusal: ExpandRefusal, message: string, why?: unknown) {
    super(why === undefined ? "failed_precondition" : codeOf(why), message, { cause: why });
    this.name = "ExpandError";
    this.refusal = refusal;
  }
}

/** True if the error has one of the given reasons. */
export function hasRefusal(error: unknown, ...refusals: readonly ExpandRefusal[]): boolean {
  return error instanceof ExpandError && refusals.includes(error.refusal);
}
