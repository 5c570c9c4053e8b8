import { createEventRecorder } from "../api/events.ts";
import { type ApiObject, createReflector, type Reflector, type ReflectorHandler } from "../api/reflector.ts";
import type { ClockAndLog, Logger } from "../lib/log.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import type { Secret } from "../objects.ts";
import type { EnrolmentListeners } from "../seams/enrolment.ts";
import type { NodeReporter, ReportedNode } from "../report/reported-node.ts";
import {
  createEnrolment,
  type EnrolmentDeps,
  enrolmentSecretName,
  nodeOfEnrolment,
  withEnrolledKeys,
} from "./enrolment.ts";
import { createEnrolmentService } from "./enrolment-service.ts";
import { isHeld } from "./finalizer.ts";
import { type GraftedNode, graftedNodePath, isDeleted } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createLoginProtection, loginFinalizer } from "./login-protection.ts";
import { createMember, type Member, type MemberDeps } from "./member.ts";
import { createPools } from "./pools.ts";
import { createStarts } from "./starts.ts";

export interface FleetDeps
  extends Omit<
    MemberDeps,
    "report" | "port" | "secret" | "hasPool" | "isActive" | "rollOuts" | "startInTurn" | "events"
  > {
  /** Namespace of the objects and their Secrets. */
  readonly namespace: string;
  /** Ports that other listeners of the process use. */
  readonly usedPorts: readonly number[];
  /** True for the name of a node of the process's configuration, which no object configures. */
  isConfigured(name: string): boolean;
  /** Adds a node to the process's reports, until the result is disposed. */
  addNode(name: string): Disposable & { readonly report: ReportedNode & NodeReporter; readonly log: Logger };
  /** Returns the listeners at which machines enrol. */
  enrolments(deps: ClockAndLog): Promise<EnrolmentListeners>;
  /** Called once the first list of objects is known. */
  onListed(): void;
}

const unlisted = "cannot list GraftedNodes; check that their CustomResourceDefinition is installed";
/** Time after which a warning is logged if the first list has not arrived, milliseconds. */
const listingMs = 15_000;
/** Rate limit of events about objects: events per second, and burst. */
const eventRates = { qps: 5, burst: 50 };
/** Lowest port for the nodes' kubelet APIs. */
const firstPort = 10_250;

/** Serves the GraftedNodes of a namespace. Adding, changing or deleting an object starts, restarts or removes its node, and affects no
 *  other node. A member whose object cannot be served waits for a change of the object, or of a Secret that it names. */
export function createFleet(deps: FleetDeps): Runnable {
  const { client, namespace, clock, log } = deps;
  const secrets = reflectorOf<Secret>(deps, `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`, {
    replace() {
      members.updateAll();
      protection.check();
    },
    changed({ metadata: { name, finalizers } }) {
      const enrolling = nodeOfEnrolment(name);
      if (enrolling !== undefined) members.refresh(enrolling);
      // Most Secrets of the namespace contain certificates of nodes, which members do not use.
      if (!members.logins().has(name) && !finalizers?.includes(loginFinalizer)) return;
      members.wake((object) => loginSecretNames(object).includes(name));
      protection.check();
    },
  });
  let isListed = false;
  const named = () => (isListed ? members.logins() : undefined);
  const protection = createLoginProtection({ ...deps, secrets: secrets.list, named });
  let listed: () => readonly GraftedNode[] = () => [];
  const pools = createPools({
    ...deps,
    objects: () => listed(),
    podsOn: (name) => members.podsOn(name),
    runningOf: (name) => members.runningOf(name),
    wake: (names) => members.wake(({ metadata: { name } }) => names.includes(name)),
    onChange() {
      decide();
      members.updateAll();
    },
  });
  let active: ReadonlySet<string> = new Set();
  const decide = () => {
    const before = active;
    active = pools.decide();
    members.wake(({ metadata: { name } }) => before.has(name) !== active.has(name));
  };
  const secret = (name: string) => secrets.get(namespace, name);
  /** Returns the object with the defaults of its pool, and the keys of its enrolled machine. */
  const effective = (object: GraftedNode) =>
    withEnrolledKeys(pools.effective(object), secret(enrolmentSecretName(object.metadata.name)));
  const events = createEventRecorder({ client, component: "graftlet", host: "", ...eventRates, clock, log });
  const members = createMembers(deps, {
    events,
    secret,
    hasPool: (name) => pools.has(name),
    isActive: (name) => active.has(name),
    rollOuts: pools.rollOuts,
    startInTurn: createStarts(clock),
    effective,
    onGone: protection.check,
  });
  const isServed = ({ metadata, spec }: GraftedNode) => !spec.static && !deps.isConfigured(metadata.name);
  const enrolment = enrolmentServices({ ...deps, events, object: members.completed, secret });
  return {
    name: "fleet",
    async run(signal) {
      const objects = reflectorOf<GraftedNode>(deps, graftedNodePath(namespace), {
        replace(all) {
          decide();
          members.replace(all.filter(isServed), signal);
          isListed = true;
          protection.check();
          deps.onListed();
        },
        changed(object, type) {
          const isStatus = type === "modified" && members.needsSame(object);
          (isStatus ? pools.statusChanged : decide)();
          members.follow(object, isServed(object) ? type : "deleted", signal);
          if (!isStatus) protection.check();
        },
      });
      listed = () => objects.list().filter(isServed);
      const late = clock.after(listingMs, () => isListed || log.warn({ namespace }, unlisted));
      const last = afterOthers([secrets, pools], objects);
      await runGroup([secrets, protection, events, ...pools.running, ...enrolment, last], signal);
      late.cancel();
      await members.ended();
    },
  };
}

