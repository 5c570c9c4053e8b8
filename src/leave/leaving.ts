import type { Clock } from "../lib/clock.ts";
import { CodedError, codeOf, hasCode, messageOf, throwIfAborted, unlessGone } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import { TargetError } from "../seams/provider.ts";
import { type DeploymentName, stopDeployment } from "./deployment.ts";
import { type LeavingClient, retryingClient } from "./retrying-client.ts";
import { endPods, forgetPods, type PodsDeps } from "./pods.ts";

export interface LeavingDeps {
  /** A client that may cordon and delete the nodes, list and delete their pods, and scale the Deployment. */
  readonly client: LeavingClient;
  readonly clock: Clock;
  readonly nodes: readonly string[];
  /** The Deployment that graftlet runs in; undefined when another party stops it. */
  readonly deployment: DeploymentName | undefined;
  /** Time for pods to terminate, and again for graftlet to stop and release its targets. */
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
  /** Removes everything that the node created on its target, and reports it.
   *  @returns true when nothing of it is left.
   *  @throws TargetError RuntimeInUse while another agent works there; CodedError unavailable when it is out of reach. */
  clean(nodeName: string, signal: AbortSignal): Promise<boolean>;
}

/** Interval of tries on a target that is in use or out of reach, milliseconds. */
const againMs = 2_000;
/** Longest time that a target may be out of reach, milliseconds. */
const reachMs = 30_000;

/** Removes nodes from the cluster in order: cordons them, has graftlet terminate their pods, stops graftlet, cleans the targets,
 *  deletes the Node objects. Safe to repeat after an interruption at any step. A failed node is named and stays as it is; the
 *  others go on.
 *  @returns the nodes that have not left. */
export async function leave(given: LeavingDeps, signal: AbortSignal): Promise<readonly string[]> {
  const { nodes, deployment, say } = given;
  const deps = { ...given, client: retryingClient(given.client, given.clock, say) };
  const failed = new Set<string>();
  const each = async (step: (nodeName: string) => Promise<void>) =>
    void (await Promise.all(
      nodes
        .filter((nodeName) => !failed.has(nodeName))
        .map((nodeName) =>
          step(nodeName).catch((error: unknown) => {
            throwIfAborted(signal);
            failed.add(nodeName);
            say(`node ${nodeName} has not left: ${reasonOf(error)}`);
          }),
        ),
    ));
  // All nodes first, so that pods do not move from one to another.
  await each((nodeName) => cordon(deps, nodeName, signal));
  await each((nodeName) => endPods(podsDeps(deps, nodeName), signal));
  if (failed.size === nodes.length) return nodes;
  if (deployment) {
    try {
      await stopDeployment({ ...deps, deployment }, signal);
    } catch (error) {
      throwIfAborted(signal);
      say(`Deployment ${deployment.namespace}/${deployment.name} cannot be ended: ${reasonOf(error)}`);
      return nodes;
    }
  }
  await each((nodeName) => depart(deps, nodeName, signal));
  return nodes.filter((nodeName) => failed.has(nodeName));
}

async function cordon(deps: LeavingDeps, nodeName: string, signal: AbortSignal): Promise<void> {
  const { say } = podsDeps(deps, nodeName);
  const cordoning = { type: "merge", body: { spec: { unschedulable: true } } } as const;
  const node = await unlessGone(deps.client.patch(pathOf(nodeName), cordoning, { signal }));
  say(node === undefined ? "it is not in the cluster any more" : "it takes no new pods (cordoned)");
}

/** The Node is deleted only when its target is clean: the cluster then starts its pods elsewhere. */
async function depart(deps: LeavingDeps, nodeName: string, signal: AbortSignal): Promise<void> {
  const pods = podsDeps(deps, nodeName);
  if (!(await cleanOnceFree(deps, nodeName, pods.say, signal)))
    throw new CodedError(
      "failed_precondition",
      "its target is not clean, as said above; its Node stays, since its pods may still run",
    );
  await releaseVolumes(deps, nodeName, signal);
  await unlessGone(deps.client.delete(pathOf(nodeName), undefined, { signal }));
  await forgetPods(pods, signal);
  pods.say("it has left: its target is clean, its Node is deleted");
}

/** Tells the cluster that no volume is mounted there any more: else it waits for six minutes before it detaches what was. */
async function releaseVolumes({ client }: LeavingDeps, nodeName: string, signal: AbortSignal): Promise<void> {
  const patch = { type: "merge", body: { status: { volumesInUse: null } } } as const;
  await unlessGone(client.patch(`${pathOf(nodeName)}/status`, patch, { signal }));
}

/** Cleans the target once graftlet has released it. */
async function cleanOnceFree(
  { clock, timeoutMs, deployment, clean }: LeavingDeps,
  nodeName: string,
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const startedAt = clock.monotonic();
  for (let told = false; ; told = true) {
    try {
      return await clean(nodeName, signal);
    } catch (error) {
      throwIfAborted(signal);
      const inUse = error instanceof TargetError && error.reason === "RuntimeInUse";
      const patience = inUse ? timeoutMs : hasCode(error, "unavailable") ? Math.min(reachMs, timeoutMs) : 0;
      if (clock.monotonic() - startedAt >= patience) {
        say(messageOf(error));
        return false;
      }
      const wanted = inUse && !deployment ? "stop graftlet of this node now: it is waited for" : "it is tried again";
      if (!told) say(`${messageOf(error).replace(/\.$/, "")}; ${wanted}, for ${goDuration(patience)} at most`);
    }
    await clock.sleep(againMs, signal);
  }
}

function podsDeps(deps: LeavingDeps, nodeName: string): PodsDeps {
  return { ...deps, nodeName, say: (line) => deps.say(`node ${nodeName}: ${line}`) };
}

function pathOf(nodeName: string): string {
  return `/api/v1/nodes/${nodeName}`;
}

function reasonOf(error: unknown): string {
  const text = messageOf(error);
  return codeOf(error) === "permission_denied" ? `${text}; use an account that may` : text;
}
