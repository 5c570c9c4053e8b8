const newline = 0x0a;
/** Maximum line length, more than any runtime writes. Longer lines are dropped to bound memory. */
const maxLineBytes = 1024 * 1024;

/** Splits blocks of a file into lines. */
export type LineSplitter = ReturnType<typeof createLineSplitter>;

/** @param onLongLine called for every line of more than 1 MiB, which is skipped. */
export function createLineSplitter(onLongLine: () => void) {
  let parts: Buffer[] = [];
  let held = 0;
  let skipping = false;
  const hold = (part: Buffer) => {
    if (skipping || part.length === 0) return;
    held += part.length;
    if (held > maxLineBytes) {
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
    /** Passes on every line that `block` completes, including its newline, until `take` returns false. @returns false if `take`
     *  returned false. */
    feed(block: Buffer, take: (line: Buffer) => boolean): boolean {
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
    /** The rest after the last newline; empty if the file ends with one. */
    rest: (): Buffer => Buffer.concat(parts),
  };
}
