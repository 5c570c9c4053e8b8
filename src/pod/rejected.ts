import { CodedError } from "../lib/errors.ts";
import type { Rejection } from "../pipeline.ts";

/** An error that permanently fails a pod while it starts. */
export class PodRejectedError extends CodedError {
  readonly rejection: Rejection;
  constructor(rejection: Rejection) {
    super("failed_precondition", rejection.message);
    this.name = "PodRejectedError";
    this.rejection = rejection;
  }
}
