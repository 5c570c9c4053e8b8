import type * as k8s from "@kubernetes/client-node";
import type { ApiClient } from "../api/client.ts";
import { createReflector, type Reflector } from "../api/reflector.ts";
import type { ServiceAccounts } from "../api/objects.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { pemBlocks, pemCertificates } from "../lib/pem.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { onAbort } from "../lib/runnables.ts";
import { createSignal } from "../lib/signal.ts";
import type { NamespacedMeta, Pod, Wire } from "../objects.ts";
import type { EventSink, NodeSource } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { generateKeyAndProof } from "./x509.ts";

type Request = Omit<Wire<k8s.V1beta1PodCertificateRequest>, "metadata"> & { metadata: NamespacedMeta };
type Source = Wire<k8s.V1PodCertificateProjection>;

export interface PodCertificatesDeps extends NodeSource, ClockAndLog {
  readonly client: ApiClient;
  readonly accounts: ServiceAccounts;
  readonly events: EventSink;
  readonly nodeName: string;
  /** Feature gate PodCertificateRequest. */
  readonly enabled: boolean;
}

/** The kubelet's values of the label `state` of kubelet_podcertificate_states. */
export type PodCertificateState = "not_yet_issued" | "denied" | "failed" | "fresh" | "overdue_for_refresh" | "expired";

export type PodCertificates = ReturnType<typeof createPodCertificates>;

/** The certificates of one source of a projected volume. The private keys are never logged. */
interface Projection {
  readonly pod: Pod;
  readonly source: Source;
  /** Position in the pod: volume name and index of the source. */
  readonly at: readonly [volumeName: string, sourceIndex: number];
  readonly stop: AbortController;
  /** Wakes the projection's follower: aborted, and replaced, when a request of the pod changes. */
  wake: AbortController;
  started?: true;
  issued?: IssuedCertificate;
  pending?: PendingRequest;
  /** Why no certificate will be issued any more. */
  ended?: { readonly how: "denied" | "failed"; readonly reason: string; readonly message: string };
}

interface IssuedCertificate {
  readonly key: string;
  readonly certificateChain: string;
  /** Milliseconds since the epoch, as is `notAfter`. */
  readonly refreshAt: number;
  readonly notAfter: number;
  /** Events already sent about the certificate's age. */
  readonly reported: Set<string>;
}

interface PendingRequest {
  readonly key: string;
  readonly name: string;
  /** Milliseconds since the epoch; a request that is still missing after this time counts as deleted. */
  readonly abandonAt: number;
}

/** Intervals and timeouts of the kubelet, milliseconds. */
const deletedAfterMs = 10 * 60_000;
const overdueAfterMs = 10 * 60_000;
const spreadMs = 5 * 60_000;
const checkIntervalMs = 60_000;
const callTimeoutMs = 60_000;
/** Delays after failures: doubled from the first to the maximum. */
const firstRetryDelayMs = 500;
const maxRetryDelayMs = 60_000;

const apiVersion = "certificates.k8s.io/v1beta1";

/** Requests and refreshes the certificates of projected volumes. Requests are watched only while a registered pod needs one. As with a
 *  kubelet, keys are kept in memory only, and a restarted node requests new certificates.
 *  @see https://kubernetes.io/docs/concepts/storage/projected-volumes/#podcertificate */
