/** Received bytes that have not been consumed. */
export interface ByteBuffer {
  length(): number;
  /** The first index of a byte at or after `from`, or -1. */
  indexOf(byte: number, from: number): number;
  add(chunk: Buffer): void;
  /** The first byte. */
  first(): number | undefined;
  /** A copy of at most `count` bytes. */
  peek(count: number): Buffer;
  take(count: number): Buffer;
  /** Consumes bytes as a latin1 string. */
  takeText(count: number): string;
}

/** One contiguous buffer that doubles as it fills, so that many small chunks cost no more than a few large ones. */
export function createByteBuffer(): ByteBuffer {
  let store = Buffer.alloc(0);
  let [start, end] = [0, 0];
  const peek = (count: number): Buffer => Buffer.from(store.subarray(start, Math.min(start + count, end)));
  return {
    length: () => end - start,
    indexOf(byte: number, from: number): number {
      const at = store.indexOf(byte, start + from);
      return at < 0 || at >= end ? -1 : at - start;
    },
    add(chunk: Buffer): void {
      if (end + chunk.length > store.length) {
        const grown = Buffer.alloc(Math.max(4096, 2 * (end - start + chunk.length)));
        store.copy(grown, 0, start, end);
        [store, start, end] = [grown, 0, end - start];
      }
      chunk.copy(store, end);
      end += chunk.length;
    },
    first: (): number | undefined => (start < end ? store[start] : undefined),
    peek,
    takeText(count: number): string {
      const text = store.toString("latin1", start, start + count);
      start += count;
      return text;
    },
    take(count: number): Buffer {
      const taken = peek(count);
      start += taken.length;
      return taken;
    },
  };
}
