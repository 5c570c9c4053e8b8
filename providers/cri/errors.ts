import { CodedError, abortError, messageOf } from "../../src/lib/errors.ts";
import { GrpcError } from "../../src/lib/grpc-status.ts";
import { RuntimeError, runtimeReasons } from "../../src/seams/runtime.ts";

/** The error of a failed call to a runtime. Its message is the server's alone, as users read it in events; its cause is the gRPC error. A
 *  message that begins with a reason that CRI defines gives a RuntimeError, and an aborted call the signal's reason. */
export function codedCallError(error: unknown, signal: AbortSignal): CodedError {
  if (signal.aborted) return abortError(signal);
  if (error instanceof GrpcError) {
    const { code, description } = error;
    const reason = runtimeReasons.find((word) => description.startsWith(word));
    const options = { cause: error };
    return reason ? new RuntimeError(code, reason, description, options) : new CodedError(code, description, options);
  }
  return error instanceof CodedError ? error : new CodedError("unknown", messageOf(error), { cause: error });
}
