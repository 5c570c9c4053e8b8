import type { ApiClient } from "../api/client.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { type LeaveClient, leave, nodePath } from "../leave/leave.ts";
import type { OwningObject } from "../host/ownership-record.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreNotFound, messageOf, throwIfAborted } from "../lib/errors.ts";
import { parseDuration } from "../lib/go-duration.ts";
import type { Node } from "../objects.ts";
import { expectedMachine, forceLeaveAnnotation, type GraftedNode, owningObject } from "./grafted-node.ts";

export interface LeavingDeps {
  readonly clock: Clock;
  /** Graftlet's own account, which may delete the nodes of the fleet. */
  readonly client: Pick<ApiClient, "get" | "delete">;
  /** Runs work with the node's own client, which may cordon the node and delete its pods. @throws CodedError if the node has no
   *  certificate and cannot get one. */
  withNodeClient<T>(config: NodeConfig, work: (client: LeaveClient) => Promise<T>, signal: AbortSignal): Promise<T>;
  /** Removes what the node created on its machine. @returns true if nothing is left.
   *  @throws TargetError, CodedError like `graftlet remove`. */
  clean(config: NodeConfig, cleaning: Cleaning, signal: AbortSignal): Promise<boolean>;
}

/** Limits of a clean-up, and where it reports. */
export interface Cleaning {
  /** Longest grace period of a container, milliseconds. */
  readonly graceMs: number;
  /** ID of the only machine that may be cleaned; undefined if the node has had none. */
  readonly expectedMachine: string | undefined;
  /** The object that leaves: the root directory of another one is not cleaned. */
  readonly object: OwningObject;
  readonly say: (line: string) => void;
}

/** A machine that leaves the cluster. */
export interface Leaving {
  readonly object: GraftedNode;
  readonly policy: NonNullable<GraftedNode["spec"]["deletionPolicy"]>;
  /** When it began to leave, milliseconds since the epoch. */
  readonly since: number;
  /** Undefined if the object could not be served: then nothing can be done on its machine. */
  readonly config: NodeConfig | undefined;
  /** True if a Node with the object's name is another object's. */
  isOther(node: Node): boolean;
  /** Stops the node. */
  stop(): Promise<void>;
  readonly say: (line: string) => void;
}

export type LeaveResult =
  /** Nothing of the node is left, or the object's deletionPolicy leaves it in place. */
  | { readonly left: true }
  /** The Node is deleted, but the machine could not be cleaned within the time limits. */
  | { readonly left: "dirty"; readonly message: string }
  | { readonly left: false; readonly message: string };

const [defaultDrainMs, defaultGraceMs] = [15 * 60_000, 60 * 60_000];

/** Takes a machine out of the cluster according to its object's deletionPolicy. `Drain`: the pods end, the machine is cleaned, and the Node
 *  is deleted. `Release`: the Node is deleted, and the containers keep running. `Orphan`: both stay. Call it again until the machine has
 *  left. After drainTimeout and terminationGracePeriod, or with the annotation graftlet.dev/force-leave, the Node is deleted even if the
 *  machine has not been cleaned. */
export async function leaveCluster(deps: LeavingDeps, leaving: Leaving, signal: AbortSignal): Promise<LeaveResult> {
  const { object, config, policy, since, stop } = leaving;
  const { name } = object.metadata;
  const node = await ignoreNotFound(deps.client.get<Node>(nodePath(name), { signal }));
  const hasMachine = object.status?.machine !== undefined;
  if (node && leaving.isOther(node)) {
    await stop();
    if (!hasMachine) return { left: true };
    return { left: "dirty", message: `its machine was not cleaned, because Node ${name} is another object's` };
  }
  // A machine that was never served needs no cleaning, and a root directory that is another's must not be cleaned.
  const wasServed = hasMachine || (node !== undefined && !isElsewhere(object));
  if (policy !== "Drain") {
    await stop();
    if (policy === "Release") await deleteNode(deps, name, signal);
    return { left: true };
  }
  const forced = object.metadata.annotations?.[forceLeaveAnnotation];
  const expired = deps.clock.now() >= hardLimit(object, since);
  if (forced !== undefined || expired) {
    await stop();
    await deleteNode(deps, name, signal);
    if (!wasServed) return { left: true };
    const why = forced === undefined ? "its time limits have passed" : `forced: ${forced}`;
    return { left: "dirty", message: `the Node is deleted, but its machine was not cleaned (${why})` };
  }
  if (!wasServed) {
    await stop();
    if (node) await deleteNode(deps, name, signal);
    return { left: true };
  }
  if (!config) return { left: false, message: "the machine cannot be cleaned, because the object cannot be served" };
  return await drain(deps, { ...leaving, config }, signal);
}

async function drain(
  deps: LeavingDeps,
  { object, config, since, stop, say }: Leaving & { readonly config: NodeConfig },
  signal: AbortSignal,
): Promise<LeaveResult> {
  const { name } = object.metadata;
  const timeoutMs = Math.max(drainTimeoutOf(object) - (deps.clock.now() - since), 1_000);
  let last = "";
  const told = (line: string) => {
    last = line;
    say(line);
  };
  const work = async (client: LeaveClient) => {
    const cleaning = {
      graceMs: timeoutMs,
      expectedMachine: expectedMachine(object),
      object: owningObject(object),
      say: told,
    };
    const clean = () => deps.clean(config, cleaning, signal);
    const stayed = await leave(
      {
        client,
        nodeDeleter: deps.client,
        clock: deps.clock,
        nodes: [name],
        deployment: undefined,
        timeoutMs,
        stop,
        say: told,
        clean,
      },
      signal,
    );
    return stayed.length === 0;
  };
  try {
    const left = await deps.withNodeClient(config, work, signal);
    return left ? { left } : { left, message: last };
  } catch (error) {
    throwIfAborted(signal);
    return { left: false, message: messageOf(error) };
  }
}

/** True if the root directory on the object's machine is another's. */
function isElsewhere({ status }: GraftedNode): boolean {
  return status?.conditions?.some(({ type, reason }) => type === "Claimed" && reason === "RootDirTaken") ?? false;
}

/** Returns the time at which graftlet stops waiting for the machine, milliseconds since the epoch. */
function hardLimit(object: GraftedNode, since: number): number {
  const grace = parseDuration(object.spec.terminationGracePeriod ?? "") ?? defaultGraceMs;
  return since + drainTimeoutOf(object) + grace;
}

function drainTimeoutOf({ spec }: GraftedNode): number {
  return parseDuration(spec.drainTimeout ?? "") ?? defaultDrainMs;
}

async function deleteNode({ client }: LeavingDeps, name: string, signal: AbortSignal): Promise<void> {
  await ignoreNotFound(client.delete(nodePath(name), undefined, { signal }));
}
