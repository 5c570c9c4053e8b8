import type { NodeConfig } from "../config/node-config.ts";
import type { FencingToken } from "../host/lock.ts";
import { createIdleTime, type RootClaimant } from "../host/root-owner.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFailureLog } from "../lib/retry.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { Node } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import type { NodeReporter, ReportedNode } from "../report/reported-node.ts";
import type { Cause } from "./conditions.ts";
import { addFinalizer, isHeld, removeFinalizer } from "./finalizer.ts";
import {
  acceptedMachine,
  expectedMachine,
  type FleetCondition,
  fencingToken,
  forceLeaveAnnotation,
  type GraftedNode,
  graftedNodePath,
  isDeleted,
  machineReference,
  owningObject,
  takenOver,
} from "./grafted-node.ts";
import { leaveCluster, type Leaving, type LeavingDeps } from "./leaving.ts";
import { deleteLogins } from "./login-files.ts";
import {
  configurationOf,
  isOtherNode,
  loginDirectory,
  type MemberConfigurationDeps,
  prepareInCluster,
  refusalOf,
} from "./member-configuration.ts";
import { createMemberNode, type MemberNodeDeps } from "./member-node.ts";
import { createStatusWriter } from "./member-status.ts";
import type { StartInTurn } from "./starts.ts";

export interface MemberDeps
  extends ClockAndLog,
    MemberConfigurationDeps,
    Omit<LeavingDeps, "client">,
    Pick<MemberNodeDeps, "run"> {
  readonly events: EventSink;
  /** True if the object's machine should be a node. */
  readonly isActive: () => boolean;
  readonly rollOuts: MemberRollOuts;
  readonly startInTurn: StartInTurn;
  /** Receives the node's reports for as long as the object exists. */
  readonly report: ReportedNode & NodeReporter;
}

/** The roll-outs of pools' templates, as their members see them. */
export interface MemberRollOuts {
  /** Returns a digest of the part of the pool's template whose changes restart a node. It is the same for all members of the pool. */
  template(object: GraftedNode): string;
  /** True if the object's node may restart to apply that template. */
  hasTurn(object: GraftedNode): boolean;
}

/** One object of the fleet, and its machine. */
export interface Member {
  /** The object's conditions now, even if they have not been written yet. */
  conditions(): readonly FleetCondition[];
  /** Applies a new version of the object. */
  update(object: GraftedNode): void;
  /** Takes the next step now, for example because a Secret has changed. */
  wake(): void;
  /** Serves the machine until the object is gone from the cluster, or the signal aborts, which leaves the pods running. */
  serve(signal: AbortSignal): Promise<void>;
}

/** Causes for which the object is not Ready, even if its Node is. */
interface MemberCauses {
  refused: Cause | undefined;
  stopped: Cause | undefined;
  /** True once the machine of an inactive object has left the cluster. */
  hasLeft: boolean;
}

/** Delay before a step is repeated after a failure, or while the object cannot be served, milliseconds. */
const retryMs = 10_000;

/** Creates the member for an object. It reconciles the machine with the object, one step at a time, and writes the results to the
 *  object's status. A changed specification restarts only this node; an invalid one does not affect the running node. */
export function createMember(deps: MemberDeps, first: GraftedNode): Member {
  const { clock, log, report } = deps;
  const changed = createTrigger();
  const causes: MemberCauses = { refused: undefined, stopped: undefined, hasLeft: false };
  let latest = first;
  /** Ends the current attempt to leave. */
  let attempt = new AbortController();
  const token = fencingToken(first);
  const status = createStatusWriter(deps, () => ({
    object: latest,
    ...causes,
    template: steps.template(),
    epoch: token?.epoch,
  }));
  const steps = createSteps(deps, { causes, reported: status.changed, latest: () => latest, token });
  const failures = createFailureLog(log, "cannot serve GraftedNode; retrying");
  const takeSteps = async (signal: AbortSignal) => {
    while (!signal.aborted) {
      const object = latest;
      let again: boolean;
      attempt = new AbortController();
      try {
        if (await steps.step(object, AbortSignal.any([signal, attempt.signal]))) return;
        again = isDeleted(object) || causes.refused !== undefined || (!deps.isActive() && !causes.hasLeft);
        failures.succeeded();
      } catch (error) {
        if (signal.aborted) return;
        if (!attempt.signal.aborted) failures.failed(error);
        again = true;
      }
      status.changed();
      await changed.firedWithin(clock, again ? retryMs : undefined, signal);
    }
  };
  return {
    conditions: status.conditions,
    update(object) {
      const isOther = significantParts(object) !== significantParts(latest);
      if (isForced(object) && !isForced(latest))
        attempt.abort(new CodedError("cancelled", "the node leaves without waiting for its machine"));
      latest = object;
      if (isOther) changed.fire();
    },
    wake: changed.fire,
    async serve(signal) {
      const stopFollowing = report.onChange(() => {
        status.changed();
        if (steps.isNameTaken()) changed.fire();
      });
      try {
        await status.during(() => takeSteps(signal), signal);
      } finally {
        stopFollowing();
        await steps.stop();
        await deleteLogins(loginDirectory(deps.fleet, first));
      }
    },
  };
}

