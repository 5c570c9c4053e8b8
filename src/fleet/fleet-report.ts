import { createSignal } from "../lib/signal.ts";
import type { FleetReport, MachineReport, ObservedFleet } from "../report/fleet-report.ts";
import { type GraftedNode, isReadyWithOwner, readyCondition } from "./grafted-node.ts";
import type { Members } from "./members.ts";
import type { Membership } from "./membership.ts";
import type { Replica } from "./own-lease.ts";
import { compareText } from "./placement.ts";

/** What a replica knows about its release. */
export interface KnownFleet {
  /** False before the first list of objects. */
  readonly isListed: boolean;
  /** All objects of the release, whoever owns them. */
  readonly objects: readonly GraftedNode[];
  /** The objects that this process serves: their nodes report themselves. */
  readonly members: Pick<Members, "has">;
  readonly sharing: { readonly membership: Pick<Membership, "isAlive" | "isCurrent" | "replicas"> };
}

/** Maximum lengths of a reason and of a message, characters: a list may have thousands of them. */
const [maxReason, maxMessage] = [128, 512];

/** Creates a replica's view of its release. @param known called for each report. */
export function createObservedFleet(
  self: Replica,
  known: () => KnownFleet,
): ObservedFleet & { readonly changed: () => void } {
  const changed = createSignal();
  return {
    report: () => fleetReport(self, known()),
    onChange: changed.subscribe,
    /** To be called when objects or replicas have changed. */
    changed: changed.send,
  };
}

/** Describes the release of a replica: who shares its objects, and the machines that this process does not serve. */
function fleetReport({ name: replica }: Replica, { isListed, objects, members, sharing }: KnownFleet): FleetReport {
  const { membership } = sharing;
  const current = isListed && membership.isCurrent();
  // Without the API server, Leases seem to expire although their replicas go on.
  const isOwned = (uid: string) => uid !== "" && (!current || membership.isAlive(uid));
  const owned = Map.groupBy(objects, ({ status }) => status?.owner?.uid ?? "");
  return {
    replica,
    current,
    replicas: membership
      .replicas()
      .map(({ name, uid, isLeaving }) => ({ name, leaving: isLeaving, machines: owned.get(uid)?.length ?? 0 }))
      .toSorted(byName),
    machines: objects
      .filter(({ metadata }) => !members.has(metadata.name))
      .map((object) => machineReport(object, isOwned(object.status?.owner?.uid ?? "")))
      .toSorted(byName),
  };
}

function machineReport(object: GraftedNode, isOwned: boolean): MachineReport {
  const { metadata, status } = object;
  const owner = isOwned ? status?.owner?.replica : undefined;
  const { reason, message } = verdictOf(object, owner);
  const address = status?.endpoint?.address;
  const pods = status?.pods;
  return {
    name: metadata.name,
    ...(owner !== undefined && { owner }),
    ready: owner !== undefined && isReadyWithOwner(object),
    reason: bounded(reason, maxReason),
    message: bounded(message, maxMessage),
    ...(address !== undefined && { address }),
    ...(pods !== undefined && { pods }),
  };
}

/** Why a machine is Ready or not. What a former owner has written says nothing about the machine now. */
function verdictOf({ status }: GraftedNode, owner: string | undefined): Pick<MachineReport, "reason" | "message"> {
  if (owner === undefined) return { reason: "Unowned", message: "no living replica serves the machine" };
  const ready = readyCondition(status);
  if (!ready || status?.observedEpoch !== status?.owner?.epoch)
    return { reason: "Starting", message: "its owner has not reported about the machine yet" };
  return ready;
}

function bounded(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max)}…`;
}

function byName({ name: one }: { readonly name: string }, { name: other }: { readonly name: string }): number {
  return compareText(one, other);
}
