import { isIPv4 } from "node:net";
import type { OwnSlices } from "../api/endpoint-slices.ts";
import type { Clock } from "../lib/clock.ts";
import { coalesce } from "../lib/coalesce.ts";
import { createLimitedWarning } from "../lib/limited-warning.ts";
import type { Logger } from "../lib/log.ts";
import { paced } from "../lib/paced.ts";
import { onAbort, type Service } from "../lib/service-group.ts";
import type { EndpointSlice, Service as ClusterService, WrittenSlice } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { readySandboxIPs } from "../pod/sandbox.ts";
import type { ShownPod } from "../roles.ts";
import type { Host } from "../seams/host.ts";
import type { Column } from "../state/rows.ts";
import { createNews, type TellLack } from "./lacks.ts";
import { createDoors, type Door, type Doors } from "./doors.ts";
import type { TunnelPlaces } from "./places.ts";
import { type ServedEndpoint, servedEndpoints } from "./served.ts";
import type { ServiceSource } from "./destinations.ts";
import { isOfNode, portsAt, saysTheSame, type SliceOwner, type SlicePlace, sliceOf } from "./slices.ts";
import { unserved } from "./unserved.ts";

export interface PublisherDeps {
  readonly host: Pick<Host, "dial" | "forPods">;
  readonly nodeName: string;
  /** Bounds of the process, for all of its nodes. */
  readonly places: Pick<TunnelPlaces, "connections">;
  /** Address in the cluster of graftlet itself. */
  readonly own: string;
  /** The cluster's node that graftlet is on, where that is known. */
  readonly podNode: string | undefined;
  /** Owner of the slices. Asked once. */
  readonly owner: (signal: AbortSignal) => Promise<SliceOwner>;
  readonly services: ServiceSource;
  /** Headless ones, by which the cluster does not reach pods of the node; absent where graftlet does not watch them. */
  readonly headless: ServiceSource | undefined;
  /** True for a Service that the cluster lets graftlet publish pods of. */
  readonly mayPublish: (service: ClusterService) => boolean;
  /** Those of graftlet's nodes. */
  readonly slices: Omit<OwnSlices, "name" | "run">;
  readonly tell: TellLack;
  readonly shown: Column<ShownPod>;
  readonly seen: Column<RuntimePod>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Changes are followed no more often than this, milliseconds. */
const followMs = 250;
/** Pause after the cluster has refused a slice, milliseconds. */
const againMs = 5_000;
/** Time to take the slices back when graftlet ends, milliseconds. */
const takeBackMs = 5_000;

/** Publishes the pods of an isolated target as endpoints of the cluster's Services: each at ports of graftlet itself, which lead over
 *  the link. When it ends it takes them back, since its address may become another's. */
export function createServicePublisher(deps: PublisherDeps): Service {
  const { services, headless, slices, shown, seen, clock, log } = deps;
  const warn = createLimitedWarning(
    { log, clock },
    "endpoints of this node's pods could not be published, will try again",
  );
  return {
    name: "endpoints of Services",
    async run(signal) {
      await slices.ready(signal).catch(() => undefined);
      if (signal.aborted) return;
      await using doors = createDoors({
        dial: (deps.host.forPods ?? deps.host).dial,
        addressOf: (uid) => addressOf(shown.get(uid), seen.get(uid)),
        own: deps.own,
        connections: deps.places.connections,
        nodeName: deps.nodeName,
        clock,
        log,
      });
      let owner: SliceOwner | undefined;
      const written = new Map<string, WrittenSlice>();
      const news = createNews(deps.tell);
      const sync = coalesce(async () => {
        const all = [...(services.list() ?? []), ...(headless?.list() ?? [])];
        news("ServicesNotCarried", unserved(all.filter(deps.mayPublish), shown.list()));
        owner ??= await deps.owner(signal);
        const { own: address, podNode, nodeName } = deps;
        await publish({ ...deps, doors, written }, { address, podNode, nodeName, owner }, signal);
      });
      const follow = paced(() => void round(), followMs, clock);
      const round = async () => {
        try {
          await sync();
        } catch (err) {
          if (signal.aborted) return;
          warn({ err });
          clock.after(againMs, follow);
        }
      };
      const stops = [services, slices, shown, ...(headless ? [headless] : [])].map((source) => source.onChange(follow));
      follow();
      await onAbort(signal);
      for (const stop of stops) stop();
      await takeBack(deps, written).catch((err: unknown) =>
        log.warn({ err }, "endpoints of this node's pods are left behind"),
      );
    },
  };
}

interface Publishing extends PublisherDeps {
  readonly doors: Doors;
  /** Slices that were put and not dropped: the cluster may not have shown them yet. */
  readonly written: Map<string, WrittenSlice>;
}

/** Brings the cluster's slices in line with Services and pods. @throws the first failure, after the others were tried. */
async function publish(deps: Publishing, place: SlicePlace, signal: AbortSignal): Promise<void> {
  const { services, slices, shown, doors, written } = deps;
  const known = services.list();
  if (!known || signal.aborted) return;
  const wanted = servedEndpoints(known.filter(deps.mayPublish), shown.list());
  doors.keep(wanted.flatMap(doorsOf));
  const avoided = portsAt(slices.list(), place.address);
  const listed = new Map(ownSlices(deps).map((slice) => [keyOf(slice), slice]));
  const made = new Set<string>();
  const failures: unknown[] = [];
  const attempt = (work: Promise<void>) => work.catch((error: unknown) => void failures.push(error));
  for (const endpoint of wanted) {
    const ports: number[] = [];
    for (const door of doorsOf(endpoint)) ports.push(await doors.open(door, avoided));
    signal.throwIfAborted();
    const slice = sliceOf(endpoint, { ...place, ports });
    const key = keyOf(slice);
    made.add(key);
    if (saysTheSame(listed.get(key), slice)) continue;
    written.set(key, slice);
    await attempt(slices.put(slice, signal));
  }
  for (const [key, slice] of listed) {
    if (made.has(key)) continue;
    written.delete(key);
    await attempt(slices.drop(slice, signal));
  }
  if (failures.length > 0) throw failures[0];
}

function ownSlices({ slices, nodeName }: PublisherDeps): readonly EndpointSlice[] {
  return slices.list().filter((slice) => isOfNode(slice, nodeName));
}

async function takeBack(deps: PublisherDeps, written: ReadonlyMap<string, WrittenSlice>): Promise<void> {
  const { slices, clock } = deps;
  const soon = clock.within(takeBackMs);
  const own = new Map([...written, ...ownSlices(deps).map((slice) => [keyOf(slice), slice] as const)]);
  await Promise.all([...own.values()].map((slice) => slices.drop(slice, soon)));
}

function doorsOf({ pod, ports }: ServedEndpoint): readonly Door[] {
  return ports.map(({ target: port }) => ({ uid: pod.metadata.uid, port }));
}

function keyOf({ metadata }: WrittenSlice): string {
  return `${metadata.namespace}/${metadata.name}`;
}

/** The address of a pod on which the API server and the runtime agree: one that has just been given to another pod is not among them. */
function addressOf(shown: ShownPod | undefined, seen: RuntimePod | undefined): string | undefined {
  const address = shown?.status?.podIP;
  const has = seen?.sandboxes.flatMap(readySandboxIPs) ?? [];
  return address !== undefined && isIPv4(address) && has.includes(address) ? address : undefined;
}
