import { CodedError } from "../../../src/lib/errors.ts";
import type { EngineInfo } from "../client/engine-info.ts";

/** Newer daemons accept a containerd shim by its full name, and do not list it. */
const shimName = /^io\.containerd\./;

/** Checks a runtime class's handler, the name of one of the daemon's runtimes.
 *  @param handler empty for the daemon's default.
 *  @throws CodedError invalid_argument, a sentence with the remedy, if the daemon does not have it.
 *  @see https://docs.docker.com/engine/daemon/alternative-runtimes/ */
export function requireRuntime(handler: string, { Runtimes }: Pick<EngineInfo, "Runtimes">): void {
  const known = Object.keys(Runtimes ?? {});
  if (handler === "" || known.includes(handler) || shimName.test(handler)) return;
  throw new CodedError(
    "invalid_argument",
    `the handler ${JSON.stringify(handler)} of the pod's runtime class is not a runtime of this Docker Engine, which has ${known.toSorted().join(", ")}: add it under "runtimes" in the daemon.json of the Engine and reload that, or name another handler in the class.`,
  );
}
