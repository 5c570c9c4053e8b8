import type { ApiClient } from "../api/client.ts";
import { createReflector, type ReflectorHandler } from "../api/reflector.ts";
import type { Logger } from "../lib/log.ts";
import { type Runnable, runGroup } from "../lib/runnables.ts";
import type { Secret } from "../objects.ts";
import type { NodeReporter, ReportedNode } from "../report/reported-node.ts";
import { isHeld } from "./finalizer.ts";
import { type GraftedNode, graftedNodePath, isDeleted } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createLoginProtection } from "./login-protection.ts";
import { createMember, type Member, type MemberDeps } from "./member.ts";

export interface FleetDeps extends Omit<MemberDeps, "report" | "port" | "secret" | "client"> {
  readonly client: ApiClient;
  /** Namespace of the objects and their Secrets. */
  readonly namespace: string;
  /** Ports that other listeners of the process have. */
  readonly usedPorts: readonly number[];
  /** Starts to report a node. */
  addNode(name: string): Disposable & { readonly report: ReportedNode & NodeReporter; readonly log: Logger };
  /** Called once the first list of objects is known. */
  onListed(): void;
}

/** Time after which a first list that is missing is a warning, milliseconds. */
const listingMs = 15_000;
/** The first port for a node's kubelet API. */
const firstPort = 10_250;

/** Serves the GraftedNodes of a namespace: an object that is added, changed or deleted starts, restarts or removes its node, and touches
 *  no other. A member whose object cannot be served waits for a change of the object, or of a Secret that it names. */
export function createFleet(deps: FleetDeps): Runnable {
  const { client, namespace, clock, log } = deps;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  const handler: ReflectorHandler<Secret> = {
    replace() {
      members.wake(() => true);
      protection.check();
    },
    changed({ metadata: { name } }) {
      members.wake((object) => loginSecretNames(object).includes(name));
      protection.check();
    },
  };
  const secrets = createReflector<Secret>({ client, path, handler, clock, log });
  let isListed = false;
  const named = () => (isListed ? new Set(members.objects().flatMap(loginSecretNames)) : undefined);
  const protection = createLoginProtection({ client, secrets: secrets.list, named, clock, log });
  const members = createMembers(deps, {
    secret: (name) => secrets.get(namespace, name),
    onGone: protection.check,
  });
  return {
    name: "fleet",
    async run(signal) {
      const objects = createReflector<GraftedNode>({
        client,
        path: graftedNodePath(namespace),
        handler: {
          replace(all) {
            members.replace(all, signal);
            isListed = true;
            protection.check();
            deps.onListed();
          },
          changed(object, type) {
            if (type === "deleted") members.remove(object);
            else members.update(object, signal);
            protection.check();
          },
        },
        clock,
        log,
      });
      const late = clock.after(listingMs, () => {
        if (!isListed)
          log.warn({ namespace }, "cannot list GraftedNodes yet: see whether their definition is installed");
      });
      await runGroup(
        [secrets, protection, { ...objects, run: (stop) => afterSecrets(secrets, objects, stop) }],
        signal,
      );
      late.cancel();
      await members.ended();
    },
  };
}

/** The members of a fleet by the names of their objects. */
function createMembers(deps: FleetDeps, { secret, onGone }: Pick<MemberDeps, "secret"> & { onGone(): void }) {
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
    const member = createMember({ ...deps, report, port, secret, log }, object);
    const stop = new AbortController();
    const ended = member
      .serve(AbortSignal.any([signal, stop.signal]))
      .catch((error: unknown) => log.error({ err: error }, "cannot serve the object anymore"))
      .finally(() => {
        added[Symbol.dispose]();
        if (members.get(name)?.object.metadata.uid === uid) members.delete(name);
        onGone();
      });
    members.set(name, { object, member, port, stop, ended });
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
    known.member.update(object);
  };
  return {
    objects: () => [...members.values()].map(({ object }) => object),
    update,
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
      for (const { object, member } of members.values()) if (concerned(object)) member.wake();
    },
    ended: () => Promise.all([...members.values()].map(({ ended }) => ended)),
  };
}

interface ServedMember {
  object: GraftedNode;
  readonly member: Member;
  readonly port: number;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/** Objects come after their Secrets: otherwise each would be refused at the start for a Secret that was not read yet. */
async function afterSecrets(
  secrets: { ready(signal: AbortSignal): Promise<void> },
  objects: Runnable,
  signal: AbortSignal,
) {
  await secrets.ready(signal).catch(() => undefined);
  if (!signal.aborted) await objects.run(signal);
}
