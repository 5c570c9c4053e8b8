import { parseStatfs, statfsFormat } from "../../../src/host/statfs.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { programText } from "../../../src/lib/program-text.ts";
import type { FileInfo, FileSystemInfo, HostFile } from "../../../src/seams/host.ts";
import { quote } from "../shell/quote.ts";
import { parseStat, statFormat } from "./file-info.ts";

/** What needs more than one command of a shell: SFTP does it, or the shell for a target that has none. */
export interface OpenFiles {
  open(path: string, noFollow: boolean, stop: AbortSignal): Promise<HostFile>;
  readlink(path: string, stop: AbortSignal): Promise<string>;
  realpath(path: string, stop: AbortSignal): Promise<string>;
  fileSystemInfo(path: string, stop: AbortSignal): Promise<FileSystemInfo>;
}

/** Runs a script in a shell with our prelude. @param path for messages. @returns the standard output. @throws the script's error. */
export type Ask = (
  path: string,
  script: string,
  options: { readonly maxBytes?: number; readonly signal?: AbortSignal },
) => Promise<Buffer>;

/** Block size of reads, bytes, and the most that one read returns. */
const blockBytes = 4096;
const maxReadBytes = 1024 * 1024;

/** Files of a target without SFTP, by shell commands alone. A file is opened anew for each read, and recognized by its device and inode:
 *  it is found again if it was renamed within its directory, as logs are; a file that was removed is not_found. */
export function shellFiles(ask: Ask): OpenFiles {
  const call = (path: string, words: string, signal?: AbortSignal, maxBytes?: number) =>
    ask(path, `${programText("providers/ssh/files/files-without-sftp.sh")}\n${words}`, {
      ...(maxBytes !== undefined && { maxBytes }),
      ...(signal && { signal }),
    });
  return {
    async open(path, noFollow, stop) {
      const opened = parseDescription(path, await call(path, `${withFile(path, noFollow, "")} ${describe}`, stop));
      // No part of this path is a link.
      const again = withFile(opened.path, true, opened.identity);
      return shellFile({
        read: (words, maxBytes, signal) => call(path, `${again} ${words}`, signal, maxBytes),
        stat: async (signal) => parseDescription(path, await call(path, `${again} ${describe}`, signal)).info,
      });
    },
    readlink: async (path, stop) => textOf(await call(path, `gl_readlink ${quote(path)}`, stop)),
    realpath: async (path, stop) => textOf(await call(path, `gl_realpath ${quote(path)}`, stop)),
    fileSystemInfo: async (path, stop) =>
      parseFileSystem(path, await call(path, `stat -f -c ${quote(statfsFormat)} -- ${quote(path)}`, stop)),
  };
}

const describe = `gl_describe ${quote(statFormat)}`;

function withFile(path: string, noFollow: boolean, identity: string): string {
  return `gl_with ${quote(path)} ${noFollow ? 1 : 0} ${quote(identity)}`;
}

interface ShellFileOptions {
  readonly read: (words: string, maxBytes: number, signal?: AbortSignal) => Promise<Buffer>;
  readonly stat: (signal?: AbortSignal) => Promise<FileInfo>;
}

function shellFile({ read, stat }: ShellFileOptions): HostFile {
  let closed = false;
  const whileOpen = <T>(work: () => Promise<T>): Promise<T> =>
    closed ? Promise.reject(new CodedError("failed_precondition", "the file is closed")) : work();
  const close = async () => void (closed = true);
  return {
    read: (position, length, signal) =>
      whileOpen(async () => {
        const wanted = Math.min(length, maxReadBytes);
        const first = Math.floor(position / blockBytes);
        const count = Math.ceil((position + wanted) / blockBytes) - first;
        const words = `gl_blocks ${position} ${blockBytes} ${first} ${count}`;
        const data = await read(words, count * blockBytes, signal);
        const from = position - first * blockBytes;
        return data.subarray(from, from + wanted);
      }),
    stat: (signal) => whileOpen(() => stat(signal)),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Parses the output of gl_describe: device and inode, the file's information, and its path. @throws unknown for anything else. */
export function parseDescription(path: string, output: Buffer) {
  const end = output.indexOf("\n");
  const [, identity, info = ""] =
    /^(\d+:\d+) (.*)$/.exec(output.subarray(0, Math.max(0, end)).toString("latin1")) ?? [];
  if (identity === undefined) throw unexpected(path, output);
  return { identity, info: parseStat(info), path: textOf(output.subarray(end + 1)) };
}

/** Removes the newline that readlink adds, and the dot. */
function textOf(output: Buffer): string {
  return output.subarray(0, -"\n.\n".length).toString("utf8");
}

/** Parses the numbers of `stat -f`. @throws unknown for anything else. */
export function parseFileSystem(path: string, output: Buffer): FileSystemInfo {
  const info = parseStatfs(output.toString("latin1"));
  if (!info) throw unexpected(path, output);
  return info;
}

function unexpected(path: string, output: Buffer): CodedError {
  return new CodedError(
    "unknown",
    `${path}: the target's stat printed ${JSON.stringify(output.toString("latin1").slice(0, 200))}`,
  );
}
