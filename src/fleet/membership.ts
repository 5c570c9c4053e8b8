import type { ApiClient } from "../api/client.ts";
import { createReflector } from "../api/reflector.ts";
import type { Clock } from "../lib/clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { onAbort, type Runnable } from "../lib/runnables.ts";
import type { Lease } from "../objects.ts";
import {
  createOwnLease,
  durationMs,
  leasePrefix,
  leavingLabel,
  outsideLabel,
  type Replica,
  renewalMs,
  replicaLabel,
} from "./own-lease.ts";

/** A replica as the others see it. */
export interface SeenReplica extends Pick<Replica, "name" | "uid"> {
  /** True once it has announced that it is shutting down. */
  readonly isLeaving: boolean;
}

export interface MembershipDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly namespace: string;
  /** The Helm release, whose Pods are replicas. */
  readonly release: string;
  readonly self: Replica;
  /** Called when replicas have come or gone, or may have, and when the API server is no longer reached. */
  readonly onChange: () => void;
}

/** The replicas of a release, each known by a Lease that it renews. */
export interface Membership {
  readonly running: readonly Runnable[];
  /** True if the replica with this UID may still be serving its objects. */
  isAlive(uid: string): boolean;
  /** UIDs of the replicas that accept objects: those that are alive and are not shutting down. */
  accepting(): readonly string[];
  /** True if the replica with this UID runs outside the cluster. */
  isOutside(uid: string): boolean;
  /** Number of replicas that are alive. */
  alive(): number;
  /** The replicas that are alive, or all that were when the API server was last reached, if that was not recently. */
  replicas(): readonly SeenReplica[];
  /** False if the API server has not been reached recently, so that others may be alive although their Leases seem to have expired. */
  isCurrent(): boolean;
  /** True if this replica may take objects: its Lease was renewed recently, so that the API server and the others know of it. */
  mayTake(): boolean;
  /** Announces that this replica is shutting down: it keeps its objects until it has handed them over, and takes no others. */
  leave(signal: AbortSignal): Promise<void>;
  /** Deletes this replica's Lease: nothing is left that it serves. */
  end(signal: AbortSignal): Promise<void>;
}

/** Delay before a failed renewal is tried again, milliseconds. */
const retryMs = 1_000;

/** Renews this replica's Lease, and watches those of the others. Whether a Lease has expired is decided by when this process last saw it
 *  change, and not by the time in it, since the clocks of replicas may differ.
 *  @see https://kubernetes.io/docs/concepts/architecture/leases/ */
export function createMembership(deps: MembershipDeps): Membership {
  const { client, namespace, release, self, onChange, clock, log } = deps;
  const path = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
  const seen = createSightings(clock, release);
  let known = "";
  let timer = clock.after(durationMs, () => look());
  /** Tells of replicas that have come, gone or begun to shut down, and looks again when the next Lease may have expired. */
  const look = () => {
    timer.cancel();
    timer = clock.after(seen.nextExpiryMs(), look);
    const now = seen.summary();
    if (now === known) return;
    known = now;
    onChange();
  };
  const leases = createReflector<Lease>({
    client,
    path,
    labelSelector: replicaLabel,
    handler: {
      replace(all) {
        seen.keepOnly(all);
        for (const lease of all) seen.see(lease);
        look();
      },
      changed(lease, type) {
        if (type === "deleted") seen.forget(lease);
        else seen.see(lease);
        look();
      },
    },
    clock,
    log,
  });
  const own = createOwnLease(deps, path);
  const isCurrent = () => own.isFresh() && leases.synced();
  let wasFresh = false;
  const renewal = runPeriodically(
    { name: "replica lease", intervalMs: () => (own.hasFailed() ? retryMs : renewalMs), clock, log },
    async (signal) => {
      const couldTake = own.isFresh();
      await own.renew(false, clock.within(renewalMs, signal));
      const isLost = wasFresh && !own.isFresh();
      wasFresh = own.isFresh();
      if (isLost) onChange();
      if (!wasFresh || couldTake) return;
      seen.restart();
      onChange();
    },
  );
  return {
    running: [
      leases,
      { ...renewal, run: (signal) => renewal.run(signal).finally(() => timer.cancel()) },
      { name: "replica name", run: (signal) => Promise.race([onAbort(signal), own.lost]) },
    ],
    isAlive: (uid) => uid === self.uid || seen.isAlive(uid),
    accepting: () =>
      seen
        .replicas(true)
        .filter(({ isLeaving }) => !isLeaving)
        .map(({ uid }) => uid),
    isOutside: (uid) => (uid === self.uid ? self.accountUID !== undefined : seen.isOutside(uid)),
    alive: () => seen.replicas(true).length,
    replicas: () => seen.replicas(isCurrent()),
    isCurrent,
    mayTake: () => isCurrent() && !own.isLeaving(),
    leave: (signal) => own.renew(true, signal),
    end: (signal) => own.remove(signal),
  };
}

