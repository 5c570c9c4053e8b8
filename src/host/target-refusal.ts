import { CodedError, messageOf } from "../lib/errors.ts";
import { TargetError, type TroubleReason } from "../seams/provider.ts";

/** Turns failures of checks on a target into refusals to start the node on it. */
export interface TargetRefusal {
  /** Runs a check. @throws TargetError with the message of what the check throws. */
  check<T>(run: () => T): T;
  /** Waits for a reading of the target. @throws TargetError if it fails with failed_precondition; otherwise as the reading does. */
  read<T>(reading: Promise<T>): Promise<T>;
}

export function createTargetRefusal(reason: TroubleReason): TargetRefusal {
  const refusal = (error: unknown) =>
    new TargetError(reason, "failed_precondition", messageOf(error), { cause: error });
  return {
    check(run) {
      try {
        return run();
      } catch (error) {
        throw refusal(error);
      }
    },
    read: (reading) =>
      reading.catch((error: unknown) => {
        throw error instanceof CodedError && error.code === "failed_precondition" ? refusal(error) : error;
      }),
  };
}
