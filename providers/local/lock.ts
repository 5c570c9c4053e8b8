import { spawn } from "node:child_process";
import { type FileHandle, constants, open } from "node:fs/promises";
import { CodedError, abortError, messageOf } from "../../src/lib/errors.ts";
import { codedError, hasErrno } from "./errors.ts";

/** flock's exit code when another process has the lock, util-linux's and busybox's. */
const taken = 1;

/** Locks a file or directory of this machine. The lock belongs to a descriptor of this process, which hands it to the flock program for
 *  the moment of locking: it lasts while this process has it open, and nothing else has to live for that.
 *  @param there makes a command one of the machine's. @see Host.lock
 *  @see https://man7.org/linux/man-pages/man2/flock.2.html */
export async function lockLocal(
  path: string,
  there: (argv: readonly string[]) => Promise<readonly string[]>,
  { shared, signal }: { readonly shared: boolean; readonly signal: AbortSignal },
): Promise<AsyncDisposable | undefined> {
  const file = await opened(path);
  try {
    const argv = await there(["flock", "-n", shared ? "-s" : "-x", String(descriptor)]);
    const { code, said } = await runWith(file, argv, signal);
    if (code === 0) return { [Symbol.asyncDispose]: () => file.close() };
    if (code !== taken) throw new CodedError("unknown", said || `flock ended with ${code}`);
  } catch (error) {
    await file.close();
    throw error;
  }
  await file.close();
  return undefined;
}

/** Opens a file, which is made where it is missing, or a directory. */
async function opened(path: string): Promise<FileHandle> {
  try {
    // A lock on a file over NFS needs it open for writing.
    return await open(path, constants.O_RDWR | constants.O_CREAT, 0o600).catch((error: unknown) => {
      if (!hasErrno(error, "EISDIR")) throw error;
      return open(path, "r");
    });
  } catch (error) {
    throw new CodedError("failed_precondition", messageOf(error), { cause: error });
  }
}

/** The number by which the program knows the file. */
const descriptor = 3;

/** Runs a command that inherits the file. @returns its exit code, and the beginning of what it said on standard error. */
function runWith(
  file: FileHandle,
  [program = "", ...rest]: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly code: number | null; readonly said: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, { stdio: ["ignore", "ignore", "pipe", file.fd], signal, killSignal: "SIGKILL" });
    let said = "";
    child.stderr
      ?.on("data", (chunk: Buffer) => {
        said = (said + chunk.toString()).slice(0, 200);
      })
      .on("error", () => undefined);
    child.once("error", (error) => reject(signal.aborted ? abortError(signal) : codedError(program, error)));
    child.once("close", (code) => resolve({ code, said: said.trim() }));
  });
}
