import { constants } from "node:fs";
import * as fsp from "node:fs/promises";

/** An open directory of this machine. Names are looked up in it, whatever has become of the path that it was opened by: the
 *  kernel's *at calls, by way of /proc. */
export interface Directory extends AsyncDisposable {
  /** Of its file system, and of itself there. */
  readonly device: bigint;
  readonly inode: bigint;
  /** Bytes of the directory itself when it was opened: at least a few for each entry. */
  readonly size: bigint;
  /** A path that leads to it as long as it is open, in this process alone. */
  readonly path: string;
  /** A path to an entry, the name in any bytes. */
  at(name: Uint8Array | string): Buffer;
  /** Gives the directory itself these permission bits, 07777. */
  setMode(mode: number): Promise<void>;
  close(): Promise<void>;
}

/** Opens a directory; a link at the end of the path is not followed unless asked for.
 *  @throws the system's errors: ENOENT, ENOTDIR for what is no directory, …
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html */
export async function openDirectory(path: string | Buffer, { follow = false } = {}): Promise<Directory> {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | (follow ? 0 : constants.O_NOFOLLOW);
  const handle = await fsp.open(path, flags);
  const close = () => handle.close();
  try {
    const { dev, ino, size } = await handle.stat({ bigint: true });
    const own = `/proc/self/fd/${handle.fd}`;
    return {
      device: dev,
      inode: ino,
      size,
      path: own,
      at: (name) => Buffer.concat([Buffer.from(`${own}/`), Buffer.from(name)]),
      setMode: (bits) => handle.chmod(bits),
      close,
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