interface Sighting {
  /** Name of the replica. */
  readonly name: string;
  /** When the Lease was last seen to change, monotonic milliseconds. */
  readonly at: number;
  readonly renewTime: string | undefined;
  readonly release: string | undefined;
  readonly isLeaving: boolean;
  readonly isOutside: boolean;
}

/** What this process has seen of the Leases of replicas, also of other releases in the namespace: their objects are not taken.
 *  @param own the release whose replicas share objects. */
function createSightings(clock: Pick<Clock, "monotonic">, own: string) {
  const sightings = new Map<string, Sighting>();
  /** Since when the API server has answered without interruption: a Lease that could not be seen to change meanwhile gets its full time. */
  let since = clock.monotonic();
  const ageOf = ({ at }: Sighting) => clock.monotonic() - Math.max(at, since);
  /** If most of the replicas seem to have died at once, it is more likely that something else has delayed all of them. */
  const limitMs = () => {
    const silent = [...sightings.values()].filter((sighting) => ageOf(sighting) >= durationMs).length;
    return silent * 2 > sightings.size ? 2 * durationMs : durationMs;
  };
  const isAlive = (sighting: Sighting) => ageOf(sighting) < limitMs();
  return {
    see({ metadata, spec }: Lease): void {
      const uid = spec?.holderIdentity ?? "";
      const before = sightings.get(uid);
      const isLeaving = metadata.labels?.[leavingLabel] !== undefined;
      const isOutside = metadata.labels?.[outsideLabel] !== undefined;
      const isRenewed = before?.renewTime !== spec?.renewTime;
      const at = before && !isRenewed ? before.at : clock.monotonic();
      const release = metadata.labels?.[replicaLabel];
      const name = (metadata.name ?? "").slice(leasePrefix.length);
      // A process outside the cluster succeeds another one with the same Lease.
      for (const [other, { name: of }] of sightings) if (of === name && other !== uid) sightings.delete(other);
      sightings.set(uid, { name, at, renewTime: spec?.renewTime, release, isLeaving, isOutside });
    },
    forget: ({ spec }: Lease): unknown => sightings.delete(spec?.holderIdentity ?? ""),
    keepOnly(leases: readonly Lease[]): void {
      const uids = new Set(leases.map(({ spec }) => spec?.holderIdentity ?? ""));
      for (const uid of sightings.keys()) if (!uids.has(uid)) sightings.delete(uid);
    },
    /** Gives all Leases their full time again, because the API server could not be asked for a while. */
    restart: () => void (since = clock.monotonic()),
    isAlive(uid: string): boolean {
      const sighting = sightings.get(uid);
      return sighting !== undefined && isAlive(sighting);
    },
    isOutside: (uid: string): boolean => sightings.get(uid)?.isOutside ?? false,
    /** The replicas of this release that are alive. @param current false for all that were when the API server was last reached. */
    replicas: (current: boolean): readonly SeenReplica[] =>
      [...sightings]
        .filter(([, sighting]) => sighting.release === own && (!current || isAlive(sighting)))
        .map(([uid, { name, isLeaving }]) => ({ name, uid, isLeaving })),
    /** Says which replicas are alive, and which of them are shutting down. */
    summary: (): string =>
      JSON.stringify(
        [...sightings]
          .filter(([, sighting]) => isAlive(sighting))
          .map(([uid, { isLeaving }]) => `${uid} ${isLeaving}`)
          .toSorted(),
      ),
    /** Time until the next Lease expires unless it is renewed, milliseconds. */
    nextExpiryMs(): number {
      const limit = limitMs();
      const left = [...sightings.values()].map((sighting) => limit - ageOf(sighting)).filter((ms) => ms > 0);
      return Math.min(...left, limit) + 1;
    },
  };
}
