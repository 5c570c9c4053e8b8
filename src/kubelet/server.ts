import { countActiveResizes } from "../allocation/resize-states.ts";
import { createAccessReview, readClusterClientCA } from "../api/access.ts";
import { type ClientCA, clientCAFromCluster, clientCAFromFile, noClientCA } from "../certificates/client-ca.ts";
import { createIssuedCertificate } from "../certificates/issued.ts";
import type { KeyPair } from "../certificates/self-signed.ts";
import { createServingCertificate } from "../certificates/serving.ts";
import { configurationDocument } from "../config/kubelet-configuration.ts";
import { type Reloading, untilSome } from "../lib/reloading.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { NodeGauges } from "../metrics/node-gauges.ts";
import { countPlaceholders } from "../pod/placeholder-counts.ts";
import { isReachable } from "../node/conditions.ts";
import type { NodeIntrospection, ReadGate } from "../report/reported-node.ts";
import { boundedAccess, boundedTokens, cachedAuthenticator, cachedAuthorizer } from "../server/review-cache.ts";
import { createHealthzServer } from "../server/healthz.ts";
import {
  type Authenticator,
  type Authorizer,
  type KubeletServerDeps,
  alwaysAllow,
  neverAllow,
} from "../server/ports.ts";
import { createKubeletServer } from "../server/server.ts";
import { servedPods } from "../server/routes/pods.ts";
import type { NodeStats } from "../stats/node-stats.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { sharedReader } from "./cluster.ts";
import type { PodPipeline } from "./pods.ts";
import { serverConfig } from "./settings.ts";

/** The kubelet API and the health endpoint of a node. */
export interface NodeServer {
  readonly running: readonly Runnable[];
  /** Name of the pending signing request for the kubelet API's certificate. */
  pendingCertificateRequest(): string | undefined;
  /** Resolves when the kubelet API has a certificate; at once if the API is disabled. */
  readonly certified: Promise<void>;
  /** Authentication and authorization of the kubelet API; undefined if the API is disabled. */
  readonly gate: ReadGate | undefined;
  /** The kubelet API's certificate in PEM. */
  certificate(): string | undefined;
}

/** Certificates, authentication and authorization of the kubelet API. */
type ServerGate = Pick<KubeletServerDeps, "config" | "certificate" | "clientCA" | "authenticator" | "authorizer">;

/** Creates the kubelet API and the local health endpoint of a node, as configured.
 *  @throws CodedError, one sentence, for unusable certificates. */
export async function createNodeServer(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  pipeline: Pick<PodPipeline, "stats" | "syncLoopHealth">,
): Promise<NodeServer> {
  const { config } = context;
  const healthz = createHealthz(context);
  if (!config.kubelet.enableServer) {
    return {
      running: healthz,
      certified: Promise.resolve(),
      gate: undefined,
      pendingCertificateRequest: () => undefined,
      certificate: () => undefined,
    };
  }
  const certificate = await servingCertificate(context, observed.agent.nodeIPs());
  const clientCA = await createClientCA(context);
  const { authenticator, authorizer } = access(context, cluster);
  const gate: ServerGate = { authenticator, authorizer, config: serverConfig(config), certificate, clientCA };
  const server = createApi(context, observed, pipeline, gate);
  return {
    running: [...healthz, certificate, clientCA, server],
    gate,
    certified: untilSome(certificate),
    pendingCertificateRequest: () => certificate.waiting?.(),
    certificate: () => certificate.current()?.certificate,
  };
}

/** Creates the local health endpoint, if configured. */
function createHealthz({ config, target, instance, readiness, metrics, clock, log }: NodeContext): readonly Runnable[] {
  const { healthzPort: port, healthzBindAddress: address } = config.kubelet;
  if (port <= 0) return [];
  const sharing = () => (target.link ? undefined : target.sharing);
  const measures = metrics.measures.health;
  return [createHealthzServer({ address, port, sharing, instance, readiness, measures, clock, log })];
}

/** Creates the source of the CA certificates that authenticate callers: clientCAFile, or the cluster. */
async function createClientCA(context: NodeContext): Promise<ClientCA & Runnable> {
  const { config, client, standalone, clock, log } = context;
  const { clientCAFile } = config.kubelet.authentication.x509;
  if (clientCAFile) return clientCAFromFile(clientCAFile, { clock, log });
  if (standalone) return noClientCA;
  const shared = sharedReader(context);
  // A missing one may have been published since the shared response.
  const read = async (signal: AbortSignal) =>
    (await readClusterClientCA(shared, signal)) ?? readClusterClientCA(client, signal);
  return clientCAFromCluster(read, { clock, log });
}

