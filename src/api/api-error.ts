import { CodedError, type ErrorCode } from "../lib/errors.ts";

/** Error response of the API server; the message is the server's own. */
export class ApiError extends CodedError {
  /** HTTP status; 410 says that a resource version or a continue token is too old. */
  readonly status: number;
  /** `Status.reason`, such as NotFound or AlreadyExists; empty when the server sent no Status. */
  readonly reason: string;
  /** Retry delay that the server asks for, milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    details: { status: number; reason: string; retryAfterMs?: number | undefined },
  ) {
    super(code, message);
    this.name = "ApiError";
    this.status = details.status;
    this.reason = details.reason;
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** True for an expired resource version or continue token. */
export function isExpired(error: unknown): boolean {
  return error instanceof ApiError && error.status === 410;
}

/** Creates the error for a response other than 2xx.
 *  @param status HTTP status
 *  @param body the response body: a Status object, or the text of a proxy
 *  @param retryAfter the Retry-After header, seconds
 *  @see https://kubernetes.io/docs/reference/using-api/api-concepts/ */
export function apiError(status: number, body: string, retryAfter?: string): ApiError {
  const parsed = statusOf(body);
  const reason = parsed?.reason ?? "";
  const message = parsed?.message || body.trim().slice(0, 1024) || `the server responded with status ${status}`;
  const seconds = retryAfter === undefined ? Number.NaN : Number(retryAfter);
  return new ApiError(codeOfStatus(status, reason), message, {
    status,
    reason,
    retryAfterMs: seconds >= 0 ? seconds * 1000 : undefined,
  });
}

/** Creates the error for a Status object inside a watch. */
export function watchError(status: { code?: number; reason?: string; message?: string }): ApiError {
  const code = status.code ?? 500;
  const reason = status.reason ?? "";
  return new ApiError(codeOfStatus(code, reason), status.message ?? "the watch failed", { status: code, reason });
}

function statusOf(body: string): { reason?: string; message?: string } | undefined {
  try {
    const value = JSON.parse(body) as { kind?: string; reason?: string; message?: string } | null;
    return value?.kind === "Status" ? value : undefined;
  } catch {
    return undefined;
  }
}

function codeOfStatus(status: number, reason: string): ErrorCode {
  switch (status) {
    case 400:
    case 422:
      return "invalid_argument";
    case 401:
      return "unauthenticated";
    case 403:
      return "permission_denied";
    case 404:
      return "not_found";
    case 405:
    case 406:
    case 415:
      return "unimplemented";
    case 409:
      return reason === "AlreadyExists" ? "already_exists" : "conflict";
    case 410:
    case 412:
      return "failed_precondition";
    case 413:
    case 429:
      return "resource_exhausted";
    default:
      return status >= 500 ? "unavailable" : "unknown";
  }
}
