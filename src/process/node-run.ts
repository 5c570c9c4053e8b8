import { readFile } from "node:fs/promises";
import { implementedGates } from "../config/feature-gates.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { absentApi } from "../api/absent.ts";
import type { AccessFile } from "../api/kubeconfig.ts";
import type { ServiceAccountAccess } from "../api/service-account.ts";
import { type Approve, createApprover } from "../certificates/approver.ts";
import { filePairStore } from "../certificates/pair-store.ts";
import { type Account, type Identity, clientFor, obtainIdentity, ownCertificate } from "./identity.ts";
import { kubeletEndpoint } from "./kubelet-address.ts";
import { createBackoff } from "../lib/backoff.ts";
import { codeOf, messageOf } from "../lib/errors.ts";
import type { KubeletDeps, ProcessParts } from "../kubelet/deps.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createNodeMetrics } from "../metrics/node-metrics.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import { visibleText } from "../lib/visible-text.ts";
import type { UnhandledErrorHandler } from "./unhandled-errors.ts";
import { runOnTarget, reportTrouble } from "./on-target.ts";
import { openTarget } from "./open-target.ts";
import { openTracer } from "../tracing/tracer.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";
import { type LinkTrouble, type ProviderFactory, type Sharing, TargetError } from "../seams/provider.ts";
import { createFailureLog } from "../lib/retry.ts";
import { staticSources } from "../kubelet/settings.ts";
import type { ApiClient, ApiConnections } from "../api/client.ts";
import { createEventCorrelator } from "../api/event-correlator.ts";
import type { Secret } from "../objects.ts";
import { writeEvent } from "../api/events.ts";
import { ownAddresses } from "../node/own-name.ts";
import { nodeReference } from "../pod/reference.ts";

export interface NodeRun
  extends ProcessParts,
    ClockAndLog,
    Pick<
      KubeletDeps,
      "config" | "report" | "configuredMetadata" | "expectedMachine" | "fencingToken" | "isStillOwner" | "claimant"
    > {
  /** True if the process runs several nodes. */
  readonly several: boolean;
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The account of a replica outside the cluster. */
  readonly outsideAccount?: ServiceAccountAccess | undefined;
  /** The service account's connections to the API server, if the nodes of the process share them. */
  readonly accountConnections?: Pick<ApiConnections, "client"> | undefined;
  /** The Secret of that name in the account's namespace as last seen, if the process watches them. */
  readonly lastSeenSecret?: ((name: string) => Secret | undefined) | undefined;
  /** Records how the node uses a runtime on graftlet's own machine; undefined if it no longer does. */
  readonly uses: { note(nodeName: string, use: Sharing | undefined): void };
  /** Stops the node instead of the process after an unhandled error. */
  readonly unhandledErrors: Pick<UnhandledErrorHandler, "run">;
}

/** Retry delays of a failed node, milliseconds; short enough to keep its Node's Lease alive. */
const retryBackoff = { initialMs: 2_000, maxMs: 30_000 };

/** Runs a node until the signal aborts. If the process runs several nodes, the error of a failed one is reported in its Node, if
 *  possible, and the node is retried; the error of a single node is printed on standard error.
 *  @returns false if the node failed. */
export async function runNode(run: NodeRun, signal: AbortSignal): Promise<boolean> {
  const { config, several, clock, log } = run;
  const backoff = createBackoff({ clock, ...retryBackoff });
  const failures = createFailureLog(log, "node failed; retrying", "error");
  const setupFailures = createSetupFailures({ nodeName: config.nodeName, clock, log });
  while (true) {
    try {
      await run.unhandledErrors.run(config.nodeName, (stop) => runOnce(run, setupFailures, stop), signal);
      log.info({}, "graftlet has stopped; its pods keep running");
      return true;
    } catch (error) {
      if (signal.aborted && codeOf(error) === "cancelled") return true;
      if (!several || signal.aborted) {
        process.stderr.write(`graftlet: node ${config.nodeName}: ${visibleText(errorText(error))}\n`);
        return false;
      }
      failures.failed(error);
      run.report.onProgress({ trouble: troubleOf(error) });
    }
    const again = backoff.next(config.nodeName) * clock.jitter(0.8, 1.2);
    await clock.sleep(again, signal).catch(() => undefined);
    if (signal.aborted) return true;
  }
}

/** Returns the message of an error that users can fix, and the stack of any other error. */
function errorText(error: unknown): string {
  return error instanceof Error && codeOf(error) === "unknown" ? (error.stack ?? error.message) : messageOf(error);
}

