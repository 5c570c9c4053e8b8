import { isUnrecorded, type NetworkDecision, readOwnershipRecord } from "../host/ownership-record.ts";
import type { Host } from "../seams/host.ts";
import type { TargetNetwork } from "../seams/provider.ts";
import { preflightFailures } from "./preflight.ts";

/** Node annotation with the value `isolated` for isolated pods; it records the mode where the target's file system is not writable. */
export const podNetworkAnnotation = "graftlet.dev/pod-network";

/** Applies a recorded decision to a network whose mode the configuration leaves open. Pure.
 *  @param decision undefined for a node that predates such records. */
export function applyNetworkDecision(network: TargetNetwork, decision: NetworkDecision | undefined): TargetNetwork {
  const { auto: _auto, ...rest } = network;
  if (decision?.is === "tunneled") return { ...rest, isolated: false, tunneled: true };
  return decision?.is === "isolated" ? { ...rest, obstacle: decision.obstacle } : rest;
}

/** Predicts the network of a target's pods: the recorded mode, or the one that a new node would choose. Changes nothing on the target.
 *  @throws unavailable when the target is unreachable. */
export async function predictNetwork(
  { host, network }: { readonly host: Pick<Host, "run" | "fs">; readonly network?: TargetNetwork },
  rootDir: string,
  signal: AbortSignal,
): Promise<TargetNetwork | undefined> {
  if (!network?.auto) return network;
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  const isNew = record ? record.network?.is === "new" : await isUnrecorded(host.fs, rootDir, signal);
  if (!isNew) return applyNetworkDecision(network, record?.network);
  const obstacles = await preflightFailures(host, rootDir, signal);
  if (obstacles.length === 0) return applyNetworkDecision(network, { is: "tunneled" });
  return applyNetworkDecision(network, { is: "isolated", obstacle: obstacles.join("; ") });
}
