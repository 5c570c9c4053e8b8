import { LinkError } from "./link-state.ts";

/** The error of a peer that exceeds a limit. A handler of ssh2's that throws it ends the connection.
 *  @param what the peer does, after its name. */
export type LimitExceeded = (what: string) => LinkError;

/** @param peer its name for the message. */
export function limitExceeded(peer: string): LimitExceeded {
  return (what) =>
    new LinkError(
      "LimitExceeded",
      "resource_exhausted",
      `${peer} ${what}, which graftlet does not accept: check what answers there, and whether the machine is still yours.`,
    );
}

/** True for the error of a peer that exceeds a limit. */
export function exceedsLimit(error: unknown): boolean {
  return error instanceof LinkError && error.reason === "LimitExceeded";
}
