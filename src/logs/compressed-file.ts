import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { CodedError, codeOf, messageOf } from "../lib/errors.ts";
import type { HostFile } from "../seams/host.ts";

const blockBytes = 64 * 1024;

/** Presents a gzip file as its uncompressed content: forward reads only, and its size is the number of bytes read so far.
 *  Skipped data is decompressed too, a few blocks at a time. @throws CodedError from `read` if the content is not gzip; the
 *  host's errors. */
export function decompressed(file: HostFile): HostFile {
  const content = pipeline(Readable.from(blocksOf(file)), createGunzip(), () => undefined);
  const chunks: AsyncIterator<Buffer> = content[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);
  /** Position of `rest`. */
  let at = 0;
  const more = async (): Promise<boolean> => {
    const next = await chunks.next().catch((error: unknown) => {
      throw new CodedError(codeOf(error), `cannot decompress: ${messageOf(error)}`, { cause: error });
    });
    if (next.done !== true) rest = next.value;
    return next.done !== true;
  };
  const close = async () => {
    content.destroy();
    await file.close();
  };
  return {
    async read(position, length, signal) {
      if (position < at) throw new CodedError("failed_precondition", "a compressed file can only be read forward");
      for (;;) {
        signal?.throwIfAborted();
        const skipped = Math.min(position - at, rest.length);
        at += skipped;
        rest = rest.subarray(skipped);
        if (rest.length > 0) break;
        if (!(await more())) return rest;
      }
      const block = rest.subarray(0, length);
      rest = rest.subarray(block.length);
      at += block.length;
      return block;
    },
    stat: async (signal) => ({ ...(await file.stat(signal)), size: at }),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function* blocksOf(file: HostFile): AsyncGenerator<Buffer> {
  for (let position = 0; ; ) {
    const block = await file.read(position, blockBytes);
    if (block.length === 0) return;
    position += block.length;
    yield block;
  }
}
