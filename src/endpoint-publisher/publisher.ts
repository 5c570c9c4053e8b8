import { isIPv4 } from "node:net";
import type { OwnSlices, SliceOwner } from "../api/endpoint-slices.ts";
import { coalesce } from "../lib/coalesce.ts";
import { createRateLimitedWarning } from "../lib/rate-limited-warning.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { throttle } from "../lib/throttle.ts";
import { onAbort, type Runnable } from "../lib/runnables.ts";
import type { FairShares } from "../lib/fair-shares.ts";
import type { EndpointSlice, Service, WrittenSlice, Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { readySandboxIPs } from "../pod/sandbox.ts";
import type { ApiPod } from "../roles.ts";
import type { Host } from "../seams/host.ts";
import type { Column } from "../state/records.ts";
import { reportChanges, type ReportLimitation } from "../api/limitations.ts";
import { createEndpointListeners, type PublishedPort, type EndpointListeners } from "./endpoint-listeners.ts";
import { type ServiceEndpoint, serviceEndpoints, isEndpointCandidate, selectsPod } from "./service-endpoints.ts";
import type { ServiceSource } from "../api/listers.ts";
import { isSliceOfNode, publishedPortsAt, hasSameContent, type PublishedAddress, buildSlice } from "./slices.ts";

export interface PublisherDeps extends ClockAndLog {
  readonly host: Pick<Host, "dial" | "forPods">;
  readonly nodeName: string;
  /** Limits of the process, for all of its nodes. */
  readonly tunnelLimits: { readonly connections: FairShares };
  /** Cluster address of graftlet itself. */
  readonly own: string;
  /** The cluster node on which graftlet runs, if known. */
  readonly podNode: string | undefined;
  /** Owner of the slices; read once. */
  readonly owner: (signal: AbortSignal) => Promise<SliceOwner>;
  readonly services: ServiceSource;
  /** Headless Services; the cluster cannot reach this node's pods through them. Absent if graftlet does not watch them. */
  readonly headless: ServiceSource | undefined;
  /** Returns true if graftlet's permissions allow it to publish pods of a Service. */
  readonly mayPublish: (service: Service) => boolean;
  /** EndpointSlices of graftlet's nodes. */
  readonly slices: Omit<OwnSlices, "name" | "run">;
  readonly report: ReportLimitation;
  readonly apiPods: Column<ApiPod>;
  readonly podCache: Column<RuntimePod>;
}

/** Minimum interval between reactions to changes, milliseconds. */
const syncIntervalMs = 250;
/** Retry delay after the cluster has refused a slice, milliseconds. */
const retryDelayMs = 5_000;
/** Time limit for deleting the slices when graftlet stops, milliseconds. */
const cleanupTimeoutMs = 5_000;

/** Publishes the pods of an isolated target as endpoints of the cluster's Services, at ports of graftlet itself that forward over the
 *  link. Deletes the slices when it stops, since its address may be reassigned. */
export function createServicePublisher(deps: PublisherDeps): Runnable {
  const { services, headless, slices, apiPods, podCache, clock, log } = deps;
  const warn = createRateLimitedWarning({ log, clock }, "cannot publish endpoints of the node's pods; retrying");
  return {
    name: "Service endpoint publisher",
    async run(signal) {
      await slices.ready(signal).catch(() => undefined);
      if (signal.aborted) return;
      await using listeners = createEndpointListeners({
        dial: (deps.host.forPods ?? deps.host).dial,
        podAddress: (uid) => agreedPodAddress(apiPods.get(uid), podCache.get(uid)),
        listenAddress: deps.own,
        connections: deps.tunnelLimits.connections,
        nodeName: deps.nodeName,
        clock,
        log,
      });
      let owner: SliceOwner | undefined;
      const written = new Map<string, WrittenSlice>();
      const reportChange = reportChanges(deps.report);
      const sync = coalesce(async () => {
        const all = [...(services.list() ?? []), ...(headless?.list() ?? [])];
        reportChange("ServicesNotForwarded", unsupportedServicesText(all.filter(deps.mayPublish), apiPods.list()));
        owner ??= await deps.owner(signal);
        const { own: address, podNode, nodeName } = deps;
        await publish({ ...deps, listeners, written }, { address, podNode, nodeName, owner }, signal);
      });
      const follow = throttle(() => void round(), syncIntervalMs, clock);
      const round = async () => {
        try {
          await sync();
        } catch (err) {
          if (signal.aborted) return;
          warn({ err });
          clock.after(retryDelayMs, follow);
        }
      };
      const stops = [services, slices, apiPods, ...(headless ? [headless] : [])].map((source) =>
        source.onChange(follow),
      );
      follow();
      await onAbort(signal);
      for (const stop of stops) stop();
      await deleteSlices(deps, written).catch((err: unknown) =>
        log.warn({ err }, "cannot delete the endpoints of the node's pods"),
      );
    },
  };
}

interface Publishing extends PublisherDeps {
  readonly listeners: EndpointListeners;
  /** Slices that were written and not deleted: the watch may not have returned them yet. */
  readonly written: Map<string, WrittenSlice>;
}

/** Reconciles the cluster's slices with Services and pods. @throws the first failure, after all were tried. */
async function publish(deps: Publishing, publishedAt: PublishedAddress, signal: AbortSignal): Promise<void> {
  const { services, slices, apiPods, listeners, written } = deps;
  const known = services.list();
  if (!known || signal.aborted) return;
  const wanted = serviceEndpoints(known.filter(deps.mayPublish), apiPods.list());
  listeners.closeExcept(wanted.flatMap(publishedPorts));
  const avoided = publishedPortsAt(slices.list(), publishedAt.address);
  const listed = new Map(ownSlices(deps).map((slice) => [sliceKey(slice), slice]));
  const made = new Set<string>();
  const failures: unknown[] = [];
  const attempt = (work: Promise<void>) => work.catch((error: unknown) => void failures.push(error));
  for (const endpoint of wanted) {
    const ports: number[] = [];
    for (const door of publishedPorts(endpoint)) ports.push(await listeners.open(door, avoided));
    signal.throwIfAborted();
    const slice = buildSlice(endpoint, { ...publishedAt, ports });
    const key = sliceKey(slice);
    made.add(key);
    if (hasSameContent(listed.get(key), slice)) continue;
    written.set(key, slice);
    await attempt(slices.put(slice, signal));
  }
  for (const [key, slice] of listed) {
    if (made.has(key)) continue;
    written.delete(key);
    await attempt(slices.delete(slice, signal));
  }
  if (failures.length > 0) throw failures[0];
}

function ownSlices({ slices, nodeName }: PublisherDeps): readonly EndpointSlice[] {
  return slices.list().filter((slice) => isSliceOfNode(slice, nodeName));
}

/** Deletes the node's slices, except those that another replica has replaced, which serves the node by now. */
async function deleteSlices(deps: PublisherDeps, written: ReadonlyMap<string, WrittenSlice>): Promise<void> {
  const { slices, own: address, clock } = deps;
  const timeout = clock.within(cleanupTimeoutMs);
  const all = new Map<string, WrittenSlice>([
    ...written,
    ...ownSlices(deps).map((slice) => [sliceKey(slice), slice] as const),
  ]);
  const isOurs = ({ endpoints }: WrittenSlice) => endpoints?.some(({ addresses }) => addresses.includes(address));
  await Promise.all([...all.values()].filter(isOurs).map((slice) => slices.delete(slice, timeout)));
}

function publishedPorts({ pod, ports }: ServiceEndpoint): readonly PublishedPort[] {
  return ports.map(({ target: port }) => ({ uid: pod.metadata.uid, port }));
}

function sliceKey({ metadata }: WrittenSlice): string {
  return `${metadata.namespace}/${metadata.name}`;
}

/** The pod's address if the API server and the runtime agree on it, so that an address that was just reassigned to another pod is not
 *  used. */
function agreedPodAddress(shown: ApiPod | undefined, seen: RuntimePod | undefined): string | undefined {
  const address = shown?.status?.podIP;
  const has = seen?.sandboxes.flatMap(readySandboxIPs) ?? [];
  return address !== undefined && isIPv4(address) && has.includes(address) ? address : undefined;
}

/** Describes Services that select pods of this node but through which the cluster cannot reach them, or only on some ports. Undefined if
 *  there are none. Pure.
 *  @param pods as the API server has them. */
export function unsupportedServicesText(services: readonly Service[], pods: readonly Pod[]): string | undefined {
  const able = pods.filter(isEndpointCandidate);
  const found = services.flatMap((service) => {
    const why = unsupportedReason(service);
    return why !== undefined && able.some((pod) => isEndpointOf(service, pod)) ? [{ service, why }] : [];
  });
  const [first] = found.toSorted((one, other) => (serviceName(one.service) < serviceName(other.service) ? -1 : 1));
  if (!first) return undefined;
  const others = found.length - 1;
  const more = others > 0 ? `, and ${others} more` : "";
  return `the cluster cannot reach pods of this node through ${serviceName(first.service)}: ${first.why}${more}`;
}

const serviceName = ({ metadata }: Service) => `${metadata.namespace}/${metadata.name}`;

function isEndpointOf(service: Service, pod: Pod): boolean {
  return pod.metadata.namespace === service.metadata.namespace && selectsPod(service, pod);
}

/** Why a Service cannot be forwarded into a target; undefined if it can. */
function unsupportedReason({ spec = {} }: Service): string | undefined {
  const { type, clusterIP = "", clusterIPs = [clusterIP], ports = [] } = spec;
  if (type === "ExternalName") return undefined;
  if (clusterIP === "None") return "it is headless, and DNS records carry no ports; give it a clusterIP";
  if (!clusterIPs.some((one) => isIPv4(one))) return "it has no IPv4 address; set ipFamilyPolicy: PreferDualStack";
  if (spec.internalTrafficPolicy === "Local") return "internalTrafficPolicy is Local; set Cluster";
  if (spec.externalTrafficPolicy === "Local") return "externalTrafficPolicy is Local; set Cluster";
  const other = ports.find(({ protocol = "TCP" }) => protocol !== "TCP");
  return other && `its port ${other.port} is ${other.protocol}; only TCP is forwarded`;
}
