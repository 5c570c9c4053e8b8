import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { createReflector, type ReflectorHandler } from "../api/reflector.ts";
import { hasCode } from "../lib/errors.ts";
import { createFailureLog } from "../lib/retry.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createTrigger } from "../lib/trigger.ts";
import { comparableStatus, conditionOf } from "./conditions.ts";
import { type GraftedNode, isDeleted, isReady } from "./grafted-node.ts";
import { activeMembers, type GraftedNodePool, poolPath, type PoolStatus, withDefaults } from "./pool.ts";
import { createPoolRollOuts, type PoolRollOutsDeps } from "./pool-roll-outs.ts";

export interface PoolsDeps extends PoolRollOutsDeps {
  readonly client: ApiClient;
  readonly namespace: string;
  /** The objects as they are in the cluster. */
  readonly objects: () => readonly GraftedNode[];
  /** Number of pods on the node of that name. */
  readonly podsOn: (name: string) => number;
  /** Called when a pool is added or deleted, or its specification changes. */
  readonly onChange: () => void;
}

/** Minimum interval between two updates of the pools, milliseconds. */
const minIntervalMs = 1_000;

/** Watches the pools of a namespace, decides which members are active, rolls out templates, and writes the pools' statuses. */
export function createPools(deps: PoolsDeps) {
  const { client, namespace, clock, log } = deps;
  const changed = createTrigger();
  const written = new Map<string, string>();
  const handler = specificationChanges(deps.onChange);
  const pools = createReflector<GraftedNodePool>({ client, path: poolPath(namespace), handler, clock, log });
  const poolOf = ({ spec: { poolRef } }: GraftedNode) => (poolRef ? pools.get(namespace, poolRef.name) : undefined);
  const rollOuts = createPoolRollOuts(deps, poolOf);
  const membersOf = ({ metadata: { name } }: GraftedNodePool) =>
    deps.objects().filter((object) => object.spec.poolRef?.name === name && !isDeleted(object));
  const activeOf = (pool: GraftedNodePool, members: readonly GraftedNode[]) =>
    activeMembers(
      pool,
      members.map((member) => ({
        name: member.metadata.name,
        mayBeActive: (member.spec.active ?? pool.spec.template?.active) !== false,
        isServed: member.status?.machine !== undefined,
        pods: pool.spec.replicas === undefined ? 0 : deps.podsOn(member.metadata.name),
      })),
    );
  const updatePool = async (pool: GraftedNodePool, signal: AbortSignal) => {
    const members = membersOf(pool);
    const names = activeOf(pool, members);
    const active = members.filter(({ metadata }) => names.has(metadata.name));
    const progress = rollOuts.advance(pool, active);
    if (progress.isUnderWay) changed.fire();
    const { name, uid, generation } = pool.metadata;
    const observed = { generation, now: rfc3339(clock.now()) };
    const status: PoolStatus = {
      ...(generation !== undefined && { observedGeneration: generation }),
      members: members.length,
      replicas: active.length,
      readyReplicas: active.filter((member) => isReady(member.status)).length,
      updatedReplicas: progress.updated,
      conditions: [conditionOf("RolledOut", progress.verdict, pool.status?.conditions ?? [], observed)],
    };
    const text = comparableStatus(status);
    if (written.get(uid) === text) return;
    const kind = { apiVersion: "graftlet.dev/v1alpha1", kind: "GraftedNodePool", metadata: { name } };
    await applyObject(client, `${poolPath(namespace, name)}/status`, { ...kind, status }, signal);
    written.set(uid, text);
  };
  const forgetGone = () => {
    const uids = new Set(pools.list().map(({ metadata: { uid } }) => uid));
    for (const uid of written.keys()) if (!uids.has(uid)) written.delete(uid);
    rollOuts.keepOnly(uids);
  };
  const writer: Runnable = {
    name: "pools",
    async run(signal) {
      const failures = createFailureLog(log, "cannot write the status of a GraftedNodePool; retrying");
      while (!signal.aborted) {
        await changed.fired(signal);
        forgetGone();
        for (const pool of signal.aborted ? [] : pools.list())
          await updatePool(pool, signal).catch((error: unknown) => {
            if (signal.aborted || hasCode(error, "not_found")) return;
            failures.failed(error, { pool: pool.metadata.name });
            changed.fire();
          });
        await clock.sleep(minIntervalMs, signal).catch(() => undefined);
      }
    },
  };
  return {
    running: [pools, writer] as const,
    ready: pools.ready,
    has: (name: string) => pools.get(namespace, name) !== undefined,
    rollOuts: rollOuts.ofMembers,
    /** The object with its pool's defaults. */
    effective: (object: GraftedNode) => withDefaults(object, poolOf(object)),
    /** To be called when the status of an object has changed: the statuses of pools summarize them. */
    statusChanged: changed.fire,
    /** Returns the names of the objects whose machines should be nodes. */
    decide(): ReadonlySet<string> {
      changed.fire();
      const single = deps.objects().filter((object) => !poolOf(object) && object.spec.active !== false);
      const pooled = pools.list().flatMap((pool) => [...activeOf(pool, membersOf(pool))]);
      return new Set([...single.map(({ metadata }) => metadata.name), ...pooled]);
    },
  };
}

/** Calls back unless only the status of a pool has changed. This process writes the statuses itself: reacting to them would wake all
 *  members every second. */
function specificationChanges(onChange: () => void): ReflectorHandler<GraftedNodePool> {
  const known = new Map<string, string>();
  return {
    replace(all) {
      known.clear();
      for (const { metadata, spec } of all) known.set(metadata.uid, JSON.stringify(spec));
      onChange();
    },
    changed({ metadata: { uid }, spec }, type) {
      const specification = JSON.stringify(spec);
      if (type === "modified" && known.get(uid) === specification) return;
      if (type === "deleted") known.delete(uid);
      else known.set(uid, specification);
      onChange();
    },
  };
}
