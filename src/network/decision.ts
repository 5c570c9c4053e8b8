import { isUnrecorded, type NetworkDecision, readOwnershipRecord } from "../host/ownership-record.ts";
import type { Host } from "../seams/host.ts";
import type { TargetNetwork } from "../seams/provider.ts";
import { wayObstacles } from "./fitness.ts";

/** Annotation of a Node whose pods are isolated, with the value `isolated`: it says so where the target cannot write. */
export const podNetworkAnnotation = "graftlet.dev/pod-network";

/** What a decision makes of a network that the configuration leaves open. Pure.
 *  @param decision absent for a node from before there were any. */
export function asDecided(network: TargetNetwork, decision: NetworkDecision | undefined): TargetNetwork {
  const { auto: _auto, ...rest } = network;
  if (decision?.is === "tunneled") return { ...rest, isolated: false, tunneled: true };
  return decision?.is === "isolated" ? { ...rest, obstacle: decision.obstacle } : rest;
}

/** The network that pods of a target have, or would have if their node began now, as far as the target tells. Nothing is changed there.
 *  @throws unavailable when the target is out of reach. */
export async function foreseenNetwork(
  { host, network }: { readonly host: Pick<Host, "run" | "fs">; readonly network?: TargetNetwork },
  rootDir: string,
  signal: AbortSignal,
): Promise<TargetNetwork | undefined> {
  if (!network?.auto) return network;
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  const isNew = record ? record.network?.is === "new" : await isUnrecorded(host.fs, rootDir, signal);
  if (!isNew) return asDecided(network, record?.network);
  const obstacles = await wayObstacles(host, rootDir, signal);
  if (obstacles.length === 0) return asDecided(network, { is: "tunneled" });
  return asDecided(network, { is: "isolated", obstacle: obstacles.join("; ") });
}
