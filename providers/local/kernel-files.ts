import { closeSync, constants, openSync, readSync } from "node:fs";
import { CodedError } from "../../src/lib/errors.ts";
import { codedError } from "./errors.ts";

/** Files that the kernel makes up from its own memory: to read one takes microseconds, where handing it to a thread six times takes half
 *  a millisecond of processor time. Only those that a node reads every few seconds. */
const inMemory = /^\/(?:sys\/fs\/cgroup\/|proc\/(?:meminfo|loadavg|stat|uptime)$)/;

/** Bytes that are read at once: longer than nearly all of these files. */
const chunkBytes = 16 * 1024;

/** True for a file that `readKernelFile` reads. */
export function isKernelFile(path: string): boolean {
  return inMemory.test(path) && !path.includes("..");
}

/** Content of such a file, read without a thread: nothing else happens meanwhile. @throws CodedError as `HostFs.readFile`. */
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
