import { fileSystemInfo } from "../../../src/host/statfs.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { FileSystemInfo } from "../../../src/seams/host.ts";
import type { OpenFiles } from "./files-without-sftp.ts";
import { type OpenOptions, openFile } from "./sftp-file.ts";
import { type Reply, expectReply, sftp, stringAt } from "./sftp-packets.ts";

/** Files of a target over its SFTP session. */
export function sftpFiles(options: Pick<OpenOptions, "client" | "stat" | "within">): OpenFiles {
  const { client } = options;
  return {
    open: (path, noFollow, stop) => openFile({ ...options, path, noFollow }, stop),
    async readlink(path, stop) {
      const [reply] = await client.exchange([[sftp.readlink, path]], stop);
      return parseName(reply, path);
    },
    async realpath(path, stop) {
      // The server also resolves paths whose last part is missing, so check that it exists.
      const [reply, there] = await client.exchange(
        [
          [sftp.realpath, path],
          [sftp.stat, path],
        ],
        stop,
      );
      if (there) expectReply(there, sftp.attrs, path);
      return parseName(reply, path);
    },
    async fileSystemInfo(path, stop) {
      const [reply] = await client.exchange([[sftp.extended, "statvfs@openssh.com", path]], stop);
      return parseStatvfs(reply, path);
    },
  };
}

function parseName(reply: Reply | undefined, path: string): string {
  if (!reply) throw new CodedError("unknown", `${path}: no reply`);
  return stringAt(expectReply(reply, sftp.name, path), 4).toString("utf8");
}

/** @see https://github.com/openssh/openssh-portable/blob/master/PROTOCOL statvfs@openssh.com */
function parseStatvfs(reply: Reply | undefined, path: string): FileSystemInfo {
  if (!reply) throw new CodedError("unknown", `${path}: no reply`);
  const body = expectReply(reply, sftp.extendedReply, path);
  const word = (index: number) => Number(body.readBigUInt64BE(index * 8));
  return fileSystemInfo({
    blockSize: word(1),
    blocks: word(2),
    free: word(3),
    available: word(4),
    inodes: word(5),
    inodesFree: word(6),
  });
}
