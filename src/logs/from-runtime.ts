import { hasCode } from "../lib/errors.ts";
import type { LogLine } from "../seams/runtime.ts";
import type { LogOutput } from "./output.ts";

/** Copies a log from the runtime, until its end or until the output is complete. @returns false if the runtime has no such
 *  container or does not support logs. @throws other errors of the runtime. */
export async function copyFromRuntime(
  lines: AsyncIterable<LogLine>,
  output: LogOutput,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    for await (const line of lines) {
      const more = output.addParsed(line);
      await output.flush(signal);
      if (!more) return true;
    }
    return true;
  } catch (error) {
    if (hasCode(error, "not_found", "unimplemented")) return false;
    throw error;
  }
}
