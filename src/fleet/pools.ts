import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { createReflector, type ReflectorHandler } from "../api/reflector.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFailureLog } from "../lib/retry.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createTrigger } from "../lib/trigger.ts";
import { comparableStatus, conditionOf } from "./conditions.ts";
import { type GraftedNode, isDeleted, isReady } from "./grafted-node.ts";
import type { MemberRollOut } from "./member.ts";
import { startingPart } from "./member-node.ts";
import { activeMembers, type GraftedNodePool, poolPath, type PoolStatus, withDefaults } from "./pool.ts";
import { createRollOut, type RollOut, type RunningNode } from "./roll-out.ts";

export interface PoolsDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly namespace: string;
  /** The objects as they are in the cluster. */
  readonly objects: () => readonly GraftedNode[];
  /** Number of pods on the node of that name. */
  readonly podsOn: (name: string) => number;
  /** The node that runs for the object of that name. */
  readonly runningOf: (name: string) => RunningNode | undefined;
  /** Has members of those names look again at what they may do. */
  readonly wake: (names: readonly string[]) => void;
  /** Called when a pool has changed. */
  readonly onChange: () => void;
}

/** Minimum interval between two looks at the pools, and so between two writes of a status, milliseconds. */
const minIntervalMs = 1_000;

/** Watches the pools of a namespace, decides which members are active, rolls out templates, and writes the pools' statuses. */
export function createPools(deps: PoolsDeps) {
  const { client, namespace, clock, log } = deps;
  const changed = createTrigger();
  const written = new Map<string, string>();
  const rollOuts = new Map<string, RollOut>();
  const rollOutOf = ({ metadata: { uid } }: GraftedNodePool): RollOut => {
    const rollOut = rollOuts.get(uid) ?? createRollOut();
    rollOuts.set(uid, rollOut);
    return rollOut;
  };
  const notify = () => deps.onChange();
  const handler: ReflectorHandler<GraftedNodePool> = { replace: notify, changed: notify };
  const pools = createReflector<GraftedNodePool>({ client, path: poolPath(namespace), handler, clock, log });
  const poolOf = ({ spec: { poolRef } }: GraftedNode) => (poolRef ? pools.get(namespace, poolRef.name) : undefined);
  const membersOf = ({ metadata: { name } }: GraftedNodePool) =>
    deps.objects().filter((object) => object.spec.poolRef?.name === name && !isDeleted(object));
  const activeOf = (pool: GraftedNodePool, members: readonly GraftedNode[]) =>
    activeMembers(
      pool,
      members.map((member) => ({
        name: member.metadata.name,
        mayBeActive: withDefaults(member, pool).spec.active !== false,
        isServed: member.status?.machine !== undefined,
        pods: deps.podsOn(member.metadata.name),
      })),
    );
  const advance = (pool: GraftedNodePool, members: readonly GraftedNode[], active: ReadonlySet<string>) => {
    const served = members.filter(({ metadata: { name } }) => active.has(name));
    const rolled = served.filter((member) => !withDefaults(member, pool).spec.paused);
    const input = {
      template: templateOf(pool),
      disruption: pool.spec.disruption ?? {},
      members: rolled.map(({ metadata: { name } }) => ({ name, node: deps.runningOf(name) })),
    };
    const progress = rollOutOf(pool).advance(input, clock.monotonic());
    if (progress.woken.length > 0) {
      log.info({ pool: pool.metadata.name, nodes: progress.woken }, "nodes restart with their pool's template");
      deps.wake(progress.woken);
    }
    if (progress.isUnderWay) changed.fire();
    return progress;
  };
  const updatePool = async (pool: GraftedNodePool, signal: AbortSignal) => {
    const members = membersOf(pool);
    const active = activeOf(pool, members);
    const { verdict, updated } = advance(pool, members, active);
    const { name, uid, generation } = pool.metadata;
    const observed = { generation, now: rfc3339(clock.now()) };
    const ready = members.filter((member) => active.has(member.metadata.name) && isReady(member.status));
    const counts = { members: members.length, replicas: active.size, readyReplicas: ready.length };
    const status: PoolStatus = {
      ...(generation !== undefined && { observedGeneration: generation }),
      ...counts,
      updatedReplicas: updated,
      conditions: [conditionOf("RolledOut", verdict, pool.status?.conditions ?? [], observed)],
    };
    const text = comparableStatus(status);
    if (written.get(uid) === text) return;
    const kind = { apiVersion: "graftlet.dev/v1alpha1", kind: "GraftedNodePool", metadata: { name } };
    await applyObject(client, `${poolPath(namespace, name)}/status`, { ...kind, status }, signal);
    written.set(uid, text);
  };
  const forgetGone = () => {
    const uids = new Set(pools.list().map(({ metadata: { uid } }) => uid));
    for (const known of [written, rollOuts]) for (const uid of known.keys()) if (!uids.has(uid)) known.delete(uid);
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
    /** The roll-out of the pool that the object is a member of now. */
    rollOutOf: (object: () => GraftedNode): MemberRollOut => ({
      template: () => templateOf(poolOf(object())),
      hasTurn() {
        const pool = poolOf(object());
        return !pool || rollOutOf(pool).hasTurn(object().metadata.name, templateOf(pool));
      },
    }),
    /** The object with its pool's defaults. */
    effective: (object: GraftedNode) => withDefaults(object, poolOf(object)),
    /** Names of the objects whose machines shall be nodes. */
    decide(): ReadonlySet<string> {
      changed.fire();
      const single = deps.objects().filter((object) => !poolOf(object) && object.spec.active !== false);
      const pooled = pools.list().flatMap((pool) => [...activeOf(pool, membersOf(pool))]);
      return new Set([...single.map(({ metadata }) => metadata.name), ...pooled]);
    },
  };
}

/** The part of a pool's template for which nodes start again. */
function templateOf(pool: GraftedNodePool | undefined): string {
  return startingPart(pool?.spec.template ?? {});
}
