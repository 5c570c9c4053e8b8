import { LinkError } from "./link-state.ts";

/** Creates the error for a peer that exceeds a limit. Throwing it in one of ssh2's handlers ends the connection.
 *  @param what the message after the peer's name, such as `sent too much`. */
export type LimitErrorFactory = (what: string) => LinkError;

/** Returns the factory of limit errors for a peer. @param peer its name, for messages. */
export function limitErrorOf(peer: string): LimitErrorFactory {
  return (what) =>
    new LinkError(
      "LimitExceeded",
      "resource_exhausted",
      `${peer} ${what}, which exceeds graftlet's limits: check what answers there, and whether the machine has been compromised.`,
    );
}

/** True for the error of a peer that has exceeded a limit. */
export function isLimitError(error: unknown): boolean {
  return error instanceof LinkError && error.reason === "LimitExceeded";
}
