import type { Readable } from "node:stream";
import { linesOf } from "../lib/line-reader.ts";

/** Yields the values of newline-delimited JSON, as in a watch. A line is buffered until it is complete.
 *  @throws the stream's error; SyntaxError for a line that is not JSON. */
export async function* jsonLines(body: Readable): AsyncGenerator<unknown, void, undefined> {
  for await (const line of linesOf(body)) {
    const text = line.toString("utf8");
    if (text.trim() !== "") yield parseJson(text);
  }
}

/** Parses a JSON text.
 *  @throws SyntaxError without any of the text, which may contain a secret or token: errors reach logs and events. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SyntaxError(`${text.length} characters of invalid or incomplete JSON`);
  }
}
