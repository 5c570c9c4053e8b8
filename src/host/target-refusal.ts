import { CodedError, messageOf } from "../lib/errors.ts";
import { TargetError, type TroubleReason } from "../seams/provider.ts";

/** Turns failures of checks on a target into refusals to start the node on it. */
export type TargetRefusal = ReturnType<typeof createTargetRefusal>;

export function createTargetRefusal(reason: TroubleReason) {
  const refusal = (error: unknown) =>
    new TargetError(reason, "failed_precondition", messageOf(error), { cause: error });
  return {
    /** Runs a check. @throws TargetError with the message of the check's error. */
    check<T>(run: () => T): T {
      try {
        return run();
      } catch (error) {
        throw refusal(error);
      }
    },
    /** Waits for data to be read from the target. @throws TargetError if it fails with failed_precondition; any other error of the
     *  read. */
    read: <T>(reading: Promise<T>): Promise<T> =>
      reading.catch((error: unknown) => {
        throw error instanceof CodedError && error.code === "failed_precondition" ? refusal(error) : error;
      }),
  };
}
