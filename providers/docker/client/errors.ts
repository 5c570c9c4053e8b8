import { CodedError, type ErrorCode, abortError, codeOfErrno, messageOf } from "../../../src/lib/errors.ts";
import { errnoOf, hasErrno } from "../../local/errors.ts";

const codes: Readonly<Record<number, ErrorCode>> = {
  304: "failed_precondition",
  400: "invalid_argument",
  401: "unauthenticated",
  403: "permission_denied",
  404: "not_found",
  409: "conflict",
  501: "unimplemented",
  503: "unavailable",
};

/** Returns the coded error for a failed call or connection: its message is the daemon's, since users read it in events, and its
 *  cause is the given error. For an aborted call it is the signal's reason.
 *  @param socket names the daemon in the message when it is unavailable. */
export function codedDockerError(error: unknown, socket: string, signal: AbortSignal): CodedError {
  if (signal.aborted) return abortError(signal);
  const status = httpStatus(error);
  if (status !== undefined)
    return new CodedError(codes[status] ?? "unknown", daemonMessage(error) ?? messageOf(error), { cause: error });
  if (error instanceof CodedError && error.code !== "unavailable" && error.code !== "permission_denied") return error;
  const code = error instanceof CodedError ? error.code : codeOfErrno(errnoOf(error));
  if (code === "permission_denied")
    return new CodedError(
      "permission_denied",
      `permission denied on the Docker socket ${socket}: add the user that graftlet runs as to the socket's group (docker), or run graftlet as root.`,
      { cause: error },
    );
  if (code === "unavailable" || code === "not_found" || isConnectionReset(error))
    return new CodedError(
      "unavailable",
      `no Docker Engine responds at ${socket}: start it (systemctl start docker), or set providerConfig.socket to its socket.`,
      { cause: error },
    );
  return new CodedError(code, messageOf(error), { cause: error });
}

/** Returns the HTTP status of an error response, as dockerode reports it; undefined for other errors. */
function httpStatus(error: unknown): number | undefined {
  const status = error instanceof Error && "statusCode" in error ? error.statusCode : undefined;
  return typeof status === "number" ? status : undefined;
}

/** Returns the daemon's message from the body of an Engine API error, `{"message": …}`. */
function daemonMessage(error: unknown): string | undefined {
  const body: unknown = error instanceof Error && "json" in error ? error.json : undefined;
  if (typeof body !== "object" || body === null || !("message" in body)) return undefined;
  return typeof body.message === "string" ? body.message.trim() : undefined;
}

/** True for Node's error for a connection that ended before the response. */
export function isConnectionReset(error: unknown): boolean {
  return hasErrno(error, "ECONNRESET") || messageOf(error) === "aborted";
}
