import { constants } from "node:fs";
import * as fsp from "node:fs/promises";

/** An open directory of this machine. Entries are looked up relative to it even if its path has changed, as with the kernel's *at
 *  calls, through /proc. */
export interface Directory extends AsyncDisposable {
  /** Device number of its file system, and its inode number. */
  readonly device: bigint;
  readonly inode: bigint;
  /** Size of the directory itself when opened, bytes; at least a few bytes per entry. */
  readonly size: bigint;
  /** Path of the open directory, valid in this process while it is open. */
  readonly path: string;
  /** Returns the path of an entry, whose name may be any bytes. */
  at(name: Uint8Array | string): Buffer;
  /** Sets the directory's own permission bits, 07777. */
  setMode(mode: number): Promise<void>;
  close(): Promise<void>;
}

/** Opens a directory, following a link at the end of the path only with `follow`.
 *  @throws the system's errors: ENOENT, ENOTDIR, …
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
