import { readFileSync } from "node:fs";
import { type ApiClient, type ApiClientOptions, type ApiConnections, createApiClient } from "../api/client.ts";
import { createCredentials } from "../api/credentials.ts";
import { type AccessFile, kubeconfigFile, withCertificate, writeKubeconfig } from "../api/kubeconfig.ts";
import { type ServiceAccountAccess, serviceAccount } from "../api/service-account.ts";
import { type IssuedCertificate, createIssuedCertificate } from "../certificates/issued.ts";
import { type PairStore, currentFile, filePairStore, parsePair } from "../certificates/pair-store.ts";
import { backedBySecret, copiedFrom, secretPairStore } from "../certificates/secret-store.ts";
import type { KeyPair } from "../certificates/self-signed.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Secret } from "../objects.ts";
import type { Tracer } from "../lib/tracer.ts";
import type { Measures } from "../metrics/node-metrics.ts";
import { graftletVersion } from "../version.ts";

export interface IdentityDeps extends ClockAndLog {
  readonly config: NodeConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The account of a replica outside the cluster; in a Pod, its service account is used. */
  readonly outsideAccount?: ServiceAccountAccess | undefined;
  /** The account's connections to the API server, if other nodes of the process use them too. */
  readonly accountConnections?: Pick<ApiConnections, "client"> | undefined;
  /** The Secret of that name in the account's namespace as last seen, if the process watches them. */
  readonly lastSeenSecret?: ((name: string) => Secret | undefined) | undefined;
  readonly measures: Pick<Measures, "requests" | "certificates">;
  /** Absent when requests to the API server are not traced. */
  readonly tracer?: Tracer;
}

/** A node's credentials for the API server, and the stores of its certificates. */
export interface Identity extends AsyncDisposable {
  readonly access: AccessFile;
  /** Services that renew the credentials. */
  readonly running: readonly Runnable[];
  /** The Pod's service account, if there is no kubeconfig. */
  readonly account?: Account;
  /** The store of the node's key pair of that name. */
  store(name: string): PairStore;
}

/** A Pod's service account with a client. */
export interface Account {
  readonly client: ApiClient;
  readonly namespace: string;
}

const storeName = "kubelet-client";

/** Obtains a node's credentials for the API server. They are those of its kubeconfig. If that is missing and a bootstrap
 *  kubeconfig is given, a certificate for `system:node:NAME` is requested with it, and the kubeconfig is written. In a Pod
 *  without a kubeconfig, they are a certificate that is requested with the service account, or the service account itself. Waits
 *  until the certificate is approved, unless the signal aborts.
 *  @throws CodedError, one sentence, if none of these can be used.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/ */
export async function obtainIdentity(deps: IdentityDeps, signal: AbortSignal): Promise<Identity> {
  const { kubeconfig } = deps.config;
  if (kubeconfig !== undefined) return kubeconfigIdentity(deps, kubeconfig, signal);
  const access = deps.outsideAccount ?? serviceAccount(deps.env);
  if (!access) throw new CodedError("invalid_argument", "--kubeconfig is not given: specify the path of a kubeconfig");
  return serviceAccountIdentity(deps, access, signal);
}

async function serviceAccountIdentity(
  deps: IdentityDeps,
  access: ServiceAccountAccess,
  signal: AbortSignal,
): Promise<Identity> {
  const { config, accountConnections, clock, log } = deps;
  await using stack = new AsyncDisposableStack();
  const ownClient = () => accountConnections?.client(clientOptions(deps)) ?? stack.use(clientFor(deps, access));
  const account = { client: ownClient(), namespace: access.namespace() };
  const { client, namespace } = account;
  const { certificateSecret: secret, sharedCertificateSecret: shared, certDir, nodeName } = config;
  const store = (name: string): PairStore => {
    const files = filePairStore(certDir, name);
    if (secret === undefined) return files;
    const keptIn = (of: string) => {
      const lastSeen = () => deps.lastSeenSecret?.(of);
      return secretPairStore({ client, namespace, secret: of, lastSeen, name: `${nodeName}.${name}` });
    };
    const onCopied = () => log.info({ name, from: shared, to: secret }, "copied the certificate to the node's Secret");
    const kept =
      shared === undefined ? keptIn(secret) : copiedFrom(keptIn(shared), keptIn(secret), clock.now, onCopied);
    return backedBySecret(files, kept, clock.now);
  };
  const asService = config.identity === "serviceAccount";
  if (!asService) await obtainCertificate(deps, client, store(storeName), signal);
  const own = stack.move();
  return {
    access: asService ? access : withClientCertificate(config, access),
    running: asService ? [] : [renewal(deps, client, store(storeName))],
    account,
    store,
    [Symbol.asyncDispose]: () => own.disposeAsync(),
  };
}

