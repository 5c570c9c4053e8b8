import type { NodeConfig } from "./config/node-config.ts";
import { type Clock, systemClock } from "./lib/clock.ts";
import { CodedError, codeOf, messageOf } from "./lib/errors.ts";
import { type Logger, createLogger } from "./lib/log.ts";
import { type KubeletDeps, runKubelet } from "./kubelet.ts";
import { claimTarget } from "./claim.ts";
import { kubeletAddresses } from "./kubelet-address.ts";
import { clientFor, identityOf } from "./identity.ts";
import { type Service, runGroup } from "./lib/service-group.ts";
import type { NodeSettings } from "./node/node-agent.ts";
import { containerLogLimits, nodeSettings } from "./node-setup.ts";
import { lastRenewed } from "./node/lease.ts";
import { createTroubleTeller, untilReachable, untilWorthATry } from "./node/unreachable.ts";
import { type ProviderFactory, TargetError } from "./seams/provider.ts";
import { graftletVersion, kubeletVersion } from "./version.ts";

export interface RunNodesOptions {
  readonly nodes: readonly NodeConfig[];
  readonly verbosity: number;
  readonly warnings: readonly string[];
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  /** Of the process: says where the API server is in a Pod. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** Runs nodes side by side until the signal aborts. A node that fails does not end the others.
 *  @returns false when a node failed, each told by one line on standard error. */
export async function runNodes(options: RunNodesOptions): Promise<boolean> {
  const { nodes, verbosity, warnings } = options;
  const clock = systemClock();
  const log = createLogger(verbosity);
  log.info(
    { version: graftletVersion, kubelet: kubeletVersion, nodes: nodes.map(({ nodeName }) => nodeName) },
    "graftlet starts",
  );
  for (const warning of warnings) log.warn({}, warning);
  const ends = await Promise.all(
    nodes.map((config) =>
      runNode({ ...options, config, clock, log: nodes.length > 1 ? log.child({ node: config.nodeName }) : log }),
    ),
  );
  return !ends.includes(false);
}

interface NodeRun extends Pick<RunNodesOptions, "providers" | "env" | "signal"> {
  readonly config: NodeConfig;
  readonly clock: Clock;
  readonly log: Logger;
}

async function runNode({ config: given, providers, env, clock, log, signal }: NodeRun): Promise<boolean> {
  const { kubelet, nodeName } = given;
  try {
    const provider = providers[given.provider];
    if (!provider)
      throw new CodedError(
        "invalid_argument",
        `--provider ${JSON.stringify(given.provider)} is not known: use one of ${Object.keys(providers).join(", ")}`,
      );
    await using target = await provider({
      config: given.providerConfig,
      containerRuntimeEndpoint: kubelet.containerRuntimeEndpoint,
      imageServiceEndpoint: kubelet.imageServiceEndpoint,
      requestTimeoutMs: kubelet.runtimeRequestTimeout,
      containerLogs: containerLogLimits(given),
      nodeName,
      clock,
      log,
    });
    await using identity = await identityOf({ config: given, env, clock, log }, signal);
    await using client = clientFor({ config: given, env, clock, log }, identity.access);
    const { account, store } = identity;
    const nodeIPs = await kubeletAddresses(given, { account, clock, log }, signal);
    const config: NodeConfig = { ...given, nodeIPs, rootDir: target.rootDir ?? given.rootDir };
    const ended = new AbortController();
    const node: Service = {
      name: `node ${nodeName}`,
      async run(stop) {
        const deps = { config, target, client, ...(account && { account }), store, clock, log };
        while ((await runOnTarget(deps, stop)) === "again");
        ended.abort();
      },
    };
    await runGroup([...identity.running, node], AbortSignal.any([signal, ended.signal]));
    log.info({}, "graftlet has stopped, its pods run on");
    return true;
  } catch (error) {
    if (signal.aborted && codeOf(error) === "cancelled") return true;
    const prefix = `graftlet: node ${nodeName}: `;
    process.stderr.write(
      `${prefix}${error instanceof Error && codeOf(error) === "unknown" ? (error.stack ?? error.message) : messageOf(error)}\n`,
    );
    return false;
  }
}

/** Runs the node on its target once that can be reached and worked on, for as long as the target lives. What is wrong with a
 *  target on another machine is its Node's condition, and tried again.
 *  @returns `again` when it should be run anew: the target has booted, is another's or not as it was, or was lost while the
 *  node started. */
export async function runOnTarget(deps: Omit<KubeletDeps, "claim">, signal: AbortSignal): Promise<"stopped" | "again"> {
  const { config, target, client, clock, log } = deps;
  const { host, link } = target;
  if (!link) return runClaimed(deps, signal);
  const identity = nodeSettings(config);
  const { registerNode } = identity;
  const teller = createTroubleTeller({ client, identity, registerNode, clock, log });
  for (let told = ""; ; ) {
    await untilReachable({ host, link, teller, clock }, signal);
    try {
      return await runClaimed(deps, signal);
    } catch (error) {
      // Whatever failed may have failed for that; what did not fails again once the target is back.
      if (link.trouble() !== undefined && !signal.aborted) {
        log.warn({ err: error }, "the target was lost while its node started, will try again");
        return "again";
      }
      if (!(error instanceof TargetError) || signal.aborted) throw error;
      if (error.message !== told)
        log.warn({ err: error, reason: error.reason }, "the node cannot start on its target, will try again");
      told = error.message;
      if (!(error.reason === "RuntimeInUse" && (await isKept(deps, identity, signal))))
        await teller.tell(error, signal);
      await untilWorthATry({ link, clock }, signal);
    }
  }
}

async function runClaimed(deps: Omit<KubeletDeps, "claim">, signal: AbortSignal): Promise<"stopped" | "again"> {
  await using claim = await claimTarget(deps, deps.config, signal);
  return await runKubelet({ ...deps, claim }, signal);
}

/** Whether somebody has renewed the node's Lease in the last half of its time: then another graftlet keeps this very node, and
 *  says of it what is to be said. */
async function isKept(
  { client, clock, log }: Omit<KubeletDeps, "claim">,
  { nodeName, leaseSeconds }: NodeSettings,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const renewedAt = await lastRenewed(client, nodeName, signal);
    return renewedAt !== undefined && clock.now() - renewedAt < leaseSeconds * 500;
  } catch (error) {
    if (!signal.aborted) log.warn({ err: error, code: codeOf(error) }, "the node's lease could not be read");
    return false;
  }
}
