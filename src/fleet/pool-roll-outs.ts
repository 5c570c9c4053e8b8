import { createHash } from "node:crypto";
import type { ClockAndLog } from "../lib/log.ts";
import { type GraftedNode, isReady } from "./grafted-node.ts";
import type { MemberRollOuts } from "./member.ts";
import { startingPart } from "./member-node.ts";
import { type GraftedNodePool, withDefaults } from "./pool.ts";
import { createRollOut, type RollOut, type RollOutProgress } from "./roll-out.ts";

/** Progress of a pool's roll-out, and the digest of its template. */
export interface PoolProgress extends RollOutProgress {
  readonly template: string;
}

/** The roll-outs of templates, as their members see them in the statuses of their pools. @param poolOf returns the pool of an object. */
export function memberRollOuts(poolOf: (object: GraftedNode) => GraftedNodePool | undefined): MemberRollOuts {
  return {
    template: (object) => templateOf(poolOf(object)),
    hasTurn(object) {
      const pool = poolOf(object);
      if (!pool) return true;
      const { template, restarting = [] } = pool.status?.rollOut ?? {};
      return template === templateOf(pool) && restarting.includes(object.metadata.name);
    },
  };
}

/** Creates the roll-outs of the pools that this replica decides about. */
export function createPoolRollOuts({ clock, log }: ClockAndLog) {
  const rollOuts = new Map<string, RollOut>();
  const rollOutOf = ({ metadata: { uid } }: GraftedNodePool): RollOut => {
    const rollOut = rollOuts.get(uid) ?? createRollOut();
    rollOuts.set(uid, rollOut);
    return rollOut;
  };
  return {
    /** Gives turns to as many members of a pool as may restart now. @param active the pool's active members. */
    advance(pool: GraftedNodePool, active: readonly GraftedNode[]): PoolProgress {
      const { disruption = {} } = pool.spec;
      const served = active.filter((member) => !withDefaults(member, pool).spec.paused);
      const members = served.map(({ metadata: { name }, status }) => ({
        name,
        node: status?.template === undefined ? undefined : { template: status.template, isReady: isReady(status) },
      }));
      const template = templateOf(pool);
      const progress = rollOutOf(pool).advance({ template, disruption, members }, clock.monotonic());
      const { woken: nodes } = progress;
      if (nodes.length > 0)
        log.info({ pool: pool.metadata.name, nodes }, "restarting nodes to apply their pool's template");
      return { ...progress, template };
    },
    /** Forgets all other pools. */
    keepOnly(uids: ReadonlySet<string>): void {
      for (const uid of rollOuts.keys()) if (!uids.has(uid)) rollOuts.delete(uid);
    },
  };
}

/** Digest of the part of a pool's template whose changes restart nodes. */
function templateOf(pool: GraftedNodePool | undefined): string {
  const text = startingPart(pool?.spec.template ?? {});
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}
