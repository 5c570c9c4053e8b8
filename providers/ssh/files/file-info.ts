import { CodedError } from "../../../src/lib/errors.ts";
import {
  type DirectoryEntry,
  type FileInfo,
  type FileKind,
  maxDirectoryEntries,
  tooManyEntries,
} from "../../../src/seams/host.ts";

/** Format for `stat -c`, parsed by parseStat. */
export const statFormat = "%f %u %g %s %i %y";

/** Parses a line that `stat -c` of GNU or busybox has printed. @throws unknown for anything else. */
export function parseStat(line: string): FileInfo {
  const [mode = "", uid, gid, size, inode, day, time = "", zone = ""] = line.trim().split(" ");
  const bits = Number.parseInt(mode, 16);
  const milliseconds = time.replace(/(\.\d{3})\d*$/, "$1");
  const modifiedAt = Date.parse(`${day}T${milliseconds}${zone.replace(/(\d\d)(\d\d)$/, "$1:$2")}`);
  if (Number.isNaN(bits)) throw new CodedError("unknown", `the target's stat printed ${JSON.stringify(line)}`);
  return {
    kind: kindOfMode(bits),
    mode: bits & 0o7777,
    uid: Number(uid),
    gid: Number(gid),
    size: Number(size),
    modifiedAt,
    inode: Number(inode),
  };
}

/** Returns the kind of a file by its POSIX mode. @see https://man7.org/linux/man-pages/man7/inode.7.html */
export function kindOfMode(mode: number): FileKind {
  return kinds[(mode & 0o170000) >> 12] ?? "file";
}

const kinds: Readonly<Record<number, FileKind>> = {
  1: "fifo",
  2: "characterDevice",
  4: "directory",
  6: "blockDevice",
  10: "symlink",
  12: "socket",
};

/** Parses gl_list's entries: a letter for the kind and the name, each terminated by a NUL.
 *  @throws resource_exhausted for more than 100,000 entries. */
export function parseEntries(path: string, output: Buffer): DirectoryEntry[] {
  let entries = 0;
  for (let at = output.indexOf(0); at >= 0; at = output.indexOf(0, at + 1)) {
    entries += 1;
    if (entries > maxDirectoryEntries) throw tooManyEntries(path);
  }
  return output
    .toString("utf8")
    .split("\0")
    .flatMap((entry) => {
      const kind = kindOfLetter[entry.charAt(0)];
      return kind === undefined ? [] : [{ name: entry.slice(1), kind }];
    });
}

const kindOfLetter: Readonly<Record<string, FileKind>> = {
  f: "file",
  d: "directory",
  l: "symlink",
  s: "socket",
  p: "fifo",
  c: "characterDevice",
  b: "blockDevice",
};
