import { isIPv4 } from "node:net";
import { type NetworkDecision, readOwnershipRecord, writeOwnershipRecord } from "../host/ownership-record.ts";
import { hasCode } from "../lib/errors.ts";
import type { KubeletDeps } from "../kubelet/deps.ts";
import { connectTo } from "../network/connections.ts";
import { asDecided } from "../network/decision.ts";
import { listenAt, unfitness, wayObstacles, withoutIPv4 } from "../network/fitness.ts";
import { wayLink } from "../network/rules.ts";
import type { Service } from "../objects.ts";
import type { TargetNetwork } from "../seams/provider.ts";

export type PodNetworkDeps = Pick<KubeletDeps, "alone" | "account" | "client" | "clock" | "log"> & {
  readonly config: Pick<KubeletDeps["config"], "rootDir">;
  readonly target: Pick<KubeletDeps["target"], "host" | "network">;
};

/** Time for a Service to answer graftlet, milliseconds. */
const dialMs = 3_000;
/** Pause after the API server has not answered, milliseconds. */
const againMs = 1_000;

/** The network of a target's pods. Where the configuration leaves it open, it is what the target's record says; a node that is new there
 *  is tunneled if that can be, which is decided once and put on record. A node from before stays isolated.
 *  @throws unavailable when the target is out of reach. */
export async function settledNetwork(deps: PodNetworkDeps, signal: AbortSignal): Promise<TargetNetwork | undefined> {
  const { alone, log } = deps;
  const { host, network } = deps.target;
  const { rootDir } = deps.config;
  if (!network?.auto || alone) return network;
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  if (record?.network?.is !== "new") return asDecided(network, record?.network);
  const decision = await decide(deps, signal);
  await writeOwnershipRecord(host.fs, rootDir, { ...record, network: decision }, signal);
  log.info({ ...decision }, "the network of the new node's pods is decided");
  return asDecided(network, decision);
}

async function decide(deps: PodNetworkDeps, signal: AbortSignal): Promise<NetworkDecision> {
  const [first, ...others] = [
    ...(await clusterObstacles(deps, signal)),
    ...(await wayObstacles(deps.target.host, deps.config.rootDir, signal)),
    ...(await linkObstacles(deps, signal)),
  ];
  if (first === undefined) return { is: "tunneled" };
  return { is: "isolated", obstacle: [first, ...others].join("; ") };
}

/** What keeps graftlet itself from the cluster's Services. In a Pod it reaches them as every pod does. */
async function clusterObstacles(deps: PodNetworkDeps, signal: AbortSignal): Promise<readonly string[]> {
  const { clock, account } = deps;
  const { spec } = await kubernetesService(deps, signal);
  const host = (spec?.clusterIPs ?? [spec?.clusterIP ?? ""]).find((address) => isIPv4(address));
  if (host === undefined) return [withoutIPv4];
  if (account) return [];
  try {
    (await connectTo({ host, port: spec?.ports?.[0]?.port ?? 443 }, clock.within(dialMs, signal))).destroy();
    return [];
  } catch (error) {
    if (!hasCode(error, "unavailable") || signal.aborted) throw error;
    return ["graftlet did not reach Services of the cluster: it ran neither in a Pod nor beside kube-proxy"];
  }
}

/** The Service by which pods reach the API server; a new node has nothing to do until that answers. */
async function kubernetesService({ client, clock, log }: PodNetworkDeps, signal: AbortSignal): Promise<Service> {
  for (;;) {
    try {
      return await client.get<Service>("/api/v1/namespaces/default/services/kubernetes", { signal });
    } catch (err) {
      if (signal.aborted) throw err;
      log.debug({ err }, "the API server does not say whether it has Services yet, will ask again");
    }
    await clock.sleep(againMs, signal);
  }
}

async function linkObstacles({ target: { host }, config }: PodNetworkDeps, signal: AbortSignal) {
  try {
    await using _end = await listenAt(host, wayLink(config.rootDir), (connection) => connection.destroy(), signal);
    return [];
  } catch (error) {
    const why = unfitness(error);
    if (why === undefined) throw error;
    return [why];
  }
}
