import { closeSync, constants, openSync, readSync } from "node:fs";
import { CodedError } from "../../src/lib/errors.ts";
import { codedError } from "./errors.ts";

/** Pseudo-files that the kernel generates from memory. A synchronous read takes microseconds, while the six thread-pool calls of
 *  an asynchronous one take half a millisecond of CPU time. Only files that a node reads every few seconds or several times for each
 *  pod are included. */
const inMemory = /^\/(?:sys\/fs\/cgroup\/|proc\/(?:meminfo|loadavg|stat|uptime|self\/mountinfo)$)/;

/** Bytes per read; nearly all of these files are shorter. */
const chunkBytes = 16 * 1024;

/** True for a file that `readKernelFile` reads. */
export function isKernelFile(path: string): boolean {
  return inMemory.test(path) && !path.includes("..");
}

/** Reads a file that `isKernelFile` accepts, synchronously. @throws CodedError like `HostFs.readFile`. */
export function readKernelFile(path: string, maxBytes: number): Buffer {
  try {
    return readWhole(path, maxBytes);
  } catch (error) {
    throw codedError(path, error);
  }
}

function readWhole(path: string, maxBytes: number): Buffer {
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const chunks: Buffer[] = [];
    for (let length = 0; ; ) {
      const chunk = Buffer.allocUnsafe(chunkBytes);
      const read = readSync(file, chunk, 0, chunkBytes, null);
      if (read === 0) return Buffer.concat(chunks);
      length += read;
      if (length > maxBytes) throw new CodedError("resource_exhausted", `${path} is larger than ${maxBytes} bytes`);
      chunks.push(chunk.subarray(0, read));
    }
  } finally {
    closeSync(file);
  }
}
