import { createEventRecorder } from "../api/events.ts";
import { type ApiObject, createReflector, type Reflector, type ReflectorHandler } from "../api/reflector.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { memoize } from "../lib/memoize.ts";
import { onAbort, type Runnable, runGroup } from "../lib/runnables.ts";
import type { Secret } from "../objects.ts";
import type { MachineListeners } from "../seams/machine-listeners.ts";
import { enrolmentSecretName, nodeOfEnrolment, withEnrolledKeys } from "./enrolment.ts";
import { approvedHostKey, type GraftedNode, graftedNodePath, isDeleted, isReadyWithOwner } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createObservedFleet } from "./fleet-report.ts";
import { createLogins } from "./logins.ts";
import { createMembers, type Members, type MembersDeps } from "./members.ts";
import type { Replica } from "./own-lease.ts";
import type { GraftedNodePool } from "./pool.ts";
import { createPools, type Pools } from "./pools.ts";
import { createReachMachine, type ReachMachineDeps } from "./reach-machine.ts";
import { createSharing, type SharedObjects, type Sharing } from "./sharing.ts";
import { createStarts } from "./starts.ts";
import { createTunnels, type Tunnels } from "./tunnels.ts";

export interface FleetDeps
  extends Omit<
    MembersDeps,
    | "secret"
    | "hasPool"
    | "isActive"
    | "rollOuts"
    | "startInTurn"
    | "events"
    | "effective"
    | "onStopped"
    | "onSuperseded"
  > {
  /** Namespace of the objects and their Secrets. */
  readonly namespace: string;
  /** This process, among the replicas that share the objects. */
  readonly self: Replica;
  /** True for the name of a node of the process's configuration, which no object configures. */
  isConfigured(name: string): boolean;
  /** Returns the listeners at which machines enrol and open reverse tunnels. */
  listeners(deps: ClockAndLog): Promise<MachineListeners>;
  /** Connects to a node's machine and runs a command there. @throws if that fails. */
  reach: ReachMachineDeps["reach"];
  /** Called once the first list of objects is known. */
  onListed(): void;
}

const unlisted = "cannot list GraftedNodes; check that their CustomResourceDefinition is installed";
/** Time after which a warning is logged if the first list has not arrived, milliseconds. */
const listingMs = 15_000;
/** Rate limit of events about objects: events per second, and burst. */
const eventRates = { qps: 5, burst: 50 };

/** Serves the GraftedNodes of a namespace, together with the other replicas of the release: each object has one owner. Adding, changing or
 *  deleting an object starts, restarts or removes its node, and affects no other node. A member whose object cannot be served waits for a
 *  change of the object, or of a Secret that it names. */
export function createFleet(deps: FleetDeps) {
  const { client, namespace, clock, log } = deps;
  /** Members outlive the signal of `run`, until other replicas can take their objects. */
  const serving = new AbortController();
  let isListed = false;
  const secretsHandler = secretChanges(() => ({ members, logins, tunnels }));
  const secrets = reflectorOf(deps, `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`, secretsHandler);
  const secret = (name: string) => secrets.get(namespace, name);
  const known = knownObjects(deps, () => ({ listed: objects, pools, secret }));
  const { all, isFleets, effective } = known;
  const listed = () => (isListed ? known.objects() : undefined);
  const logins = createLogins({ ...deps, secrets: secrets.list, objects: listed, object: known.object });
  const pools = createPools({
    ...deps,
    objects: all,
    owns: (pool) => sharing.pools.owns(pool),
    onChange() {
      poolsChanged();
      members.updateAll();
      logins.objectsChanged();
      tunnels.check();
    },
    onDecision() {
      poolsChanged();
      // Some of them may have a turn to restart.
      members.wake(({ spec }) => spec.poolRef !== undefined);
    },
  });
  const poolsChanged = () => {
    active.update();
    sharing.pools.check();
  };
  const active = createActive(pools, (concerned) => members.wake(({ metadata: { name } }) => concerned(name)));
  const events = createEventRecorder({ client, component: "graftlet", host: "", ...eventRates, clock, log });
  const isOwn = (object: GraftedNode) => isFleets(object) && sharing.nodes.owns(object);
  /** Serves an object that is this replica's, with a new member if it has none. */
  const serve = (name: string) => {
    const object = objects.get(namespace, name);
    if (object && isOwn(object) && !sharing.isEnding()) members.update(object, serving.signal);
  };
  /** The machine has seen a later epoch than the cluster knows: the cluster was restored from a backup, or another replica owned the object
   *  for a moment. */
  const onSuperseded = (name: string) => {
    const object = objects.get(namespace, name);
    if (object && isOwn(object)) sharing.nodes.takeAgain(object, serving.signal);
  };
  const completing = { ...deps, secret, hasPool: pools.has, effective };
  const members = createMembers({
    ...completing,
    events,
    isActive: active.has,
    rollOuts: pools.rollOuts,
    startInTurn: createStarts(clock),
    onStopped: serve,
    onSuperseded,
  });
  const tunnels = createTunnels({ ...deps, ...known, events, secret, onChange: () => sharing.nodes.check() });
  const sharing = createSharing({
    ...deps,
    release: deps.fleet.release,
    nodes: { ...known.shared, stop: members.stop, resume: serve, claims: tunnels.claims },
    pools: sharedPools(pools),
    reach: createReachMachine(completing),
    onReplicasChange: () => release.changed(),
  });
  const onListed = () => {
    isListed = true;
    deps.onListed();
  };
  const release = createObservedFleet(deps.self, () => ({ isListed, objects: all(), members, sharing }));
  const following = { pools, active, sharing, logins, tunnels, members, isOwn, onListed };
  const handler = notifying(objectChanges({ ...following, serving: serving.signal }), release.changed);
  const objects = reflectorOf(deps, graftedNodePath(namespace), handler);
  return {
    name: "fleet",
    /** What this replica serves, and the pools that it decides about. */
    observed: { nodes: members.observed, pools: pools.observed, sharing: sharing.observed, release },
    async run(signal: AbortSignal) {
      const late = clock.after(listingMs, () => isListed || log.warn({ namespace }, unlisted));
      const last = afterOthers([secrets, pools], objects);
      const parts = [secrets, logins.running, events, ...pools.running, ...tunnels.running, ...sharing.running, last];
      await runFleet({ parts, serving, members, sharing, tunnels }, signal).finally(late.cancel);
    },
  };
}

