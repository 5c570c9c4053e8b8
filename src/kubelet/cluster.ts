import { isIPv4 } from "node:net";
import { loggedEvents, noNode, noServices } from "../api/absent.ts";
import { type CredentialSource, createCredentials } from "../api/credentials.ts";
import { clusterRoleOwner, createOwnSlices } from "../api/endpoint-slices.ts";
import { createEventRecorder, reportedEvents } from "../api/events.ts";
import { createLimitationReporter } from "../api/limitations.ts";
import {
  createHeadlessEndpoints,
  createHeadlessServices,
  createNodeWatch,
  createServerEndpoints,
  createServiceLister,
  withFirstListTimeout,
} from "../api/listers.ts";
import { createObjectCaches, createPersistentVolumeClaims, createServiceAccounts } from "../api/objects.ts";
import type { SharedReader } from "../api/shared-reads.ts";
import type { OpenWatch } from "../api/shared-watches.ts";
import { createRuntimeClasses } from "../api/runtime-classes.ts";
import { createTokenSigners } from "../api/token-signers.ts";
import { createTokenSource } from "../api/tokens.ts";
import { createTrustBundles } from "../api/trust-bundles.ts";
import { createPodCertificates } from "../certificates/pod-certificates.ts";
import { gateEnabled } from "../config/feature-gates.ts";
import { createServicePublisher } from "../endpoint-publisher/publisher.ts";
import { sliceSelector } from "../endpoint-publisher/slices.ts";
import type { Runnable } from "../lib/runnables.ts";
import { onlyServer, readDistribution } from "../remotedialer/distribution.ts";
import { type Tunnels, createTunnels } from "../remotedialer/tunnels.ts";
import type { Cluster, NodeContext } from "./deps.ts";
import { staticSources } from "./settings.ts";
import { ownAddresses } from "../node/own-name.ts";

/** Time for which a node with static pods waits for the Node, milliseconds. */
const firstListTimeoutMs = 2_000;

/** Creates the watches of cluster objects for this node; a standalone node has no Node, no Services, and no referenced objects. */
export function observeCluster(context: NodeContext): Cluster {
  const { config, standalone, client, clock, log } = context;
  const events = createEvents(context);
  const nodes = standalone ? noNode : createNodeWatch({ client, nodeName: config.nodeName, clock, log });
  const services = standalone ? noServices : createServiceLister(openShared(context));
  const runtimeClasses = createRuntimeClasses({ client, clock, log });
  const objects = createObjectCaches({ client, clock, log });
  const signers = createTokenSigners(clock);
  const tokens = createTokenSource({ client, signers, clock, log });
  const accounts = createServiceAccounts({ client, clock });
  const isEnabled = (gate: string) => !standalone && gateEnabled(config.kubelet.featureGates, gate);
  const trustBundles = createTrustBundles({ client, enabled: isEnabled("ClusterTrustBundleProjection"), clock, log });
  const podCertificates = createPodCertificates({
    client,
    accounts,
    events,
    node: nodes.node,
    nodeName: config.nodeName,
    enabled: isEnabled("PodCertificateRequest"),
    clock,
    log,
  });
  const headless = createHeadless(context);
  signalChanges(context, { nodes, services });
  // The API server itself may be a static pod: a node with static pods does not wait for it.
  const first = staticSources(config).length > 0 ? withFirstListTimeout(nodes, firstListTimeoutMs, clock) : nodes;
  const watching: readonly Runnable[] = standalone
    ? []
    : [first, services, runtimeClasses, ...(headless ? [headless.services, headless.endpoints] : [])];
  return {
    events,
    nodes,
    services,
    headless,
    runtimeClasses,
    objects,
    claims: createPersistentVolumeClaims({ client }),
    accounts,
    tokens,
    signers,
    trustBundles,
    podCertificates,
    running: [events, ...watching, objects, tokens, trustBundles, podCertificates],
  };
}

