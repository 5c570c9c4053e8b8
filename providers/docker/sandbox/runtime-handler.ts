import { CodedError } from "../../../src/lib/errors.ts";
import type { EngineInfo } from "../client/engine-info.ts";

/** Newer daemons take a shim of containerd's by its full name, and list none of them. */
const shimName = /^io\.containerd\./;

/** A runtime class's handler is a runtime of the daemon's, by its name. @param handler empty for the daemon's default.
 *  @throws CodedError invalid_argument, a sentence with the remedy, where the daemon has none of that name.
 *  @see https://docs.docker.com/engine/daemon/alternative-runtimes/ */
export function requireRuntime(handler: string, { Runtimes }: Pick<EngineInfo, "Runtimes">): void {
  const known = Object.keys(Runtimes ?? {});
  if (handler === "" || known.includes(handler) || shimName.test(handler)) return;
  throw new CodedError(
    "invalid_argument",
    `the handler ${JSON.stringify(handler)} of the pod's runtime class is not a runtime of this Docker Engine, which has ${known.toSorted().join(", ")}: add it under "runtimes" in the daemon.json of the Engine and reload that, or name another handler in the class.`,
  );
}
