const newline = 0x0a;
/** Longer lines than any runtime writes; what is longer is dropped, so that memory stays bounded. */
const longestLineBytes = 1024 * 1024;

/** Cuts a file that is read in blocks into lines. */
export interface LineCutter {
  /** Hands on every line that `block` completes, newline included, until `take` returns false.
   *  @returns false when `take` wanted no more. */
  feed(block: Buffer, take: (line: Buffer) => boolean): boolean;
  /** The rest after the last newline; empty when the file ends with one. */
  rest(): Buffer;
}

/** @param onLongLine is told once for every line of more than 1 MiB: it is left out. */
export function createLineCutter(onLongLine: () => void): LineCutter {
  let parts: Buffer[] = [];
  let held = 0;
  let skipping = false;
  const hold = (part: Buffer) => {
    if (skipping || part.length === 0) return;
    held += part.length;
    if (held > longestLineBytes) {
      onLongLine();
      [parts, held, skipping] = [[], 0, true];
    } else parts.push(Buffer.from(part));
  };
  const complete = (part: Buffer): Buffer => {
    if (held === 0) return part;
    const line = Buffer.concat([...parts, part]);
    [parts, held] = [[], 0];
    return line;
  };
  return {
    feed(block, take) {
      let start = 0;
      for (let end = block.indexOf(newline); end >= 0; end = block.indexOf(newline, start)) {
        const part = block.subarray(start, end + 1);
        start = end + 1;
        if (skipping) skipping = false;
        else if (!take(complete(part))) return false;
      }
      hold(block.subarray(start));
      return true;
    },
    rest: () => Buffer.concat(parts),
  };
}
