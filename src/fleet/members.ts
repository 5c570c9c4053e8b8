import type { ClockAndLog, Logger } from "../lib/log.ts";
import type { NodeReporter, ReportedNode } from "../report/reported-node.ts";
import { isHeld } from "./finalizer.ts";
import { type GraftedNode, isDeleted } from "./grafted-node.ts";
import { createMember, type Member, type MemberDeps } from "./member.ts";

export interface MembersDeps extends ClockAndLog, Omit<MemberDeps, "report" | "port" | "isActive"> {
  /** Ports that other listeners of the process use. */
  readonly usedPorts: readonly number[];
  /** Adds a node to the process's reports, until the result is disposed. */
  addNode(name: string): Disposable & { readonly report: ReportedNode & NodeReporter; readonly log: Logger };
  isActive(name: string): boolean;
  /** Returns the object with its pool's defaults, and the keys of its enrolled machine. */
  effective(object: GraftedNode): GraftedNode;
  /** Called when an object is no longer served although it may still exist. */
  onStopped(name: string): void;
  /** Called while the machine of an object knows a later epoch than that of its owner. */
  onSuperseded(name: string): void;
}

interface ServedMember {
  /** The object as it is in the cluster. */
  object: GraftedNode;
  /** The object with its pool's defaults, and the keys of its enrolled machine. */
  completed: GraftedNode;
  readonly member: Member;
  readonly port: number;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/** Lowest port for the nodes' kubelet APIs in a Pod. */
const firstPodPort = 10_250;

export type Members = ReturnType<typeof createMembers>;

/** Creates the members of a fleet that this process serves, by the names of their objects. */
export function createMembers(deps: MembersDeps) {
  const { effective, onStopped, onSuperseded } = deps;
  const members = new Map<string, ServedMember>();
  const serve = (object: GraftedNode, signal: AbortSignal) => {
    const { name, uid } = object.metadata;
    const firstPort = deps.fleet.outside?.firstPort ?? firstPodPort;
    const port = freePort(firstPort, [...deps.usedPorts, ...[...members.values()].map((served) => served.port)]);
    const added = deps.addNode(name);
    const { report, log } = added;
    const completed = effective(object);
    const member = createMember({ ...deps, report, port, isActive: () => deps.isActive(name), log }, completed);
    const stop = new AbortController();
    const unsubscribe = report.onChange(() => {
      if (!stop.signal.aborted && report.progress().trouble?.reason === "Superseded") onSuperseded(name);
    });
    const ended = member
      .serve(AbortSignal.any([signal, stop.signal]))
      .catch((error: unknown) => log.error({ err: error }, "cannot serve GraftedNode; its node has stopped"))
      .finally(() => {
        unsubscribe();
        added[Symbol.dispose]();
        if (members.get(name)?.object.metadata.uid === uid) members.delete(name);
        if (stop.signal.aborted && !signal.aborted) onStopped(name);
      });
    members.set(name, { object, completed, member, port, stop, ended });
  };
  const follow = (served: ServedMember) => {
    served.completed = effective(served.object);
    served.member.update(served.completed);
  };
  const completeAgain = (served: ServedMember) => {
    follow(served);
    served.member.wake();
  };
  const update = (object: GraftedNode, signal: AbortSignal) => {
    const known = members.get(object.metadata.name);
    // Its machine has left the cluster, and the object is about to be gone.
    if (!known && isDeleted(object) && !isHeld(object)) return;
    if (!known) return serve(object, signal);
    // Once the member of the previous object with this name, or of the previous epoch, has ended, `onStopped` leads to this one.
    if (known.object.metadata.uid !== object.metadata.uid || epochOf(known.object) !== epochOf(object))
      return known.stop.abort();
    known.object = object;
    follow(known);
  };
  return {
    /** The objects and their conditions now. */
    observed: () => [...members.values()].map(observedMember),
    /** True if this process serves the object. */
    has: (name: string) => members.has(name),
    /** Completes a member's object again after a change outside it, such as an enrolment, and wakes the member. */
    refresh(name: string) {
      const served = members.get(name);
      if (served) completeAgain(served);
    },
    /** Completes the objects of all members again after a change of pools or Secrets, and wakes the members. */
    updateAll() {
      for (const served of members.values()) completeAgain(served);
    },
    /** Serves an object, or applies its new version. */
    update,
    /** Stops the node of an object, if it is served. Its pods keep running. @returns once nothing of it is left in this process. */
    async stop(name: string): Promise<void> {
      const served = members.get(name);
      served?.stop.abort();
      await served?.ended;
    },
    /** Serves these objects and no others. */
    replace(all: readonly GraftedNode[], signal: AbortSignal) {
      const names = new Set(all.map(({ metadata }) => metadata.name));
      for (const [name, { stop }] of members) if (!names.has(name)) stop.abort();
      for (const object of all) update(object, signal);
    },
    /** Wakes the members of the objects for which `concerned` returns true. */
    wake(concerned: (object: GraftedNode) => boolean) {
      for (const { completed, member } of members.values()) if (concerned(completed)) member.wake();
    },
    ended: () => Promise.all([...members.values()].map(({ ended }) => ended)),
  };
}

function epochOf({ status }: GraftedNode): number | undefined {
  return status?.owner?.epoch;
}

function observedMember({ completed: { metadata, spec }, member }: ServedMember) {
  return { name: metadata.name, pool: spec.poolRef?.name, conditions: member.conditions() };
}

/** Returns the lowest unused port from the first one. */
function freePort(firstPort: number, used: readonly number[]): number {
  const taken = new Set(used);
  let port = firstPort;
  while (taken.has(port)) port += 1;
  return port;
}
