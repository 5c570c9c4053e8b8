import { CodedError } from "../../../src/lib/errors.ts";
import type { FileInfo, HostFile } from "../../../src/seams/host.ts";
import { kindOfMode } from "./file-info.ts";
import type { SftpClient } from "./sftp-client.ts";
import { type SftpAttributes, attributesOf, expectReply, isEnd, sftp, stringAt } from "./sftp-packets.ts";

export interface OpenOptions {
  readonly path: string;
  readonly noFollow: boolean;
  readonly client: SftpClient;
  readonly stat: (path: string, follow: boolean, signal: AbortSignal) => Promise<FileInfo>;
  /** Returns a signal with the timeout of one operation. */
  readonly within: (signal?: AbortSignal) => AbortSignal;
}

/** Bytes per read request; every server supports this size. */
const chunkBytes = 32 * 1024;
/** Limit of concurrent read requests. */
const maxChunks = 32;
const openForReading = 1;
const attempts = 5;

/** Opens a regular file for reading. SFTP can neither refuse links nor open a FIFO without blocking, so the path is inspected
 *  before and after opening; inode, owner and mode must be the same both times.
 *  @throws failed_precondition for any other kind of file. */
export async function openFile(options: OpenOptions, signal: AbortSignal): Promise<HostFile> {
  for (let attempt = 1; ; attempt++) {
    const file = await tryOpen(options, signal);
    if (file) return file;
    if (attempt === attempts) throw new CodedError("failed_precondition", `${options.path} changes on every access`);
  }
}

async function tryOpen(options: OpenOptions, signal: AbortSignal): Promise<HostFile | undefined> {
  const { path, noFollow, client, stat } = options;
  const before = await stat(path, !noFollow, signal);
  if (before.kind !== "file") throw new CodedError("failed_precondition", `${path} is not a regular file`);
  const [reply] = await client.exchange([[sftp.open, path, openForReading, 0]], signal);
  const handle = Buffer.from(stringAt(expectReply(reply ?? noReply, sftp.handle, path), 0));
  const close = async () => {
    if (client.usable()) await client.exchange([[sftp.close, handle]], options.within());
  };
  try {
    const [[attributes, real], after] = await Promise.all([
      client.exchange(
        noFollow
          ? [
              [sftp.fstat, handle],
              [sftp.realpath, path],
            ]
          : [[sftp.fstat, handle]],
        signal,
      ),
      stat(path, !noFollow, signal),
    ]);
    const opened = attributesOf(expectReply(attributes ?? noReply, sftp.attrs, path));
    const inPlace = !real || stringAt(expectReply(real, sftp.name, path), 4).toString("utf8") === path;
    if (inPlace && sameFile(before, opened, after)) return hostFile(options, { handle, inode: before.inode, close });
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
  await close();
  return undefined;
}

function sameFile(before: FileInfo, opened: SftpAttributes, after: FileInfo): boolean {
  return (
    before.inode === after.inode &&
    after.kind === "file" &&
    kindOfMode(opened.mode) === "file" &&
    (opened.mode & 0o7777) === after.mode &&
    opened.uid === after.uid &&
    opened.gid === after.gid
  );
}

function hostFile(
  { path, client, within }: OpenOptions,
  { handle, inode, close }: { readonly handle: Buffer; readonly inode: number; readonly close: () => Promise<void> },
): HostFile {
  let closing: Promise<void> | undefined;
  const closeOnce = () => (closing ??= close());
  return {
    async read(position, length, signal) {
      const sizes = chunksOf(length);
      const requests = sizes.map(
        (size, index) => [sftp.read, handle, BigInt(position + index * chunkBytes), size] as const,
      );
      const parts: Buffer[] = [];
      const replies = await client.exchange(requests, within(signal));
      for (const [index, reply] of replies.entries()) {
        if (isEnd(reply)) break;
        const data = stringAt(expectReply(reply, sftp.data, path), 0);
        if (data.length > (sizes[index] ?? 0))
          throw new CodedError("unknown", `${path}: the target's SFTP server sent more than was requested`);
        parts.push(data);
        // The pieces after a short piece are not contiguous.
        if (data.length < (sizes[index] ?? 0)) break;
      }
      return Buffer.concat(parts);
    },
    async stat(signal) {
      const [reply] = await client.exchange([[sftp.fstat, handle]], within(signal));
      const { mode, modifiedAtSeconds, ...rest } = attributesOf(expectReply(reply ?? noReply, sftp.attrs, path));
      return { ...rest, kind: kindOfMode(mode), mode: mode & 0o7777, modifiedAt: modifiedAtSeconds * 1000, inode };
    },
    close: closeOnce,
    [Symbol.asyncDispose]: closeOnce,
  };
}

function chunksOf(length: number): readonly number[] {
  const count = Math.min(maxChunks, Math.ceil(length / chunkBytes));
  return Array.from({ length: count }, (_, index) => Math.min(chunkBytes, length - index * chunkBytes));
}

const noReply = { type: 0, body: Buffer.alloc(4) };