/** True if the object is deleted and graftlet must not wait for its machine. */
function isForced(object: GraftedNode): boolean {
  return isDeleted(object) && object.metadata.annotations?.[forceLeaveAnnotation] !== undefined;
}

/** Serializes the parts of an object that its steps depend on. The rest, such as the status that is written, does not wake the member. */
function significantParts(object: GraftedNode): string {
  const { metadata, spec } = object;
  const { generation, deletionTimestamp, finalizers, annotations } = metadata;
  const told = [annotations?.[forceLeaveAnnotation], acceptedMachine(object), takenOver(object)];
  return JSON.stringify([generation, spec, deletionTimestamp, finalizers, ...told]);
}

const paused: Cause = {
  reason: "Paused",
  message: "spec.paused is true: the node is not served, and its pods keep running",
};

const inactive: Cause = {
  reason: "Inactive",
  message: "the machine is not a node: spec.active is false, or its pool has enough active members",
};

interface StepsState {
  readonly causes: MemberCauses;
  /** Returns the newest version of the object. */
  readonly latest: () => GraftedNode;
  readonly reported: () => void;
  /** Identifies this replica among those that serve the object one after the other. */
  readonly token: FencingToken | undefined;
}

/** Creates the steps of a member. `step` does what the machine needs next; if it cannot, it records why in `causes`. */
function createSteps(deps: MemberDeps, { causes, reported, latest, token }: StepsState) {
  const { client, clock, rollOuts, startInTurn, report } = deps;
  const node = createMemberNode(deps);
  /** The node's configuration; undefined, with the cause in `refused`, if the object cannot be served as it is. */
  const configure = async (object: GraftedNode, signal: AbortSignal): Promise<NodeConfig | undefined> => {
    try {
      const config = await configurationOf(deps, object);
      if (!node.isRunning()) await prepareInCluster(deps, object, signal);
      causes.refused = undefined;
      return config;
    } catch (error) {
      const cause = refusalOf(error);
      if (!cause || signal.aborted) throw error;
      causes.refused = node.isRunning()
        ? { ...cause, message: `${cause.message}; the node keeps running unchanged` }
        : cause;
      return undefined;
    }
  };
  /** True if the running node has found that the Node is another's: both were about to register it. */
  const isNameTaken = () => node.isRunning() && isOtherNode(deps.fleet, latest(), report.introspection()?.node());
  const leaveStep = (object: GraftedNode, how: LeaveOptions, signal: AbortSignal) =>
    takeOut(deps, { object, stop: node.stop, causes, reported, ...how }, signal);
  let inactiveSince: number | undefined;
  const deactivate = async (object: GraftedNode, signal: AbortSignal) => {
    inactiveSince ??= clock.now();
    if (!causes.hasLeft) causes.hasLeft = await leaveStep(object, { policy: "Drain", since: inactiveSince }, signal);
    if (causes.hasLeft) causes.stopped = inactive;
  };
  const leaveForEver = async (object: GraftedNode, signal: AbortSignal): Promise<boolean> => {
    const { deletionTimestamp = "" } = object.metadata;
    const policy = object.spec.deletionPolicy ?? "Drain";
    if (!(await leaveStep(object, { policy, since: Date.parse(deletionTimestamp) }, signal))) return false;
    await removeFinalizer(client, object, signal);
    return true;
  };
  /** Runs the node with the object's specification. @returns true if it has started the node. */
  const run = async (object: GraftedNode, signal: AbortSignal): Promise<boolean> => {
    if (isNameTaken()) await node.stop();
    const config = await configure(object, signal);
    if (!config) return false;
    const template = rollOuts.template(object);
    if (node.runsWith(object)) {
      node.takeOver(config, template);
      return false;
    }
    if (node.isRunning() && node.template() !== template && !rollOuts.hasTurn(object)) return false;
    await node.stop();
    await addFinalizer(client, object, signal);
    node.start(config, object, {
      template,
      expectedMachine: () => expectedMachine(latest()),
      // Its latest version may name the next owner.
      fencingToken: token,
      isStillOwner: token && ((stop) => isOwnedAs(token, deps, object, stop)),
      claimant: claimantOf(object, latest, clock),
      lastSeenSecret: deps.secret,
    });
    return true;
  };
  return {
    stop: node.stop,
    isNameTaken,
    template: node.template,
    /** Takes the next step for the object. @returns true once no further step is needed. */
    async step(object: GraftedNode, signal: AbortSignal): Promise<boolean> {
      if (isDeleted(object)) return isHeld(object) && (await leaveForEver(object, signal));
      if (!deps.isActive()) {
        await deactivate(object, signal);
        return false;
      }
      inactiveSince = undefined;
      causes.hasLeft = false;
      causes.stopped = object.spec.paused ? paused : undefined;
      if (causes.stopped) {
        await node.stop();
        return false;
      }
      const work = () => run(object, signal);
      await (node.isRunning() ? work() : startInTurn(work, report, signal));
      return false;
    },
  };
}

