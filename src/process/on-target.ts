import { type Claim, claimTarget } from "./claim.ts";
import { refuseMemoryRoot } from "./memory-root.ts";
import { codeOf, hasCode, ignoreNotFound, messageOf } from "../lib/errors.ts";
import type { Node } from "../objects.ts";
import type { KubeletDeps } from "../kubelet/deps.ts";
import { runKubelet } from "../kubelet/kubelet.ts";
import { lastRenewed } from "../node/lease.ts";
import type { NodeSettings } from "../node/node-agent.ts";
import { refuseOtherMachine } from "./other-machine.ts";
import { resolveNetwork } from "./pod-network.ts";
import {
  createFailureReporter,
  type FailureReporter,
  waitUntilReachable,
  waitForNextStart,
} from "../node/unreachable.ts";
import { nodeSettings } from "../kubelet/settings.ts";
import { fencedTarget } from "../seams/fenced.ts";
import { type LinkTrouble, TargetError } from "../seams/provider.ts";
import { createFailureLog } from "../lib/retry.ts";

/** Runs the node once its target is reachable and usable, until the target reboots. Errors of a remote
 *  target are reported in a condition of the Node, and retried.
 *  @returns `again` if the node should be restarted: the target has rebooted, changed or been used by another node, or it was lost while
 *  the node started. */
export async function runOnTarget(deps: Omit<KubeletDeps, "claim">, signal: AbortSignal): Promise<"stopped" | "again"> {
  const { target, clock, log } = deps;
  const { host, link } = target;
  if (!link) return runClaimed(deps, signal);
  const reporter = createReporter(deps);
  const failures = createFailureLog(log, "node cannot start on its target; retrying");
  while (true) {
    await waitUntilReachable({ host, link, reporter, clock }, signal);
    try {
      return await runClaimed(deps, signal);
    } catch (error) {
      // The lost connection may be the cause; any other cause fails again once the target is back.
      if (link.trouble() !== undefined && !signal.aborted) {
        log.warn({ err: error }, "target was lost while the node started; retrying");
        return "again";
      }
      if (!(error instanceof TargetError) || signal.aborted) throw error;
      failures.failed(error, { reason: error.reason });
      deps.report.onProgress({ trouble: error });
      await reportUnlessRunElsewhere(reporter, error, deps, signal);
      await waitForNextStart({ link, clock }, signal);
    }
  }
}

async function runClaimed(deps: Omit<KubeletDeps, "claim">, signal: AbortSignal): Promise<"stopped" | "again"> {
  await using claim = await claimNode(deps, signal);
  const target = deps.target.link ? fencedTarget(deps.target, claim, signal) : deps.target;
  deps.report.onProgress({ isClaimed: true, trouble: undefined });
  try {
    const network = await resolveNetwork({ ...deps, target }, signal);
    return await runKubelet({ ...deps, target: { ...target, ...(network && { network }) }, claim }, signal);
  } catch (error) {
    if (!claim.isLost() || signal.aborted) throw error;
    deps.log.warn({ err: error }, "lock on the target was lost while the node started; retrying");
    return "again";
  } finally {
    deps.report.onProgress({ isClaimed: false });
  }
}

/** Reserves the target for the node. @throws TargetError. */
async function claimNode(deps: Omit<KubeletDeps, "claim">, signal: AbortSignal): Promise<Claim> {
  try {
    await refuseOtherMachine(deps.target.host, deps.expectedMachine?.(), signal);
    await refuseMemoryRoot(deps, deps.config, signal);
    return await claimTarget(deps, deps.config, signal);
  } catch (error) {
    const isBroken = !(error instanceof TargetError) && hasCode(error, "unavailable", "deadline_exceeded");
    throw deps.target.link && isBroken ? unusable(error) : error;
  }
}

/** Error of a remote target that is reachable, but too slow or too broken to be used. */
function unusable(cause: unknown): TargetError {
  const message = `cannot read and lock files on the target: ${messageOf(cause)}`;
  return new TargetError("TargetUnreadable", codeOf(cause), message, { cause });
}

interface ReportDeps
  extends Pick<
    KubeletDeps,
    "config" | "client" | "readiness" | "fencingToken" | "isStillOwner" | "claimant" | "clock" | "log"
  > {
  /** Undefined if the target could not be opened. */
  readonly target?: KubeletDeps["target"];
}

/** Reports once, in the Node, why it does not run; an unregistered Node is created. Nothing is written if another graftlet runs
 *  the same node. */
export async function reportTrouble(trouble: LinkTrouble, deps: ReportDeps, signal: AbortSignal): Promise<void> {
  await reportUnlessRunElsewhere(createReporter(deps), trouble, deps, signal);
}

function createReporter(deps: ReportDeps): FailureReporter {
  const { config, target, readiness, fencingToken } = deps;
  const identity = nodeSettings(config, target);
  const reporter = createFailureReporter({ ...deps, identity, registerNode: identity.registerNode });
  return {
    report(trouble, signal) {
      // A target in use is usually held by our predecessor, which still runs the node and is about to release it. A replica must not wait
      // for that: the predecessor may be a Pod that ends only when this one is ready.
      if (trouble.reason !== "RuntimeInUse" || fencingToken) readiness.markReady(config.nodeName);
      return reporter.report(trouble, signal);
    },
  };
}

async function reportUnlessRunElsewhere(
  reporter: FailureReporter,
  trouble: LinkTrouble,
  deps: ReportDeps,
  signal: AbortSignal,
): Promise<void> {
  if (trouble.reason === "Superseded") return;
  const isInUse = trouble.reason === "RuntimeInUse" || trouble.reason === "RootDirTaken";
  const settings = nodeSettings(deps.config, deps.target);
  if (isInUse && deps.claimant && !(await isOwnNode(deps, settings, signal))) {
    // The object says it, and the process serves others.
    return deps.readiness.markReady(deps.config.nodeName);
  }
  if (trouble.reason === "RuntimeInUse" && (await isRunElsewhere(deps, settings, signal))) return;
  await reporter.report(trouble, signal);
}

/** True if the Node exists and is that of the object for which the node runs: an object of the same name in another namespace may be about to
 *  register it. */
async function isOwnNode(
  { client, log }: ReportDeps,
  { nodeName, providerID }: NodeSettings,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const node = await ignoreNotFound(client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal }));
    return node !== undefined && node.spec?.providerID === providerID;
  } catch (error) {
    if (!signal.aborted) log.warn({ err: error, code: codeOf(error) }, "cannot read the Node");
    return false;
  }
}

/** True if the node's Lease was renewed within the last half of its duration: then another graftlet runs the same node and
 *  reports its status. */
async function isRunElsewhere(
  { client, clock, log }: ReportDeps,
  { nodeName, leaseSeconds }: NodeSettings,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const renewedAt = await lastRenewed(client, nodeName, signal);
    return renewedAt !== undefined && clock.now() - renewedAt < leaseSeconds * 500;
  } catch (error) {
    if (!signal.aborted) log.warn({ err: error, code: codeOf(error) }, "cannot read the node's Lease");
    return false;
  }
}
