import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { createReflector, type ReflectorHandler } from "../api/reflector.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { memoize } from "../lib/memoize.ts";
import { createFailureLog } from "../lib/retry.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createTrigger } from "../lib/trigger.ts";
import { comparableStatus, conditionOf } from "./conditions.ts";
import { type GraftedNode, isDeleted, isReady } from "./grafted-node.ts";
import { activeMembers, type GraftedNodePool, poolPath, type PoolStatus, withDefaults } from "./pool.ts";
import { createPoolRollOuts, memberRollOuts, type PoolProgress } from "./pool-roll-outs.ts";

export interface PoolsDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly namespace: string;
  /** The objects as they are in the cluster. */
  readonly objects: () => readonly GraftedNode[];
  /** True if this replica decides about the pool. */
  readonly owns: (pool: GraftedNodePool) => boolean;
  /** Called when a pool is added or deleted, or its specification changes. */
  readonly onChange: () => void;
  /** Called when a pool's owner has changed, or decided something. */
  readonly onDecision: () => void;
}

/** A pool as last counted. */
interface ObservedPool {
  readonly name: string;
  /** `spec.replicas`; by default all members that may be active. */
  readonly wanted: number;
  readonly active: number;
  readonly ready: number;
  readonly updated: number;
  readonly isPaused: boolean;
}

/** Minimum interval between two updates of the pools, milliseconds. */
const minIntervalMs = 1_000;

export type Pools = ReturnType<typeof createPools>;

/** Watches the pools of a namespace. The replica that owns a pool decides which members are active and rolls out the template; it writes
 *  that into the pool's status, from which all replicas read it. */
