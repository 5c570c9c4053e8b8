import { createEventRecorder } from "../api/events.ts";
import { type ApiObject, createReflector, type Reflector, type ReflectorHandler } from "../api/reflector.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { onAbort, type Runnable, runGroup } from "../lib/runnables.ts";
import type { Secret } from "../objects.ts";
import type { EnrolmentListeners } from "../seams/enrolment.ts";
import {
  createEnrolment,
  type EnrolmentDeps,
  enrolmentSecretName,
  nodeOfEnrolment,
  withEnrolledKeys,
} from "./enrolment.ts";
import { createEnrolmentService } from "./enrolment-service.ts";
import { type GraftedNode, graftedNodePath, isDeleted } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createLoginProtection, loginFinalizer } from "./login-protection.ts";
import { createMembers, type MembersDeps } from "./members.ts";
import { createMembership, type Replica } from "./membership.ts";
import { createOwnership } from "./ownership.ts";
import { type GraftedNodePool, poolPath } from "./pool.ts";
import { createPools } from "./pools.ts";
import { createStarts } from "./starts.ts";

export interface FleetDeps
  extends Omit<
    MembersDeps,
    "secret" | "hasPool" | "isActive" | "rollOuts" | "startInTurn" | "events" | "effective" | "onStopped"
  > {
  /** Namespace of the objects and their Secrets. */
  readonly namespace: string;
  /** This process, among the replicas that share the objects. */
  readonly self: Replica;
  /** True for the name of a node of the process's configuration, which no object configures. */
  isConfigured(name: string): boolean;
  /** Returns the listeners at which machines enrol. */
  enrolments(deps: ClockAndLog): Promise<EnrolmentListeners>;
  /** Called once the first list of objects is known. */
  onListed(): void;
}

const unlisted = "cannot list GraftedNodes; check that their CustomResourceDefinition is installed";
/** Time after which a warning is logged if the first list has not arrived, milliseconds. */
const listingMs = 15_000;
/** Time limit for handing over the objects when this replica shuts down, milliseconds. It is less than the grace period of its Pod. */
const handOverMs = 100_000;
/** Time limit for deleting its Lease then, milliseconds. */
const endMs = 5_000;
/** Rate limit of events about objects: events per second, and burst. */
const eventRates = { qps: 5, burst: 50 };

/** Serves the GraftedNodes of a namespace, together with the other replicas of the release: each object has one owner. Adding, changing or
 *  deleting an object starts, restarts or removes its node, and affects no other node. A member whose object cannot be served waits for a
 *  change of the object, or of a Secret that it names. */
