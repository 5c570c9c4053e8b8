import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { type GraftedNode, graftedNodePath } from "./grafted-node.ts";
import { createMembership, type MembershipDeps } from "./membership.ts";
import { createOwnership, mayServe, type OwnedObject, type OwnershipDeps } from "./ownership.ts";
import { type GraftedNodePool, poolPath } from "./pool.ts";
import { createReachClaims, type ReachClaimsDeps } from "./reach-claims.ts";

export interface SharingDeps extends ClockAndLog, Pick<MembershipDeps, "client" | "namespace" | "release" | "self"> {
  readonly nodes: SharedObjects<GraftedNode>;
  readonly pools: SharedObjects<GraftedNodePool>;
  /** Connects to the machine of an object and runs a command there. @throws if that fails. */
  readonly reach: ReachClaimsDeps["reach"];
  /** Called when replicas have come or gone, or may have. */
  readonly onReplicasChange: () => void;
}

export type SharedObjects<T extends OwnedObject> = Pick<
  OwnershipDeps<T>,
  "objects" | "stop" | "resume" | "isServed" | "claims" | "needsPod"
>;

/** Time limit for handing over the objects when this replica shuts down, milliseconds. It is less than the grace period of its Pod. */
const handOverMs = 100_000;
/** Time limit for deleting its Lease then, milliseconds. */
const endMs = 5_000;

export type Sharing = ReturnType<typeof createSharing>;

/** Shares GraftedNodes and pools with the other replicas of the release. */
export function createSharing({ nodes, pools, onReplicasChange, ...deps }: SharingDeps) {
  const { clock, log } = deps;
  const membership = createMembership({
    ...deps,
    onChange() {
      reachClaims.check();
      ofNodes.check();
      ofPools.check();
      onReplicasChange();
    },
  });
  const reachClaims = createReachClaims({
    clock,
    log,
    self: deps.self.uid,
    objects: () => nodes.objects().filter((object) => !nodes.claims?.concerns(object)),
    accepting: (object) =>
      membership.mayTake()
        ? membership.accepting().filter((uid) => mayServe({ ...nodes, membership }, uid, object))
        : [],
    reach: deps.reach,
    onDue: () => ofNodes.check(),
  });
  const ofNodes = createOwnership({ ...deps, ...nodes, membership, reachClaims, path: graftedNodePath });
  const ofPools = createOwnership({ ...deps, ...pools, membership, path: poolPath });
  let isEnding = false;
  const running: readonly Runnable[] = [...membership.running, ofNodes, ofPools, reachClaims];
  return {
    running,
    membership,
    nodes: ofNodes,
    pools: ofPools,
    reachClaims,
    observed: () => ({ replicas: membership.alive(), unowned: ofNodes.unowned() }),
    /** True once this replica hands over its objects. */
    isEnding: () => isEnding,
    /** Hands over all objects of this replica, which takes no more. */
    async handOver(): Promise<void> {
      isEnding = true;
      const limit = clock.within(handOverMs);
      await membership.leave(limit);
      await Promise.all([ofNodes.handOverAll(limit), ofPools.handOverAll(limit)]);
    },
    /** Tells the others that nothing is left that this replica serves. */
    async end(): Promise<void> {
      await membership.end(clock.within(endMs)).catch((error: unknown) => {
        log.warn({ err: error }, "cannot delete the lease of this replica; others wait until it has expired");
      });
    },
  };
}
