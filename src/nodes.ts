import { createApiClient } from "./api/client.ts";
import type { NodeConfig } from "./config/node-config.ts";
import { type Clock, systemClock } from "./lib/clock.ts";
import { CodedError, codeOf, messageOf } from "./lib/errors.ts";
import { type Logger, createLogger } from "./lib/log.ts";
import { type KubeletDeps, runKubelet } from "./kubelet.ts";
import { type Claim, claimTarget } from "./claim.ts";
import { containerLogLimits, nodeSettings } from "./node-setup.ts";
import { RuntimeInUse } from "./neighbour.ts";
import { lastRenewed } from "./node/lease.ts";
import { tell, untilReachable } from "./node/unreachable.ts";
import type { ProviderFactory } from "./seams/provider.ts";
import { graftletVersion, kubeletVersion } from "./version.ts";

export interface RunNodesOptions {
  readonly nodes: readonly NodeConfig[];
  readonly verbosity: number;
  readonly warnings: readonly string[];
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  readonly signal: AbortSignal;
}

/** Runs nodes side by side until the signal aborts. A node that fails does not end the others.
 *  @returns false when a node failed, each told by one line on standard error. */
export async function runNodes({ nodes, verbosity, warnings, providers, signal }: RunNodesOptions): Promise<boolean> {
  const clock = systemClock();
  const log = createLogger(verbosity);
  log.info(
    { version: graftletVersion, kubelet: kubeletVersion, nodes: nodes.map(({ nodeName }) => nodeName) },
    "graftlet starts",
  );
  for (const warning of warnings) log.warn({}, warning);
  const ends = await Promise.all(
    nodes.map((config) =>
      runNode({ config, providers, clock, log: nodes.length > 1 ? log.child({ node: config.nodeName }) : log, signal }),
    ),
  );
  return !ends.includes(false);
}

interface NodeRun {
  readonly config: NodeConfig;
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

async function runNode({ config: given, providers, clock, log, signal }: NodeRun): Promise<boolean> {
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
    const config: NodeConfig = { ...given, rootDir: target.rootDir ?? given.rootDir };
    const { kubeconfig } = config;
    if (kubeconfig === undefined)
      throw new CodedError(
        "invalid_argument",
        "--kubeconfig is not given: graftlet needs the path of a kubeconfig, also where it runs in a Pod",
      );
    await using client = createApiClient({
      kubeconfig,
      clock,
      log,
      userAgent: `graftlet/${graftletVersion}`,
      qps: kubelet.kubeAPIQPS,
      burst: kubelet.kubeAPIBurst,
    });
    const deps = { config, target, client, clock, log };
    let end = await runOnTarget(deps, "refuse", signal);
    while (end === "again") end = await runOnTarget(deps, "wait", signal);
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

/** Runs the node on its target once that can be reached, for as long as it stays what it is.
 *  @param whenInUse what to do when somebody else works on the target: a node that has worked there waits.
 *  @returns `again` when it should be run anew: the target has booted or is another's, or was lost while the node started.
 *  @throws RuntimeInUse where a node that starts is refused. */
export async function runOnTarget(
  deps: Omit<KubeletDeps, "claim">,
  whenInUse: "refuse" | "wait",
  signal: AbortSignal,
): Promise<"stopped" | "again"> {
  const { config, target, client, clock, log } = deps;
  const { host, link } = target;
  if (link) {
    const identity = nodeSettings(config);
    const { registerNode } = identity;
    await untilReachable({ host, link, client, identity, registerNode, clock, log }, signal);
  }
  try {
    await using claim = await (whenInUse === "wait" ? untilClaimed(deps, signal) : claimTarget(deps, config, signal));
    return await runKubelet({ ...deps, claim }, signal);
  } catch (error) {
    // Whatever failed may have failed for that; what did not fails again once the target is back.
    if (link?.trouble() === undefined || signal.aborted) throw error;
    log.warn({ err: error }, "the target was lost while its node started, will try again");
    return "again";
  }
}

/** How often a target that is somebody else's is asked for, milliseconds. */
const claimEveryMs = 10_000;

/** Waits until the target is this node's again. Meanwhile its Node says whose it is, unless somebody renews the Lease: then another
 *  graftlet keeps this very node. */
async function untilClaimed(deps: Omit<KubeletDeps, "claim">, signal: AbortSignal): Promise<Claim> {
  const { config, client, clock, log } = deps;
  const identity = nodeSettings(config);
  const { registerNode, leaseSeconds, nodeName } = identity;
  // Longer than from one renewal to the next.
  const everyMs = Math.max(claimEveryMs, (leaseSeconds * 1000) / 3);
  let before: string | undefined;
  let told = "";
  for (;;) {
    try {
      return await claimTarget(deps, config, signal);
    } catch (error) {
      if (!(error instanceof RuntimeInUse)) throw error;
      if (told !== error.message) log.warn({ err: error }, "the target is another's now: its node waits");
      told = error.message;
      const trouble = { reason: "RuntimeInUse", message: error.message };
      try {
        const renewed = await lastRenewed(client, nodeName, signal);
        if (before === (renewed ?? "none")) await tell({ client, clock, identity, registerNode }, trouble, signal);
        before = renewed ?? "none";
      } catch (failure) {
        log.warn({ err: failure, code: codeOf(failure) }, "node status was not written, will retry");
      }
    }
    await clock.sleep(everyMs, signal);
  }
}
