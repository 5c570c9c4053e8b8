import { type ServiceError, status } from "@grpc/grpc-js";
import { CodedError, type ErrorCode, abortError } from "../../src/lib/errors.ts";
import { RuntimeError, runtimeReasons } from "../../src/seams/runtime.ts";

const codes: Readonly<Partial<Record<status, ErrorCode>>> = {
  // The caller cancelled nothing (see below): the other end gave the call up, as a server that shuts down does.
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
  [status.UNAVAILABLE]: "unavailable",
  [status.UNAUTHENTICATED]: "unauthenticated",
};

/** The coded error for a call that gRPC failed: that of its status, with the gRPC error as its cause. A call that the signal ended is
 *  the signal's reason. */
export function codedCallError(error: unknown, signal: AbortSignal): CodedError {
  if (signal.aborted) return abortError(signal);
  if (error instanceof CodedError) return error;
  if (!isServiceError(error))
    return new CodedError("unknown", error instanceof Error ? error.message : String(error), { cause: error });
  return codedStatus(error.code, error.details, error);
}

/** The coded error for a gRPC status: the server's own words as its message (users read them in events); a RuntimeError where they
 *  begin with a word that CRI defines. */
export function codedStatus(grpc: status, details: string, cause?: Error): CodedError {
  const code = codes[grpc] ?? "unknown";
  const reason = runtimeReasons.find((word) => details.startsWith(word));
  return reason ? new RuntimeError(code, reason, details, { cause }) : new CodedError(code, details, { cause });
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
