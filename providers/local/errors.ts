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
  return new CodedError(codeOfErrno(errnoOf(error)), `${what}: ${messageOf(error)}`, { cause: error });
}

/** The failed system call that an error of Node names, such as `ENOENT`; undefined when it names none. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/** True for an error of Node that names one of these failed system calls, such as `ENOENT`. */
export function hasErrno(error: unknown, ...errnos: readonly string[]): boolean {
  return errnos.some((errno) => errno === errnoOf(error));
}
