import { parseBoundedJson } from "../../../src/lib/bounded-text.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import { isRecord } from "../../../src/lib/record.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";

const newline = 0x0a;

/** Budget charges for the processing of a line, and of a piece of the stream, bytes. */
const lineOverheadBytes = 32 * 1024;
const chunkOverheadBytes = 4 * 1024;

export interface JsonLinesOptions {
  /** Charged with the memory of the values. */
  readonly budget?: TargetBudget | undefined;
  /** Limit of one line; default 4 MiB. */
  readonly maxLineBytes?: number;
}

/** JSON objects, one per line; chunks may split lines anywhere. Applies backpressure.
 *  @throws CodedError resource_exhausted for a longer line, or one with too many values; unknown for anything but a JSON object. */
export async function* jsonLines(
  source: AsyncIterable<Uint8Array>,
  { budget, maxLineBytes = 4 * 1024 * 1024 }: JsonLinesOptions = {},
): AsyncGenerator<Record<string, unknown>> {
  const pending = new BoundedBuffer(maxLineBytes);
  const add = (part: Uint8Array) => {
    if (!pending.add(part))
      throw new CodedError("resource_exhausted", `the Docker Engine sent a line of more than ${maxLineBytes} bytes`);
  };
  for await (const chunk of source) {
    budget?.spend(chunkOverheadBytes);
    let from = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, from)) {
      add(chunk.subarray(from, end));
      const line = pending.take();
      from = end + 1;
      if (!isBlank(line)) yield parsed(line, budget);
    }
    add(chunk.subarray(from));
  }
  const last = pending.take();
  if (!isBlank(last)) yield parsed(last, budget);
}

function isBlank(line: Buffer): boolean {
  return line.length < 16 && line.toString().trim() === "";
}

function parsed(line: Buffer, budget: TargetBudget | undefined): Record<string, unknown> {
  let value: unknown;
  budget?.spend(lineOverheadBytes);
  try {
    value = parseBoundedJson(line, budget);
  } catch (error) {
    if (hasCode(error, "resource_exhausted")) throw error;
    throw new CodedError("unknown", "the Docker Engine sent a line that is not JSON", { cause: error });
  }
  if (!isRecord(value)) throw new CodedError("unknown", "the Docker Engine sent a line that is not a JSON object");
  return value;
}
