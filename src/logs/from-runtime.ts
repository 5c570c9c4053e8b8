import { hasCode } from "../lib/errors.ts";
import type { LogLine } from "../seams/runtime.ts";
import type { LogOutput } from "./output.ts";

/** Copies what the runtime gives of a log, until its end or until the output wants no more.
 *  @returns false when the runtime has no such container, or gives no logs at all. @throws what else the runtime fails with. */
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
