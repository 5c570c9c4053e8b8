import { CodedError, throwIfAborted } from "../lib/errors.ts";
import type { Host, HostProcess } from "../seams/host.ts";

/** Exit code of flock when somebody else has the lock. */
const conflict = 1;

/** Holds a lock file on the target until disposed of; it dies with this process, or with the connection to the target.
 *  @param path absolute; its directory exists.
 *  @throws failed_precondition when somebody else holds it, not_found where the target has no flock. */
export async function acquireLock(host: Host, path: string, signal: AbortSignal): Promise<AsyncDisposable> {
  // flock keeps the lock while the shell below lives, and the shell lives while its standard input is open.
  const holder = await host.spawn(
    ["flock", "--nonblock", "--no-fork", path, "sh", "-c", "echo held; exec cat"],
    signal,
  );
  const complaint = collect(holder);
  const ended = await Promise.race([firstWord(holder), holder.exited]);
  if (ended === undefined) return { [Symbol.asyncDispose]: () => holder[Symbol.asyncDispose]() };
  throwIfAborted(signal);
  if (ended === conflict) throw new CodedError("failed_precondition", `${path} is locked by another agent`);
  throw new CodedError("unknown", `${path} cannot be locked: ${complaint() || `flock ended with ${ended}`}`);
}

/** Resolves once the holder has said that it has the lock. */
function firstWord({ stdout }: HostProcess): Promise<undefined> {
  return new Promise((resolve) => stdout.once("data", () => resolve(undefined)));
}

function collect({ stderr }: HostProcess): () => string {
  let said = "";
  stderr.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(0, 200);
  });
  return () => said.trim();
}
