import { CodedError, type ErrorCode, codeOfErrno } from "../../../src/lib/errors.ts";

/** Messages of C libraries (glibc, musl) and shells for failed system calls, in the C locale. Programs behind a shell report
 *  errors only as text, which is mapped to codes here and nowhere else. */
const errorPatterns: readonly (readonly [RegExp, string])[] = [
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

/** Returns the errno, such as `ENOENT`, that a command or sshd reports in its last line with a known message. */
function errnoOfMessage(output: string): string | undefined {
  const lines = output.trimEnd().split("\n").reverse();
  for (const line of lines) {
    const found = errorPatterns.find(([pattern]) => pattern.test(line.trim()));
    if (found) return found[1];
  }
  return undefined;
}

/** Maps a command's message on standard error to an error code. */
export function codeOfMessage(stderr: string): ErrorCode {
  return codeOfErrno(errnoOfMessage(stderr));
}

/** Error of a failed system call on the target, in Node's form. */
export interface SystemError extends Error {
  readonly code: string;
}

/** Extracts the system error from a message; undefined if there is none. */
export function systemError(output: string): SystemError | undefined {
  const code = errnoOfMessage(output);
  return code === undefined ? undefined : Object.assign(new Error(output.trim().split("\n").at(-1)), { code });
}

/** Creates the coded error for a failed command: its subject and the target's message. */
export function commandError(what: string, stderr: string): CodedError {
  const output = stderr.trim().split("\n").at(-1) ?? "";
  return new CodedError(codeOfMessage(stderr), `${what}: ${output || "failed without a message"}`);
}
