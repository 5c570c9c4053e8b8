import type { OwnershipRecord, OwningObject } from "./ownership-record.ts";
import type { Clock } from "../lib/clock.ts";
import { visibleText } from "../lib/visible-text.ts";
import { TargetError } from "../seams/provider.ts";

/** The GraftedNode for which a process uses a root directory. */
export interface RootClaimant {
  readonly object: OwningObject;
  /** Returns the owner whose root directory the user has given to the object: the UID of a GraftedNode, or the name of a node. */
  readonly takesOver: () => string | undefined;
  /** Since when nobody has locked a root directory that another object of the same name owns. */
  readonly idle: IdleTime;
}

/** Measures for how long something has been idle. */
export interface IdleTime {
  /** @returns milliseconds since the first of the uninterrupted observations that it was idle. */
  observe(isIdle: boolean): number;
}

/** Creates the measurement, without an observation. */
export function createIdleTime(clock: Pick<Clock, "monotonic">): IdleTime {
  let since: number | undefined;
  return {
    observe(isIdle) {
      const now = clock.monotonic();
      since = isIdle ? (since ?? now) : undefined;
      return now - (since ?? now);
    },
  };
}

/** Who wants to use a root directory: a node, and the object that configures it. */
export interface RootUser<C = RootClaimant> {
  readonly nodeName: string;
  readonly claimant: C | undefined;
}

type Identified = Omit<RootClaimant, "idle">;

/** Another owner of a root directory. */
export interface OtherOwner {
  /** Says who it is. */
  readonly who: string;
  /** Identifies it in the annotation graftlet.dev/take-over. */
  readonly id: string;
  /** True for an object with the same name: it may have been the same object before it was deleted and created again, or restored. */
  readonly isNamesake: boolean;
}

/** Time for which nobody has locked the root directory of a namesake until it is considered abandoned, milliseconds. Its replicas hand it
 *  over, or restart, in less. */
const abandonedMs = 60_000;

/** Returns who owns a root directory other than its user; undefined if nobody does. The node of a configuration may be renamed, as a kubelet's,
 *  and may become the node of an object, or the reverse. Pure. */
export function otherOwner(
  record: Pick<OwnershipRecord, "node" | "object"> | undefined,
  { nodeName, claimant }: RootUser<Identified>,
): OtherOwner | undefined {
  if (!record) return undefined;
  const { node, object } = record;
  const isOtherNode = node !== nodeName;
  if (!object) return claimant && isOtherNode ? unlessTakenOver(ofNode(node), claimant) : undefined;
  if (!claimant) return isOtherNode ? ofObject(object, false) : undefined;
  if (object.uid === claimant.object.uid) return undefined;
  const isNamesake = object.namespace === claimant.object.namespace && object.name === claimant.object.name;
  return unlessTakenOver(ofObject(object, isNamesake), claimant);
}

function unlessTakenOver(owner: OtherOwner, { takesOver }: Pick<RootClaimant, "takesOver">): OtherOwner | undefined {
  return takesOver() === owner.id ? undefined : owner;
}

function ofNode(node: string): OtherOwner {
  const name = visibleText(node);
  return { who: `node ${name}`, id: node, isNamesake: false };
}

function ofObject({ namespace, name, uid }: OwningObject, isNamesake: boolean): OtherOwner {
  const who = `GraftedNode ${visibleText(`${namespace}/${name}`)}`;
  return { who: isNamesake ? `another ${who} (UID ${visibleText(uid)})` : who, id: uid, isNamesake };
}

/** True once the root directory of another object of the same name is considered abandoned. @param isLocked true if somebody has locked it. */
export function isAbandoned(owner: OtherOwner, { claimant }: RootUser, isLocked: boolean): boolean {
  return owner.isNamesake && claimant !== undefined && claimant.idle.observe(!isLocked) >= abandonedMs;
}

/** The error of a node whose root directory has another owner, which says how to resolve that. */
export function rootDirTaken(rootDir: string, owner: OtherOwner, { claimant }: RootUser): TargetError {
  const directory = `the root directory ${JSON.stringify(rootDir)} on the target`;
  const message = owner.isNamesake
    ? `${directory} belongs to ${owner.who}, which is of another cluster, or was this object before it was created again: delete one of the two objects; this one uses the directory once nobody has locked it for a minute${orTakeOver(owner, claimant)}`
    : `${directory} belongs to ${owner.who}: delete one of the two, or use another directory (rootDir)${orTakeOver(owner, claimant)}`;
  return new TargetError("RootDirTaken", "failed_precondition", message);
}

function orTakeOver({ id, isNamesake }: OtherOwner, claimant: RootClaimant | undefined): string {
  if (!claimant || !/^[-a-z0-9.]+$/.test(id)) return "";
  const { namespace, name } = claimant.object;
  const command = `kubectl -n ${namespace} annotate gn ${name} --overwrite graftlet.dev/take-over=${id}`;
  return isNamesake
    ? `, or at once with: ${command}`
    : `; if the other is gone for good, take the directory over: ${command}`;
}
