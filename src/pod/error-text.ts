import { CodedError, messageOf } from "../lib/errors.ts";
import { goCode } from "../lib/grpc-status.ts";

/** A runtime's error as the kubelet shows it to users. */
export function runtimeErrorText(error: unknown): string {
  return error instanceof CodedError ? `rpc error: code = ${goCode(error)} desc = ${error.message}` : messageOf(error);
}
