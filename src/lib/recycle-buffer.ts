import type { Writable } from "node:stream";

/** Smaller blocks are left to the garbage collector, bytes. */
const minBytes = 16 * 1024;
/** Maximum size difference between a block and its underlying packet buffer, bytes. */
const maxOverhead = 64;
/** Maximum size of the memory that Node fills with successive reads of any connections, bytes: other data in a block's memory may belong
 *  to another connection. */
const sharedBytes = 64 * 1024;

/** Frees the memory of a large block that is not read again; its length is 0 afterwards. V8 marks the whole heap each time
 *  external memory has grown by the size of the heap, which is half of the cost of forwarding bytes. Small blocks and slices
 *  of larger ones, such as those of Node's pool and of memory that several reads share, are left alone.
 *  @see https://tc39.es/ecma262/#sec-arraybuffer.prototype.transfer */
export function recycleBuffer(block: Buffer): void {
  const { buffer, length } = block;
  const around = buffer.byteLength - length;
  if (length < minBytes || around > maxOverhead || (around > 0 && buffer.byteLength === sharedBytes)) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/** Makes a stream free each block once it has been written. Only for streams that copy their input, such as sockets and SSH
 *  channels, and whose callers do not reuse written blocks. A write with its own callback keeps its block.
 *  @returns the same stream. */
export function recycleWrittenBuffers<Stream extends Writable>(stream: Stream): Stream {
  const write = stream.write.bind(stream) as (...args: unknown[]) => boolean;
  stream.write = (...args: unknown[]) => {
    const [block] = args;
    if (args.length > 1 || !Buffer.isBuffer(block)) return write(...args);
    return write(block, (error?: Error | null) => {
      if (!error) recycleBuffer(block);
    });
  };
  return stream;
}
