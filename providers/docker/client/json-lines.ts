import { CodedError } from "../../../src/lib/errors.ts";
import { KeptBytes } from "../../../src/lib/kept-bytes.ts";

const newline = 0x0a;

/** JSON values, one per line; chunks may split lines anywhere. Applies backpressure.
 *  @param maxLineBytes limit of one line.
 *  @throws CodedError resource_exhausted for a longer line, unknown for invalid JSON. */
export async function* jsonLines(source: AsyncIterable<Uint8Array>, maxLineBytes = 4 * 1024 * 1024): AsyncGenerator {
  const pending = new KeptBytes(maxLineBytes);
  const add = (part: Uint8Array) => {
    if (!pending.add(part))
      throw new CodedError("resource_exhausted", `a line of more than ${maxLineBytes} bytes from the Docker Engine`);
  };
  for await (const chunk of source) {
    let from = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, from)) {
      add(chunk.subarray(from, end));
      const line = pending.take().toString();
      from = end + 1;
      if (line.trim() !== "") yield parsed(line);
    }
    add(chunk.subarray(from));
  }
  const last = pending.take().toString();
  if (last.trim() !== "") yield parsed(last);
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new CodedError("unknown", "the Docker Engine sent a line that is not JSON", { cause: error });
  }
}