async function kubeconfigIdentity(deps: IdentityDeps, kubeconfig: string, signal: AbortSignal): Promise<Identity> {
  const { config, log } = deps;
  const { bootstrapKubeconfig, certDir } = config;
  const own = kubeconfigFile(kubeconfig);
  const store = (name: string) => filePairStore(certDir, name);
  const kept = { store, [Symbol.asyncDispose]: () => Promise.resolve() };
  const problem = problemOf(deps, own);
  if (problem && bootstrapKubeconfig === undefined) throw problem;
  if (problem && bootstrapKubeconfig !== undefined) {
    log.info({ why: messageOf(problem) }, "requesting a client certificate with --bootstrap-kubeconfig");
    const bootstrap = kubeconfigFile(bootstrapKubeconfig);
    await using client = clientFor(deps, bootstrap);
    await obtainCertificate(deps, client, store(storeName), signal);
    await writeKubeconfig(kubeconfig, withClientCertificate(config, bootstrap).read());
  }
  const pair = config.kubelet.rotateCertificates ? await keyPairOf(deps, own) : undefined;
  if (!pair) return { access: own, running: [], ...kept };
  const files = store(storeName);
  const before: PairStore = { ...files, read: async (stop) => (await files.read(stop)) ?? pair };
  const access = withClientCertificate(config, own);
  const client = clientFor(deps, access);
  return {
    access,
    running: [renewal(deps, client, before)],
    store,
    [Symbol.asyncDispose]: () => client[Symbol.asyncDispose](),
  };
}

/** Creates an API client with these credentials and the node's rate limits. */
export function clientFor(deps: IdentityDeps, access: AccessFile): ApiClient & AsyncDisposable {
  const { clock, log } = deps;
  return createApiClient({ access, clock, log, ...clientOptions(deps) });
}

function clientOptions({ config, measures: { requests: measures }, tracer }: IdentityDeps): ApiClientOptions {
  const { kubeAPIQPS: qps, kubeAPIBurst: burst } = config.kubelet;
  return { userAgent: `graftlet/${graftletVersion}`, qps, burst, measures, ...(tracer && { tracer }) };
}

/** Returns the current client certificate in PEM; undefined if the node uses other credentials. */
export function ownCertificate(access: AccessFile): string | undefined {
  try {
    const { certData, certFile } = access.read().user;
    if (certData) return Buffer.from(certData, "base64").toString();
    return certFile ? readFileSync(certFile, "utf8") : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the reason why these credentials cannot be used; undefined if they can. */
function problemOf({ clock, log }: IdentityDeps, from: AccessFile): CodedError | undefined {
  try {
    createCredentials({ from, clock, log });
    return undefined;
  } catch (error) {
    if (error instanceof CodedError) return error;
    throw error;
  }
}

async function keyPairOf({ clock, log }: IdentityDeps, from: AccessFile): Promise<KeyPair | undefined> {
  const { tls } = await createCredentials({ from, clock, log }).current();
  const pair = parsePair(`${String(tls.cert ?? "")}\n${String(tls.key ?? "")}`);
  if (!pair) log.warn({ from: from.name }, "rotateCertificates has no effect: there is no client certificate to renew");
  return pair;
}

/** Ensures that there is a client certificate in the store; requests one if necessary. */
async function obtainCertificate(
  deps: IdentityDeps,
  client: ApiClient,
  store: PairStore,
  signal: AbortSignal,
): Promise<void> {
  const certificate = await clientCertificate(deps, client, store, signal);
  const over = new AbortController();
  const running = certificate.run(AbortSignal.any([signal, over.signal]));
  try {
    await certificate.issued(signal);
  } finally {
    over.abort();
    await running;
  }
}

/** Creates the service that renews the client certificate. */
function renewal(deps: IdentityDeps, client: ApiClient, store: PairStore): Runnable {
  return {
    name: storeName,
    run: async (signal) => (await clientCertificate(deps, client, store, signal)).run(signal),
  };
}

function clientCertificate(
  { config, clock, log, measures: { certificates } }: IdentityDeps,
  client: ApiClient,
  store: PairStore,
  signal: AbortSignal,
): Promise<IssuedCertificate> {
  const subject = { commonName: `system:node:${config.nodeName}`, organization: "system:nodes", names: [] };
  const signerName = "kubernetes.io/kube-apiserver-client-kubelet";
  return createIssuedCertificate(
    {
      name: storeName,
      signerName,
      usage: "client auth",
      subject: () => subject,
      store,
      client,
      measures: certificates.client,
      clock,
      log,
    },
    signal,
  );
}

/** Returns access to the same API server with the certificate in the store, once there is one. */
function withClientCertificate({ certDir, nodeName }: NodeConfig, base: AccessFile): AccessFile {
  return withCertificate(base, `the client certificate of node ${nodeName}`, currentFile(certDir, storeName));
}
