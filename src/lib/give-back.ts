import type { Writable } from "node:stream";

/** Smaller blocks are left to the garbage collector, bytes. */
const leastBytes = 16 * 1024;
/** Room that a packet may have around a block that came in it, bytes. */
const mostAround = 64;
/** Memory that Node fills with one read after another, of whichever connection: what is around a block there is another connection's,
 *  bytes. */
const sharedBytes = 64 * 1024;

/** Frees the memory of a large block that nobody reads again, whose length is 0 from then on. V8 marks the whole heap each time that such
 *  memory has grown by as much as the heap: half of what carrying bytes costs. A small block and a part of a larger one, such as those of
 *  Node's pool and of memory that reads share, are left alone.
 *  @see https://tc39.es/ecma262/#sec-arraybuffer.prototype.transfer */
export function giveBack(block: Buffer): void {
  const { buffer, length } = block;
  const around = buffer.byteLength - length;
  if (length < leastBytes || around > mostAround || (around > 0 && buffer.byteLength === sharedBytes)) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/** Has a stream give each block back that has been written to it. For streams alone that copy what they are given, as a socket or a channel
 *  of SSH does, and to which nobody writes a block that is read again. A write with a callback of its own keeps its block.
 *  @returns the same stream. */
export function givesBack<Stream extends Writable>(stream: Stream): Stream {
  const write = stream.write.bind(stream) as (...args: unknown[]) => boolean;
  stream.write = (...args: unknown[]) => {
    const [block] = args;
    if (args.length > 1 || !Buffer.isBuffer(block)) return write(...args);
    return write(block, (error?: Error | null) => {
      if (!error) giveBack(block);
    });
  };
  return stream;
}
