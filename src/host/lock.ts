import { CodedError } from "../lib/errors.ts";
import type { Host, HostProcess } from "../seams/host.ts";

/** Holds a lock file on the target until disposed of; it dies with this process, or with the connection to the target.
 *  @param path absolute; its directory exists.
 *  @throws failed_precondition when somebody else holds it. */
export async function acquireLock(host: Host, path: string, signal: AbortSignal): Promise<AsyncDisposable> {
  // flock keeps the lock while the shell below lives, and the shell lives while its standard input is open.
  const holder = await host.spawn(["flock", "--nonblock", "--no-fork", path, "sh", "-c", "echo held; exec cat"], signal);
  if (await firstLine(holder)) return { [Symbol.asyncDispose]: () => holder[Symbol.asyncDispose]() };
  await holder[Symbol.asyncDispose]();
  throw new CodedError("failed_precondition", `${path} is locked by another agent`);
}

/** True once the holder has said that it has the lock; false when it ended without. */
async function firstLine(holder: HostProcess): Promise<boolean> {
  const said = new Promise<true>((resolve) => holder.stdout.once("data", () => resolve(true)));
  return Promise.race([said, holder.exited.then(() => false)]);
}
