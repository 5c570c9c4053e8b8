import type { HostFile } from "../seams/host.ts";

const blockBytes = 64 * 1024;
const newline = 0x0a;

/** Offset of the last `lines` lines of a file, in bytes, found by reading backwards block by block. A last line without a
 *  newline is not counted, as in the kubelet, and is returned in addition. @param size number of bytes of the file to search. */
export async function tailStart(file: HostFile, size: number, lines: number, signal: AbortSignal): Promise<number> {
  let wanted = lines;
  for (let right = size; right > 0; ) {
    const left = Math.max(0, right - blockBytes);
    const block = await file.read(left, right - left, signal);
    for (let at = block.lastIndexOf(newline); at >= 0; at = at === 0 ? -1 : block.lastIndexOf(newline, at - 1)) {
      if (wanted === 0) return left + at + 1;
      wanted--;
    }
    right = left;
  }
  return 0;
}
