import { type HostFacts, changedFacts, readFacts } from "../host/facts.ts";
import type { Host } from "../seams/host.ts";
import { TargetError } from "../seams/provider.ts";

export interface TargetCheckDeps {
  readonly host: Host;
  /** Acquires the locks on the target again if they were lost. @throws TargetError if another agent has them. */
  readonly renewClaim: (signal: AbortSignal) => Promise<void>;
  /** The target's facts at the start of the node. */
  readonly facts: HostFacts;
}

/** Why the node cannot continue on a target that is reachable again: another agent uses it, or it has changed; undefined if it can.
 *  @throws if the target cannot be read. */
export async function unfitReason(
  { host, renewClaim, facts }: TargetCheckDeps,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    await renewClaim(signal);
  } catch (error) {
    if (error instanceof TargetError) return error.message;
    throw error;
  }
  const changed = changedFacts(facts, await readFacts(host, signal));
  return changed.length > 0 ? `other than before: ${changed.join(", ")}` : undefined;
}
