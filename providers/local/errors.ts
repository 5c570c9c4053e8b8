import { CodedError, codeOfErrno, messageOf } from "../../src/lib/errors.ts";

/** Runs a system call and converts its error to a CodedError. @param what path or address, for the message. */
export async function withCodedErrors<T>(what: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw codedError(what, error);
  }
}

/** Creates a coded error for an error of Node's, with its subject in the message. */
export function codedError(what: string, error: unknown): CodedError {
  if (error instanceof CodedError) return error;
  return new CodedError(codeOfErrno(errnoOf(error)), `${what}: ${messageOf(error)}`, { cause: error });
}

/** Returns the errno of an error of Node's, such as `ENOENT`; undefined if it has none. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/** True for an error of Node's with one of these errnos, such as `ENOENT`. */
export function hasErrno(error: unknown, ...errnos: readonly string[]): boolean {
  return errnos.some((errno) => errno === errnoOf(error));
}
