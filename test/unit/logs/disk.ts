import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, mkdtemp, open, readdir, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import type { LogOptions } from "../../../src/pipeline.ts";
import type { LogHost } from "../../../src/logs/log-file.ts";
import { CodedError, codeOfErrno } from "../../../src/lib/errors.ts";
import type { FileInfo, HostFile } from "../../../src/seams/host.ts";

/** A local log directory, and a host that serves it and counts opened files. */
export interface Disk extends AsyncDisposable {
  readonly root: string;
  /** The container's log directory. */
  readonly directory: string;
  readonly log: string;
  readonly host: LogHost;
  /** Currently open files. */
  readonly openFiles: () => number;
}

export async function disk(): Promise<Disk> {
  const root = await mkdtemp(join(tmpdir(), "graftlet-logs-"));
  const directory = join(root, "ns_pod_uid", "c");
  await mkdir(directory, { recursive: true });
  let opened = 0;
  const host: LogHost = {
    fs: {
      realpath: (path) => realpath(path).catch(coded),
      list: async (path) => (await readdir(path).catch(coded)).map((name) => ({ name, kind: "file" })),
      lstat: async (path) => infoOf(await lstat(path).catch(coded)),
      open: async (path, options) => {
        const flags = constants.O_RDONLY | constants.O_NONBLOCK | (options?.noFollow ? constants.O_NOFOLLOW : 0);
        const handle = await open(path, flags).catch(coded);
        if (!(await handle.stat()).isFile()) {
          await handle.close();
          throw new CodedError("failed_precondition", "not a regular file");
        }
        opened++;
        return fileOf(handle, () => opened--);
      },
    },
  };
  return {
    root,
    directory,
    log: join(directory, "0.log"),
    host,
    openFiles: () => opened,
    [Symbol.asyncDispose]: () => rm(root, { recursive: true }),
  };
}

function fileOf(handle: FileHandle, onClose: () => void): HostFile {
  let closed = false;
  const close = async () => {
    if (closed) return;
    closed = true;
    onClose();
    await handle.close();
  };
  return {
    async read(position, length) {
      const buffer = Buffer.alloc(length);
      const { bytesRead } = await handle.read(buffer, 0, length, position);
      return buffer.subarray(0, bytesRead);
    },
    stat: async () => infoOf(await handle.stat()),
    close,
    [Symbol.asyncDispose]: close,
  };
}

function infoOf(stat: { size: number; ino: number; mode: number; mtimeMs: number }): FileInfo {
  return {
    kind: "file",
    mode: stat.mode & 0o7777,
    uid: 0,
    gid: 0,
    size: stat.size,
    modifiedAt: stat.mtimeMs,
    inode: stat.ino,
  };
}

function coded(error: NodeJS.ErrnoException): never {
  throw new CodedError(codeOfErrno(error.code), error.message, { cause: error });
}

/** A client that keeps all output. */
export function collector(): { readonly out: Writable; readonly text: () => string } {
  const parts: Buffer[] = [];
  const out = new Writable({
    write(part: Buffer, _encoding, done) {
      parts.push(part);
      done();
    },
  });
  return { out, text: () => Buffer.concat(parts).toString() };
}

export const plain: LogOptions = { follow: false, timestamps: false, previous: false, stream: "All" };
