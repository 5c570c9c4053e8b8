import { createAccessReview, readClusterClientCA } from "../api/access.ts";
import type { ApiClient } from "../api/client.ts";
import type { TokenSigners } from "../api/token-signers.ts";
import type { Approve } from "../certificates/approver.ts";
import { clientCAFromCluster, clientCAFromFile } from "../certificates/client-ca.ts";
import { createIssuedCertificate } from "../certificates/issued.ts";
import type { PairStore } from "../certificates/pair-store.ts";
import type { KeyPair } from "../certificates/self-signed.ts";
import { createServingCertificate } from "../certificates/serving.ts";
import { configurationDocument } from "../config/kubelet-configuration.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Reloading } from "../lib/reloading.ts";
import type { Service } from "../lib/service-group.ts";
import type { NodeAgent } from "../node/node-agent.ts";
import type { Readiness } from "../node/readiness.ts";
import type { NodeMetrics } from "../metrics/node-metrics.ts";
import { serverConfig } from "./settings.ts";
import type { LogReader, PodStore, StatusReader } from "../pipeline.ts";
import type { Pleg } from "../pleg/pleg.ts";
import type { Target } from "../seams/provider.ts";
import { boundedAccess, boundedTokens } from "../server/bounded-reviews.ts";
import { createHealthzServer } from "../server/healthz.ts";
import { type Authenticator, type Authorizer, alwaysAllow, neverAllow } from "../server/ports.ts";
import { cachedAuthenticator, cachedAuthorizer } from "../server/review-cache.ts";
import { createKubeletServer } from "../server/server.ts";
import type { Strangers } from "../server/strangers.ts";
import { noClientCA } from "./standalone.ts";
import type { NodeStats } from "../stats/node-stats.ts";

export interface ServerParts {
  readonly config: NodeConfig;
  readonly client: ApiClient;
  readonly signers: TokenSigners;
  /** There is no API server to ask about callers. */
  readonly alone: boolean;
  readonly target: Target;
  readonly store: (name: string) => PairStore;
  /** Approves the request for the kubelet API's certificate; absent where others do. */
  readonly approve?: Approve;
  readonly instance: string;
  readonly readiness: Readiness;
  readonly strangers: Strangers;
  readonly metrics: NodeMetrics;
  readonly addresses: Pick<NodeAgent, "nodeIPs">;
  readonly pods: PodStore;
  /** Resolves when all that the sources wanted at first has been taken in. */
  readonly podsKnown: Promise<void>;
  readonly statuses: StatusReader;
  readonly pleg: Pleg;
  readonly logs: LogReader;
  readonly stats: NodeStats;
  readonly clock: Clock;
  readonly targetClock: TargetClock;
  readonly log: Logger;
}

export interface NodeServer {
  readonly running: readonly Service[];
  /** The request for the kubelet API's certificate that waits for somebody's approval. */
  waiting(): string | undefined;
  /** Resolves when the kubelet API has a certificate; at once where it is not served. */
  readonly certified: Promise<void>;
  /** The kubelet API's certificate in PEM. */
  certificate(): string | undefined;
}

/** The kubelet API and the local health endpoint of a node, as its configuration wants them.
 *  @throws CodedError, one sentence, for certificates that cannot be used. */
export async function composeServer(parts: ServerParts, signal: AbortSignal): Promise<NodeServer> {
  const { config, client, pleg, target, clock, log } = parts;
  const { kubelet } = config;
  const { healthzPort: port, healthzBindAddress: address } = kubelet;
  const sharing = () => (target.link ? undefined : target.sharing);
  const healthz = port > 0 ? [createHealthzServer({ ...parts, address, port, sharing })] : [];
  if (!kubelet.enableServer) {
    return { running: healthz, certified: Promise.resolve(), waiting: () => undefined, certificate: () => undefined };
  }
  const certificate = await servingCertificate(parts, signal);
  const { clientCAFile } = kubelet.authentication.x509;
  const clientCA = clientCAFile
    ? await clientCAFromFile(clientCAFile, { clock, log })
    : parts.alone
      ? noClientCA
      : clientCAFromCluster((signal) => readClusterClientCA(client, signal), { clock, log });
  const server = createKubeletServer({
    ...parts,
    ...access(parts),
    runtime: parts.target.runtime,
    files: parts.target.host.fs,
    podLogsDir: kubelet.podLogsDir,
    config: serverConfig(config),
    certificate,
    clientCA,
    runtimePods: pleg.cache,
    syncLoop: pleg.unhealthy,
    configz: () => configurationDocument(kubelet),
    serving: parts.metrics.measures.serving,
  });
  return {
    running: [...healthz, certificate, clientCA, server],
    certified: untilSome(certificate),
    waiting: () => certificate.waiting?.(),
    certificate: () => certificate.current()?.certificate,
  };
}

/** Resolves when there is a value. */
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

/** The kubelet API's certificate: that of tlsCertFile, one that the cluster issues (serverTLSBootstrap), or a self-signed one. */
function servingCertificate(
  { config, client, alone, store, approve, addresses, metrics, clock, log }: ServerParts,
  signal: AbortSignal,
): Promise<Reloading<KeyPair | undefined> & Service & { waiting?(): string | undefined }> {
  const { kubelet, nodeName, certDir } = config;
  const names = [nodeName, ...addresses.nodeIPs()];
  if (kubelet.serverTLSBootstrap && !kubelet.tlsCertFile && !alone) {
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

/** Who callers are and what they may do, by the API server's word. Without one only client certificates say who calls, and nobody may
 *  do anything unless the configuration allows everybody everything. */
function access({ config, client, signers, alone, clock }: ServerParts): {
  readonly authenticator?: Authenticator;
  readonly authorizer: Authorizer;
} {
  const { authentication, authorization } = config.kubelet;
  if (alone) return { authorizer: authorization.mode === "AlwaysAllow" ? alwaysAllow : neverAllow };
  // Apart from what the node asks for itself: what strangers cause must hold up neither its pods nor its status.
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
