import { CodedError } from "./errors.ts";
import type { TargetBudget } from "./target-budget.ts";

// Text of a target becomes many times its length in objects: it is counted before it is parsed.

/** Most lines of one table: as many mounts as the kernel allows a mount namespace by default. */
const maxLines = 100_000;
/** Estimated memory of a line with its columns, and of a JSON value, bytes. */
const lineBytes = 256;
const valueBytes = 64;
/** Most memory that one JSON text may take, estimated bytes, and its greatest depth. */
const maxJsonBytes = 64 * 1024 * 1024;
const maxJsonDepth = 256;

/** The lines of a table that a target wrote. @param budget charged with the estimated memory.
 *  @throws CodedError resource_exhausted for more than 100,000 lines, or a target over its budget. */
export function linesOf(table: string, budget?: TargetBudget): string[] {
  const lines = countLines(table);
  budget?.spend(table.length + lines * lineBytes);
  if (lines > maxLines)
    throw new CodedError("resource_exhausted", `a table of the target has more than ${maxLines} lines`);
  return table.split("\n");
}

/** Number of lines, up to one more than are allowed. */
function countLines(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0 && lines <= maxLines; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines;
}

const quote = 0x22;
const backslash = 0x5c;
const [comma, colon] = [0x2c, 0x3a];
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

/** The value of a JSON text that a target wrote. @param budget charged with the estimated memory.
 *  @throws CodedError resource_exhausted for a text with too many values or too deep ones, or a target over its budget; SyntaxError. */
export function parseBoundedJson(text: Buffer, budget?: TargetBudget): unknown {
  const bytes = weighJson(text);
  budget?.spend(Math.min(bytes, maxJsonBytes));
  if (bytes > maxJsonBytes)
    throw new CodedError(
      "resource_exhausted",
      `a JSON text of ${text.length} bytes has too many values: it would take more than ${maxJsonBytes} bytes of memory`,
    );
  return JSON.parse(text.toString());
}

/** Estimated memory of a JSON text's value, bytes: what stands between its values is counted, outside of strings.
 *  @throws CodedError resource_exhausted beyond the greatest depth. */
function weighJson(text: Buffer): number {
  let values = 0;
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const byte = text[at];
    if (byte === quote) at = endOfString(text, at);
    else if (byte === comma || byte === colon) values += 1;
    else if (byte === openList || byte === openObject) {
      values += 1;
      depth += 1;
      if (depth > maxJsonDepth)
        throw new CodedError("resource_exhausted", `a JSON text is deeper than ${maxJsonDepth} levels`);
    } else if (byte === closeList || byte === closeObject) depth -= 1;
  }
  return text.length + values * valueBytes;
}

/** @returns the position of the quote that ends the string, or the text's end. */
function endOfString(text: Buffer, from: number): number {
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === backslash) at += 1;
    else if (text[at] === quote) return at;
  }
  return text.length;
}

/** Longest text of an error that a target writes, characters: it is logged, and shown in events. */
const maxErrorText = 8192;

/** The beginning of a text that a target wrote as its error. */
export function boundedErrorText(text: string): string {
  return text.length <= maxErrorText ? text : `${text.slice(0, maxErrorText)}…`;
}