export function createFleet(deps: FleetDeps) {
  const { client, namespace, clock, log } = deps;
  /** Members outlive the signal of `run` until other replicas can take their objects. */
  const serving = new AbortController();
  let isEnding = false;
  const secrets = reflectorOf<Secret>(deps, `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`, {
    replace() {
      members.updateAll();
      protection.check();
    },
    changed({ metadata: { name, finalizers } }) {
      const enrolling = nodeOfEnrolment(name);
      if (enrolling !== undefined) members.refresh(enrolling);
      // Most Secrets of the namespace contain certificates of nodes, which members do not use.
      if (!logins().has(name) && !finalizers?.includes(loginFinalizer)) return;
      members.wake((object) => loginSecretNames(object).includes(name));
      protection.check();
    },
  });
  const secret = (name: string) => secrets.get(namespace, name);
  let isListed = false;
  /** The objects that this release serves, by this replica or another. */
  const all = () => objects.list().filter(isFleets);
  const isFleets = ({ metadata, spec }: GraftedNode) => !spec.static && !deps.isConfigured(metadata.name);
  const isServed = (object: GraftedNode) => isFleets(object) && ownership.owns(object);
  let namedSecrets: ReadonlySet<string> | undefined;
  /** Names of the Secrets that the logins of all objects need. */
  const logins = () => (namedSecrets ??= new Set(all().flatMap((object) => loginSecretNames(effective(object)))));
  const protection = createLoginProtection({
    ...deps,
    secrets: secrets.list,
    named: () => (isListed ? logins() : undefined),
  });
  const checkLogins = () => {
    namedSecrets = undefined;
    protection.check();
  };
  const pools = createPools({
    ...deps,
    objects: all,
    owns: (pool) => poolOwnership.owns(pool),
    onChange() {
      activate();
      poolOwnership.check();
      members.updateAll();
      checkLogins();
    },
    onDecision() {
      activate();
      poolOwnership.check();
      // Some of them may have a turn to restart.
      members.wake(({ spec }) => spec.poolRef !== undefined);
    },
  });
  let active: ReadonlySet<string> = new Set();
  /** Wakes the members whose machines become nodes, or leave the cluster. */
  const activate = () => {
    const before = active;
    active = pools.active();
    pools.check();
    members.wake(({ metadata: { name } }) => before.has(name) !== active.has(name));
  };
  /** Returns the object with the defaults of its pool, and the keys of its enrolled machine. */
  const effective = (object: GraftedNode) =>
    withEnrolledKeys(pools.effective(object), secret(enrolmentSecretName(object.metadata.name)));
  const events = createEventRecorder({ client, component: "graftlet", host: "", ...eventRates, clock, log });
  /** Serves an object that is this replica's, with a new member if it has none. */
  const serve = (name: string) => {
    const object = objects.get(namespace, name);
    if (object && isServed(object) && !isEnding) members.update(object, serving.signal);
  };
  const members = createMembers({
    ...deps,
    events,
    secret,
    hasPool: (name) => pools.has(name),
    isActive: (name) => active.has(name),
    rollOuts: pools.rollOuts,
    startInTurn: createStarts(clock),
    effective,
    onStopped: serve,
  });
  const { release } = deps.fleet;
  const membership = createMembership({
    ...deps,
    release,
    onChange() {
      ownership.check();
      poolOwnership.check();
    },
  });
  const path = graftedNodePath;
  const ownership = createOwnership({ ...deps, membership, objects: all, path, stop: members.stop, resume: serve });
  const poolOwnership = createOwnership<GraftedNodePool>({
    ...deps,
    membership,
    objects: () => pools.list(),
    path: poolPath,
    stop: () => Promise.resolve(),
    resume: () => pools.check(),
  });
  const needs = createNeeds();
  const objects = reflectorOf<GraftedNode>(deps, graftedNodePath(namespace), {
    replace(listed) {
      needs.replace(listed);
      activate();
      members.replace(listed.filter(isServed), serving.signal);
      isListed = true;
      ownership.check();
      checkLogins();
      deps.onListed();
    },
    changed(object, type) {
      const isSame = needs.follow(object, type);
      (isSame ? pools.check : activate)();
      if (type !== "deleted" && isServed(object)) members.update(object, serving.signal);
      else void members.stop(object.metadata.name);
      if (isSame) return;
      ownership.check();
      checkLogins();
    },
  });
  const enrolment = enrolmentServices({ ...deps, events, object: members.completed, secret });
  return {
    name: "fleet",
    /** What this replica serves, and the pools that it decides about. */
    observed: {
      nodes: members.observed,
      pools: pools.observed,
      sharing: () => ({ replicas: membership.alive(), unowned: ownership.unowned() }),
    },
    async run(signal: AbortSignal) {
      const late = clock.after(listingMs, () => isListed || log.warn({ namespace }, unlisted));
      const last = afterOthers([secrets, pools], objects);
      const parts = [
        secrets,
        protection,
        events,
        ...pools.running,
        ...enrolment,
        ...membership.running,
        ownership,
        poolOwnership,
        last,
      ];
      const running = runGroup(parts, serving.signal);
      try {
        await Promise.race([running, onAbort(signal)]);
        isEnding = true;
        const handingOver = clock.within(handOverMs);
        await membership.leave(handingOver);
        await Promise.all([ownership, poolOwnership].map((owned) => owned.handOverAll(handingOver)));
      } finally {
        late.cancel();
        serving.abort();
        await running;
        await members.ended();
      }
      await membership.end(clock.within(endMs)).catch((error: unknown) => {
        log.warn({ err: error }, "cannot delete the lease of this replica; others wait until it has expired");
      });
    },
  };
}

/** The parts of objects that affect more than their own members: which objects are active, who owns them, and which Secrets they need.
 *  Most changes concern conditions only. */
function createNeeds() {
  const known = new Map<string, string>();
  return {
    replace(all: readonly GraftedNode[]): void {
      known.clear();
      for (const object of all) known.set(object.metadata.name, needsOf(object));
    },
    /** Records a change of an object. @returns true if it concerns nothing but the object's own member. */
    follow(object: GraftedNode, type: "added" | "modified" | "deleted"): boolean {
      const { name } = object.metadata;
      const needed = needsOf(object);
      const isSame = type !== "deleted" && known.get(name) === needed;
      if (type === "deleted") known.delete(name);
      else known.set(name, needed);
      return isSame;
    },
  };
}

function needsOf(object: GraftedNode): string {
  const { metadata, spec, status } = object;
  const { uid, generation } = metadata;
  const isSeen = status?.machine !== undefined;
  return JSON.stringify([uid, generation, spec.static === undefined, isDeleted(object), isSeen, status?.owner]);
}

function reflectorOf<T extends ApiObject>(
  { client, clock, log }: FleetDeps,
  path: string,
  handler: ReflectorHandler<T>,
): Reflector<T> {
  return createReflector<T>({ client, path, handler, clock, log });
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