async function runOnce(run: NodeRun, setupFailures: SetupFailures, signal: AbortSignal): Promise<void> {
  const { config: given, several, uses } = run;
  await using stack = new AsyncDisposableStack();
  const tracer = stack.use(await openTracer(given.kubelet.tracing, { ...run, nodeName: given.nodeName }));
  const headers = tracer.isOn ? { callHeaders: tracer.headers } : {};
  const [opened] = await Promise.allSettled([openTarget({ ...run, ...headers })]);
  if (opened.status === "fulfilled") run.report.onTargetOpened(stack.use(opened.value).link ?? "local");
  else if (!several) throw opened.reason;
  const { nodeName, kubelet } = given;
  const gates = implementedGates(kubelet.featureGates);
  const names = {
    nodeName,
    kubeletVersion,
    graftletVersion,
    gates,
    credentialProviders: given.credentialProviders?.hash,
  };
  const metrics = createNodeMetrics({ ...run, ...names });
  const asking = { ...run, measures: metrics.measures, tracer };
  const standalone = !run.outsideAccount && isStandalone(given, run.env);
  const identity = standalone ? standaloneIdentity(given) : stack.use(await obtainIdentity(asking, signal));
  run.report.onProgress({ isIdentified: true });
  const { access, account, store } = identity;
  const client = stack.use(access ? clientFor(asking, access) : absentApi());
  try {
    if (opened.status === "rejected") throw opened.reason;
    const target = opened.value;
    uses.note(given.nodeName, target.link ? undefined : target.sharing);
    const { nodeIPs, port } = await kubeletEndpoint(given, { ...run, account }, signal);
    const config: NodeConfig = { ...given, nodeIPs, advertisedPort: port, rootDir: target.rootDir ?? given.rootDir };
    const clientCertificate = () => access && ownCertificate(access);
    const readOwnFile = (path: string) => readFile(path, "utf8");
    const own = { config, target, client, standalone, store, metrics, tracer, readOwnFile, clientCertificate };
    const approve = account && approverOf(run, account);
    const deps = {
      ...run,
      ...own,
      ...(access && { access }),
      ...(account && { account }),
      ...(approve && { approve }),
    };
    const ended = new AbortController();
    const node: Runnable = {
      name: `node ${given.nodeName}`,
      async run(stop) {
        while ((await runOnTarget(deps, stop)) === "again");
        ended.abort();
      },
    };
    await runGroup([...identity.running, node], AbortSignal.any([signal, ended.signal]));
  } catch (error) {
    const target = opened.status === "fulfilled" && { target: opened.value };
    await setupFailures.record({ client, standalone, error }, signal);
    if (several && !signal.aborted) await reportTrouble(troubleOf(error), { ...run, ...target, client }, signal);
    throw error;
  } finally {
    uses.note(given.nodeName, undefined);
    run.report.onTargetOpened(undefined);
  }
}

/** Creates the approver of the node's serving certificates, with the service account, unless the node itself uses that account. */
function approverOf({ config, clock, log }: NodeRun, account: Account): Approve | undefined {
  if (!config.approvesServing || config.identity !== "node") return undefined;
  const addresses = async (signal: AbortSignal) => {
    const { nodeIPs } = await kubeletEndpoint(config, { account, clock, log }, signal);
    return nodeIPs.length > 0 ? nodeIPs : ownAddresses();
  };
  const { nodeName, servingSigner: signer } = config;
  return createApprover({ client: account.client, nodeName, signer, addresses, clock, log });
}

/** Returns the identity of a standalone node, which has no credentials for an API server. */
function standaloneIdentity({
  certDir,
}: NodeConfig): Pick<Identity, "account" | "store" | "running"> & { access?: AccessFile } {
  return { running: [], store: (name) => filePairStore(certDir, name) };
}

function troubleOf(error: unknown): LinkTrouble {
  if (error instanceof TargetError) return error;
  return { reason: "NodeNotStarted", message: messageOf(error) };
}

/** True for a standalone node: it has static pods, no kubeconfig, and no Pod's service account.
 *  @see https://kubernetes.io/docs/tutorials/cluster-management/kubelet-standalone/ */
export function isStandalone(
  config: Pick<NodeConfig, "kubeconfig" | "bootstrapKubeconfig" | "kubelet">,
  env: Readonly<Record<string, string | undefined>>,
): boolean {
  const hasCredentials = config.kubeconfig || config.bootstrapKubeconfig || env["KUBERNETES_SERVICE_HOST"];
  return !hasCredentials && staticSources(config).length > 0;
}

interface SetupFailure {
  readonly client: Pick<ApiClient, "create" | "patch">;
  /** True if there is no API server. */
  readonly standalone: boolean;
  readonly error: unknown;
}

/** Events of a node that cannot run. */
type SetupFailures = ReturnType<typeof createSetupFailures>;

/** Maximum wait for the API server, milliseconds. It is short, as the process may be about to exit. */
const timeoutMs = 5_000;

export function createSetupFailures({ nodeName, clock, log }: ClockAndLog & { readonly nodeName: string }) {
  const correlator = createEventCorrelator(clock);
  const about = nodeReference(nodeName);
  return {
    /** Writes the kubelet's event `KubeletSetupFailed` about the Node. A repeated message increments the count of one event. An
     *  API server that does not respond delays the caller by a few seconds at most. */
    async record({ client, standalone, error: cause }: SetupFailure, signal: AbortSignal) {
      if (standalone || signal.aborted) return;
      const message = messageOf(cause);
      const event = correlator.observe({ about, type: "Warning", reason: "KubeletSetupFailed", message });
      if (!event) return;
      const reporter = { component: "kubelet", host: nodeName };
      try {
        await writeEvent(client, reporter, event, clock.within(timeoutMs, signal));
      } catch (error) {
        log.debug({ err: error, code: codeOf(error), reason: event.reason }, "cannot record event");
      }
    },
  };
}
