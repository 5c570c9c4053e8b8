import { CodedError, type ErrorCode, codeOfErrno } from "../../../src/lib/errors.ts";

/** How C libraries (glibc, musl) and shells word a failed system call in the C locale. A program on the other side of a shell has
 *  no other way to name it, so the words become codes here, at the seam, and nowhere else. */
const words: readonly (readonly [RegExp, string])[] = [
  [/no such (file or directory|file)$|nonexistent directory$|directory nonexistent$/i, "ENOENT"],
  [/not a directory$/i, "ENOTDIR"],
  [/file exists$/i, "EEXIST"],
  [/directory not empty$/i, "ENOTEMPTY"],
  [/is a directory$|cannot overwrite (non-)?directory/i, "EISDIR"],
  [/not a regular file$/i, "ENXIO"],
  [/(device or )?resource busy$|on a different device$/i, "EBUSY"],
  [/too many levels of symbolic links$|symbolic link loop$/i, "ELOOP"],
  [/no such device or address$/i, "ENXIO"],
  [/permission denied$/i, "EACCES"],
  [/operation not permitted$/i, "EPERM"],
  [/read-only file system$/i, "EROFS"],
  [/invalid argument$/i, "EINVAL"],
  [/(file )?name too long$/i, "ENAMETOOLONG"],
  [/no space left on device$/i, "ENOSPC"],
  [/(disk )?quota exceeded$/i, "EDQUOT"],
  [/too many open files( in system)?$|no file descriptors available$/i, "EMFILE"],
  [/connection refused$/i, "ECONNREFUSED"],
  [/no route to host$/i, "EHOSTUNREACH"],
  [/network is unreachable$/i, "ENETUNREACH"],
  [/connection timed out$/i, "ETIMEDOUT"],
];

/** The failed system call that a command, or sshd, names on the last line that names a known one, such as `ENOENT`. */
export function errnoOfComplaint(said: string): string | undefined {
  const lines = said.trimEnd().split("\n").reverse();
  for (const line of lines) {
    const found = words.find(([pattern]) => pattern.test(line.trim()));
    if (found) return found[1];
  }
  return undefined;
}

/** Code of what a command said of its failure on standard error. */
export function codeOfComplaint(stderr: string): ErrorCode {
  return codeOfErrno(errnoOfComplaint(stderr));
}

/** A failed system call on the target, as Node shows those of this machine. */
export interface SystemError extends Error {
  readonly code: string;
}

/** What was said of a failure as the system error that it names; undefined when it names none. */
export function systemError(said: string): SystemError | undefined {
  const code = errnoOfComplaint(said);
  return code === undefined ? undefined : Object.assign(new Error(said.trim().split("\n").at(-1)), { code });
}

/** A command's failure as an error that says what it was about and what the target said. */
export function complaint(what: string, stderr: string): CodedError {
  const said = stderr.trim().split("\n").at(-1) ?? "";
  return new CodedError(codeOfComplaint(stderr), `${what}: ${said || "failed without a word"}`);
}