/** Pools, as replicas share them: nothing has to be stopped before another replica decides about one. */
function sharedPools({ list, check }: Pick<Pools, "list" | "check">): SharedObjects<GraftedNodePool> {
  return { objects: list, stop: () => Promise.resolve(), resume: check, isServed: () => false };
}

interface KnownObjectsParts {
  readonly listed: Pick<Reflector<GraftedNode>, "list" | "get">;
  readonly pools: Pick<Pools, "effective">;
  secret(name: string): Secret | undefined;
}

/** The objects that this release serves, by this replica or another. @param parts called at each use. */
function knownObjects({ namespace, isConfigured }: FleetDeps, parts: () => KnownObjectsParts) {
  const isFleets = ({ metadata, spec }: GraftedNode) => !spec.static && !isConfigured(metadata.name);
  const enrolled = memoize(withEnrolledKeys);
  const all = () => parts().listed.list().filter(isFleets);
  const effective = (object: GraftedNode) => {
    const { pools, secret } = parts();
    return enrolled(pools.effective(object), secret(enrolmentSecretName(object.metadata.name)));
  };
  return {
    isFleets,
    /** The objects as they are in the cluster. */
    all,
    /** Returns the object with the defaults of its pool, and the keys of its enrolled machine. */
    effective,
    /** All objects in that form, or the one with that name. */
    objects: () => all().map(effective),
    object(name: string): GraftedNode | undefined {
      const object = parts().listed.get(namespace, name);
      return object && isFleets(object) ? effective(object) : undefined;
    },
    /** The objects as replicas share them. */
    shared: {
      objects: all,
      isServed: isReadyWithOwner,
      needsPod: (object: GraftedNode) => needsPod(effective(object)),
    },
    /** True if the object's machine opens a reverse tunnel. */
    dialsIn: (object: GraftedNode) => parts().pools.effective(object).spec.ssh.reverse !== undefined,
  };
}

interface FleetParts {
  readonly parts: readonly Runnable[];
  /** Ends the parts and the members. */
  readonly serving: AbortController;
  readonly members: Pick<Members, "ended">;
  readonly sharing: Pick<Sharing, "handOver" | "end">;
  readonly tunnels: Pick<Tunnels, "close">;
}

/** Runs the parts of a fleet until the signal aborts, and then until the objects have been handed over. */
async function runFleet({ parts, serving, members, sharing, tunnels }: FleetParts, signal: AbortSignal): Promise<void> {
  const running = runGroup(parts, serving.signal);
  try {
    await Promise.race([running, onAbort(signal)]);
    tunnels.close();
    await sharing.handOver();
  } finally {
    serving.abort();
    await Promise.allSettled([running, members.ended()]);
  }
  await running;
  await sharing.end();
}

interface SecretUsers {
  readonly members: Members;
  readonly logins: ReturnType<typeof createLogins>;
  readonly tunnels: Pick<Tunnels, "check">;
}

