import { CodedError, codeOfErrno, messageOf } from "../../src/lib/errors.ts";

/** Runs a system call and codes its failure. @param what the path or address, for the message. */
export async function coded<T>(what: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw codedError(what, error);
  }
}

/** An error of Node as a coded one that names what it was about. */
export function codedError(what: string, error: unknown): CodedError {
  if (error instanceof CodedError) return error;
  const errno = error instanceof Error && "code" in error ? String(error.code) : undefined;
  return new CodedError(codeOfErrno(errno), `${what}: ${messageOf(error)}`, { cause: error });
}

/** True for an error of Node that names one of these failed system calls, such as `ENOENT`. */
export function hasErrno(error: unknown, ...errnos: readonly string[]): boolean {
  return error instanceof Error && "code" in error && errnos.some((errno) => errno === error.code);
}