export function createPodCertificates(deps: PodCertificatesDeps) {
  const { enabled, nodeName, clock } = deps;
  const projections = new Map<string, ReadonlyMap<string, Projection>>();
  const running = new Set<Promise<void>>();
  const changed = createSignal<[uid: string]>();
  const follow = createFollower(deps, changed.send);
  let watch: { readonly reflector: Reflector<Request>; readonly stop: AbortController } | undefined;

  const track = (work: Promise<void>) => {
    const ended: Promise<void> = work.finally(() => running.delete(ended));
    running.add(ended);
  };
  const wake = (uid: string) => {
    for (const projection of projections.get(uid)?.values() ?? []) {
      projection.wake.abort();
      projection.wake = new AbortController();
    }
  };
  const open = () => {
    const reflector = createReflector<Request>({
      ...deps,
      path: `/apis/${apiVersion}/podcertificaterequests`,
      fieldSelector: `spec.nodeName=${nodeName}`,
      handler: {
        replace: () => [...projections.keys()].forEach(wake),
        changed: ({ spec }) => wake(spec.podUID),
      },
    });
    const stop = new AbortController();
    track(reflector.run(stop.signal));
    return { reflector, stop };
  };

  const unregister = (uid: string) => {
    for (const { stop } of projections.get(uid)?.values() ?? []) stop.abort();
    if (!projections.delete(uid) || projections.size > 0) return;
    watch?.stop.abort();
    watch = undefined;
  };

  return {
    name: "pod certificates",
    register(pod: Pod) {
      const { uid } = pod.metadata;
      const found = enabled && !projections.has(uid) ? projectionsOf(pod) : new Map<string, Projection>();
      if (found.size === 0) return;
      projections.set(uid, found);
      watch ??= open();
      for (const projection of found.values()) track(follow(projection, watch.reflector));
    },
    unregister,
    credentials(pod: Pod, volumeName: string, sourceIndex: number) {
      if (!enabled) throw new CodedError("unimplemented", "unimplemented");
      const { namespace, name, uid } = pod.metadata;
      const projection = projections.get(uid)?.get(keyOf(volumeName, sourceIndex));
      if (!projection?.started)
        throw unavailable(`no credentials yet for key={${namespace} ${name} ${uid} ${volumeName} ${sourceIndex}}`);
      const { ended, issued } = projection;
      if (ended)
        throw new CodedError(
          "failed_precondition",
          `PodCertificateRequest was permanently ${ended.how}: reason=${JSON.stringify(ended.reason)} message=${JSON.stringify(ended.message)}`,
        );
      if (!issued) throw unavailable("credential bundle is not issued yet");
      return issued;
    },
    /** Calls the listener with a pod's UID when one of its certificates has been issued or denied, or has failed. */
    onChange: changed.subscribe,
    states: (): readonly { readonly signerName: string; readonly state: PodCertificateState }[] =>
      [...projections.values()]
        .flatMap((ofPod) => [...ofPod.values()])
        .filter(({ started }) => started)
        .map((projection) => ({ signerName: projection.source.signerName, state: stateOf(projection, clock.now()) })),
    async run(signal: AbortSignal) {
      await onAbort(signal);
      for (const uid of projections.keys()) unregister(uid);
      await Promise.all(running);
    },
  };
}

const keyOf = (volumeName: string, sourceIndex: number) => `${volumeName}/${sourceIndex}`;

function projectionsOf(pod: Pod): ReadonlyMap<string, Projection> {
  const found = new Map<string, Projection>();
  for (const { name, projected } of pod.spec.volumes ?? [])
    for (const [index, { podCertificate: source }] of (projected?.sources ?? []).entries())
      if (source)
        found.set(keyOf(name, index), {
          pod,
          source,
          at: [name, index],
          stop: new AbortController(),
          wake: new AbortController(),
        });
  return found;
}

/** Creates a function that requests and refreshes the certificates of one projection until it is stopped.
 *  @param onSettled called with the pod's UID when a request has been issued or denied, or has failed. */
function createFollower(deps: PodCertificatesDeps, onSettled: (uid: string) => void) {
  const { clock, log } = deps;
  const request = createRequester(deps);
  /** Brings a projection one step further. @throws if it should be retried soon. */
  const step = async (projection: Projection, requests: Reflector<Request>, signal: AbortSignal) => {
    const { pod, pending, issued } = projection;
    if (projection.ended) return;
    if (!pending && issued && clock.now() < issued.refreshAt) return;
    if (pending) {
      const { namespace, uid } = pod.metadata;
      const found = requests.get(namespace, pending.name);
      if (found) settle(deps, projection, pending, found);
      if (projection.pending !== pending) return onSettled(uid);
      if (!found && clock.now() > pending.abandonAt) {
        delete projection.pending;
        throw new CodedError(
          "not_found",
          `PodCertificateRequest "${namespace}/${pending.name}" appears to have been deleted`,
        );
      }
    }
    reportAge(deps, projection);
    if (!pending) projection.pending = await request(projection, signal);
  };
  return async (projection: Projection, requests: Reflector<Request>) => {
    const { signal } = projection.stop;
    await requests.ready(signal).catch(() => undefined);
    projection.started = true;
    let failures = 0;
    while (!signal.aborted) {
      const woken = projection.wake.signal;
      try {
        await step(projection, requests, clock.within(callTimeoutMs, signal));
        failures = 0;
      } catch (err) {
        if (signal.aborted) return;
        log.warn({ err, ...identity(projection) }, "cannot obtain pod certificate; retrying");
        failures += 1;
      }
      const retryMs = Math.min(firstRetryDelayMs * 2 ** failures, maxRetryDelayMs);
      const pauseMs = failures > 0 ? retryMs : clock.jitter(checkIntervalMs, 2 * checkIntervalMs);
      await clock.sleep(pauseMs, AbortSignal.any([signal, woken])).catch(() => undefined);
    }
  };
}

