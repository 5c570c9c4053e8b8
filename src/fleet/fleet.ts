import { createEventRecorder } from "../api/events.ts";
import { type ApiObject, createReflector, type Reflector, type ReflectorHandler } from "../api/reflector.ts";
import type { ClockAndLog, Logger } from "../lib/log.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import type { Secret } from "../objects.ts";
import type { EnrolmentListeners } from "../seams/enrolment.ts";
import type { NodeReporter, ReportedNode } from "../report/reported-node.ts";
import { createEnrolment, enrolmentSecretName, nodeOfEnrolment, withEnrolledKeys } from "./enrolment.ts";
import { createEnrolmentService } from "./enrolment-service.ts";
import { isHeld } from "./finalizer.ts";
import { type GraftedNode, graftedNodePath, isDeleted } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createLoginProtection } from "./login-protection.ts";
import { createMember, type Member, type MemberDeps } from "./member.ts";
import { createPools } from "./pools.ts";

export interface FleetDeps
  extends Omit<MemberDeps, "report" | "port" | "secret" | "hasPool" | "isActive" | "rollOuts" | "events"> {
  /** Namespace of the objects and their Secrets. */
  readonly namespace: string;
  /** Ports that other listeners of the process have. */
  readonly usedPorts: readonly number[];
  /** Starts to report a node. */
  addNode(name: string): Disposable & { readonly report: ReportedNode & NodeReporter; readonly log: Logger };
  /** Returns where machines enrol. */
  enrolments(deps: ClockAndLog): Promise<EnrolmentListeners>;
  /** Called once the first list of objects is known. */
  onListed(): void;
}

const unlisted = "cannot list GraftedNodes; check that their CustomResourceDefinition is installed";
/** Time after which a first list that is missing is a warning, milliseconds. */
const listingMs = 15_000;
/** Rate of events about objects, those a second and their burst. */
const eventRates = { qps: 5, burst: 50 };
/** The first port for a node's kubelet API. */
const firstPort = 10_250;

/** Serves the GraftedNodes of a namespace: an object that is added, changed or deleted starts, restarts or removes its node, and touches
 *  no other. A member whose object cannot be served waits for a change of the object, or of a Secret that it names. */
