import { createAccessReview, readClusterClientCA } from "../api/access.ts";
import { clientCAFromCluster, clientCAFromFile } from "../certificates/client-ca.ts";
import { createIssuedCertificate } from "../certificates/issued.ts";
import type { KeyPair } from "../certificates/self-signed.ts";
import { createServingCertificate } from "../certificates/serving.ts";
import { configurationDocument } from "../config/kubelet-configuration.ts";
import type { Reloading } from "../lib/reloading.ts";
import type { Service } from "../lib/service-group.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { ReadGate } from "../report/reported-node.ts";
import { serverConfig, syncLoopTimeout } from "./settings.ts";
import { boundedAccess, boundedTokens } from "../server/bounded-reviews.ts";
import { createHealthzServer } from "../server/healthz.ts";
import { type Authenticator, type Authorizer, alwaysAllow, neverAllow } from "../server/ports.ts";
import { cachedAuthenticator, cachedAuthorizer } from "../server/review-cache.ts";
import { createKubeletServer } from "../server/server.ts";
import { noClientCA } from "./standalone.ts";
import type { NodeStats } from "../stats/node-stats.ts";

interface ServerParts {
  readonly cluster: Pick<Cluster, "signers">;
  readonly observed: Pick<ObservedTarget, "agent" | "pleg" | "logs" | "targetClock">;
  readonly stats: NodeStats;
}

export interface NodeServer {
  readonly running: readonly Service[];
  /** Name of the pending signing request for the kubelet API's certificate. */
  pendingCertificateRequest(): string | undefined;
  /** Resolves when the kubelet API has a certificate; at once if the API is disabled. */
  readonly certified: Promise<void>;
  /** Authentication and authorization of the kubelet API; undefined if the API is disabled. */
  readonly gate?: ReadGate;
  /** The kubelet API's certificate in PEM. */
  certificate(): string | undefined;
}

/** Creates the kubelet API and the local health endpoint of a node, as configured.
 *  @throws CodedError, one sentence, for unusable certificates. */
export async function createNodeServer(
  context: NodeContext,
  { cluster, observed, stats }: ServerParts,
): Promise<NodeServer> {
  const { config, client, standalone, target, metrics, clock, log, hand } = context;
  const { kubelet } = config;
  const { healthzPort: port, healthzBindAddress: address } = kubelet;
  const sharing = () => (target.link ? undefined : target.sharing);
  const healthz =
    port > 0 ? [createHealthzServer({ ...context, address, port, sharing, measures: metrics.measures.health })] : [];
  if (!kubelet.enableServer) {
    return {
      running: healthz,
      certified: Promise.resolve(),
      pendingCertificateRequest: () => undefined,
      certificate: () => undefined,
    };
  }
  const certificate = await servingCertificate(context, observed.agent);
  const { clientCAFile } = kubelet.authentication.x509;
  const clientCA = clientCAFile
    ? await clientCAFromFile(clientCAFile, { clock, log })
    : standalone
      ? noClientCA
      : clientCAFromCluster((signal) => readClusterClientCA(client, signal), { clock, log });
  const { desired, podCache, status, sourcesSynced } = hand("kubeletServer");
  const gate = { ...access(context, cluster), config: serverConfig(config), certificate, clientCA };
  const server = createKubeletServer({
    ...context,
    ...observed,
    ...gate,
    stats,
    metrics: {
      text: async (signal) => (await Promise.all([metrics.text(), stats.claims(signal)])).join(""),
      probes: metrics.probes,
      slis: metrics.slis,
      resetSlis: metrics.resetSlis,
    },
    pods: desired,
    podsKnown: sourcesSynced.reached,
    statuses: status,
    runtime: target.runtime,
    files: target.host.fs,
    spawn: (argv, signal) => (target.host.forUsers ?? target.host).spawn(argv, signal),
    podLogsDir: kubelet.podLogsDir,
    runtimePods: podCache,
    syncLoop: () => observed.pleg.stalled(syncLoopTimeout(config)),
    configz: () => configurationDocument(kubelet),
    serving: metrics.measures.serving,
    health: metrics.measures.health,
  });
  return {
    running: [...healthz, certificate, clientCA, server],
    gate,
    certified: untilSome(certificate),
    pendingCertificateRequest: () => certificate.waiting?.(),
    certificate: () => certificate.current()?.certificate,
  };
}

/** Resolves when the value is set. */
function untilSome(value: Reloading<unknown>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const look = () => {
    if (value.current() === undefined) return;
    forget();
    resolve();
  };
  const forget = value.onChange(look);
  look();
  return promise;
}

/** The kubelet API's certificate: from tlsCertFile, issued by the cluster (serverTLSBootstrap), or self-signed. */
function servingCertificate(
  { config, client, standalone, store, approve, metrics, clock, log, signal }: NodeContext,
  addresses: Pick<ObservedTarget["agent"], "nodeIPs">,
): Promise<Reloading<KeyPair | undefined> & Service & { waiting?(): string | undefined }> {
  const { kubelet, nodeName, certDir } = config;
  const names = [nodeName, ...addresses.nodeIPs()];
  if (kubelet.serverTLSBootstrap && !kubelet.tlsCertFile && !standalone) {
    const subject = { commonName: `system:node:${nodeName}`, organization: "system:nodes", names };
    const name = "kubelet-server";
    const signerName = "kubernetes.io/kubelet-serving";
    return createIssuedCertificate(
      {
        name,
        signerName,
        subject: () => subject,
        store: store(name),
        client,
        measures: metrics.measures.certificates.server,
        clock,
        log,
        ...(approve && { approve }),
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
    ...(kubelet.tlsCertFile && { certFile: kubelet.tlsCertFile }),
    ...(kubelet.tlsPrivateKeyFile && { keyFile: kubelet.tlsPrivateKeyFile }),
  });
}

/** Authentication and authorization by the API server. Without one, only client certificates identify callers, and all requests are
 *  denied unless the authorization mode is AlwaysAllow. */
function access(
  { config, client, standalone, clock }: NodeContext,
  { signers }: Pick<Cluster, "signers">,
): {
  readonly authenticator?: Authenticator;
  readonly authorizer: Authorizer;
} {
  const { authentication, authorization } = config.kubelet;
  if (standalone) return { authorizer: authorization.mode === "AlwaysAllow" ? alwaysAllow : neverAllow };
  // A separate rate limit: reviews caused by unknown callers must not delay the node's own requests.
  const reviews = createAccessReview({ client: client.limited(undefined), clock, nodeName: config.nodeName });
  const { cacheAuthorizedTTL: allowedMs, cacheUnauthorizedTTL: deniedMs } = authorization.webhook;
  return {
    authorizer:
      authorization.mode === "AlwaysAllow"
        ? alwaysAllow
        : cachedAuthorizer({ allowed: boundedAccess(reviews, clock) }, clock, { allowedMs, deniedMs }),
    ...(authentication.webhook.enabled && {
      authenticator: cachedAuthenticator(
        { byToken: boundedTokens(reviews, signers, clock) },
        clock,
        authentication.webhook.cacheTTL,
      ),
    }),
  };
}
