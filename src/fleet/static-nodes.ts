import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { createReflector } from "../api/reflector.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFailureLog, retryUntilDone } from "../lib/retry.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { ObjectMeta } from "../objects.ts";
import type { ReportedNode } from "../report/reported-node.ts";
import { isHeld, removeFinalizer } from "./finalizer.ts";
import { type GraftedNode, graftedNodeKind, graftedNodePath, isDeleted, staticLabel } from "./grafted-node.ts";
import { createStatusWriter, statusOf } from "./member-status.ts";

/** A node of the process's configuration, and its reports. */
export interface StaticNode {
  readonly config: Pick<NodeConfig, "nodeName" | "provider" | "providerConfig">;
  readonly report: ReportedNode;
}

export interface StaticNodesDeps extends ClockAndLog {
  readonly client: ApiClient;
  /** Namespace of the objects. */
  readonly namespace: string;
  /** The Helm release, which the objects' label and specification name. */
  readonly release: string;
  readonly nodes: readonly StaticNode[];
  /** Owner of the objects, which the cluster deletes with it; undefined if it is unknown. */
  readonly owner: NonNullable<ObjectMeta["ownerReferences"]>[number] | undefined;
}

/** Field manager of the objects' specifications. */
const manager = "graftlet-static";
/** Delay before a failed request is repeated, and minimum interval between two creations of one object, milliseconds. */
const retryMs = 10_000;
const minIntervalMs = 1_000;

/** Shows the nodes of the configuration as GraftedNodes, as a kubelet shows static pods as mirror pods: the configuration decides
 *  everything about these nodes, and their objects exist for their status. A deleted object is created again. At the start, objects of
 *  nodes that are no longer configured are deleted, or left to the fleet if users have written to their specification.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function createStaticNodes(deps: StaticNodesDeps) {
  const { client, namespace, release, nodes, clock, log } = deps;
  const shown = new Map(nodes.map((node) => [node.config.nodeName, createShownNode(deps, node)]));
  const message = "cannot delete the GraftedNode of a node that is no longer configured; retrying";
  const retry = { message, delayMs: () => retryMs, clock, log };
  return {
    name: "static nodes",
    /** The nodes of the configuration, and their conditions now. */
    nodes: () => [...shown].map(([name, node]) => ({ name, pool: undefined, conditions: node.conditions() })),
    async run(signal: AbortSignal) {
      const follow = (object: GraftedNode) => {
        const node = shown.get(object.metadata.name);
        if (node) node.changed(object);
        else void retryUntilDone(retry, () => withdraw(client, object, signal), signal);
      };
      const objects = createReflector<GraftedNode>({
        client,
        path: graftedNodePath(namespace),
        labelSelector: `${staticLabel}=${release}`,
        handler: {
          replace(all) {
            const names = new Set(all.map(({ metadata }) => metadata.name));
            for (const [name, node] of shown) if (!names.has(name)) node.gone();
            for (const object of all) follow(object);
          },
          changed(object, type) {
            if (type === "deleted") shown.get(object.metadata.name)?.gone();
            else follow(object);
          },
        },
        clock,
        log,
      });
      const showAll = async () => {
        // An older list would report new objects as gone.
        await objects.ready(signal).catch(() => undefined);
        await Promise.all([...shown.values()].map((node) => node.show(signal)));
      };
      await Promise.all([objects.run(signal), showAll()]);
    },
  };
}

/** The configuration's nodes are always served. */
const served = { refused: undefined, stopped: undefined, hasLeft: false, template: undefined, epoch: undefined };

/** Keeps the object of one node, and its status. */
function createShownNode(deps: StaticNodesDeps, { config, report }: StaticNode) {
  const { client, clock } = deps;
  const log = deps.log.child({ node: config.nodeName });
  const failures = createFailureLog(log, "cannot show the node as a GraftedNode; retrying");
  const wanted = staticObject(deps, config);
  const path = graftedNodePath(deps.namespace, config.nodeName);
  const gone = createTrigger();
  let current: { object: GraftedNode } | undefined;
  /** Creates or updates the object, and writes its status until it is gone. */
  const showOnce = async (signal: AbortSignal) => {
    const shown = { object: await applyObject<GraftedNode>(client, path, wanted, signal, manager) };
    current = shown;
    const status = createStatusWriter({ client, report, clock, log }, () => ({ object: shown.object, ...served }));
    const stopFollowing = report.onChange(status.changed);
    status.changed();
    failures.succeeded();
    try {
      await status.during(() => gone.fired(signal), signal);
    } finally {
      current = undefined;
      stopFollowing();
    }
  };
  return {
    /** The node's conditions now, whether or not its object exists. */
    conditions: () =>
      statusOf({ object: current?.object ?? { metadata: {}, spec: wanted.spec }, ...served, report, now: clock.now() })
        .conditions ?? [],
    /** Follows a change of the object. */
    changed(object: GraftedNode) {
      if (isDeleted(object) && isHeld(object))
        // Its node was added to the configuration while the fleet served the object.
        removeFinalizer(client, object, clock.within(retryMs)).catch((error: unknown) => failures.failed(error));
      if (current?.object.metadata.uid === object.metadata.uid) current.object = object;
    },
    /** Creates the object again. */
    gone: () => current && gone.fire(),
    /** Shows the node until the signal aborts. */
    async show(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        let pauseMs = minIntervalMs;
        try {
          await showOnce(signal);
        } catch (error) {
          if (signal.aborted) return;
          failures.failed(error);
          pauseMs = retryMs;
        }
        await clock.sleep(pauseMs, signal).catch(() => undefined);
      }
    },
  };
}

/** The object that shows a node of the configuration, for a server-side apply. It references no Secret, because
 *  graftlet does not log in with it. */
function staticObject(
  { release, owner }: StaticNodesDeps,
  { nodeName, provider, providerConfig }: StaticNode["config"],
) {
  const kind = graftedNodeKind(nodeName);
  const { host, port, user, reverse } = (providerConfig ?? {}) as Readonly<Record<string, unknown>>;
  return {
    ...kind,
    metadata: {
      ...kind.metadata,
      labels: { [staticLabel]: release },
      ...(owner && { ownerReferences: [owner] }),
    },
    spec: {
      static: { release, provider },
      // Other providers have no host.
      ssh: typeof host === "string" ? { host, port, user, ...(reverse !== undefined && { reverse: {} }) } : {},
    },
  };
}

/** Deletes the object of a node that is no longer configured. If a user has written to its specification, it becomes an object that the
 *  fleet serves, with the same name, and so with the same Node. */
async function withdraw(
  client: ApiClient,
  { metadata: { name, namespace } }: GraftedNode,
  signal: AbortSignal,
): Promise<void> {
  const path = graftedNodePath(namespace, name);
  // The reflector's copies have no managedFields.
  const object = await ignoreNotFound(client.get<GraftedNode>(path, { signal }));
  if (!object || isDeleted(object)) return;
  const { uid, resourceVersion, managedFields = [], ownerReferences = [] } = object.metadata;
  const isUsers = managedFields.some((entry) => entry.manager !== manager && "f:spec" in (entry.fieldsV1 ?? {}));
  if (!isUsers) {
    await ignoreNotFound(client.delete(path, { preconditions: { uid, resourceVersion } }, { signal }));
    return;
  }
  const metadata = {
    uid,
    resourceVersion,
    labels: { [staticLabel]: null },
    ownerReferences: ownerReferences.filter(({ kind }) => kind !== "ServiceAccount"),
  };
  await client.patch(path, { type: "merge", body: { metadata, spec: { static: null } } }, { signal });
}
