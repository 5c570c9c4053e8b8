import { CodedError, type ErrorCode, messageOf } from "../lib/errors.ts";

const grpcNames: Readonly<Record<ErrorCode, string>> = {
  cancelled: "Canceled",
  not_found: "NotFound",
  already_exists: "AlreadyExists",
  unavailable: "Unavailable",
  unauthenticated: "Unauthenticated",
  permission_denied: "PermissionDenied",
  invalid_argument: "InvalidArgument",
  failed_precondition: "FailedPrecondition",
  resource_exhausted: "ResourceExhausted",
  deadline_exceeded: "DeadlineExceeded",
  conflict: "Aborted",
  unimplemented: "Unimplemented",
  internal: "Internal",
  unknown: "Unknown",
};

/** A runtime's error as the kubelet shows it to users. */
export function runtimeErrorText(error: unknown): string {
  return error instanceof CodedError
    ? `rpc error: code = ${grpcNames[error.code]} desc = ${error.message}`
    : messageOf(error);
}
