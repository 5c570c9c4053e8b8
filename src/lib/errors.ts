/** Error codes: the subset of gRPC's canonical codes that graftlet distinguishes.
 *  @see https://grpc.io/docs/guides/status-codes/ */
export type ErrorCode =
  | "cancelled"
  | "not_found"
  | "already_exists"
  | "unavailable"
  | "unauthenticated"
  | "permission_denied"
  | "invalid_argument"
  | "failed_precondition"
  | "resource_exhausted"
  | "deadline_exceeded"
  | "conflict"
  | "unimplemented"
  | "internal"
  | "unknown";

/** An error classified once, at the seam where it occurred; the original error is its cause. */
export class CodedError extends Error {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "CodedError";
    this.code = code;
  }
}

/** Code of a classified error; `unknown` for all others. */
export function codeOf(error: unknown): ErrorCode {
  return error instanceof CodedError ? error.code : "unknown";
}

/** True when the error was classified as one of these codes. */
export function hasCode(error: unknown, ...codes: readonly ErrorCode[]): boolean {
  return error instanceof CodedError && codes.includes(error.code);
}

/** Returns a call's result, or undefined if it fails with one of these codes. @throws any other failure. */
export async function ignoreCode<T>(call: Promise<T>, ...codes: readonly ErrorCode[]): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (hasCode(error, ...codes)) return undefined;
    throw error;
  }
}

/** Returns a call's result, or undefined if it fails with `not_found`. @throws any other failure. */
export function ignoreNotFound<T>(call: Promise<T>): Promise<T | undefined> {
  return ignoreCode(call, "not_found");
}

/** Message of any thrown value, for texts that users read. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Code of a failed system call (`ENOENT` and so on), as Node.js and SFTP report it. */
export function codeOfErrno(errno: string | undefined): ErrorCode {
  switch (errno) {
    case "ENOENT":
    case "ENOTDIR":
      return "not_found";
    case "EEXIST":
    case "EADDRINUSE":
      return "already_exists";
    case "ENOTEMPTY":
    case "EISDIR":
    case "EBUSY":
    case "ELOOP":
    case "ENXIO":
      return "failed_precondition";
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return "permission_denied";
    case "EINVAL":
    case "ENAMETOOLONG":
      return "invalid_argument";
    case "ENOSPC":
    case "EMFILE":
    case "ENFILE":
    case "EDQUOT":
      return "resource_exhausted";
    case "ECONNREFUSED":
    case "ECONNRESET":
    case "EPIPE":
    case "ENOTFOUND":
    case "EHOSTUNREACH":
    case "ENETUNREACH":
    case "EAI_AGAIN":
      return "unavailable";
    case "ETIMEDOUT":
      return "deadline_exceeded";
    case "ABORT_ERR":
      return "cancelled";
    default:
      return "unknown";
  }
}

/** Throws the signal's reason as `cancelled` (or `deadline_exceeded` for a timeout) when it has been aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortError(signal);
}

/** True for the error of a signal that was aborted without a reason: the caller has ended, and nothing has failed. */
export function isAbort(error: unknown): boolean {
  const cause = error instanceof CodedError && error.code === "cancelled" ? error.cause : error;
  return cause instanceof DOMException && cause.name === "AbortError";
}

/** The error of an aborted signal: its reason if that is a CodedError, otherwise `cancelled`. */
export function abortError(signal: AbortSignal): CodedError {
  const reason: unknown = signal.reason;
  if (reason instanceof CodedError) return reason;
  return new CodedError("cancelled", messageOf(reason ?? "cancelled"), { cause: reason });
}