/** True if the object as it is in the cluster now names the owner that the token identifies. @throws the client's errors. */
async function isOwnedAs(
  token: FencingToken,
  { client }: Pick<MemberDeps, "client">,
  { metadata: { namespace, name } }: GraftedNode,
  signal: AbortSignal,
): Promise<boolean> {
  const now = await ignoreNotFound(client.get<GraftedNode>(graftedNodePath(namespace, name), { signal }));
  const current = now && fencingToken(now);
  return current?.object === token.object && current.epoch === token.epoch;
}

/** The object as the user of its machine's root directory. */
function claimantOf(object: GraftedNode, latest: () => GraftedNode, clock: Clock): RootClaimant {
  return { object: owningObject(object), takesOver: () => takenOver(latest()), idle: createIdleTime(clock) };
}

type LeaveOptions = Pick<Leaving, "policy" | "since">;

interface TakeOutOptions extends LeaveOptions, Pick<Leaving, "object" | "stop"> {
  readonly causes: MemberCauses;
  readonly reported: () => void;
}

/** Takes the machine out of the cluster, and records the progress in `causes`. @returns true once it has left. */
async function takeOut(
  deps: MemberDeps,
  { causes, reported, ...leaving }: TakeOutOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const { log, events } = deps;
  const about = machineReference(leaving.object);
  const say = (message: string) => {
    causes.stopped = { reason: "Leaving", message };
    log.info({ step: message }, "node is leaving the cluster");
    reported();
  };
  say("the machine is leaving the cluster");
  events.event(about, "Normal", "Leaving", `policy ${leaving.policy}: the machine is leaving the cluster`);
  const config = await configurationOf(deps, leaving.object).catch((error: unknown) => {
    log.warn({ err: error }, "cannot read the specification of a GraftedNode that is leaving the cluster");
    return undefined;
  });
  const isOther = (node: Node) => isOtherNode(deps.fleet, leaving.object, node);
  const result = await leaveCluster(deps, { ...leaving, config, isOther, say }, signal);
  if (!result.left) {
    say(result.message);
    events.event(about, "Warning", "CannotLeave", result.message);
    return false;
  }
  if (result.left === "dirty") {
    log.warn({ reason: result.message }, "cannot clean the machine of a GraftedNode that is leaving the cluster");
    events.event(about, "Warning", "LeftDirty", `${result.message}; ${identityOf(leaving.object)}`);
  }
  return true;
}

/** Identifies the machine in an event, which outlives the object. */
function identityOf({ status }: GraftedNode): string {
  return `machine ID ${status?.machine?.machineID ?? "unknown"}`;
}
