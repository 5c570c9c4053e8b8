import { CodedError, type ErrorCode } from "../lib/errors.ts";

/** An object that cannot be served as it is. */
export class RefusedObject extends CodedError {
  /** Reason of the condition Accepted. */
  readonly reason: string;

  /** @param reason one word in CamelCase. @param message one sentence with the remedy. */
  constructor(reason: string, code: ErrorCode, message: string) {
    super(code, message);
    this.reason = reason;
  }
}
