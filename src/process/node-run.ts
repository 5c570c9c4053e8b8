import { readFile } from "node:fs/promises";
import { heededGates } from "../config/feature-gates.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { absentApi } from "../api/absent.ts";
import type { AccessFile } from "../api/kubeconfig.ts";
import { type Approve, createApprover } from "../certificates/approver.ts";
import { filePairStore } from "../certificates/pair-store.ts";
import { type Account, type Identity, clientFor, identityOf, ownCertificate } from "./identity.ts";
import { kubeletEndpoint } from "./kubelet-address.ts";
import { createBackoff } from "../lib/backoff.ts";
import type { Clock } from "../lib/clock.ts";
import { codeOf, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createNodeMetrics } from "../metrics/node-metrics.ts";
import { ownAddresses } from "../node/own-addresses.ts";
import type { Liveness } from "../node/liveness.ts";
import type { Readiness } from "../node/readiness.ts";
import type { NodeTelling } from "../report/node.ts";
import { type Service, runGroup } from "../lib/service-group.ts";
import type { Verbosity } from "../lib/verbosity.ts";
import { visibleText } from "../lib/visible-text.ts";
import type { LastResort } from "./last-resort.ts";
import { runOnTarget, tellOf } from "./on-target.ts";
import { openTarget } from "./open-target.ts";
import type { TunnelPlaces } from "../network/places.ts";
import type { Strangers } from "../server/strangers.ts";
import { openTracer } from "../tracing/tracer.ts";
import { standsAlone } from "../kubelet/standalone.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";
import { type LinkTrouble, type ProviderFactory, type Sharing, TargetError } from "../seams/provider.ts";

export interface NodeRun {
  readonly config: NodeConfig;
  /** True for one of a list of nodes. */
  readonly several: boolean;
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly instance: string;
  /** Connections of all nodes of the process. */
  readonly strangers: Strangers;
  /** Bounds on what all nodes of the process carry between their pods and the cluster. */
  readonly places: TunnelPlaces;
  /** How much the process logs. */
  readonly verbosity: Verbosity;
  /** Told how the node uses a runtime of graftlet's own machine, and when it no longer does. */
  readonly uses: { note(nodeName: string, use: Sharing | undefined): void };
  /** Ends the node, and not the process, after an error that nothing handles. */
  readonly lastResort: Pick<LastResort, "run">;
  readonly readiness: Readiness;
  readonly liveness: Liveness;
  /** Told what the node is at. */
  readonly report: NodeTelling;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A node that failed is tried again after so long, ms; often enough for its Node to be known to live. */
const retry = { initialMs: 2_000, maxMs: 30_000 };

/** Runs a node until the signal aborts. One of a list that fails says why in its Node, where that can be made, and is tried again;
 *  a single one says so in a line on standard error.
 *  @returns whether it ended well. */
export async function runNode(run: NodeRun, signal: AbortSignal): Promise<boolean> {
  const { config, several, clock, log } = run;
  const backoff = createBackoff({ clock, ...retry });
  for (let told = ""; ; ) {
    try {
      await run.lastResort.run(config.nodeName, (stop) => runOnce(run, stop), signal);
      log.info({}, "graftlet has stopped, its pods run on");
      return true;
    } catch (error) {
      if (signal.aborted && codeOf(error) === "cancelled") return true;
      if (!several || signal.aborted) {
        process.stderr.write(`graftlet: node ${config.nodeName}: ${visibleText(textOf(error))}\n`);
        return false;
      }
      const message = messageOf(error);
      if (message !== told) log.error({ err: error }, "the node has failed, will try again");
      told = message;
    }
    const again = backoff.next(config.nodeName) * clock.jitter(0.8, 1.2);
    await clock.sleep(again, signal).catch(() => undefined);
    if (signal.aborted) return true;
  }
}

/** A sentence for what users can mend, the stack for what they cannot. */
function textOf(error: unknown): string {
  return error instanceof Error && codeOf(error) === "unknown" ? (error.stack ?? error.message) : messageOf(error);
}

async function runOnce(run: NodeRun, signal: AbortSignal): Promise<void> {
  const { config: given, several, uses } = run;
  await using stack = new AsyncDisposableStack();
  const tracer = stack.use(await openTracer(given.kubelet.tracing, { ...run, nodeName: given.nodeName }));
  const headers = tracer.isOn ? { callHeaders: tracer.headers } : {};
  const [opened] = await Promise.allSettled([openTarget({ ...run, ...headers })]);
  if (opened.status === "fulfilled") run.report.opened(stack.use(opened.value).link ?? "local");
  else if (!several) throw opened.reason;
  const { nodeName, kubelet } = given;
  const gates = heededGates(kubelet.featureGates);
  const names = {
    nodeName,
    kubeletVersion,
    graftletVersion,
    gates,
    credentialProviders: given.credentialProviders?.hash,
  };
  const metrics = createNodeMetrics({ ...run, ...names });
  const asking = { ...run, measures: metrics.measures, tracer };
  const alone = standsAlone(given, run.env);
  const identity = alone ? noIdentity(given) : stack.use(await identityOf(asking, signal));
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
    const own = { config, target, client, alone, store, metrics, tracer, readOwnFile, clientCertificate };
    const approve = account && approverOf(run, account);
    const deps = {
      ...run,
      ...own,
      ...(access && { access }),
      ...(account && { account }),
      ...(approve && { approve }),
    };
    const ended = new AbortController();
    const node: Service = {
      name: `node ${given.nodeName}`,
      async run(stop) {
        while ((await runOnTarget(deps, stop)) === "again");
        ended.abort();
      },
    };
    await runGroup([...identity.running, node], AbortSignal.any([signal, ended.signal]));
  } catch (error) {
    const target = opened.status === "fulfilled" && { target: opened.value };
    if (several && !signal.aborted) await tellOf(troubleOf(error), { ...run, ...target, client }, signal);
    throw error;
  } finally {
    uses.note(given.nodeName, undefined);
    run.report.opened(undefined);
  }
}

/** Approves the node's serving certificates with the account, unless the node itself uses the account. */
function approverOf({ config, clock, log }: NodeRun, account: Account): Approve | undefined {
  if (!config.approvesServing || config.identity !== "node") return undefined;
  const addresses = async (signal: AbortSignal) => {
    const { nodeIPs } = await kubeletEndpoint(config, { account, clock, log }, signal);
    return nodeIPs.length > 0 ? nodeIPs : ownAddresses();
  };
  return createApprover({ client: account.client, nodeName: config.nodeName, addresses, clock, log });
}

/** A standalone node has no identity. */
function noIdentity({
  certDir,
}: NodeConfig): Pick<Identity, "account" | "store" | "running"> & { access?: AccessFile } {
  return { running: [], store: (name) => filePairStore(certDir, name) };
}

function troubleOf(error: unknown): LinkTrouble {
  if (error instanceof TargetError) return error;
  return { reason: "NodeNotStarted", message: messageOf(error) };
}
