import type { ClockAndLog } from "../lib/log.ts";
import type { GraftedNode } from "./grafted-node.ts";
import type { MemberRollOuts } from "./member.ts";
import { startingPart } from "./member-node.ts";
import { type GraftedNodePool, withDefaults } from "./pool.ts";
import { createRollOut, type RollOut, type RollOutProgress, type RunningNode } from "./roll-out.ts";

export interface PoolRollOutsDeps extends ClockAndLog {
  /** Returns the running node of the object with that name. */
  readonly runningOf: (name: string) => RunningNode | undefined;
  /** Wakes the members with these names, which then check whether they have a turn. */
  readonly wake: (names: readonly string[]) => void;
}

/** Creates the roll-outs of all pools of a namespace. @param poolOf returns the pool of an object. */
export function createPoolRollOuts(
  { runningOf, wake, clock, log }: PoolRollOutsDeps,
  poolOf: (object: GraftedNode) => GraftedNodePool | undefined,
) {
  const rollOuts = new Map<string, RollOut>();
  const rollOutOf = ({ metadata: { uid } }: GraftedNodePool): RollOut => {
    const rollOut = rollOuts.get(uid) ?? createRollOut();
    rollOuts.set(uid, rollOut);
    return rollOut;
  };
  const ofMembers: MemberRollOuts = {
    template: (object) => templateOf(poolOf(object)),
    hasTurn(object) {
      const pool = poolOf(object);
      return !pool || rollOutOf(pool).hasTurn(object.metadata.name, templateOf(pool));
    },
  };
  return {
    ofMembers,
    /** Gives turns to as many members of a pool as may restart now. @param active the pool's active members. */
    advance(pool: GraftedNodePool, active: readonly GraftedNode[]): RollOutProgress {
      const { disruption = {} } = pool.spec;
      const served = active.filter((member) => !withDefaults(member, pool).spec.paused);
      const members = served.map(({ metadata: { name } }) => ({ name, node: runningOf(name) }));
      const progress = rollOutOf(pool).advance({ template: templateOf(pool), disruption, members }, clock.monotonic());
      const { woken } = progress;
      if (woken.length > 0) {
        log.info({ pool: pool.metadata.name, nodes: woken }, "restarting nodes to apply their pool's template");
        wake(woken);
      }
      return progress;
    },
    /** Forgets all other pools. */
    keepOnly(uids: ReadonlySet<string>): void {
      for (const uid of rollOuts.keys()) if (!uids.has(uid)) rollOuts.delete(uid);
    },
  };
}

/** The part of a pool's template whose changes restart nodes. */
function templateOf(pool: GraftedNodePool | undefined): string {
  return startingPart(pool?.spec.template ?? {});
}