export function createFleet(deps: FleetDeps): Runnable {
  const { client, namespace, clock, log } = deps;
  const secrets = reflectorOf<Secret>(deps, `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`, {
    replace() {
      members.updateAll();
      protection.check();
    },
    changed({ metadata: { name } }) {
      members.wake((object) => loginSecretNames(object).includes(name));
      const enrolling = nodeOfEnrolment(name);
      if (enrolling !== undefined) members.refresh(enrolling);
      protection.check();
    },
  });
  let isListed = false;
  const named = () => (isListed ? new Set(members.objects().flatMap(loginSecretNames)) : undefined);
  const protection = createLoginProtection({ client, secrets: secrets.list, named, clock, log });
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
  /** The object with the defaults of its pool, and the keys of a machine that has enrolled. */
  const effective = (object: GraftedNode) =>
    withEnrolledKeys(pools.effective(object), secret(enrolmentSecretName(object.metadata.name)));
  const events = createEventRecorder({ client, component: "graftlet", host: "", ...eventRates, clock, log });
  const members = createMembers(deps, {
    events,
    secret,
    hasPool: (name) => pools.has(name),
    isActive: (name) => active.has(name),
    rollOuts: pools.rollOuts,
    effective,
    onGone: protection.check,
  });
  const { listener } = deps.fleet;
  const enrolment =
    listener &&
    createEnrolmentService({
      ...deps,
      listener,
      handler: ({ publicKeyOf }) =>
        createEnrolment({ client, clock, events, object: members.effective, secret, publicKeyOf }),
    });
  return {
    name: "fleet",
    async run(signal) {
      const objects = reflectorOf<GraftedNode>(deps, graftedNodePath(namespace), {
        replace(all) {
          decide();
          members.replace(all, signal);
          isListed = true;
          protection.check();
          deps.onListed();
        },
        changed(object, type) {
          decide();
          if (type === "deleted") members.remove(object);
          else members.update(object, signal);
          protection.check();
        },
      });
      listed = objects.list;
      const late = clock.after(listingMs, () => isListed || log.warn({ namespace }, unlisted));
      await runGroup(
        [
          secrets,
          protection,
          events,
          ...pools.running,
          ...(enrolment ? [enrolment] : []),
          { ...objects, run: (stop) => afterOthers([secrets, pools], objects, stop) },
        ],
        signal,
      );
      late.cancel();
      await members.ended();
    },
  };
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
  const { secret, hasPool, events, isActive, rollOuts, effective, onGone } = parts;
  const members = new Map<string, ServedMember>();
  const freePort = () => {
    const used = new Set([...deps.usedPorts, ...[...members.values()].map(({ port }) => port)]);
    let port = firstPort;
    while (used.has(port)) port += 1;
    return port;
  };
  const serve = (object: GraftedNode, signal: AbortSignal) => {
    const { name, uid } = object.metadata;
    const port = freePort();
    const added = deps.addNode(name);
    const { report, log } = added;
    const own = { report, port, secret, hasPool, events, isActive: () => isActive(name), rollOuts, log };
    const member = createMember({ ...deps, ...own }, effective(object));
    const stop = new AbortController();
    const ended = member
      .serve(AbortSignal.any([signal, stop.signal]))
      .catch((error: unknown) => log.error({ err: error }, "cannot serve GraftedNode; its node has stopped"))
      .finally(() => {
        added[Symbol.dispose]();
        if (members.get(name)?.object.metadata.uid === uid) members.delete(name);
        onGone();
      });
    members.set(name, { object, member, report, port, stop, ended });
  };
  /** Serves an object once the one of that name before it has ended. */
  const replaceMember = async (old: ServedMember, object: GraftedNode, signal: AbortSignal) => {
    old.stop.abort();
    await old.ended;
    if (!signal.aborted && !members.has(object.metadata.name)) serve(object, signal);
  };
  const update = (object: GraftedNode, signal: AbortSignal) => {
    const known = members.get(object.metadata.name);
    // One that has left is about to go.
    if (!known && isDeleted(object) && !isHeld(object)) return;
    if (!known) return serve(object, signal);
    if (known.object.metadata.uid !== object.metadata.uid) return void replaceMember(known, object, signal);
    known.object = object;
    known.member.update(effective(object));
  };
  return {
    objects: () => [...members.values()].map(({ object }) => effective(object)),
    runningOf: (name: string) => members.get(name)?.member.running(),
    podsOn: (name: string) => members.get(name)?.report.introspection()?.pods().length ?? 0,
    update,
    effective(name: string) {
      const member = members.get(name);
      return member && effective(member.object);
    },
    /** Has a member follow what it is given beside its own specification. */
    refresh(name: string) {
      const known = members.get(name);
      known?.member.update(effective(known.object));
      known?.member.wake();
    },
    /** Has all members follow what their pools say now. */
    updateAll() {
      for (const { object, member } of members.values()) {
        member.update(effective(object));
        member.wake();
      }
    },
    /** Stops the node of an object that is gone. */
    remove: ({ metadata: { name } }: GraftedNode) => members.get(name)?.stop.abort(),
    /** Serves these objects and no others. */
    replace(all: readonly GraftedNode[], signal: AbortSignal) {
      const names = new Set(all.map(({ metadata }) => metadata.name));
      for (const [name, { stop }] of members) if (!names.has(name)) stop.abort();
      for (const object of all) update(object, signal);
    },
    /** Has the members of some objects look again at what they need. */
    wake(concerned: (object: GraftedNode) => boolean) {
      for (const { object, member } of members.values()) if (concerned(effective(object))) member.wake();
    },
    ended: () => Promise.all([...members.values()].map(({ ended }) => ended)),
  };
}

interface MembersParts extends Pick<MemberDeps, "secret" | "hasPool" | "rollOuts" | "events"> {
  isActive(name: string): boolean;
  /** The object with its pool's defaults. */
  effective(object: GraftedNode): GraftedNode;
  /** Called when an object is served no more. */
  onGone(): void;
}

interface ServedMember {
  /** As it is in the cluster. */
  object: GraftedNode;
  readonly member: Member;
  readonly report: ReportedNode;
  readonly port: number;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/** Lists objects only after Secrets and pools: otherwise an object would be refused at startup because its Secret had not been read yet. */
async function afterOthers(
  others: readonly { ready(signal: AbortSignal): Promise<void> }[],
  objects: Runnable,
  signal: AbortSignal,
): Promise<void> {
  await Promise.all(others.map((other) => other.ready(signal))).catch(() => undefined);
  if (!signal.aborted) await objects.run(signal);
}
