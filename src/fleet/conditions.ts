import type { Node } from "../objects.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { NodeProgress } from "../report/reported-node.ts";
import type { FleetCondition } from "./grafted-node.ts";

/** Why a condition has its status. */
export interface Cause {
  /** One word in CamelCase. */
  readonly reason: string;
  readonly message: string;
}

/** What is known about a machine and its node. */
export interface MemberState {
  /** The release in whose configuration the node is; undefined if the object configures it. */
  readonly staticIn: string | undefined;
  /** Why the object cannot be served as it is; undefined if it can. */
  readonly refused: Cause | undefined;
  /** Why the machine is not served now although it could be: it is paused, inactive, or leaving the cluster. */
  readonly stopped: Cause | undefined;
  readonly progress: NodeProgress;
  /** Undefined before there is a connection. */
  readonly link: "local" | { trouble(): LinkTrouble | undefined } | undefined;
  /** The Node as last read; undefined before it is registered. */
  readonly node: Node | undefined;
}

/** A condition without its times. */
export type Verdict = Pick<FleetCondition, "status" | "reason" | "message">;

/** Maximum length of a message, as of any condition. */
const maxMessageLength = 32_768;

/** Computes an object's conditions, in the order in which a machine becomes a node. `Ready` is the summary: it repeats the first condition
 *  that is not True. Pure. */
export function conditionsOf(
  state: MemberState,
  before: readonly FleetCondition[],
  observed: Observation,
): readonly FleetCondition[] {
  const steps: readonly (readonly [type: string, verdict: Verdict])[] = [
    ["Accepted", accepted(state)],
    ["Identified", identified(state)],
    ["Linked", linked(state)],
    ["Claimed", claimed(state)],
    ["Registered", registered(state)],
  ];
  const failed = steps.find(([, { status }]) => status !== "True")?.[1];
  const ready = state.stopped ? no(state.stopped) : failed ? { ...failed, status: "False" as const } : nodeReady(state);
  return [...steps, ["Ready", ready] as const].map(([type, verdict]) => conditionOf(type, verdict, before, observed));
}

/** The generation that a condition describes, and the time of the observation. */
export interface Observation {
  readonly generation: number | undefined;
  /** RFC 3339. */
  readonly now: string;
}

/** Builds a condition, which keeps its transition time until its status changes. Pure. */
export function conditionOf(
  type: string,
  verdict: Verdict,
  before: readonly FleetCondition[],
  { generation, now }: Observation,
): FleetCondition {
  const old = before.find((condition) => condition.type === type);
  return {
    type,
    ...verdict,
    message: verdict.message.slice(0, maxMessageLength),
    ...(generation !== undefined && { observedGeneration: generation }),
    lastTransitionTime: old?.status === verdict.status ? old.lastTransitionTime : now,
  };
}

/** Serializes a status for comparison, without the transition times of its conditions. */
export function comparableStatus(status: { readonly conditions?: readonly FleetCondition[] }): string {
  const conditions = status.conditions?.map(({ lastTransitionTime: _time, ...rest }) => rest);
  return JSON.stringify({ ...status, conditions });
}

function yes(reason: string, message: string): Verdict {
  return { status: "True", reason, message };
}

function no({ reason, message }: Cause): Verdict {
  return { status: "False", reason, message };
}

/** The verdict on a step that waits for an earlier one. */
function unknown(reason: string, message: string): Verdict {
  return { status: "Unknown", reason, message };
}

function accepted({ refused, staticIn }: MemberState): Verdict {
  if (staticIn !== undefined)
    return yes("Static", `the node is configured in the values of release ${staticIn}, not in this object`);
  return refused ? no(refused) : yes("Valid", "the specification can be served");
}

function identified({ refused, progress: { isIdentified, trouble } }: MemberState): Verdict {
  if (isIdentified) return yes("CertificateIssued", "the node has its client certificate");
  if (refused) return unknown("NotAccepted", "the object is not accepted");
  // A problem of the link is shown in the next condition. In this one the certificate is pending.
  if (trouble && !isOfLink(trouble)) return no(trouble);
  return unknown(
    "CertificatePending",
    "waiting for the node's client certificate; if this lasts: kubectl get certificatesigningrequests",
  );
}

function linked({ link, progress: { trouble } }: MemberState): Verdict {
  if (link === "local") return yes("Local", "the machine is the one that graftlet runs on");
  const now = link ? link.trouble() : trouble;
  if (now) return no(now);
  return link ? yes("Connected", "the machine is connected") : unknown("NotConnected", "there is no connection yet");
}

function claimed({ progress: { isClaimed, trouble } }: MemberState): Verdict {
  if (isClaimed) return yes("Locked", "the machine's root directory is locked for this node");
  return trouble ? no(trouble) : unknown("NotLocked", "the machine's root directory is not locked yet");
}

function registered({ node, progress: { trouble } }: MemberState): Verdict {
  if (node) return yes("NodeRegistered", `Node ${node.metadata.name} is registered`);
  return trouble ? no(trouble) : unknown("NotRegistered", "the Node is not registered yet");
}

function nodeReady({ node }: MemberState): Verdict {
  const ready = node?.status?.conditions?.find(({ type }) => type === "Ready");
  if (!ready) return unknown("NodeStatusUnknown", "the Node has no Ready condition yet");
  const { reason = "NodeStatusUnknown", message = "" } = ready;
  if (ready.status === "True") return yes("NodeReady", "the Node is Ready");
  return ready.status === "False" ? no({ reason, message }) : unknown(reason, message);
}

function isOfLink({ reason }: LinkTrouble): boolean {
  return reason !== "NodeNotStarted";
}