/** True if a change of an object affects neither which objects are active nor which Secrets they need: only conditions have changed, for
 *  example. */
function hasSameNeeds(before: GraftedNode, after: GraftedNode): boolean {
  const [one, other] = [before.metadata, after.metadata];
  return (
    one.uid === other.uid &&
    one.generation === other.generation &&
    isDeleted(before) === isDeleted(after) &&
    (before.status?.machine === undefined) === (after.status?.machine === undefined)
  );
}

function reflectorOf<T extends ApiObject>(
  { client, clock, log }: FleetDeps,
  path: string,
  handler: ReflectorHandler<T>,
): Reflector<T> {
  return createReflector<T>({ client, path, handler, clock, log });
}

/** The members of a fleet by the names of their objects. */
function createMembers(deps: FleetDeps, parts: MembersParts) {
  const { isActive, effective, onGone, ...shared } = parts;
  const members = new Map<string, ServedMember>();
  let logins: ReadonlySet<string> | undefined;
  const serve = (object: GraftedNode, signal: AbortSignal) => {
    const { name, uid } = object.metadata;
    const port = freePort([...deps.usedPorts, ...[...members.values()].map((served) => served.port)]);
    const added = deps.addNode(name);
    const { report, log } = added;
    const own = { ...shared, report, port, isActive: () => isActive(name), log };
    const completed = effective(object);
    const member = createMember({ ...deps, ...own }, completed);
    const stop = new AbortController();
    const ended = member
      .serve(AbortSignal.any([signal, stop.signal]))
      .catch((error: unknown) => log.error({ err: error }, "cannot serve GraftedNode; its node has stopped"))
      .finally(() => {
        added[Symbol.dispose]();
        if (members.get(name)?.object.metadata.uid === uid) members.delete(name);
        logins = undefined;
        onGone();
      });
    members.set(name, { object, completed, member, report, port, stop, ended });
    logins = undefined;
  };
  /** Serves an object once the member of the previous object with the same name has ended. */
  const replaceMember = async (old: ServedMember, object: GraftedNode, signal: AbortSignal) => {
    old.stop.abort();
    await old.ended;
    if (!signal.aborted && !members.has(object.metadata.name)) serve(object, signal);
  };
  const follow = (served: ServedMember) => {
    const before = loginSecretNames(served.completed);
    served.completed = effective(served.object);
    if (before.join() !== loginSecretNames(served.completed).join()) logins = undefined;
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
    if (known.object.metadata.uid !== object.metadata.uid) return void replaceMember(known, object, signal);
    known.object = object;
    follow(known);
  };
  return {
    /** True if the object is served, and the change concerns only its status. */
    needsSame(object: GraftedNode): boolean {
      const known = members.get(object.metadata.name);
      return known !== undefined && hasSameNeeds(known.object, object);
    },
    /** Names of the Secrets that the objects' logins need. */
    logins: () => (logins ??= new Set([...members.values()].flatMap(({ completed }) => loginSecretNames(completed)))),
    runningOf: (name: string) => members.get(name)?.member.running(),
    podsOn: (name: string) => members.get(name)?.report.introspection()?.pods().length ?? 0,
    /** Returns the object with that name, with the defaults of its pool and the keys of its enrolled machine. */
    completed: (name: string) => members.get(name)?.completed,
    /** Completes a member's object again after a change outside it, such as an enrolment, and wakes the member. */
    refresh(name: string) {
      const served = members.get(name);
      if (served) completeAgain(served);
    },
    /** Completes the objects of all members again after a change of pools or Secrets, and wakes the members. */
    updateAll() {
      for (const served of members.values()) completeAgain(served);
    },
    /** Applies a change of an object. The node of an object that is gone stops. */
    follow(object: GraftedNode, type: "added" | "modified" | "deleted", signal: AbortSignal) {
      if (type === "deleted") members.get(object.metadata.name)?.stop.abort();
      else update(object, signal);
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

/** Returns the lowest unused port. */
function freePort(used: readonly number[]): number {
  const taken = new Set(used);
  let port = firstPort;
  while (taken.has(port)) port += 1;
  return port;
}

interface MembersParts extends Pick<MemberDeps, "secret" | "hasPool" | "rollOuts" | "startInTurn" | "events"> {
  isActive(name: string): boolean;
  /** Returns the object with its pool's defaults, and the keys of its enrolled machine. */
  effective(object: GraftedNode): GraftedNode;
  /** Called when an object is no longer served. */
  onGone(): void;
}

interface ServedMember {
  /** The object as it is in the cluster. */
  object: GraftedNode;
  /** The object with its pool's defaults, and the keys of its enrolled machine. */
  completed: GraftedNode;
  readonly member: Member;
  readonly report: ReportedNode;
  readonly port: number;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/** Lists objects only after Secrets and pools: otherwise an object would be refused at startup because its Secret had not been read yet. */
function afterOthers(others: readonly { ready(signal: AbortSignal): Promise<void> }[], objects: Runnable): Runnable {
  return {
    ...objects,
    async run(signal) {
      await Promise.all(others.map((other) => other.ready(signal))).catch(() => undefined);
      if (!signal.aborted) await objects.run(signal);
    },
  };
}

/** Lets machines enrol if the release has a listener. */
function enrolmentServices(deps: FleetDeps & Omit<EnrolmentDeps, "publicKeyOf">): readonly Runnable[] {
  const { listener } = deps.fleet;
  if (!listener) return [];
  const handler = ({ publicKeyOf }: EnrolmentListeners) => createEnrolment({ ...deps, publicKeyOf });
  return [createEnrolmentService({ ...deps, listener, handler })];
}
