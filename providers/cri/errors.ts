import { type ServiceError, status } from "@grpc/grpc-js";
import { boundedErrorText } from "../../src/lib/bounded-text.ts";
import { CodedError, type ErrorCode, abortError } from "../../src/lib/errors.ts";
import { RuntimeError, runtimeReasons } from "../../src/seams/runtime.ts";

const codes: Readonly<Partial<Record<status, ErrorCode>>> = {
  // Cancellation by the caller is handled below; this is the server's, for example on shutdown.
  [status.CANCELLED]: "unavailable",
  [status.INVALID_ARGUMENT]: "invalid_argument",
  [status.DEADLINE_EXCEEDED]: "deadline_exceeded",
  [status.NOT_FOUND]: "not_found",
  [status.ALREADY_EXISTS]: "already_exists",
  [status.PERMISSION_DENIED]: "permission_denied",
  [status.RESOURCE_EXHAUSTED]: "resource_exhausted",
  [status.FAILED_PRECONDITION]: "failed_precondition",
  [status.ABORTED]: "conflict",
  [status.UNIMPLEMENTED]: "unimplemented",
  [status.INTERNAL]: "internal",
  [status.UNAVAILABLE]: "unavailable",
  [status.UNAUTHENTICATED]: "unauthenticated",
};

/** Coded error for a failed gRPC call: the code of its status, with the gRPC error as cause; the signal's reason for an
 *  aborted call. */
export function codedCallError(error: unknown, signal: AbortSignal): CodedError {
  if (signal.aborted) return abortError(signal);
  if (error instanceof CodedError) return error;
  if (!isServiceError(error))
    return new CodedError("unknown", error instanceof Error ? error.message : String(error), { cause: error });
  return codedStatus(error.code, error.details, error);
}

/** Coded error for a gRPC status, with the server's message (users read it in events); a RuntimeError when the message
 *  begins with a reason that CRI defines. */
export function codedStatus(grpc: status, details: string, cause?: Error): CodedError {
  const code = codes[grpc] ?? "unknown";
  const said = boundedErrorText(details);
  const reason = runtimeReasons.find((word) => details.startsWith(word));
  return reason ? new RuntimeError(code, reason, said, { cause }) : new CodedError(code, said, { cause });
}

function isServiceError(error: unknown): error is ServiceError {
  return (
    error instanceof Error &&
    "code" in error &&
    typeof error.code === "number" &&
    "details" in error &&
    typeof error.details === "string"
  );
}
