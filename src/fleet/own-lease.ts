import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode, ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog, Logger } from "../lib/log.ts";
import { createFailureLog } from "../lib/retry.ts";
import { microTime } from "../lib/rfc3339.ts";
import type { Lease } from "../objects.ts";

/** A process that serves GraftedNodes of a namespace together with others: a Pod of the release's Deployment, or a process outside the
 *  cluster with a ServiceAccount of its own. */
export interface Replica {
  /** Name of its Pod, or of its ServiceAccount. */
  readonly name: string;
  /** UID of its Pod; outside the cluster, the UID of its ServiceAccount followed by a dot and an ID of the process. */
  readonly uid: string;
  /** UID of its ServiceAccount, outside the cluster only. */
  readonly accountUID?: string;
}

export interface OwnLeaseDeps extends ClockAndLog {
  readonly client: Pick<ApiClient, "get" | "patch" | "delete">;
  readonly namespace: string;
  /** The Helm release. */
  readonly release: string;
  readonly self: Replica;
}

/** Time after which a Lease that was not renewed has expired, and the interval of renewals, milliseconds. */
export const [durationMs, renewalMs] = [15_000, 5_000];
export const leasePrefix = "graftlet-replica-";
export const replicaLabel = "graftlet.dev/replica-of";
/** Label of the Lease of a replica that is shutting down. */
export const leavingLabel = "graftlet.dev/leaving";
/** Label of the Lease of a replica outside the cluster. */
export const outsideLabel = "graftlet.dev/outside";

/** Another process is the replica with this name. */
class NameInUseError extends CodedError {
  constructor({ name }: Replica) {
    super(
      "already_exists",
      `another graftlet runs with ServiceAccount ${name}: each replica outside the cluster needs an entry of its own in fleet.outsideReplicas`,
    );
  }
}

/** This replica's Lease. Policies allow a replica only the Lease with its name. @param path of the namespace's Leases. */
export function createOwnLease({ client, namespace, release, self, clock, log }: OwnLeaseDeps, path: string) {
  const at = `${path}/${leasePrefix}${self.name}`;
  const failures = createFailureLog(log, "cannot renew the lease of this replica; retrying");
  const turn = self.accountUID === undefined ? undefined : createTurn({ client, clock, log, self }, at);
  const lost = Promise.withResolvers<never>();
  lost.promise.catch(() => undefined);
  let renewedAt: number | undefined;
  let hasFailed = false;
  let isLeaving = false;
  const write = async (signal: AbortSignal): Promise<void> => {
    const resourceVersion = await turn?.version(signal);
    const metadata = {
      name: `${leasePrefix}${self.name}`,
      namespace,
      labels: {
        [replicaLabel]: release,
        ...(isLeaving && { [leavingLabel]: "true" }),
        ...(turn && { [outsideLabel]: "true" }),
      },
      // The cluster deletes the Lease with the Pod or the ServiceAccount.
      ownerReferences: [ownerOf(self)],
      ...(resourceVersion !== undefined && { resourceVersion }),
    };
    const spec = {
      holderIdentity: self.uid,
      leaseDurationSeconds: durationMs / 1_000,
      renewTime: microTime(clock.now()),
    };
    const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec };
    const written = await applyObject<Lease>(client, at, lease, signal, "graftlet-replica");
    turn?.written(written);
  };
  return {
    /** Rejects once another process has this replica's name. */
    lost: lost.promise,
    hasFailed: () => hasFailed,
    isLeaving: () => isLeaving,
    /** True if it was renewed recently enough for the others to wait for the next renewal. */
    isFresh: () => renewedAt !== undefined && clock.monotonic() - renewedAt < durationMs - renewalMs,
    async renew(leaves: boolean, signal: AbortSignal): Promise<void> {
      isLeaving ||= leaves;
      const began = clock.monotonic();
      try {
        await write(signal);
        renewedAt = began;
        hasFailed = false;
        failures.succeeded();
      } catch (error) {
        hasFailed = true;
        turn?.failed();
        if (error instanceof NameInUseError) lost.reject(error);
        else if (!signal.aborted && !hasCode(error, "unavailable", "conflict")) failures.failed(error);
      }
    },
    async remove(signal: AbortSignal): Promise<void> {
      await ignoreNotFound(client.delete(at, undefined, { signal }));
    },
  };
}

function ownerOf({ name, uid, accountUID }: Replica) {
  const owner = { apiVersion: "v1", name };
  return accountUID === undefined
    ? { ...owner, kind: "Pod", uid }
    : { ...owner, kind: "ServiceAccount", uid: accountUID };
}

interface TurnDeps {
  readonly client: Pick<ApiClient, "get">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly log: Logger;
  readonly self: Replica;
}

/** Of several processes with one ServiceAccount, at most one is the replica. A process becomes it if there is no Lease, or no process has
 *  renewed the Lease for as long as it lasts; a Pod's UID needs no such wait. @param path of the Lease. */
function createTurn({ client, clock, log, self }: TurnDeps, path: string) {
  let written: string | undefined;
  let hasHeld = false;
  /** The Lease of another process, and since when it has not changed, monotonic milliseconds. */
  let other: { readonly renewal: string; readonly since: number } | undefined;
  return {
    /** Returns the version that the Lease must still have; undefined if there is none.
     *  @throws CodedError unavailable while another process may still be the replica, NameInUseError if one is. */
    async version(signal: AbortSignal): Promise<string | undefined> {
      if (written !== undefined) return written;
      const lease = await ignoreNotFound(client.get<Lease>(path, { signal }));
      const { holderIdentity: holder = self.uid, renewTime } = lease?.spec ?? {};
      if (holder === self.uid) return lease?.metadata.resourceVersion;
      const renewal = `${holder} ${String(renewTime)}`;
      if (hasHeld || (other && other.renewal !== renewal)) throw new NameInUseError(self);
      if (!other) log.info({ holder }, "waiting until the lease of the previous process has expired");
      other ??= { renewal, since: clock.monotonic() };
      if (clock.monotonic() - other.since < durationMs)
        throw new CodedError("unavailable", "the previous process with this ServiceAccount may still be running");
      return lease?.metadata.resourceVersion;
    },
    written({ metadata }: Lease): void {
      written = metadata.resourceVersion;
      hasHeld = true;
    },
    /** The Lease is read again before the next attempt: the request may have been served, or another process may have written it. */
    failed: () => void (written = undefined),
  };
}
