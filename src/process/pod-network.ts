import { isIPv4 } from "node:net";
import { type NetworkDecision, readOwnershipRecord, writeOwnershipRecord } from "../host/ownership-record.ts";
import { hasCode } from "../lib/errors.ts";
import type { KubeletDeps } from "../kubelet/deps.ts";
import { connectTo } from "../service-tunnel/connections.ts";
import { applyNetworkDecision, podNetworkAnnotation } from "../service-tunnel/network-mode.ts";
import { listenOnTarget, preflightFailure, preflightFailures, noIPv4Services } from "../service-tunnel/preflight.ts";
import { tunnelSocket } from "../service-tunnel/rules.ts";
import type { Node, Service } from "../objects.ts";
import type { TargetNetwork } from "../seams/provider.ts";

export type PodNetworkDeps = Pick<KubeletDeps, "standalone" | "account" | "client" | "clock" | "log"> & {
  readonly config: Pick<KubeletDeps["config"], "rootDir" | "nodeName">;
  readonly target: Pick<KubeletDeps["target"], "host" | "network">;
};

/** Timeout for connections to a Service, milliseconds. */
const dialTimeoutMs = 3_000;
/** Retry delay if the API server does not respond, milliseconds. */
const retryDelayMs = 1_000;
/** Timeout for reading the Node, milliseconds. The API server may be a static pod of this node, so its start must not wait
 *  longer. */
const nodeTimeoutMs = 10_000;

/** Resolves the network mode of a target's pods. If it is not configured, it is read from the record on the target; a new node
 *  is tunneled if possible, which is decided once and recorded. A node without a record stays isolated. An isolated node has an
 *  annotation, and stays isolated regardless of the record: root on the target can write the record, but not the Node.
 *  @throws unavailable if the target is unreachable. */
export async function resolveNetwork(deps: PodNetworkDeps, signal: AbortSignal): Promise<TargetNetwork | undefined> {
  const { standalone, log } = deps;
  const { host, network } = deps.target;
  const { rootDir } = deps.config;
  if (!network?.auto || standalone) return network;
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  const resolve = async (): Promise<NetworkDecision | undefined> => {
    const recorded = record?.network;
    if (!recorded || recorded.is === "isolated") return recorded;
    if (await wasIsolated(deps, signal)) return { is: "isolated", obstacle: isolatedByNode };
    if (recorded.is !== "new") return recorded;
    const decision = await decide(deps, signal);
    await writeOwnershipRecord(host.fs, rootDir, { ...record, network: decision }, signal);
    log.info({ ...decision }, "resolved the pod network mode of the new node");
    return decision;
  };
  const resolved = applyNetworkDecision(network, await resolve());
  if (resolved.isolated) await annotateIsolated(deps, signal);
  return resolved;
}

const isolatedByNode = `the node is isolated, according to the Node's annotation ${podNetworkAnnotation}; set network: tunneled to reach Services over the link`;

const nodePath = ({ config }: PodNetworkDeps) => `/api/v1/nodes/${config.nodeName}`;

/** True if the Node has the annotation of an isolated node. */
async function wasIsolated(deps: PodNetworkDeps, signal: AbortSignal): Promise<boolean> {
  const { client, clock, log } = deps;
  const timeout = clock.within(nodeTimeoutMs, signal);
  for (;;) {
    try {
      const { metadata } = await client.get<Node>(nodePath(deps), { signal: timeout });
      return metadata.annotations?.[podNetworkAnnotation] === "isolated";
    } catch (err) {
      if (signal.aborted) throw err;
      if (hasCode(err, "not_found")) return false;
      if (timeout.aborted) {
        log.warn({ err }, "cannot read the Node; using the pod network mode recorded on the target");
        return false;
      }
    }
    await clock.sleep(retryDelayMs, timeout).catch(() => undefined);
  }
}

/** Annotates an existing Node; a new one is registered with the annotation. */
async function annotateIsolated(deps: PodNetworkDeps, signal: AbortSignal): Promise<void> {
  const body = { metadata: { annotations: { [podNetworkAnnotation]: "isolated" } } };
  const timeout = deps.clock.within(dialTimeoutMs, signal);
  try {
    await deps.client.patch<Node>(nodePath(deps), { type: "merge", body }, { signal: timeout });
  } catch (err) {
    if (signal.aborted) throw err;
    if (!hasCode(err, "not_found")) deps.log.debug({ err }, "cannot annotate the Node as isolated yet");
  }
}

async function decide(deps: PodNetworkDeps, signal: AbortSignal): Promise<NetworkDecision> {
  const [first, ...others] = [
    ...(await clusterObstacles(deps, signal)),
    ...(await preflightFailures(deps.target.host, deps.config.rootDir, signal)),
    ...(await linkObstacles(deps, signal)),
  ];
  if (first === undefined) return { is: "tunneled" };
  return { is: "isolated", obstacle: [first, ...others].join("; ") };
}

/** Reasons why graftlet cannot reach the cluster's Services. In a Pod they are assumed to be reachable. */
async function clusterObstacles(deps: PodNetworkDeps, signal: AbortSignal): Promise<readonly string[]> {
  const { clock, account } = deps;
  const { spec } = await kubernetesService(deps, signal);
  const host = (spec?.clusterIPs ?? [spec?.clusterIP ?? ""]).find((address) => isIPv4(address));
  if (host === undefined) return [noIPv4Services];
  if (account) return [];
  try {
    (await connectTo({ host, port: spec?.ports?.[0]?.port ?? 443 }, clock.within(dialTimeoutMs, signal))).destroy();
    return [];
  } catch (error) {
    if (!hasCode(error, "unavailable") || signal.aborted) throw error;
    return [
      "graftlet could not reach Services of the cluster: it ran neither in a Pod nor on a machine with kube-proxy",
    ];
  }
}

/** Reads the Service of the API server. Retries until the API server responds, since a new node has nothing to do before that. */
async function kubernetesService({ client, clock, log }: PodNetworkDeps, signal: AbortSignal): Promise<Service> {
  for (;;) {
    try {
      return await client.get<Service>("/api/v1/namespaces/default/services/kubernetes", { signal });
    } catch (err) {
      if (signal.aborted) throw err;
      log.debug({ err }, "cannot get the kubernetes Service; retrying");
    }
    await clock.sleep(retryDelayMs, signal);
  }
}

async function linkObstacles({ target: { host }, config }: PodNetworkDeps, signal: AbortSignal) {
  try {
    await using _end = await listenOnTarget(
      host,
      tunnelSocket(config.rootDir),
      (connection) => connection.destroy(),
      signal,
    );
    return [];
  } catch (error) {
    const why = preflightFailure(error);
    if (why === undefined) throw error;
    return [why];
  }
}
