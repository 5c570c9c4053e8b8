import { parseBoundedJson } from "../../../src/lib/bounded-text.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import { isRecord } from "../../../src/lib/record.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";
import { linesOf } from "../../../src/lib/line-reader.ts";

/** Amounts charged to the budget for processing a line, and a piece of the stream, bytes. */
const lineOverheadBytes = 32 * 1024;
const chunkOverheadBytes = 4 * 1024;

export interface JsonLinesOptions {
  /** Budget that is charged for the memory of the values. */
  readonly budget?: TargetBudget | undefined;
  /** Limit of one line; default 4 MiB. */
  readonly maxLineBytes?: number;
}

/** Yields the JSON objects of a stream, one per line; chunks may split lines anywhere. Applies backpressure.
 *  @throws CodedError resource_exhausted for a longer line, or one with too many values; unknown for anything but a JSON
 *  object. */
export async function* jsonLines(
  source: AsyncIterable<Uint8Array>,
  { budget, maxLineBytes = 4 * 1024 * 1024 }: JsonLinesOptions = {},
): AsyncGenerator<Record<string, unknown>> {
  const tooLong = `the Docker Engine sent a line of more than ${maxLineBytes} bytes`;
  for await (const line of linesOf(charged(source, budget), maxLineBytes, tooLong))
    if (!isBlank(line)) yield parsed(line, budget);
}

async function* charged(source: AsyncIterable<Uint8Array>, budget: TargetBudget | undefined) {
  for await (const chunk of source) {
    budget?.spend(chunkOverheadBytes);
    yield chunk;
  }
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
