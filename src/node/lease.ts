import type { ApiClient } from "../api/client.ts";
import { hasCode, ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { microTime } from "../lib/rfc3339.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Lease } from "../objects.ts";
import type { NodeSource } from "../pipeline.ts";

export interface LeaseDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly nodes: NodeSource;
  readonly nodeName: string;
  /** KubeletConfiguration.nodeLeaseDurationSeconds; renewed every quarter of it. */
  readonly durationSeconds: number;
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const retryDelayMs = 200;
const maxRetryDelayMs = 7_000;

/** Renews the node's Lease, which tells the control plane that the node is alive.
 *  @see https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats */
export function createLease({ client, nodes, nodeName, durationSeconds, clock, log }: LeaseDeps): Runnable {
  let known: Lease | undefined;
  let failures = 0;
  /** Number of attempts for which there was no Node to own the Lease. */
  let early = 0;

  const spec = () => ({
    holderIdentity: nodeName,
    leaseDurationSeconds: durationSeconds,
    renewTime: microTime(clock.now()),
  });

  const owners = () => {
    const uid = nodes.node()?.metadata.uid;
    return uid ? [{ apiVersion: "v1", kind: "Node", name: nodeName, uid }] : undefined;
  };

  const renew = async (signal: AbortSignal) => {
    known ??= await ignoreNotFound(client.get<Lease>(`${leases}/${nodeName}`, { signal }));
    const ownerReferences = owners();
    if (!known) {
      if (!ownerReferences) return void (early += 1);
      early = 0;
      const body = {
        apiVersion: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: { name: nodeName, namespace: "kube-node-lease", ownerReferences },
        spec: spec(),
      };
      known = await client.create<Lease>(leases, body, { signal });
      return;
    }
    // A Lease without an owner would outlive the Node.
    const isOrphan = (known.metadata.ownerReferences ?? []).length === 0 && ownerReferences;
    const metadata = { ...known.metadata, ...(isOrphan && { ownerReferences }) };
    known = await client.update<Lease>(
      `${leases}/${nodeName}`,
      { ...known, metadata, spec: { ...known.spec, ...spec() } },
      { signal },
    );
  };

  const periodMs = (durationSeconds * 1000) / 4;
  const intervalMs = () => {
    if (failures > 0) return Math.min(maxRetryDelayMs, retryDelayMs * 2 ** failures);
    return known ? periodMs * clock.jitter(1, 1.04) : Math.min(periodMs, retryDelayMs * 2 ** early);
  };
  return runPeriodically({ name: "lease", intervalMs, clock, log }, async (signal) => {
    try {
      await renew(clock.within(periodMs, signal));
      failures = 0;
    } catch (error) {
      known = undefined;
      if (failures++ === 0 && !signal.aborted && !hasCode(error, "unavailable", "conflict"))
        log.warn({ err: error }, "cannot renew lease; retrying");
    }
  });
}

/** Last renewal of a node's Lease, milliseconds since the epoch; undefined without a Lease. */
export async function lastRenewed(
  client: Pick<ApiClient, "get">,
  nodeName: string,
  signal: AbortSignal,
): Promise<number | undefined> {
  const lease = await ignoreNotFound(client.get<Lease>(`${leases}/${nodeName}`, { signal }));
  return lease?.spec?.renewTime === undefined ? undefined : Date.parse(lease.spec.renewTime);
}
