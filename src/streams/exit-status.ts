import { CodedError, messageOf } from "../lib/errors.ts";

/** A command's result on the error stream: the fields of a metav1.Status that clients read.
 *  @see https://github.com/kubernetes/cri-streaming */
export interface ExitStatus {
  readonly status: "Success" | "Failure";
  readonly message?: string;
  readonly reason?: "NonZeroExitCode" | "InternalError";
  readonly details?: { readonly causes: readonly { readonly reason: "ExitCode"; readonly message: string }[] };
  readonly code?: number;
}

export function exitStatus(code: number): ExitStatus {
  if (code === 0) return { status: "Success" };
  return {
    status: "Failure",
    message: `command terminated with non-zero exit code: ${code}`,
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: String(code) }] },
  };
}

/** Returns the status of a command that could not be run. */
export function internalError(error: unknown): ExitStatus {
  return {
    status: "Failure",
    message: `Internal error occurred: ${messageOf(error)}`,
    reason: "InternalError",
    code: 500,
  };
}

/** Creates the error for a client whose command may still run, or has ended with an unknown result. */
export function connectionLost(): CodedError {
  return new CodedError("unavailable", "the connection to the container was lost");
}

/** Parses a status from an error stream; unknown fields are kept. Undefined if the text is not a complete status. */
export function parseStatus(text: string): ExitStatus | undefined {
  try {
    const status = JSON.parse(text) as ExitStatus | null;
    return status?.status === "Success" || status?.status === "Failure" ? status : undefined;
  } catch {
    return undefined;
  }
}

/** Encodes a status for the error stream: as JSON since protocol version 4, before that as the plain text of a failure. */
export function statusBytes(status: ExitStatus, asJson: boolean): Buffer {
  if (asJson) return Buffer.from(JSON.stringify(status));
  return Buffer.from(status.status === "Success" ? "" : (status.message ?? ""));
}