/** Creates PodCertificateRequests. */
function createRequester({ client, accounts, node, nodeName, clock }: PodCertificatesDeps) {
  // Generating RSA keys occupies a thread of the process for a second.
  const inTurn = createSemaphore(1);
  return async ({ pod, source }: Projection, signal: AbortSignal): Promise<PendingRequest> => {
    const { namespace, name, uid } = pod.metadata;
    const { serviceAccountName = "" } = pod.spec;
    const account = await accounts.serviceAccount(namespace, serviceAccountName, signal).catch((error: unknown) => {
      throw unavailable(`while fetching service account: ${messageOf(error)}`, error);
    });
    const nodeUid = node()?.metadata.uid;
    if (nodeUid === undefined)
      throw unavailable(`while getting node object from local cache: node ${JSON.stringify(nodeName)} not found`);
    const { key, request } = await inTurn(() => generateKeyAndProof(source.keyType));
    const created = await client.create<Request>(
      `/apis/${apiVersion}/namespaces/${namespace}/podcertificaterequests`,
      {
        apiVersion,
        kind: "PodCertificateRequest",
        metadata: {
          namespace,
          generateName: "req-",
          ownerReferences: [{ apiVersion: "v1", kind: "Pod", name, uid }],
        },
        spec: {
          signerName: source.signerName,
          podName: name,
          podUID: uid,
          serviceAccountName,
          serviceAccountUID: account.metadata.uid,
          nodeName,
          nodeUID: nodeUid,
          maxExpirationSeconds: source.maxExpirationSeconds,
          stubPKCS10Request: request,
          unverifiedUserAnnotations: source.userAnnotations,
        },
      },
      { signal },
    );
    const createdAt = timeOf(created.metadata.creationTimestamp) ?? clock.now();
    return { key, name: created.metadata.name, abandonAt: createdAt + deletedAfterMs + clock.jitter(0, spreadMs) };
  };
}

/** Applies the outcome of a request to its projection, and clears `pending`. Does nothing while there is no outcome. */
function settle(
  { events, clock }: PodCertificatesDeps,
  projection: Projection,
  { key }: PendingRequest,
  found: Request,
) {
  const { namespace, name } = found.metadata;
  const { conditions = [], certificateChain = "", beginRefreshAt, notAfter } = found.status ?? {};
  for (const { type, reason = "", message = "" } of conditions) {
    if (type === "Issued") {
      projection.issued = {
        key,
        certificateChain: pemCertificates(pemBlocks(certificateChain)),
        refreshAt: (timeOf(beginRefreshAt) ?? 0) + clock.jitter(0, spreadMs),
        notAfter: timeOf(notAfter) ?? 0,
        reported: new Set(),
      };
    } else if (type === "Denied" || type === "Failed") {
      const how = type === "Denied" ? "denied" : "failed";
      projection.ended = { how, reason, message };
      const verb = how === "denied" ? "was denied" : "failed";
      const why = `reason=${JSON.stringify(reason)}, message=${JSON.stringify(message)}`;
      const text = `PodCertificateRequest ${namespace}/${name} ${verb}, ${why}`;
      events.event(podReference(projection.pod), "Warning", type, text);
    } else continue;
    delete projection.pending;
    return;
  }
}

/** Sends an event when a certificate is overdue for refresh, and another when it has expired. */
function reportAge({ events, clock }: PodCertificatesDeps, { pod, issued }: Projection): void {
  if (!issued) return;
  const { refreshAt, notAfter, reported } = issued;
  const report = (reason: string, message: string) => {
    if (!reported.has(reason)) events.event(podReference(pod), "Warning", reason, message);
    reported.add(reason);
  };
  if (clock.now() > refreshAt + overdueAfterMs)
    report("CertificateOverdueForRefresh", "PodCertificate refresh overdue");
  if (clock.now() > notAfter) report("CertificateExpired", "PodCertificate expired");
}

function stateOf({ ended, issued }: Projection, now: number): PodCertificateState {
  if (ended) return ended.how;
  if (!issued) return "not_yet_issued";
  if (now > issued.notAfter) return "expired";
  return now > issued.refreshAt + overdueAfterMs ? "overdue_for_refresh" : "fresh";
}

function identity({ pod, at: [volume, sourceIndex] }: Projection) {
  return { pod: `${pod.metadata.namespace}/${pod.metadata.name}`, volume, sourceIndex };
}

/** Milliseconds since the epoch. */
function timeOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Date.parse(text);
}

function unavailable(message: string, cause?: unknown): CodedError {
  return new CodedError("unavailable", message, { cause });
}