export function createPools(deps: PoolsDeps) {
  const { client, namespace, clock, log } = deps;
  const changed = createTrigger();
  const written = new Map<string, string>();
  /** The pools that this replica owns as last counted, by their UIDs. */
  const observed = new Map<string, ObservedPool>();
  const pools = createReflector<GraftedNodePool>({
    client,
    path: poolPath(namespace),
    handler: poolChanges(deps),
    clock,
    log,
  });
  const poolOf = ({ spec: { poolRef } }: GraftedNode) => (poolRef ? pools.get(namespace, poolRef.name) : undefined);
  const completed = memoize(withDefaults);
  const rollOuts = createPoolRollOuts(deps);
  const membersOf = ({ metadata: { name } }: GraftedNodePool) =>
    deps.objects().filter((object) => object.spec.poolRef?.name === name && !isDeleted(object));
  const updatePool = async (pool: GraftedNodePool, signal: AbortSignal) => {
    const members = membersOf(pool);
    const names = chosenMembers(pool, members);
    const active = members.filter(({ metadata }) => names.has(metadata.name));
    const progress = rollOuts.advance(pool, active);
    if (progress.isUnderWay) changed.fire();
    const { name, uid } = pool.metadata;
    const status = statusOf(pool, { members: members.length, active, progress, now: rfc3339(clock.now()) });
    observed.set(uid, observedPool(pool, status, progress));
    const text = comparableStatus(status);
    if (written.get(uid) === text) return;
    const kind = { apiVersion: "graftlet.dev/v1alpha1", kind: "GraftedNodePool", metadata: { name } };
    await applyObject(client, `${poolPath(namespace, name)}/status`, { ...kind, status }, signal);
    written.set(uid, text);
  };
  /** Forgets pools that are gone, or that another replica decides about. */
  const forgetOthers = (own: readonly GraftedNodePool[]) => {
    const uids = new Set(own.map(({ metadata: { uid } }) => uid));
    for (const known of [written, observed]) for (const uid of known.keys()) if (!uids.has(uid)) known.delete(uid);
    rollOuts.keepOnly(uids);
  };
  const writer: Runnable = {
    name: "pools",
    async run(signal) {
      const failures = createFailureLog(log, "cannot write the status of a GraftedNodePool; retrying");
      while (!signal.aborted) {
        await changed.fired(signal);
        if (signal.aborted) return;
        const own = pools.list().filter(deps.owns);
        forgetOthers(own);
        for (const pool of own)
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
    list: pools.list,
    /** The pools that this replica owns as last counted. */
    observed: (): readonly ObservedPool[] => [...observed.values()],
    has: (name: string) => pools.get(namespace, name) !== undefined,
    rollOuts: memberRollOuts(poolOf),
    /** The object with its pool's defaults. */
    effective: (object: GraftedNode) => completed(object, poolOf(object)),
    /** To be called when an object, or the owner of a pool, has changed: the statuses of pools summarize their members. */
    check: changed.fire,
    /** Returns the names of the objects whose machines should be nodes. */
    active(): ReadonlySet<string> {
      const active = deps.objects().filter((object) => isActive(object, poolOf(object)));
      return new Set(active.map(({ metadata: { name } }) => name));
    },
  };
}

interface PoolCounts {
  readonly members: number;
  readonly active: readonly GraftedNode[];
  readonly progress: PoolProgress;
  /** RFC 3339. */
  readonly now: string;
}

function statusOf(pool: GraftedNodePool, { members, active, progress, now }: PoolCounts): PoolStatus {
  const { generation } = pool.metadata;
  const { template, restarting, updated, verdict } = progress;
  const names = active.map(({ metadata: { name } }) => name).toSorted();
  return {
    ...(generation !== undefined && { observedGeneration: generation }),
    members,
    replicas: active.length,
    readyReplicas: active.filter((member) => isReady(member.status)).length,
    updatedReplicas: updated,
    ...(pool.spec.replicas !== undefined && { activeMembers: names }),
    rollOut: { template, restarting },
    conditions: [conditionOf("RolledOut", verdict, pool.status?.conditions ?? [], { generation, now })],
  };
}

function observedPool(
  { metadata: { name }, spec }: GraftedNodePool,
  { replicas: active, readyReplicas: ready, updatedReplicas: updated }: PoolStatus,
  { verdict }: PoolProgress,
): ObservedPool {
  return { name, wanted: spec.replicas ?? active, active, ready, updated, isPaused: verdict.reason === "Paused" };
}

/** True if the object's machine should be a node, according to the object and its pool. Until its owner has decided about a pool that limits
 *  the number of active members, the machines that are nodes remain. */
function isActive(object: GraftedNode, pool: GraftedNodePool | undefined): boolean {
  if (!mayBeActive(object, pool)) return false;
  if (pool?.spec.replicas === undefined) return true;
  const chosen = pool.status?.activeMembers;
  return chosen ? chosen.includes(object.metadata.name) : object.status?.machine !== undefined;
}

function mayBeActive(object: GraftedNode, pool: GraftedNodePool | undefined): boolean {
  return (object.spec.active ?? pool?.spec.template?.active) !== false;
}

function chosenMembers(pool: GraftedNodePool, members: readonly GraftedNode[]): Set<string> {
  const before = pool.status?.activeMembers;
  return activeMembers(
    pool,
    members.map((member) => {
      const { name } = member.metadata;
      const isServed = member.status?.machine !== undefined;
      const wasActive = before ? before.includes(name) : isServed;
      return { name, mayBeActive: mayBeActive(member, pool), wasActive, isServed, pods: member.status?.pods ?? 0 };
    }),
  );
}

/** Calls back for changes of pools other than those of counts and conditions: reacting to these would wake all members every second. */
function poolChanges({ onChange, onDecision }: PoolsDeps): ReflectorHandler<GraftedNodePool> {
  const known = new Map<string, { readonly specification: string; readonly decision: string }>();
  const partsOf = ({ spec, status }: GraftedNodePool) => ({
    specification: JSON.stringify(spec),
    decision: JSON.stringify([status?.owner, status?.activeMembers, status?.rollOut]),
  });
  return {
    replace(all) {
      known.clear();
      for (const pool of all) known.set(pool.metadata.uid, partsOf(pool));
      onChange();
    },
    changed(pool, type) {
      const { uid } = pool.metadata;
      const before = known.get(uid);
      const now = partsOf(pool);
      if (type === "deleted") known.delete(uid);
      else known.set(uid, now);
      if (type !== "modified" || before?.specification !== now.specification) onChange();
      else if (before.decision !== now.decision) onDecision();
    },
  };
}
