import { isOnlyAgent, lockFile, lockTarget } from "../process/claim.ts";
import type { OptionsOf } from "../config/parse-result.ts";
import { cgroupVersion, exists } from "../host/exists.ts";
import type { HeldLocks } from "../host/lock.ts";
import { type OwningObject, readOwnershipRecord } from "../host/ownership-record.ts";
import { otherOwner } from "../host/root-owner.ts";
import { type Clock, systemClock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { silentLog } from "../lib/log.ts";
import { createCsiVolumeRelease } from "./release-csi-volumes.ts";
import { createIscsiUnstaging } from "./unstage-iscsi.ts";
import { refuseOtherAgent } from "../process/other-agent.ts";
import { refuseOtherMachine } from "../process/other-machine.ts";
import { managerFiles } from "../kubelet/resource-managers.ts";
import { logLinksDirectory, makesIptablesChains, staticSources } from "../kubelet/settings.ts";
import { ownedIptablesChains } from "../node/iptables-chains.ts";
import { ownedTunnelResources } from "../service-tunnel/rules.ts";
import { openTarget } from "../process/open-target.ts";
import { type CgroupLayout, cgroupBelow, qosCgroup } from "../pod/cgroup-path.ts";
import { execute, type RemovalOutcome } from "../remove/execute.ts";
import { previewLine, type RemovalPlan, removalPlan, itemsOf } from "../remove/plan.ts";
import { survey } from "../remove/survey.ts";
import { openCgroupsOf } from "../cgroups/cgroup-driver.ts";
import { createCgroupLayout } from "../cgroups/cgroup-layout.ts";
import { fencedTarget } from "../seams/fenced.ts";
import { type Target, TargetError } from "../seams/provider.ts";
import { type CommandContext, confirm, type Terminal } from "./terminal.ts";
import { ownDirectory } from "../host/layout.ts";

export interface RemovalOptions extends OptionsOf<"remove">, Omit<CommandContext, "env"> {
  /** Set by `graftlet leave`, which has deleted the node's pods already, and deletes the Node afterwards: caps the grace period of containers. */
  readonly leaving?: {
    readonly longestGraceSeconds: number;
    /** ID of the only machine that may be cleaned; undefined if the node has never run on a machine. */
    readonly expectedMachine?: string | undefined;
    /** The object that leaves: the root directory of another one is not cleaned. */
    readonly object?: OwningObject;
  };
}

/** Removes everything that a node created on its target, and nothing else: lists it, asks for confirmation, removes it, and reports. Idempotent.
 *  @returns true if nothing of the node is left.
 *  @throws CodedError, one sentence, if the target cannot be read, or an agent is using it: then nothing is removed. */
export async function runRemoval({ providers, signal, ...options }: RemovalOptions): Promise<boolean> {
  const clock = systemClock();
  await using target = await openTarget({ config: options.node, providers, clock, log: silentLog() });
  return await removeFrom({ ...options, target, clock }, signal);
}

export interface RemovalDeps extends Pick<RemovalOptions, "node" | "yes" | "terminal" | "leaving"> {
  readonly target: Target;
  readonly clock: Clock;
}

/** Removes everything that a node created on an open target, as `runRemoval` does. */
export async function removeFrom(deps: RemovalDeps, signal: AbortSignal): Promise<boolean> {
  const { yes, terminal, clock } = deps;
  const node = { ...deps.node, rootDir: deps.target.rootDir ?? deps.node.rootDir };
  await refuseOtherMachine(deps.target.host, deps.leaving?.expectedMachine, signal);
  const isOnly = await isOnlyAgent({ target: deps.target, clock }, signal);
  await using held = await lockForRemoval(deps, node.rootDir, signal);
  await refuseOtherObject(deps, node, signal);
  const target = fencedTarget(deps.target, held, signal);
  const { host, runtime } = target;
  const version = await cgroupVersion(host.fs, signal);
  const layout = await createCgroupLayout({ ...target, kubelet: node.kubelet, clock, log: silentLog() })(signal);
  await using cgroups = await openCgroupsOf({ ...layout, version }, { host, clock }, signal);
  const ownedResources = async (until: AbortSignal) => [
    ...((await runtime.ownedResources?.(until)) ?? []),
    ...(target.link ? await ownedTunnelResources(host, node.rootDir, until) : []),
    // Other nodes use the same chains.
    ...(isOnly && makesIptablesChains(node, target) ? await ownedIptablesChains(host, until) : []),
  ];
  const findings = await survey(
    {
      ...target,
      runtime: { ...runtime, ownedResources },
      nodeName: node.nodeName,
      rootDir: node.rootDir,
      podLogsDir: node.kubelet.podLogsDir,
      staticPods: staticSources(node).length > 0,
      managerFiles,
      logLinksDir: logLinksDirectory,
      qosCgroups: qosCgroupPaths(layout),
      podCgroup: (tier, uid) => cgroupBelow(tier, `pod${uid}`, layout.driver),
      childCgroups: cgroups.children,
    },
    signal,
  );
  // Other nodes use the same QoS cgroups.
  const plan = removalPlan(isOnly ? findings : { ...findings, qosCgroups: [] });
  printPlan(terminal, node.nodeName, plan, findings.unowned);
  if (itemsOf(plan).length > 0) {
    if (!yes && !(await confirm(terminal, "Remove these?", ["removed", "remove"], signal))) return false;
    const maxGraceSeconds = deps.leaving?.longestGraceSeconds ?? Number.POSITIVE_INFINITY;
    const drivers = createCsiVolumeRelease({ host, clock, rootDir: node.rootDir });
    const unstageIscsiDisk = createIscsiUnstaging({ host, clock, rootDir: node.rootDir });
    const acting = { host, runtime, cgroups, drivers, unstageIscsiDisk, maxGraceSeconds, say: terminal.print };
    const outcome = await execute(acting, plan, signal);
    if (!printOutcome(terminal, outcome)) return false;
  }
  if (!deps.leaving) terminal.print(`if the Node object is still in the cluster: kubectl delete node ${node.nodeName}`);
  return true;
}

/** Refuses to clean a root directory that another object has taken since. @throws failed_precondition, one sentence. */
async function refuseOtherObject(
  { leaving, target }: RemovalDeps,
  { nodeName, rootDir }: Pick<RemovalOptions["node"], "nodeName" | "rootDir">,
  signal: AbortSignal,
): Promise<void> {
  if (!leaving?.object) return;
  const claimant = { object: leaving.object, takesOver: () => undefined };
  const owner = otherOwner(await readOwnershipRecord(target.host.fs, rootDir, signal), { nodeName, claimant });
  if (!owner || owner.isNamesake) return;
  throw new CodedError(
    "failed_precondition",
    `nothing was removed: the root directory ${JSON.stringify(rootDir)} belongs to ${owner.who}`,
  );
}

/** Locks the target during the removal. @throws TargetError, one sentence. */
async function lockForRemoval(
  { target, clock }: RemovalDeps,
  rootDir: string,
  signal: AbortSignal,
): Promise<HeldLocks> {
  const isThere = await exists(target.host.fs, ownDirectory(rootDir), signal);
  const own = isThere ? [{ path: lockFile(rootDir) }] : [];
  try {
    const held = await lockTarget({ target, clock, log: silentLog() }, rootDir, own, signal);
    try {
      await refuseOtherAgent({ ...target, clock }, signal);
      return held;
    } catch (error) {
      await held[Symbol.asyncDispose]();
      throw error;
    }
  } catch (error) {
    if (!(error instanceof TargetError)) throw error;
    throw new TargetError(error.reason, error.code, `nothing was removed: ${error.message}`, { cause: error });
  }
}

/** QoS cgroups that graftlet creates, the deepest first; none if pods have no QoS cgroups. */
function qosCgroupPaths(layout: CgroupLayout): readonly string[] {
  if (!layout.perQos) return [];
  return (["BestEffort", "Burstable", "Guaranteed"] as const).map((qos) => qosCgroup(qos, layout));
}

function printPlan({ print }: Terminal, nodeName: string, plan: RemovalPlan, unowned: readonly string[]): void {
  const things = itemsOf(plan);
  print(things.length === 0 ? `nothing of node ${nodeName} is left` : `found on the machine of node ${nodeName}:`);
  for (const thing of things) print(`  ${previewLine(thing)}`);
  for (const stranger of unowned) print(`not touched: ${stranger}`);
  if (things.length > 0) print("not touched: images, and files that pods wrote to hostPath volumes");
}

/** @returns true if nothing failed. */
function printOutcome({ print }: Terminal, outcome: RemovalOutcome): boolean {
  for (const line of outcome.notReleased) print(`unmounted, but not released by the CSI driver: ${line}`);
  for (const line of outcome.remaining) print(`left: ${line}`);
  for (const line of outcome.failures) print(`cannot remove ${line}`);
  for (const line of outcome.skipped) print(`kept because of a failure: ${line}`);
  if (outcome.failures.length === 0) return true;
  print("fix the problems above, and run this again");
  return false;
}
