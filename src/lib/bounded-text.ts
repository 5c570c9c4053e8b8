import { CodedError } from "./errors.ts";
import type { TargetBudget } from "./target-budget.ts";

// Parsed objects take many times the memory of the target's text, so the text is measured before it is parsed.

/** Maximum lines of a table: the kernel's default limit of mounts in a mount namespace. */
const maxLines = 100_000;
/** Estimated memory of a line with its columns and of a JSON value, bytes. */
const lineBytes = 256;
const valueBytes = 64;
/** Maximum memory of one parsed JSON text, estimated bytes, and its maximum depth. */
const maxJsonBytes = 64 * 1024 * 1024;
const maxJsonDepth = 256;

/** Splits a table written by a target into lines. @param budget charged with the estimated memory.
 *  @throws CodedError resource_exhausted for more than 100,000 lines, or a target over its budget. */
export function boundedLines(table: string, budget?: TargetBudget): string[] {
  const lines = countLines(table);
  budget?.spend(table.length + lines * lineBytes);
  if (lines > maxLines)
    throw new CodedError("resource_exhausted", `a table of the target has more than ${maxLines} lines`);
  return table.split("\n");
}

/** Number of lines, counted up to one more than the maximum. */
function countLines(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0 && lines <= maxLines; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines;
}

const quote = 0x22;
const backslash = 0x5c;
const [comma, colon] = [0x2c, 0x3a];
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

/** Parses JSON written by a target. @param budget charged with the estimated memory.
 *  @throws CodedError resource_exhausted for a text with too many or too deeply nested values, or a target over its budget;
 *  SyntaxError. */
export function parseBoundedJson(text: Buffer, budget?: TargetBudget): unknown {
  const bytes = estimateJsonBytes(text);
  budget?.spend(Math.min(bytes, maxJsonBytes));
  if (bytes > maxJsonBytes)
    throw new CodedError(
      "resource_exhausted",
      `a JSON text of ${text.length} bytes has too many values: it would take more than ${maxJsonBytes} bytes of memory`,
    );
  return JSON.parse(text.toString());
}

/** Estimated memory of a JSON text's value, bytes: counts the separators outside of strings.
 *  @throws CodedError resource_exhausted beyond the maximum depth. */
function estimateJsonBytes(text: Buffer): number {
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

/** Maximum length of an error text from a target, characters: it is logged and shown in events. */
const maxErrorText = 8192;

/** Truncates an error text written by a target. */
export function boundedErrorText(text: string): string {
  return text.length <= maxErrorText ? text : `${text.slice(0, maxErrorText)}…`;
}