/** Follows the Secrets of the namespace. A changed one wakes the members that need it. @param users called at each change. */
function secretChanges(users: () => SecretUsers): ReflectorHandler<Secret> {
  return {
    replace() {
      const { members, logins, tunnels } = users();
      members.updateAll();
      logins.check();
      tunnels.check();
    },
    changed(secret) {
      const { members, logins, tunnels } = users();
      const { name } = secret.metadata;
      const enrolling = nodeOfEnrolment(name);
      if (enrolling !== undefined) members.refresh(enrolling);
      if (enrolling !== undefined || logins.concerns(secret)) tunnels.check();
      // Most Secrets of the namespace contain certificates of nodes, which members do not use.
      if (!logins.concerns(secret)) return;
      members.wake((object) => loginSecretNames(object).includes(name));
      logins.check();
    },
  };
}

/** The names of the objects whose machines should be nodes. @param wake wakes the members of the objects that are concerned. */
function createActive(pools: Pick<Pools, "active" | "check">, wake: (concerned: (name: string) => boolean) => void) {
  let active: ReadonlySet<string> = new Set();
  return {
    has: (name: string) => active.has(name),
    /** Wakes the members whose machines become nodes, or leave the cluster. */
    update(): void {
      const before = active;
      active = pools.active();
      pools.check();
      wake((name) => before.has(name) !== active.has(name));
    },
  };
}

interface ObjectChangesParts {
  readonly pools: Pick<Pools, "check">;
  readonly active: Pick<ReturnType<typeof createActive>, "update">;
  readonly sharing: Pick<Sharing, "nodes" | "reachClaims">;
  readonly logins: Pick<ReturnType<typeof createLogins>, "objectsChanged" | "objectChanged">;
  readonly tunnels: Pick<Tunnels, "check" | "hasArrived">;
  readonly members: Pick<Members, "replace" | "update" | "stop">;
  /** True if this replica serves the object. */
  isOwn(object: GraftedNode): boolean;
  /** Aborts when members end. */
  readonly serving: AbortSignal;
  /** Called after each list, once members serve its objects. */
  onListed(): void;
}

/** Follows the objects of the namespace. */
function objectChanges(parts: ObjectChangesParts): ReflectorHandler<GraftedNode> {
  const { pools, active, sharing, logins, tunnels, members } = parts;
  const needs = createNeeds();
  return {
    replace(listed) {
      needs.replace(listed);
      active.update();
      members.replace(listed.filter(parts.isOwn), parts.serving);
      parts.onListed();
      sharing.nodes.check();
      sharing.reachClaims.check();
      logins.objectsChanged();
      tunnels.check();
    },
    changed(object, type) {
      const change = needs.follow(object, type);
      sharing.reachClaims.changed(object);
      if (change.needs) active.update();
      else pools.check();
      if (type !== "deleted" && parts.isOwn(object)) members.update(object, parts.serving);
      else void members.stop(object.metadata.name);
      // Whether its owner is connected matters where its machine has connected, too.
      if (change.needs || change.owner || tunnels.hasArrived(object.metadata.name)) sharing.nodes.check();
      if (change.needs) logins.objectChanged(object.metadata.name);
      if (change.needs || change.owner) tunnels.check();
    },
  };
}

/** Calls back after each change, too. */
function notifying<T>(handler: ReflectorHandler<T>, onChange: () => void): ReflectorHandler<T> {
  return {
    replace(all) {
      handler.replace(all);
      onChange();
    },
    changed(object, type) {
      handler.changed(object, type);
      onChange();
    },
  };
}

/** The parts of objects that affect more than their own members: which objects are active and which Secrets they need, and who owns them.
 *  Most changes concern conditions only. */
function createNeeds() {
  const known = new Map<string, { readonly needs: string; readonly owner: string }>();
  const partsOf = (object: GraftedNode) => ({ needs: needsOf(object), owner: JSON.stringify(object.status?.owner) });
  return {
    replace(all: readonly GraftedNode[]): void {
      known.clear();
      for (const object of all) known.set(object.metadata.name, partsOf(object));
    },
    /** Records a change of an object. @returns which of these parts have changed. */
    follow(object: GraftedNode, type: "added" | "modified" | "deleted") {
      const { name } = object.metadata;
      const [before, now] = [known.get(name), partsOf(object)];
      if (type === "deleted") known.delete(name);
      else known.set(name, now);
      const isGone = type === "deleted";
      return { needs: isGone || before?.needs !== now.needs, owner: isGone || before?.owner !== now.owner };
    },
  };
}

/** True for a machine that connects to the listener, which Pods have, or whose pods reach the cluster over the link: Pods reach Services. */
function needsPod({ spec }: GraftedNode): boolean {
  return spec.ssh.reverse !== undefined || (spec.network ?? "tunneled") === "tunneled";
}

function needsOf(object: GraftedNode): string {
  const { metadata, spec, status } = object;
  const { uid, generation } = metadata;
  const isSeen = status?.machine !== undefined;
  const isStatic = spec.static !== undefined;
  return JSON.stringify([uid, generation, isStatic, isDeleted(object), isSeen, approvedHostKey(object)]);
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
