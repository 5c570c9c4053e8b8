import { isIPv4 } from "node:net";
import { type NetworkDecision, readOwnershipRecord, writeOwnershipRecord } from "../host/ownership-record.ts";
import { hasCode } from "../lib/errors.ts";
import type { KubeletDeps } from "../kubelet/deps.ts";
import { connectTo } from "../network/connections.ts";
import { asDecided, podNetworkAnnotation } from "../network/decision.ts";
import { listenAt, unfitness, wayObstacles, withoutIPv4 } from "../network/fitness.ts";
import { wayLink } from "../network/rules.ts";
import type { Node, Service } from "../objects.ts";
import type { TargetNetwork } from "../seams/provider.ts";

export type PodNetworkDeps = Pick<KubeletDeps, "alone" | "account" | "client" | "clock" | "log"> & {
  readonly config: Pick<KubeletDeps["config"], "rootDir" | "nodeName">;
  readonly target: Pick<KubeletDeps["target"], "host" | "network">;
};

/** Time for a Service to answer graftlet, milliseconds. */
const dialMs = 3_000;
/** Pause after the API server has not answered, milliseconds. */
const againMs = 1_000;
/** Time for the API server to show the Node, milliseconds. Its own pods may be static ones of this node, which do not wait longer. */
const nodeMs = 10_000;

/** The network of a target's pods. Where the configuration leaves it open, it is what the target's record says; a node that is new there
 *  is tunneled if that can be, which is decided once and put on record. A node from before stays isolated. A node that was isolated bears an
 *  annotation, and stays so whatever the record says: the machine's root writes that, and does not write the Node.
 *  @throws unavailable when the target is out of reach. */
export async function settledNetwork(deps: PodNetworkDeps, signal: AbortSignal): Promise<TargetNetwork | undefined> {
  const { alone, log } = deps;
  const { host, network } = deps.target;
  const { rootDir } = deps.config;
  if (!network?.auto || alone) return network;
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  const settle = async (): Promise<NetworkDecision | undefined> => {
    const recorded = record?.network;
    if (!recorded || recorded.is === "isolated") return recorded;
    if (await wasIsolated(deps, signal)) return { is: "isolated", obstacle: heldByNode };
    if (recorded.is !== "new") return recorded;
    const decision = await decide(deps, signal);
    await writeOwnershipRecord(host.fs, rootDir, { ...record, network: decision }, signal);
    log.info({ ...decision }, "the network of the new node's pods is decided");
    return decision;
  };
  const settled = asDecided(network, await settle());
  if (settled.isolated) await noteIsolated(deps, signal);
  return settled;
}

const heldByNode = `the Node's annotation ${podNetworkAnnotation} says that it is isolated; network: tunneled carries Services over the link`;

const nodePath = ({ config }: PodNetworkDeps) => `/api/v1/nodes/${config.nodeName}`;

/** True where the Node bears the annotation of an isolated one. */
async function wasIsolated(deps: PodNetworkDeps, signal: AbortSignal): Promise<boolean> {
  const { client, clock, log } = deps;
  const soon = clock.within(nodeMs, signal);
  for (;;) {
    try {
      const { metadata } = await client.get<Node>(nodePath(deps), { signal: soon });
      return metadata.annotations?.[podNetworkAnnotation] === "isolated";
    } catch (err) {
      if (signal.aborted) throw err;
      if (hasCode(err, "not_found")) return false;
      if (soon.aborted) {
        log.warn(
          { err },
          "the API server does not show the Node, its pods have the network that the target's record says",
        );
        return false;
      }
    }
    await clock.sleep(againMs, soon).catch(() => undefined);
  }
}

/** Annotates a Node that is there already; a new one is registered with the annotation. */
async function noteIsolated(deps: PodNetworkDeps, signal: AbortSignal): Promise<void> {
  const body = { metadata: { annotations: { [podNetworkAnnotation]: "isolated" } } };
  const soon = deps.clock.within(dialMs, signal);
  try {
    await deps.client.patch<Node>(nodePath(deps), { type: "merge", body }, { signal: soon });
  } catch (err) {
    if (signal.aborted) throw err;
    if (!hasCode(err, "not_found")) deps.log.debug({ err }, "the Node is not annotated as isolated yet");
  }
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