function createApi(
  { config, flags, target, kubeletApi, unauthenticated, verbosity, profiles, metrics, tracer, partsOf }: NodeContext,
  { logs, targetClock }: ObservedTarget,
  { stats, syncLoopHealth }: Pick<PodPipeline, "stats" | "syncLoopHealth">,
  gate: ServerGate,
): Runnable {
  const { kubelet } = config;
  const { sourcesSynced, ...parts } = partsOf("kubeletServer");
  return createKubeletServer({
    ...parts,
    ...gate,
    kubeletApi,
    unauthenticated,
    verbosity,
    profiles,
    podsKnown: sourcesSynced.reached,
    runtime: target.runtime,
    logs,
    files: target.host.fs,
    spawn: (argv, signal) => (target.host.forUsers ?? target.host).spawn(argv, signal),
    podLogsDir: kubelet.podLogsDir,
    syncLoop: syncLoopHealth,
    metrics: {
      ...metrics,
      text: async (signal) => (await Promise.all([metrics.text(), stats.claims(signal)])).join(""),
    },
    stats,
    serving: metrics.measures.serving,
    health: metrics.measures.health,
    tracer,
    flags,
    configz: () => configurationDocument(kubelet),
    targetClock,
  });
}

/** Creates the source of the kubelet API's certificate: from tlsCertFile, issued by the cluster (serverTLSBootstrap), or
 *  self-signed. */
function servingCertificate(
  { config, client, standalone, store, approve, metrics, clock, log, signal }: NodeContext,
  nodeIPs: readonly string[],
): Promise<Reloading<KeyPair | undefined> & Runnable & { waiting?(): string | undefined }> {
  const { kubelet, nodeName, certDir } = config;
  const names = [nodeName, ...nodeIPs];
  if (kubelet.serverTLSBootstrap && !kubelet.tlsCertFile && !standalone) {
    const subject = { commonName: `system:node:${nodeName}`, organization: "system:nodes", names };
    const name = "kubelet-server";
    return createIssuedCertificate(
      {
        name,
        signerName: config.servingSigner,
        usage: "server auth",
        subject: () => subject,
        store: store(name),
        client,
        measures: metrics.measures.certificates.server,
        clock,
        log,
        approve,
      },
      signal,
    );
  }
  return createServingCertificate({
    certDir,
    nodeName,
    addresses: names,
    clock,
    log,
    certFile: kubelet.tlsCertFile || undefined,
    keyFile: kubelet.tlsPrivateKeyFile || undefined,
  });
}

/** Creates authentication and authorization by the API server. Without an API server, only client certificates identify callers,
 *  and all requests are denied unless the authorization mode is AlwaysAllow. */
function access(
  { config, client, standalone, clock, metrics: { measures } }: NodeContext,
  { signers }: Cluster,
): { readonly authenticator: Authenticator | undefined; readonly authorizer: Authorizer } {
  const { authentication, authorization } = config.kubelet;
  const allowsAll = authorization.mode === "AlwaysAllow";
  if (standalone) return { authenticator: undefined, authorizer: allowsAll ? alwaysAllow : neverAllow };
  // A separate rate limit: reviews caused by unknown callers must not delay the node's own requests.
  const unlimited = client.limited(undefined);
  const { nodeName } = config;
  const reviews = createAccessReview({ client: unlimited, clock, nodeName, measures: measures.reviews });
  const { cacheAuthorizedTTL: allowedMs, cacheUnauthorizedTTL: deniedMs } = authorization.webhook;
  const { enabled, cacheTTL } = authentication.webhook;
  return {
    authorizer: allowsAll
      ? alwaysAllow
      : cachedAuthorizer({ allowed: boundedAccess(reviews, clock) }, clock, { allowedMs, deniedMs }),
    authenticator: enabled
      ? cachedAuthenticator({ byToken: boundedTokens(reviews, signers, clock) }, clock, cacheTTL, measures.tokenCache)
      : undefined,
  };
}

/** Creates the view of the node's state for status commands and the page, as served by its kubelet API. A standalone node shows
 *  the Node that it would register. */
export function createNodeIntrospection(
  { standalone, partsOf }: NodeContext,
  { nodes }: Cluster,
  { agent }: ObservedTarget,
  stats: NodeStats,
  { gate }: NodeServer,
): NodeIntrospection {
  const { desired, status } = partsOf("report");
  return {
    standalone,
    node: () => nodes.node() ?? (standalone ? agent.ownNode() : undefined),
    onChange(listener) {
      const unsubscribes = [nodes.onChange(() => listener()), desired.onChange(() => listener())];
      return () => {
        for (const unsubscribe of unsubscribes) unsubscribe();
      };
    },
    pods: () => servedPods(desired, status),
    podCount: () => desired.list().length,
    summary: (signal) => stats.summary(false, signal),
    gate,
  };
}

/** Creates the view of the node's state from which gauges are computed. */
export function createNodeView(
  { target, clientCertificate, partsOf }: NodeContext,
  { podCertificates }: Cluster,
  { agent, cpus }: ObservedTarget,
  { manager, volumes }: Pick<PodPipeline, "manager" | "volumes">,
  { certificate }: NodeServer,
): NodeGauges {
  const { desired, podCache, worker, status, resize, reachable } = partsOf("metrics");
  return {
    desired,
    mirrors: manager.mirrorPods,
    podCache,
    workers: () => worker.entries().map(([uid, { phase, pod }]) => ({ uid, phase, pod })),
    mounted: volumes.mounted,
    resizes: () => countActiveResizes(resize, worker),
    placeholders: () => countPlaceholders(desired.list(), status),
    cgroupVersion: agent.facts.cgroupVersion,
    cpus,
    servingCertificate: certificate,
    clientCertificate,
    podCertificates: podCertificates.states,
    link: target.link,
    reachable: () => isReachable(reachable.get()),
  };
}
