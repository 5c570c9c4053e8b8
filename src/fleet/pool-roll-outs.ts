import type { ClockAndLog } from "../lib/log.ts";
import type { GraftedNode } from "./grafted-node.ts";
import type { MemberRollOut } from "./member.ts";
import { startingPart } from "./member-node.ts";
import { type GraftedNodePool, withDefaults } from "./pool.ts";
import { createRollOut, type RollOut, type RollOutProgress, type RunningNode } from "./roll-out.ts";

export interface PoolRollOutsDeps extends ClockAndLog {
  /** The node that runs for the object of that name. */
  readonly runningOf: (name: string) => RunningNode | undefined;
  /** Has members of those names look again at what they may do. */
  readonly wake: (names: readonly string[]) => void;
}

/** The roll-outs of all pools of a namespace. */
export function createPoolRollOuts({ runningOf, wake, clock, log }: PoolRollOutsDeps) {
  const rollOuts = new Map<string, RollOut>();
  const rollOutOf = ({ metadata: { uid } }: GraftedNodePool): RollOut => {
    const rollOut = rollOuts.get(uid) ?? createRollOut();
    rollOuts.set(uid, rollOut);
    return rollOut;
  };
  return {
    /** Gives turns to members of a pool. @param active objects whose machines shall be nodes. */
    advance(pool: GraftedNodePool, active: readonly GraftedNode[]): RollOutProgress {
      const { disruption = {} } = pool.spec;
      const served = active.filter((member) => !withDefaults(member, pool).spec.paused);
      const members = served.map(({ metadata: { name } }) => ({ name, node: runningOf(name) }));
      const progress = rollOutOf(pool).advance({ template: templateOf(pool), disruption, members }, clock.monotonic());
      const { woken } = progress;
      if (woken.length > 0) {
        log.info({ pool: pool.metadata.name, nodes: woken }, "nodes restart with their pool's template");
        wake(woken);
      }
      return progress;
    },
    /** The roll-out of the pool that an object is a member of now. */
    memberOf: (
      object: () => GraftedNode,
      poolOf: (object: GraftedNode) => GraftedNodePool | undefined,
    ): MemberRollOut => ({
      template: () => templateOf(poolOf(object())),
      hasTurn() {
        const pool = poolOf(object());
        return !pool || rollOutOf(pool).hasTurn(object().metadata.name, templateOf(pool));
      },
    }),
    /** Forgets other pools than these. */
    keepOnly(uids: ReadonlySet<string>): void {
      for (const uid of rollOuts.keys()) if (!uids.has(uid)) rollOuts.delete(uid);
    },
  };
}

/** The part of a pool's template for which nodes start again. */
function templateOf(pool: GraftedNodePool | undefined): string {
  return startingPart(pool?.spec.template ?? {});
}
