import { CodedError, type ErrorCode, codeOf } from "./errors.ts";

/** Go's names of gRPC's status codes, in their order, and our codes.
 *  @see https://grpc.io/docs/guides/status-codes/ */
const statuses: readonly (readonly [name: string, code: ErrorCode])[] = [
  ["OK", "unknown"],
  ["Canceled", "cancelled"],
  ["Unknown", "unknown"],
  ["InvalidArgument", "invalid_argument"],
  ["DeadlineExceeded", "deadline_exceeded"],
  ["NotFound", "not_found"],
  ["AlreadyExists", "already_exists"],
  ["PermissionDenied", "permission_denied"],
  ["ResourceExhausted", "resource_exhausted"],
  ["FailedPrecondition", "failed_precondition"],
  ["Aborted", "conflict"],
  ["OutOfRange", "invalid_argument"],
  ["Unimplemented", "unimplemented"],
  ["Internal", "internal"],
  ["Unavailable", "unavailable"],
  ["DataLoss", "unknown"],
  ["Unauthenticated", "unauthenticated"],
];

/** Failure of a gRPC call. */
export interface CallFailure {
  /** gRPC's code, as Go names it. */
  readonly code: string;
  readonly message: string;
}

/** Failure of a call, in Go's format. */
export class GrpcError extends CodedError {
  /** gRPC's code, as Go names it. */
  readonly status: string;
  /** The server's message alone. */
  readonly description: string;
  constructor({ code, message }: CallFailure, cause?: unknown) {
    super(codeNamed(code), `rpc error: code = ${code} desc = ${message}`, { cause });
    this.name = "GrpcError";
    this.status = code;
    this.description = message;
  }
}

/** A server that cancels a call is shutting down: a caller that cancels its own call gets its signal's reason instead. */
function codeNamed(name: string): ErrorCode {
  return name === "Canceled" ? "unavailable" : (statuses.find(([known]) => known === name)?.[1] ?? "unknown");
}

/** Go's name of a status code. */
export function statusName(code: number): string {
  return statuses[code]?.[0] ?? `Code(${code})`;
}

/** Status of a failed call as Go names it; `unknown-non-grpc` for other errors. */
export function grpcStatusOf(error: unknown): string {
  return error instanceof GrpcError ? error.status : "unknown-non-grpc";
}

/** Go's name of the status of any error: that of a gRPC call, otherwise the status that corresponds to the error's code. */
export function goCode(error: unknown): string {
  const call = error instanceof Error && error.cause instanceof GrpcError ? error.cause : error;
  if (call instanceof GrpcError) return call.status;
  const code = codeOf(error);
  return statuses.slice(1).find(([, known]) => known === code)?.[0] ?? "Unknown";
}
