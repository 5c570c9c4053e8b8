import { CodedError } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { type LockHolder, startLockHolder, holderScriptLines } from "../lock-holder.ts";
import type { HolderHeartbeat } from "../holder-heartbeat.ts";
import { type Argv, script, wrapped } from "../../seams/command.ts";

/** The command that holds logind's inhibitor lock as long as its standard input is open.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/systemd-inhibit.html */
export function inhibitCommand(timeoutSeconds?: number): Argv {
  const lock = {
    what: "shutdown",
    mode: "delay",
    who: "kubelet",
    why: "Kubelet needs time to handle node shutdown",
  };
  const options = Object.entries(lock).map(([name, value]) => `--${name}=${value}` as const);
  return wrapped(["systemd-inhibit", ...options, "--"], script(holderScriptLines(timeoutSeconds).join("\n")));
}

/** Delays a shutdown of the target, up to logind's maximum delay, until disposed. The lock is held by a process on the target,
 *  since the file descriptor that logind returns cannot be passed to another machine. It is released with this process and
 *  with the connection. @param heartbeat heartbeat, for a target that may not notice the loss of the connection. @throws not_found
 *  without systemd-inhibit; failed_precondition with logind's message if it grants no lock. */
export async function inhibitShutdown(
  host: Pick<Host, "spawn">,
  signal: AbortSignal,
  heartbeat?: HolderHeartbeat,
): Promise<LockHolder> {
  const held = await startLockHolder(host, inhibitCommand(heartbeat?.timeoutSeconds), signal, heartbeat);
  if (!("code" in held)) return held;
  const why = held.stderr || `systemd-inhibit ended with ${held.code}`;
  throw new CodedError("failed_precondition", `failed creating systemd inhibitor: ${why}`);
}