/** Creates the event recorder; a standalone node writes events to the log. */
function createEvents({ config, standalone, client, report, clock, log }: NodeContext): Cluster["events"] {
  const { eventRecordQPS: qps, eventBurst: burst } = config.kubelet;
  const recorder = standalone
    ? loggedEvents(log)
    : createEventRecorder({ client, component: "kubelet", host: config.nodeName, qps, burst, clock, log });
  return report.event ? reportedEvents(recorder, report.event) : recorder;
}

/** Opens watches that the node shares with the others of the process in the same cluster. */
function openShared({ access, watches, client }: NodeContext): OpenWatch {
  return watches.openWith(access?.read().cluster, client);
}

/** Reads objects that are the same for all nodes of the process in the same cluster. */
export function sharedReader({ access, reads, client }: NodeContext): SharedReader {
  return reads.openWith(access?.read().cluster, client);
}

/** Watches headless Services with the node's identity, and their endpoints with the service account of graftlet's Pod. */
function createHeadless(context: NodeContext): Cluster["headless"] {
  const { account, target, clock, log } = context;
  if (!account || !target.network?.tunneled) return undefined;
  return {
    services: createHeadlessServices(openShared(context)),
    endpoints: createHeadlessEndpoints({ client: account.client, clock, log }),
  };
}

/** Signals changes of the Node and the first list of Services. */
function signalChanges({ partsOf }: NodeContext, { nodes, services }: Pick<Cluster, "nodes" | "services">): void {
  const { signals } = partsOf("nodeWatch");
  nodes.onChange((node) => {
    // A deleted Node is registered again immediately.
    if (!node) signals.nodeChanged.send();
    signals.mirrorsChanged.send();
  });
  // Container environments contain the Services. Pods that failed because the first list was missing are retried at once, without
  // their retry delay.
  const { retryFailedPods } = partsOf("serviceWatch").signals;
  const unsubscribe = services.onChange(() => {
    unsubscribe();
    retryFailedPods.send();
  });
}

/** Creates the publisher of pod endpoints for targets outside the cluster network, if configured. */
export function createEndpointPublishing(
  { config, account, target, tunnelLimits, clock, log, partsOf }: NodeContext,
  { services, headless, events }: Cluster,
): readonly Runnable[] {
  const { nodeName, endpoints } = config;
  if (!endpoints || !account || !target.network?.tunneled) return [];
  const own = ownAddresses().find((address) => isIPv4(address));
  if (own === undefined) return [];
  const { client } = account;
  const { owner, namespaces, podNode } = endpoints;
  const slices = createOwnSlices({ client, clock, log }, sliceSelector);
  const publisher = createServicePublisher({
    ...partsOf("servicePublisher"),
    host: target.host,
    nodeName,
    own,
    podNode,
    owner: (signal) => clusterRoleOwner(client, owner, signal),
    mayPublish: ({ metadata }) => namespaces.length === 0 || namespaces.includes(metadata.namespace),
    services,
    headless: headless?.services,
    slices,
    tunnelLimits,
    report: createLimitationReporter(events, nodeName),
  });
  return [slices, publisher];
}

/** Creates the tunnels through which an API server of k3s or RKE2 reaches this node; undefined if the node needs none. */
export function createApiServerTunnels(context: NodeContext): Tunnels | undefined {
  const { config, access, account, clock, log } = context;
  const { kubelet, advertisedPort, egressTunnel: configured } = config;
  if (!access || configured === "none" || !kubelet.enableServer) return undefined;
  // The credentials are read only if there are tunnels.
  let credentials: CredentialSource | undefined;
  const host = /^(0\.0\.0\.0|::)$/.test(kubelet.address) ? "127.0.0.1" : kubelet.address;
  return createTunnels({
    distribution: async (signal) => configured ?? readDistribution(sharedReader(context), clock, signal),
    credentials: () => (credentials ??= createCredentials({ from: access, clock, log })).current(),
    servers: account
      ? createServerEndpoints({ client: account.client, clock, log })
      : onlyServer(access.read().cluster.server),
    advertisedPort: advertisedPort ?? kubelet.port,
    kubelet: { host, port: kubelet.port },
    clock,
    log,
  });
}
