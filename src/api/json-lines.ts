import type { Readable } from "node:stream";

const newline = 0x0a;

/** Yields the values of newline-delimited JSON, as in a watch. A line is buffered until it is complete.
 *  @throws the stream's error; SyntaxError for a line that is not JSON. */
export async function* jsonLines(body: Readable): AsyncGenerator<unknown, void, undefined> {
  let partial: Buffer[] = [];
  for await (const chunk of body as AsyncIterable<Buffer>) {
    let start = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
      const line = Buffer.concat([...partial, chunk.subarray(start, end)]).toString("utf8");
      partial = [];
      start = end + 1;
      if (line.trim() !== "") yield parseJson(line);
    }
    if (start < chunk.length) partial.push(chunk.subarray(start));
  }
  const rest = Buffer.concat(partial).toString("utf8");
  if (rest.trim() !== "") yield parseJson(rest);
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
